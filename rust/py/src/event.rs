//! What an engine's KV event carries.

use prefixroute_core::{EngineHash, Group, GroupKind};
use pyo3::prelude::*;

use crate::errors;

/// An attention group as an event names it.
pub fn group_of(index: u32, kind: Option<&str>, sliding_window: Option<u32>) -> PyResult<Group> {
    let kind = kind.map(|kind| {
        GroupKind::of(kind.as_bytes(), sliding_window).ok_or_else(|| {
            errors::event(format!("kind must be one that engines know, such as \"full_attention\", got {kind:?}"))
        })
    });
    Ok(Group { index, kind: kind.transpose()? })
}

/// `EngineHash` is a transparent `u64`.
pub fn engine_hashes(values: &[u64]) -> &[EngineHash] {
    // SAFETY: same layout, and every u64 is a name.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), values.len()) }
}
