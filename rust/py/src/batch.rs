//! Many prompts in one call.

use std::borrow::Cow;

use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::errors;
use crate::hashes::hash_values;
use crate::tokens::type_name;

/// The prompts of a ragged batch. Offsets do not decrease and stay inside of `ids`.
pub fn ragged<'a>(ids: &'a [u32], offsets: &Bound<'_, PyAny>) -> PyResult<Vec<&'a [u32]>> {
    let offsets = hash_values(offsets).map_err(|_| {
        errors::tokens(format!("offsets must be an array or a list of ints, got {}", type_name(offsets)))
    })?;
    if offsets.is_empty() {
        return Err(errors::tokens("offsets must have one element more than there are prompts, got none"));
    }
    if let Some(at) = offsets.iter().position(|&offset| offset > ids.len() as u64) {
        #[expect(clippy::cast_possible_wrap, reason = "a negative offset was read as its bits")]
        let (given, len) = (offsets[at] as i64, ids.len());
        return Err(errors::tokens(format!("offsets must be 0..={len}, got {given} at position {at}")));
    }
    if let Some(at) = offsets.windows(2).position(|pair| pair[0] > pair[1]) {
        let (before, after, at) = (offsets[at], offsets[at + 1], at + 1);
        return Err(errors::tokens(format!("offsets must not decrease, got {after} after {before} at position {at}")));
    }
    Ok(offsets.windows(2).map(|pair| &ids[pair[0] as usize..pair[1] as usize]).collect())
}

/// One name for all prompts, or one for each.
pub fn names_of<'a>(names: &'a Bound<'_, PyAny>, prompts: usize) -> PyResult<Vec<Cow<'a, str>>> {
    if let Ok(name) = names.cast::<PyString>() {
        return Ok(vec![name.to_cow()?; prompts]);
    }
    let given: Vec<String> = names
        .extract()
        .map_err(|_| errors::config(format!("names must be a str or a list of str, got {}", type_name(names))))?;
    if given.len() != prompts {
        return Err(errors::config(format!("names must be one or {prompts}, one per prompt, got {}", given.len())));
    }
    Ok(given.into_iter().map(Cow::Owned).collect())
}
