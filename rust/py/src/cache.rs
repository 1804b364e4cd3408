//! `ReplicaCache` and `EntryCache`: the simulated truth of one replica.

use numpy::PyArray1;
use prefixroute_core::BlockHash;
use prefixroute_core::hash::check_block_size;
use prefixroute_core::replica_cache as core;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple, PyType};

use crate::errors;
use crate::hashes::BlockHashes;
use crate::lock::Lock;
use crate::outcomes::value_class;
use crate::sizes;
use crate::text::Text;

value_class! {
    /// A request was admitted.
    Admitted {
        /// Its number, for `grow`, `finish` and `abort`.
        request: u64,
        /// Leading tokens that need no prefill.
        hit_tokens: usize,
    }
}

value_class! {
    /// The running requests leave too little room; nothing was changed.
    NoRoom {
        /// Blocks that the request would have to allocate or pin.
        needed_blocks: usize,
        /// Blocks that no running request holds.
        available_blocks: usize,
    }
}

value_class! {
    /// What ending a request left in the cache.
    Finished of core::Finished {
        /// Blocks that were not held before.
        stored: usize,
        /// Blocks at the end of the context that found no room beside the running requests.
        dropped: usize,
    }
}

/// A change of what a replica holds.
#[pyclass(frozen, module = "prefixroute._core")]
pub struct CacheEvent {
    event: core::CacheEvent,
}

impl From<core::CacheEvent> for CacheEvent {
    fn from(event: core::CacheEvent) -> Self {
        Self { event }
    }
}

#[pymethods]
impl CacheEvent {
    /// `"stored"` or `"removed"`.
    #[getter]
    fn kind(&self) -> &'static str {
        match self.event {
            core::CacheEvent::Stored { .. } => "stored",
            core::CacheEvent::Removed { .. } => "removed",
        }
    }

    /// Hash of the block before the first stored one; `None` at the beginning of a prompt.
    #[getter]
    fn parent(&self) -> Option<u64> {
        match &self.event {
            core::CacheEvent::Stored { parent, .. } => parent.map(|hash| hash.0),
            core::CacheEvent::Removed { .. } => None,
        }
    }

    /// `uint64[n]`: stored in order, or removed tail first.
    #[getter]
    fn blocks<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<u64>> {
        let (core::CacheEvent::Stored { blocks, .. } | core::CacheEvent::Removed { blocks }) = &self.event;
        PyArray1::from_iter(py, blocks.iter().map(|hash: &BlockHash| hash.0))
    }

    fn __repr__(&self) -> String {
        let (core::CacheEvent::Stored { blocks, .. } | core::CacheEvent::Removed { blocks }) = &self.event;
        format!("<CacheEvent {} blocks={}>", self.kind(), blocks.len())
    }
}

/// The prefix cache of one simulated engine, block by block.
///
/// Only full blocks are kept, a prefix shared by many requests once; a hit is at most all but the last token of a prompt,
/// rounded down to blocks; blocks of running requests are pinned; the least recently used block goes first and, inside
/// one request, the tail before the head. Serving the next turn of a conversation costs about a microsecond.
///
/// Args:
///     capacity_tokens: rounded down to blocks; None: unlimited.
///     block_size: tokens of a block, 1 to 65,536.
///     record_events: keep what is stored and removed for `take_events`.
///
/// Raises:
///     ConfigError: a setting outside of these limits; in calls, hashes of another block size, a request that is not
///         running, a context that does not begin with its prompt. Nothing is changed then.
#[pyclass(frozen, module = "prefixroute._core")]
pub struct ReplicaCache {
    cache: Lock<core::ReplicaCache>,
    block_size: usize,
    capacity_tokens: Option<u64>,
}

impl ReplicaCache {
    fn sequence<'a>(&self, hashes: &'a Bound<'_, BlockHashes>) -> PyResult<core::Sequence<'a>> {
        hashes.get().check_block_size(self.block_size)?;
        Ok(hashes.get().sequence())
    }
}

#[pymethods]
impl ReplicaCache {
    #[new]
    #[pyo3(signature = (capacity_tokens=None, block_size=16, *, record_events=false))]
    fn new(
        #[pyo3(from_py_with = sizes::capacity_tokens)] capacity_tokens: Option<u64>,
        #[pyo3(from_py_with = sizes::block_size)] block_size: usize,
        record_events: bool,
    ) -> PyResult<Self> {
        check_block_size(block_size).map_err(errors::of_core)?;
        let mut cache = core::ReplicaCache::new(block_size, capacity_tokens.map(|tokens| tokens as usize));
        if record_events {
            cache.record_events();
        }
        Ok(Self { cache: Lock::new(cache), block_size, capacity_tokens })
    }

    /// Leading tokens of the prompt that need no prefill now; changes nothing.
    fn hit(&self, prompt: &Bound<'_, BlockHashes>) -> PyResult<usize> {
        Ok(self.cache.lock().hit(self.sequence(prompt)?))
    }

    /// Admit a request: pin what is held, allocate the rest, evict as needed. Gives `NoRoom`, and changes nothing, if the
    /// running requests leave too little room.
    fn start(&self, py: Python<'_>, prompt: &Bound<'_, BlockHashes>) -> PyResult<Py<PyAny>> {
        let started = self.cache.lock().start(self.sequence(prompt)?);
        match started {
            Ok(core::Started { request, hit_tokens }) => {
                Ok(Py::new(py, Admitted::new(request.0, hit_tokens))?.into_any())
            }
            Err(refused) => Ok(Py::new(py, no_room(refused)?)?.into_any()),
        }
    }

    /// Make room for what a running request has generated so far, or give `NoRoom` and change nothing.
    fn grow(
        &self,
        #[pyo3(from_py_with = sizes::request)] request: u64,
        context: &Bound<'_, BlockHashes>,
    ) -> PyResult<Option<NoRoom>> {
        let grown = self.cache.lock().grow(core::RequestId(request), self.sequence(context)?);
        grown.err().map(no_room).transpose()
    }

    /// End a request: the full blocks of its context (prompt and output) are kept, most recently used; what does not fit
    /// beside the other running requests is dropped from the end.
    fn finish(
        &self,
        #[pyo3(from_py_with = sizes::request)] request: u64,
        context: &Bound<'_, BlockHashes>,
    ) -> PyResult<Finished> {
        let finished = self.cache.lock().finish(core::RequestId(request), self.sequence(context)?);
        finished.map(Finished::from).map_err(errors::of_refused)
    }

    /// End a request without output; its prompt stays cached.
    fn abort(&self, #[pyo3(from_py_with = sizes::request)] request: u64) -> PyResult<()> {
        self.cache.lock().abort(core::RequestId(request)).map_err(errors::of_refused)
    }

    /// One request from start to finish with nothing in between; returns its hit tokens. A prompt that does not fit is
    /// counted in `refused` and leaves the cache as it was.
    fn serve(&self, prompt: &Bound<'_, BlockHashes>, context: &Bound<'_, BlockHashes>) -> PyResult<usize> {
        let (prompt, context) = (self.sequence(prompt)?, self.sequence(context)?);
        self.cache.lock().serve(prompt, context).map_err(errors::of_refused)
    }

    /// Drop every block that no running request holds.
    fn clear(&self) {
        self.cache.lock().clear();
    }

    /// What was stored and removed since the last call, oldest first (`record_events=True`).
    fn take_events(&self) -> Vec<CacheEvent> {
        self.cache.lock().take_events().into_iter().map(CacheEvent::from).collect()
    }

    /// Tokens of a block.
    #[getter]
    fn block_size(&self) -> usize {
        self.block_size
    }

    /// Capacity; None: unlimited.
    #[getter]
    fn capacity_tokens(&self) -> Option<u64> {
        self.capacity_tokens
    }

    /// Tokens held, shared ones once.
    #[getter]
    fn cached_tokens(&self) -> usize {
        self.cache.lock().blocks() * self.block_size
    }

    /// Tokens of room that running requests hold.
    #[getter]
    fn pinned_tokens(&self) -> usize {
        self.cache.lock().pinned_blocks() * self.block_size
    }

    /// Requests in flight.
    #[getter]
    fn running(&self) -> usize {
        self.cache.lock().running()
    }

    /// Blocks evicted so far.
    #[getter]
    fn evicted_blocks(&self) -> u64 {
        self.cache.lock().evicted_blocks()
    }

    /// Requests that `serve` could not place.
    #[getter]
    fn refused(&self) -> u64 {
        self.cache.lock().refused()
    }

    fn __len__(&self) -> usize {
        self.cache.lock().blocks()
    }

    #[expect(clippy::unused_self, reason = "the signature of a method")]
    fn __bool__(&self) -> bool {
        true
    }

    fn __repr__(&self) -> String {
        let cache = self.cache.lock();
        format!("<ReplicaCache block_size={} blocks={} running={}>", self.block_size, cache.blocks(), cache.running())
    }
}

fn no_room(refused: core::Refused) -> PyResult<NoRoom> {
    match refused {
        core::Refused::NoRoom { needed, available } => Ok(NoRoom::new(needed, available)),
        other => Err(errors::of_refused(other)),
    }
}

/// The prefix cache of one simulated engine, whole entries at a time: the model behind the published figures.
///
/// An entry (a conversation, a document) weighs all of its tokens. A shared head (a system prompt) is one more entry,
/// resident from the first request on, and still weighs in every entry that begins with it. The least recently used
/// entry goes first.
///
/// Args:
///     capacity_tokens: tokens of all entries and the shared head; None: unlimited.
#[pyclass(frozen, module = "prefixroute._core")]
pub struct EntryCache {
    cache: Lock<core::EntryCache>,
    capacity_tokens: Option<u64>,
}

#[pymethods]
impl EntryCache {
    #[new]
    #[pyo3(signature = (capacity_tokens=None))]
    fn new(#[pyo3(from_py_with = sizes::capacity_tokens)] capacity_tokens: Option<u64>) -> Self {
        Self { cache: Lock::new(core::EntryCache::new(capacity_tokens.map(|tokens| tokens as usize))), capacity_tokens }
    }

    /// Tokens of the entry cached now: its size, else the resident shared head, else none.
    #[pyo3(signature = (entry, prompt_tokens, shared_tokens=0))]
    fn hit(
        &self,
        entry: Text<'_>,
        #[pyo3(from_py_with = sizes::token_count)] prompt_tokens: usize,
        #[pyo3(from_py_with = sizes::token_count)] shared_tokens: usize,
    ) -> usize {
        self.cache.lock().cached(&entry, prompt_tokens, shared_tokens)
    }

    /// Serve a prompt and hold `context_tokens` as the entry afterwards; returns the tokens that were cached.
    #[pyo3(signature = (entry, prompt_tokens, context_tokens, shared_tokens=0))]
    fn serve(
        &self,
        entry: Text<'_>,
        #[pyo3(from_py_with = sizes::token_count)] prompt_tokens: usize,
        #[pyo3(from_py_with = sizes::token_count)] context_tokens: usize,
        #[pyo3(from_py_with = sizes::token_count)] shared_tokens: usize,
    ) -> usize {
        self.cache.lock().serve(&entry, prompt_tokens, context_tokens, shared_tokens)
    }

    /// Forget everything.
    fn clear(&self) {
        self.cache.lock().clear();
    }

    /// Capacity; None: unlimited.
    #[getter]
    fn capacity_tokens(&self) -> Option<u64> {
        self.capacity_tokens
    }

    /// Tokens held, shared ones once.
    #[getter]
    fn cached_tokens(&self) -> usize {
        self.cache.lock().cached_tokens()
    }

    /// Entries evicted so far.
    #[getter]
    fn evicted_entries(&self) -> u64 {
        self.cache.lock().evicted()
    }

    fn __len__(&self) -> usize {
        self.cache.lock().len()
    }

    #[expect(clippy::unused_self, reason = "the signature of a method")]
    fn __bool__(&self) -> bool {
        true
    }

    fn __repr__(&self) -> String {
        let cache = self.cache.lock();
        format!("<EntryCache entries={} cached_tokens={}>", cache.len(), cache.cached_tokens())
    }
}
