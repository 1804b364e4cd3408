//! Columns: one number per replica, in a list or an array, and the passes over them that every decision takes.
//!
//! Python takes 2 to 5 µs for a pass over 64 numbers, and makes an object of each result. These take 0.1 to 0.5, and give arrays.

use numpy::{PyArray1, PyArrayDescrMethods, PyArrayMethods, PyUntypedArray, PyUntypedArrayMethods};
use prefixroute_core::columns::{self, UNKNOWN_RATE};
use pyo3::exceptions::{PyOverflowError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyComplex, PyFloat, PyList, PySequence, PyString, PyTuple};

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

/// The highest of some numbers, how many are equal to it, and where the first of them is.
///
/// Raises:
///     ValueError: there are none, or one is NaN; a ConfigError if it is no column at all.
///     TypeError: something is no real number.
#[pyfunction]
pub fn highest<'py>(values: &Bound<'py, PyAny>) -> PyResult<(Bound<'py, PyAny>, usize, usize)> {
    peak(values, |one, other| one > other, |one, other| one > other, |one, other| one.gt(other))
}

/// The lowest of some numbers, how many are equal to it, and where the first of them is. Raises what `highest` does.
#[pyfunction]
pub fn lowest<'py>(values: &Bound<'py, PyAny>) -> PyResult<(Bound<'py, PyAny>, usize, usize)> {
    peak(values, |one, other| one < other, |one, other| one < other, |one, other| one.lt(other))
}

fn peak<'py>(
    values: &Bound<'py, PyAny>,
    int: impl Fn(i64, i64) -> bool,
    float: impl Fn(f64, f64) -> bool,
    object: impl Fn(&Bound<'py, PyAny>, &Bound<'py, PyAny>) -> PyResult<bool>,
) -> PyResult<(Bound<'py, PyAny>, usize, usize)> {
    let list = match Values::of(values)? {
        Values::Listed(list) => list,
        Values::Floats(array) => {
            let numbers = floats(&array);
            let (first, count) =
                columns::best(numbers.len(), |at| Some(numbers[at]), float).ok_or_else(incomparable)?;
            return Ok((PyFloat::new(values.py(), numbers[first]).into_any(), count, first));
        }
    };
    let (numbers, length) = (Numbers::of(&list), list.len());
    let found = columns::best(length, |at| numbers.int(at), int);
    let found = found.or_else(|| columns::best(length, |at| numbers.float(at), float));
    match found {
        Some((first, count)) => Ok((list.get_item(first)?, count, first)),
        None => by_comparison(&list, object),
    }
}

#[cold]
pub fn incomparable() -> PyErr {
    PyValueError::new_err("there is no highest and no lowest of nothing, nor of what is not a number")
}

/// The same for anything that Python can compare.
#[cold]
fn by_comparison<'py>(
    values: &Bound<'py, PyList>,
    better: impl Fn(&Bound<'py, PyAny>, &Bound<'py, PyAny>) -> PyResult<bool>,
) -> PyResult<(Bound<'py, PyAny>, usize, usize)> {
    let mut best: Option<(Bound<'py, PyAny>, usize, usize)> = None;
    for (at, value) in values.iter().enumerate() {
        check_real(&value)?;
        best = Some(match best {
            Some((held, count, first)) if !better(&value, &held)? => {
                let count = count + usize::from(value.eq(&held)?);
                (held, count, first)
            }
            _ => (value, 1, at),
        });
    }
    best.ok_or_else(incomparable)
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

/// A function's value at each of some numbers. Equal ones are asked for once: few hits of a prompt are distinct.
///
/// Raises:
///     ConfigError: the function gives something that is no number.
#[pyfunction]
pub fn mapped<'py>(values: &Bound<'py, PyAny>, function: &Bound<'py, PyAny>) -> PyResult<Column<'py>> {
    let values = match Values::of(values)? {
        Values::Listed(list) => list,
        Values::Floats(array) => PyList::new(values.py(), floats(&array))?,
    };
    let numbers = Numbers::of(&values);
    let mut results: Vec<f64> = Vec::with_capacity(values.len());
    let mut known: Vec<(Key, f64)> = Vec::new();
    // The function may change the list, so its length is looked up again for each item.
    while results.len() < values.len() {
        let key = Key::of(&numbers, results.len());
        if let Some((_, result)) = known.iter().find(|(other, _)| key.is_some_and(|key| key == *other)) {
            results.push(*result);
            continue;
        }
        let result = function.call1((values.get_item(results.len())?,))?;
        let result = number(&result, "what a column is mapped to")?;
        known.extend(key.map(|key| (key, result)));
        results.push(result);
    }
    Ok(PyArray1::from_slice(values.py(), &results))
}

/// What makes numbers equal for `mapped`.
#[derive(Clone, Copy, PartialEq)]
enum Key {
    Int(i64),
    Float(u64),
}

impl Key {
    #[inline]
    fn of(numbers: &Numbers<'_, '_>, at: usize) -> Option<Self> {
        numbers.int(at).map(Self::Int).or_else(|| numbers.float(at).map(|float| Self::Float(float.to_bits())))
    }
}

/// Numbers from 1 at the lowest to 0 at the highest, in proportion; 1 for all where they are equal.
///
/// Raises:
///     ConfigError: something is no number.
#[pyfunction]
pub fn falling<'py>(values: &Bound<'py, PyAny>) -> PyResult<Column<'py>> {
    let mut column = read(values)?;
    columns::fall(&mut column);
    Ok(PyArray1::from_slice(values.py(), &column))
}

/// Rates, with the harmonic mean of those that are known in place of `None`, or `otherwise` if none is.
///
/// Raises:
///     ConfigError: something is neither a number nor `None`.
#[pyfunction]
pub fn filled<'py>(rates: &Bound<'py, PyAny>, otherwise: f64) -> PyResult<Column<'py>> {
    let list = match Values::of(rates)? {
        Values::Floats(array) => return Ok(array),
        Values::Listed(list) => list,
    };
    let numbers = Numbers::of(&list);
    let mut unknown = Vec::new();
    let mut filled = Vec::with_capacity(list.len());
    filled.extend((0..list.len()).map_while(|at| {
        if numbers.is_none(at) {
            unknown.push(at);
            return Some(UNKNOWN_RATE);
        }
        numbers.real(at)
    }));
    for at in filled.len()..list.len() {
        let rate = list.get_item(at)?;
        if rate.is_none() {
            unknown.push(at);
        }
        filled.push(if rate.is_none() { UNKNOWN_RATE } else { number(&rate, "a rate")? });
    }
    columns::fill(&mut filled, &unknown, otherwise);
    Ok(PyArray1::from_slice(rates.py(), &filled))
}

/// A constant and products, summed at each place of the columns: `constant + weight * column * ... + ...`.
///
/// Args:
///     constant: what each sum begins with.
///     terms: tuples of a weight and of one column or more.
///     over: a column that divides the sums; `None` = they are not divided.
///
/// Raises:
///     ConfigError: there is no column, columns differ in length, or something is no number.
#[pyfunction]
#[pyo3(signature = (constant, *terms, over=None))]
pub fn sum_of_products<'py>(
    constant: f64,
    terms: &Bound<'py, PyTuple>,
    over: Option<&Bound<'py, PyAny>>,
) -> PyResult<Column<'py>> {
    let mut sums: Option<Vec<f64>> = None;
    for term in terms.iter() {
        let product = product(term.cast::<PyTuple>()?)?;
        sums = Some(match sums {
            None => product.into_iter().map(|value| constant + value).collect(),
            Some(sums) => combined(sums, &product, |sum, value| sum + value)?,
        });
    }
    let sums = sums.ok_or_else(|| errors::config("there must be at least one term"))?;
    let sums = match over {
        None => sums,
        Some(divisors) => combined(sums, &read(divisors)?, |sum, divisor| sum / divisor)?,
    };
    Ok(PyArray1::from_slice(terms.py(), &sums))
}

/// The products of a term: a weight and columns.
fn product(term: &Bound<'_, PyTuple>) -> PyResult<Vec<f64>> {
    let mut factors = term.iter_borrowed();
    let (Some(weight), Some(first)) = (factors.next(), factors.next()) else {
        return Err(errors::config(format!("a term must be a weight and columns, got {} values", term.len())));
    };
    let (weight, mut product) = (number(&weight, "a weight")?, read(&first)?);
    for value in &mut product {
        *value *= weight;
    }
    for factor in factors {
        product = combined(product, &read(&factor)?, |product, value| product * value)?;
    }
    Ok(product)
}

fn combined(mut column: Vec<f64>, other: &[f64], operation: impl Fn(f64, f64) -> f64) -> PyResult<Vec<f64>> {
    let unequal = |(one, other)| errors::config(format!("columns must be of one length, got {one} and {other}"));
    columns::combine(&mut column, other, operation).map_err(unequal)?;
    Ok(column)
}

/// The position of a value in a column, behind `earlier` others that are equal to it.
///
/// Raises:
///     ValueError: there are not so many.
#[pyfunction]
pub fn nth(values: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>, earlier: usize) -> PyResult<usize> {
    let found = match Values::of(values)? {
        Values::Floats(array) => {
            let (numbers, value) = (floats(&array), number(value, "what is looked for")?);
            columns::nth(numbers.len(), |at| Some(numbers[at]), &value, earlier)
        }
        Values::Listed(list) => {
            let numbers = Numbers::of(&list);
            let int = Numbers::of(&PyList::new(values.py(), [value])?).int(0);
            let plain = int.filter(|_| (0..list.len()).all(|at| numbers.int(at).is_some()));
            match plain {
                Some(value) => columns::nth(list.len(), |at| numbers.int(at), &value, earlier),
                None => nth_by_comparison(&list, value, earlier)?,
            }
        }
    };
    found.ok_or_else(|| PyValueError::new_err(format!("there are not {} of {value}", earlier + 1)))
}

fn nth_by_comparison(list: &Bound<'_, PyList>, value: &Bound<'_, PyAny>, earlier: usize) -> PyResult<Option<usize>> {
    let mut left = earlier;
    for (at, item) in list.iter().enumerate() {
        if item.eq(value)? {
            if left == 0 {
                return Ok(Some(at));
            }
            left -= 1;
        }
    }
    Ok(None)
}

/// Those of some slots whose value is at most `limit`, in their order.
///
/// Raises:
///     ConfigError: a value is no number, or a slot has none.
#[pyfunction]
pub fn up_to<'py>(
    slots: &Bound<'py, PyTuple>,
    values: &Bound<'py, PyAny>,
    limit: f64,
) -> PyResult<Bound<'py, PyTuple>> {
    let values = read(values)?;
    let mut found = Vec::new();
    for slot in slots.iter_borrowed() {
        let value = hash_of(&slot).and_then(|slot| values.get(usize::try_from(slot).ok()?));
        let value =
            value.ok_or_else(|| errors::config(format!("a slot must be 0..{}, got {}", values.len(), &*slot)))?;
        if *value <= limit {
            found.push(slot);
        }
    }
    PyTuple::new(slots.py(), found)
}

/// Whether a policy's answer is a tuple of one of these slots, which ascend, and a text.
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
fn number(object: &Bound<'_, PyAny>, what: &str) -> PyResult<f64> {
    let real = if object.is_instance_of::<PyComplex>() { Ok(None) } else { object.extract().map(Some) };
    let value = errors::caught(object.py(), real)?.flatten();
    value.ok_or_else(|| errors::config(format!("{what} must be a number, got {}", type_name(object))))
}
