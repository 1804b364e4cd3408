//! Many prompts in one call.

use std::borrow::Cow;

use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::errors;
use crate::hashes::hash_values;
use crate::tokens::type_name;

/// The prompts of a ragged batch. Offsets do not decrease and stay inside of `ids`.
pub fn ragged<'a>(ids: &'a [u32], offsets: &Bound<'_, PyAny>) -> PyResult<Vec<&'a [u32]>> {
    let offsets = hash_values(offsets)?;
    let Some(&last) = offsets.last() else {
        return Err(errors::tokens("offsets must have one element more than there are prompts, got none"));
    };
    if let Some(at) = offsets.windows(2).position(|pair| pair[0] > pair[1]) {
        let (before, after) = (offsets[at], offsets[at + 1]);
        return Err(errors::tokens(format!(
            "offsets must not decrease, got {after} after {before} at position {}",
            at + 1
        )));
    }
    if last > ids.len() as u64 {
        let (at, len) = (offsets.len() - 1, ids.len());
        return Err(errors::tokens(format!("offsets must be 0..={len}, got {last} at position {at}")));
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
