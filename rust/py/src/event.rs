//! What an engine's KV event carries.

use prefixroute_core::hash::{content_hash, content_hash_with};
use prefixroute_core::{EngineHash, Medium};
use pyo3::prelude::*;

use crate::errors;
use crate::namespace::Namespace;

/// Content hashes of an event's blocks; positions of extra keys count from the event's first token.
pub fn contents(size: usize, ids: &[u32], blocks: usize, namespace: &Namespace) -> PyResult<Vec<u64>> {
    if ids.len() != blocks * size {
        return Err(errors::event(format!(
            "{blocks} blocks of {size} tokens have {} token ids, got {}",
            blocks * size,
            ids.len()
        )));
    }
    let extra = namespace.extra();
    if extra.is_empty() {
        return Ok(ids.chunks_exact(size).map(content_hash).collect());
    }
    let content = |(block, ids): (usize, &[u32])| {
        let before = |end: usize| extra.partition_point(|key| key.position < end);
        let inside = &extra[before(block * size)..before((block + 1) * size)];
        let keys: Vec<_> = inside.iter().map(|key| ((key.position - block * size) as u32, key.key)).collect();
        content_hash_with(ids, &keys).0
    };
    Ok(ids.chunks_exact(size).enumerate().map(content).collect())
}

/// The medium that engines call so; unnamed means GPU.
pub fn medium_of(name: Option<&str>) -> PyResult<Medium> {
    match name {
        None | Some("GPU") => Ok(Medium::Gpu),
        Some("CPU" | "CPU_PINNED") => Ok(Medium::Cpu),
        Some("DISK" | "STORAGE" | "EXTERNAL") => Ok(Medium::Disk),
        Some(other) => {
            Err(errors::event(format!("medium must be GPU, CPU, CPU_PINNED, DISK, STORAGE or EXTERNAL, got {other:?}")))
        }
    }
}

/// `EngineHash` is a transparent `u64`.
pub fn engine_hashes(values: &[u64]) -> &[EngineHash] {
    // SAFETY: same layout, and every u64 is a name.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), values.len()) }
}
