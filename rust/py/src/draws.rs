//! Draws and rendezvous hashing over Python's ints.

use numpy::{PyArray1, PyReadonlyArray1};
use prefixroute_core::{Error, MAX_PROMPT_BLOCKS, draws};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyInt;

use crate::errors;
use crate::ints::hash_of;

/// The `k`-th number of a decision, uniform in [0, 1): a hash of its arguments, the same everywhere.
///
/// Args:
///     seed: of the router.
///     decision_id: number of the decision.
///     k: which of its numbers.
#[pyfunction]
pub fn draw(seed: &Bound<'_, PyInt>, decision_id: &Bound<'_, PyInt>, k: &Bound<'_, PyInt>) -> f64 {
    draws::draw(bits(seed), bits(decision_id), bits(k))
}

/// The numbers of a chain at the places `first` up to `last`, exclusive, as `uint64[last - first]`.
///
/// Args:
///     key: of the chain, 64 bits.
///     first: place of the first number.
///     last: place behind the last.
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
///
/// Args:
///     numbers: `uint64[n]`.
#[pyfunction]
pub fn scattered(numbers: PyReadonlyArray1<'_, u64>) -> Bound<'_, PyArray1<u64>> {
    let scattered: Vec<u64> = numbers.as_array().iter().map(|&number| draws::link(number, 0)).collect();
    PyArray1::from_vec(numbers.py(), scattered)
}

/// An int of 64 bits, or what fits in them, without a sign.
pub fn fitting(int: &Bound<'_, PyAny>, what: &str) -> PyResult<u64> {
    hash_of(int).ok_or_else(|| errors::config(format!("{what} must be an int of 64 bits, got {int}")))
}

/// The lowest 64 bits of an int of any size, in two's complement.
pub fn bits(int: &Bound<'_, PyInt>) -> u64 {
    hash_of(int).unwrap_or_else(|| {
        // SAFETY: a live int, of which this takes the lowest bits; nothing is raised.
        unsafe { ffi::PyLong_AsUnsignedLongLongMask(int.as_ptr()) }
    })
}
