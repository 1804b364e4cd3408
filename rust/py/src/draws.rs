//! Draws and rendezvous hashing over Python's ints.

use numpy::{PyArray1, PyReadonlyArray1};
use prefixroute_core::{Error, MAX_PROMPT_BLOCKS, draws};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyInt, PyTuple};

use crate::errors;
use crate::ints::hash_of;

/// The `k`-th number of a decision, uniform in [0, 1): a hash of its arguments, the same everywhere.
#[pyfunction]
pub fn draw(seed: &Bound<'_, PyInt>, decision_id: &Bound<'_, PyInt>, k: &Bound<'_, PyInt>) -> f64 {
    draws::draw(bits(seed), bits(decision_id), bits(k))
}

/// The numbers of a chain at the places `first` up to `last`, exclusive, as `uint64[last - first]`.
///
/// Raises:
///     ConfigError: more than a prompt has blocks at most, or places that do not fit in 64 bits.
#[pyfunction]
pub fn chain<'py>(
    key: &Bound<'py, PyInt>,
    first: &Bound<'py, PyInt>,
    last: &Bound<'py, PyInt>,
) -> PyResult<Bound<'py, PyArray1<u64>>> {
    let (py, key, first, last) = (key.py(), bits(key), fitting(first, "a place")?, fitting(last, "a place")?);
    let count = usize::try_from(last.saturating_sub(first)).unwrap_or(usize::MAX);
    if count > MAX_PROMPT_BLOCKS {
        return Err(errors::of_core(Error::TooManyBlocks(count)));
    }
    let numbers: Vec<u64> = (first..last).map(|place| draws::link(key, place)).collect();
    Ok(PyArray1::from_vec(py, numbers))
}

/// Numbers scattered over all of 64 bits, one to one, as `uint64` of the same length: what is distinct stays so.
#[pyfunction]
pub fn scattered(numbers: PyReadonlyArray1<'_, u64>) -> Bound<'_, PyArray1<u64>> {
    let scattered: Vec<u64> = numbers.as_array().iter().map(|&number| draws::link(number, 0)).collect();
    PyArray1::from_vec(numbers.py(), scattered)
}

/// The slot that ranks first for a key; of equal ranks the first.
///
/// Args:
///     key: a hash, of which the lowest 64 bits count.
///     slots: the candidate slots.
///     hashes: 64-bit hash of each replica's name, by slot.
///     weights: speed of each replica relative to the others, by slot; `None` = all equal.
///
/// Raises:
///     ConfigError: there is no candidate slot, or a slot or a hash is no int of 64 bits.
#[pyfunction]
#[pyo3(signature = (key, slots, hashes, weights=None))]
pub fn first_choice(
    key: &Bound<'_, PyInt>,
    slots: &Bound<'_, PyTuple>,
    hashes: &Bound<'_, PyTuple>,
    weights: Option<&Bound<'_, PyTuple>>,
) -> PyResult<usize> {
    let candidates = slots.iter_borrowed().map(|slot| member(&slot, hashes));
    let weight = weights.map(|weights| |slot| weights.get_borrowed_item(slot)?.extract());
    let first = draws::first_choice(bits(key), candidates, weight)?;
    first.ok_or_else(|| errors::config("there must be a candidate slot"))
}

/// A slot, and the hash of its replica's name.
fn member(slot: &Bound<'_, PyAny>, hashes: &Bound<'_, PyTuple>) -> PyResult<(usize, u64)> {
    let slot = fitting(slot, "a slot")? as usize;
    let hash = hashes.get_borrowed_item(slot)?;
    Ok((slot, fitting(&hash, "a hash")?))
}

fn fitting(int: &Bound<'_, PyAny>, what: &str) -> PyResult<u64> {
    hash_of(int).ok_or_else(|| errors::config(format!("{what} must be an int of 64 bits, got {int}")))
}

/// The lowest 64 bits of an int of any size, in two's complement.
pub fn bits(int: &Bound<'_, PyInt>) -> u64 {
    hash_of(int).unwrap_or_else(|| {
        // SAFETY: a live int, of which this takes the lowest bits; nothing is raised.
        unsafe { ffi::PyLong_AsUnsignedLongLongMask(int.as_ptr()) }
    })
}
