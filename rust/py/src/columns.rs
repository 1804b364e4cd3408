//! Columns: one number per replica, in a list or an array, and the passes over them that every decision takes.
//!
//! Python takes 2 to 5 µs for a pass over 64 numbers, and makes an object of each result. These take 0.1 to 0.5, and give arrays.

use numpy::{PyArray1, PyArrayDescrMethods, PyArrayMethods, PyUntypedArray, PyUntypedArrayMethods};
use prefixroute_core::columns;
use pyo3::exceptions::{PyOverflowError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyComplex, PyList, PySequence, PyString, PyTuple};

use crate::errors;
use crate::ints::{Numbers, hash_of};
use crate::tokens::type_name;

/// What a pass gives: `float64[values]`.
type Column<'py> = Bound<'py, PyArray1<f64>>;

/// What a pass reads.
enum Values<'py> {
    Floats(Column<'py>),
    Listed(Bound<'py, PyList>),
}

impl<'py> Values<'py> {
    #[inline]
    fn of(values: &Bound<'py, PyAny>) -> PyResult<Self> {
        if let Ok(list) = values.cast::<PyList>() {
            return Ok(Self::Listed(list.clone()));
        }
        match values.cast::<PyArray1<f64>>() {
            Ok(array) if array.is_c_contiguous() && array.is_aligned() => return Ok(Self::Floats(array.clone())),
            _ => {}
        }
        if let Ok(sequence) = values.cast::<PySequence>() {
            return sequence.to_list().map(Self::Listed);
        }
        match values.cast::<PyUntypedArray>() {
            // Complex numbers have a float, with a warning; times and texts have none.
            Ok(array) if array.ndim() == 1 && matches!(array.dtype().kind(), b'b' | b'i' | b'u' | b'f' | b'O') => {
                PyList::new(array.py(), array.try_iter()?.collect::<PyResult<Vec<_>>>()?)
            }
            _ => Err(errors::config(format!(
                "a column must be a sequence or an array of real numbers, got {}",
                type_name(values)
            ))),
        }
        .map(Self::Listed)
    }
}

/// The numbers of an array, for as long as no Python runs.
fn floats<'a>(array: &'a Column<'_>) -> &'a [f64] {
    // SAFETY: `Values::of` found it contiguous; no Python runs meanwhile, and who passes an array does not write to it in
    // another thread.
    unsafe { array.as_slice() }.unwrap_or_default()
}

/// Where the highest of some numbers are: more than one place if several are equal.
pub fn highest(values: &Bound<'_, PyAny>) -> PyResult<Vec<usize>> {
    let list = match Values::of(values)? {
        Values::Listed(list) => list,
        Values::Floats(array) => {
            let numbers = floats(&array);
            return peaks(numbers.len(), |at| Some(numbers[at])).ok_or_else(incomparable);
        }
    };
    let (numbers, length) = (Numbers::of(&list), list.len());
    let found = peaks(length, |at| numbers.int(at)).or_else(|| peaks(length, |at| numbers.float(at)));
    found.map_or_else(|| by_comparison(&list), Ok)
}

fn peaks<T: Copy + PartialOrd>(length: usize, value: impl Fn(usize) -> Option<T>) -> Option<Vec<usize>> {
    let (first, _) = columns::best(length, &value, |one, other| one > other)?;
    Some((first..length).filter(|&at| value(at) == value(first)).collect())
}

#[cold]
pub fn incomparable() -> PyErr {
    PyValueError::new_err("there is no highest and no lowest of nothing, nor of what is not a number")
}

/// The same for anything that Python can compare.
#[cold]
fn by_comparison(values: &Bound<'_, PyList>) -> PyResult<Vec<usize>> {
    let mut best: Vec<usize> = Vec::new();
    for (at, value) in values.iter().enumerate() {
        check_real(&value)?;
        let held = best.first().map(|&at| values.get_item(at)).transpose()?;
        match held {
            Some(held) if !value.gt(&held)? => best.extend(value.eq(&held)?.then_some(at)),
            _ => best = vec![at],
        }
    }
    if best.is_empty() { Err(incomparable()) } else { Ok(best) }
}

/// Fails for what is no real number, and for NaN. An int too large for a float is one.
fn check_real(value: &Bound<'_, PyAny>) -> PyResult<()> {
    if value.is_instance_of::<PyComplex>() {
        return Err(PyTypeError::new_err(format!("must be real number, not {}", type_name(value))));
    }
    match value.extract::<f64>() {
        Ok(real) if real.is_nan() => Err(incomparable()),
        Ok(_) => Ok(()),
        Err(error) if error.is_instance_of::<PyOverflowError>(value.py()) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Whether a policy's answer is a tuple of one of these slots, which ascend, and a text.
///
/// Args:
///     answer: what the policy has returned.
///     slots: the candidates, ascending.
#[pyfunction]
#[pyo3(signature = (answer, slots, /))]
pub fn is_answer(answer: &Bound<'_, PyAny>, slots: &Bound<'_, PyTuple>) -> bool {
    let Ok(pair) = answer.cast_exact::<PyTuple>() else { return false };
    let mut pair = pair.iter_borrowed();
    let (Some(slot), Some(reason), None) = (pair.next(), pair.next(), pair.next()) else { return false };
    let Some(slot) = hash_of(&slot) else { return false };
    let at = |place: usize| slots.get_borrowed_item(place).ok().and_then(|known| hash_of(&known)) == Some(slot);
    // If all replicas are candidates, slot i is at position i.
    reason.is_exact_instance_of::<PyString>()
        && (usize::try_from(slot).is_ok_and(|slot| slot < slots.len() && at(slot)) || (0..slots.len()).any(at))
}

/// The numbers of a column.
pub fn read(column: &Bound<'_, PyAny>) -> PyResult<Vec<f64>> {
    let list = match Values::of(column)? {
        Values::Floats(array) => return Ok(floats(&array).to_vec()),
        Values::Listed(list) => list,
    };
    if let Some(values) = Numbers::of(&list).reals() {
        return Ok(values);
    }
    list.iter().map(|item| number(&item, "a column")).collect()
}

/// A number of any class that has a float.
pub fn number(object: &Bound<'_, PyAny>, what: &str) -> PyResult<f64> {
    let real = if object.is_instance_of::<PyComplex>() { Ok(None) } else { object.extract().map(Some) };
    let value = errors::caught(object.py(), real)?.flatten();
    value.ok_or_else(|| errors::config(format!("{what} must be a number, got {}", type_name(object))))
}
