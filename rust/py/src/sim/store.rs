//! `ReplicaStore`: what one simulated replica holds.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use prefixroute_core::hash::check_block_size;
use prefixroute_core::sim as core;
use pyo3::prelude::*;

use crate::cache::CacheEvent;
use crate::errors;
use crate::hashes::BlockHashes;
use crate::sizes;

/// The cache of one simulated replica, over tiers if there are any. A cluster may serve requests from it.
#[pyclass(frozen, module = "prefixroute._core")]
pub struct ReplicaStore {
    pub store: Arc<Mutex<core::Store>>,
    pub block_size: usize,
}

impl ReplicaStore {
    fn lock(&self) -> MutexGuard<'_, core::Store> {
        // A panic while the lock is held would be a defect of the core; the store is still memory-safe.
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Tokens on the GPUs of these replicas, all of one block size, that another of them holds as well: what all hold beyond
/// one copy.
#[pyfunction]
pub fn duplicated_tokens(stores: Vec<Bound<'_, ReplicaStore>>) -> usize {
    let block_size = stores.first().map_or(0, |store| store.get().block_size);
    let mut blocks = Vec::new();
    for store in &stores {
        blocks.extend(store.get().lock().cache().all_blocks());
    }
    let held = blocks.len();
    blocks.sort_unstable();
    blocks.dedup();
    (held - blocks.len()) * block_size
}

#[pymethods]
impl ReplicaStore {
    #[new]
    #[pyo3(signature = (capacity_tokens=None, block_size=16, *, tiers=Vec::new(), record_events=false))]
    fn new(
        #[pyo3(from_py_with = sizes::capacity_tokens)] capacity_tokens: Option<u64>,
        #[pyo3(from_py_with = sizes::block_size)] block_size: usize,
        tiers: Vec<(usize, f64)>,
        record_events: bool,
    ) -> PyResult<Self> {
        check_block_size(block_size).map_err(errors::of_core)?;
        let tier = |(capacity_tokens, load_s_per_token)| core::Tier { capacity_tokens, load_s_per_token };
        let tiers: Vec<_> = tiers.into_iter().map(tier).collect();
        let mut store = core::Store::new(block_size, capacity_tokens.map(|tokens| tokens as usize), &tiers);
        if record_events {
            store.record_events();
        }
        Ok(Self { store: Arc::new(Mutex::new(store)), block_size })
    }

    fn hit(&self, prompt: &Bound<'_, BlockHashes>) -> PyResult<usize> {
        prompt.get().check_block_size(self.block_size)?;
        Ok(self.lock().cache().hit(prompt.get().sequence()))
    }

    fn serve(&self, prompt: &Bound<'_, BlockHashes>, context: &Bound<'_, BlockHashes>) -> PyResult<usize> {
        prompt.get().check_block_size(self.block_size)?;
        context.get().check_block_size(self.block_size)?;
        self.lock().serve(prompt.get().sequence(), context.get().sequence()).map_err(errors::of_refused)
    }

    fn take_events(&self) -> Vec<CacheEvent> {
        self.lock().take_events().into_iter().map(CacheEvent::from).collect()
    }

    fn clear(&self) {
        self.lock().clear();
    }

    #[getter]
    fn cached_tokens(&self) -> usize {
        self.lock().cache().blocks() * self.block_size
    }

    #[getter]
    fn pinned_tokens(&self) -> usize {
        self.lock().cache().pinned_blocks() * self.block_size
    }

    #[getter]
    fn running(&self) -> usize {
        self.lock().cache().running()
    }

    #[getter]
    fn loaded_tokens(&self) -> usize {
        self.lock().loaded_tokens()
    }

    #[getter]
    fn oversized(&self) -> usize {
        self.lock().oversized()
    }

    fn __repr__(&self) -> String {
        let store = self.lock();
        format!("<ReplicaStore cached_tokens={}>", store.cache().blocks() * self.block_size)
    }
}
