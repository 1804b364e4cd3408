//! Counts that Python passes as ints of any size: what does not fit is the library's error, not the interpreter's.

use prefixroute_core::MAX_BLOCK_SIZE;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyInt};

use crate::errors;
use crate::tokens::type_name;

/// Tokens of a block; its limits are checked where it is used.
pub fn block_size(object: &Bound<'_, PyAny>) -> PyResult<usize> {
    integer(object, "block size")?
        .extract()
        .map_err(|_| errors::config(format!("block size must be 1..={MAX_BLOCK_SIZE}, got {object}")))
}

/// The same, or `None`.
pub fn optional_block_size(object: &Bound<'_, PyAny>) -> PyResult<Option<usize>> {
    if object.is_none() { Ok(None) } else { block_size(object).map(Some) }
}

/// The number of an attention group, or tokens of its window.
pub fn group(object: &Bound<'_, PyAny>) -> PyResult<u32> {
    integer(object, "a group or window")?
        .extract()
        .map_err(|_| errors::config(format!("a group or window must be 0..={}, got {object}", u32::MAX)))
}

/// The same, or `None`.
pub fn optional_group(object: &Bound<'_, PyAny>) -> PyResult<Option<u32>> {
    if object.is_none() { Ok(None) } else { group(object).map(Some) }
}

/// The key of content hashes.
pub fn hash_key(object: &Bound<'_, PyAny>) -> PyResult<Option<u64>> {
    optional(object, "hash key")
}

/// Tokens that a replica can hold.
pub fn capacity_tokens(object: &Bound<'_, PyAny>) -> PyResult<Option<u64>> {
    optional(object, "capacity in tokens")
}

/// The number of a batch of events.
pub fn sequence(object: &Bound<'_, PyAny>) -> PyResult<Option<u64>> {
    optional(object, "sequence")
}

/// Bytes that an index may reserve.
pub fn max_bytes(object: &Bound<'_, PyAny>) -> PyResult<Option<u64>> {
    optional(object, "max_bytes")
}

/// Tokens of a prompt.
pub fn token_count(object: &Bound<'_, PyAny>) -> PyResult<usize> {
    size(object, "token count")
}

/// The same, or `None`.
pub fn optional_token_count(object: &Bound<'_, PyAny>) -> PyResult<Option<usize>> {
    if object.is_none() { Ok(None) } else { token_count(object).map(Some) }
}

/// Blocks of a prompt.
pub fn blocks(object: &Bound<'_, PyAny>) -> PyResult<usize> {
    size(object, "blocks")
}

/// The number of a request in flight.
pub fn request(object: &Bound<'_, PyAny>) -> PyResult<u64> {
    size(object, "request").map(|request| request as u64)
}

/// A time or a span; its limits are checked where it is used.
pub fn seconds(object: &Bound<'_, PyAny>) -> PyResult<f64> {
    errors::caught(object.py(), object.extract())?
        .ok_or_else(|| errors::config(format!("a time must be a number of seconds, got {}", type_name(object))))
}

/// The same, or `None`.
pub fn optional_seconds(object: &Bound<'_, PyAny>) -> PyResult<Option<f64>> {
    if object.is_none() { Ok(None) } else { seconds(object).map(Some) }
}

fn optional(object: &Bound<'_, PyAny>, what: &str) -> PyResult<Option<u64>> {
    if object.is_none() { Ok(None) } else { size(object, what).map(|size| Some(size as u64)) }
}

fn size(object: &Bound<'_, PyAny>, what: &str) -> PyResult<usize> {
    integer(object, what)?
        .extract()
        .map_err(|_| errors::config(format!("{what} must be 0..={}, got {object}", usize::MAX)))
}

fn integer<'py>(object: &Bound<'py, PyAny>, what: &str) -> PyResult<Bound<'py, PyAny>> {
    as_int(object)?.ok_or_else(|| errors::config(format!("{what} must be an int, got {}", type_name(object))))
}

/// The object as an integer, if it is one, of any class but `bool`.
pub fn as_int<'py>(object: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
    if object.is_instance_of::<PyBool>() {
        return Ok(None);
    }
    if object.is_instance_of::<PyInt>() {
        return Ok(Some(object.clone()));
    }
    errors::caught(object.py(), object.call_method0("__index__"))
}
