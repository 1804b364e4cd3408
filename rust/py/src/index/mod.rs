//! `PrefixIndex`: the core's index by name instead of slot, in tokens instead of blocks.

mod belief;
mod events;
mod lookup;

use std::hash::{BuildHasher, RandomState};

use prefixroute_core::{BlockHash, Config, Index, PROVISIONAL_S};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};

use crate::errors;
use crate::hashes::{BlockHashes, hash_prompt};
use crate::namespace::Namespace;
use crate::outcomes::IndexStats;
use crate::sizes;
use crate::text::Text;
use crate::tokens::Prompt;

/// Which replica holds how much of a prompt's prefix.
///
/// `match` gives, for each replica, the largest number of leading tokens of which it holds every full block. What a
/// replica holds is *belief* (`insert`: a decision sent a prompt there; least recently used blocks go when the capacity
/// is reached) and *truth* (`apply_stored`, `apply_removed`, `apply_cleared`: the engine's own events, in any order).
///
/// Results are `uint32` arrays with one entry per slot, aligned with `replicas`. Sizes and capacities are in tokens;
/// counts of what an insert or an event did are in blocks; times are seconds on the caller's clock. A prompt is a list,
/// an integer array or a buffer of token ids (0 to 2**32 - 1), `str` or `bytes`, or `BlockHashes`; a contiguous `uint32`
/// array is read in place. It must not be written to during the call: work of 20 microseconds and more is done with the
/// interpreter released.
///
/// All methods may be called from many threads; each call is atomic (`insert_many` is one insert after the other).
///
/// Args:
///     block_size: tokens of a block, 1 to 65,536; the engine's own (vLLM: 16).
///     capacity_tokens: believed tokens per replica, unless it has a capacity of its own; None: unlimited. What events
///         say does not count.
///     max_bytes: bytes that the index may reserve; the oldest belief of all replicas makes room. None: unlimited. An index
///         that holds nothing takes about 7 KiB, and 0.4 KiB for each replica: less is refused.
///     ttl_s: seconds after its last touch that belief ends; None: never.
///     provisional_s: the same at a replica that sends events, unless they confirm it; None: as elsewhere.
///     hash_key: key of the content hashes, 0 to 2**64 - 1. None: random, so that nobody can compute a prompt whose blocks
///         match those of another namespace. Give one where several processes share hashes, or the fixed key
///         `prefixroute.limits.FIXED_HASH_KEY`, which `hash_blocks` has by default.
///
/// Raises:
///     ConfigError: a setting outside of these limits.
///
/// Example:
///     >>> index = PrefixIndex(block_size=16, capacity_tokens=300_000)
///     >>> index.add_replica("a"), index.add_replica("b")
///     (0, 1)
///     >>> index.insert("a", list(range(100)))
///     Insertion(held_before=0, stored=6, dropped=0, evicted=0, stamp=1)
///     >>> index.match(list(range(50)))
///     array([48,  0], dtype=uint32)
#[pyclass(frozen, module = "prefixroute._core")]
pub struct PrefixIndex {
    index: Index,
}

impl PrefixIndex {
    fn block_size(&self) -> usize {
        self.index.config().block_size
    }

    fn hash_key(&self) -> u64 {
        self.index.config().hash_key
    }

    /// The blocks of a prompt that was hashed before, as blocks of this index under its key are.
    #[inline]
    fn blocks_of<'a>(&self, hashes: &'a BlockHashes) -> PyResult<&'a [BlockHash]> {
        hashes.check_index(self.block_size(), self.hash_key())?;
        Ok(hashes.blocks())
    }

    /// The hashes of a prompt, whatever it is given as.
    fn hashed<'a>(
        &self,
        py: Python<'_>,
        prompt: &'a Bound<'_, PyAny>,
        namespace: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Hashed<'a>> {
        match Prompt::read(prompt)? {
            Prompt::Hashed(hashes) => self.blocks_of(hashes).map(|_| Hashed::Before(hashes)),
            prompt => {
                let namespace = Namespace::read(namespace)?;
                hash_prompt(py, &prompt, self.block_size(), &namespace, self.hash_key()).map(Hashed::Now)
            }
        }
    }

    fn capacity_blocks(&self, capacity_tokens: Option<u64>) -> Option<u64> {
        capacity_tokens.map(|tokens| tokens / self.block_size() as u64)
    }
}

enum Hashed<'a> {
    Before(&'a BlockHashes),
    Now(BlockHashes),
}

impl Hashed<'_> {
    fn blocks(&self) -> &[BlockHash] {
        match self {
            Self::Before(hashes) => hashes.blocks(),
            Self::Now(hashes) => hashes.blocks(),
        }
    }
}

#[pymethods]
impl PrefixIndex {
    #[new]
    #[pyo3(signature = (*, block_size=16, capacity_tokens=None, max_bytes=None, ttl_s=None, provisional_s=Some(PROVISIONAL_S), hash_key=None))]
    fn new(
        #[pyo3(from_py_with = sizes::block_size)] block_size: usize,
        #[pyo3(from_py_with = sizes::capacity_tokens)] capacity_tokens: Option<u64>,
        #[pyo3(from_py_with = sizes::max_bytes)] max_bytes: Option<u64>,
        #[pyo3(from_py_with = sizes::optional_seconds)] ttl_s: Option<f64>,
        #[pyo3(from_py_with = sizes::optional_seconds)] provisional_s: Option<f64>,
        #[pyo3(from_py_with = sizes::hash_key)] hash_key: Option<u64>,
    ) -> PyResult<Self> {
        let capacity_blocks = capacity_tokens.map(|tokens| tokens / block_size.max(1) as u64);
        let (ttl, provisional) = (ttl_s, provisional_s);
        let hash_key = hash_key.unwrap_or_else(|| RandomState::new().hash_one(block_size));
        let config = Config { block_size, hash_key, capacity_blocks, max_bytes, ttl, provisional, ..Config::default() };
        Index::new(config).map(|index| Self { index }).map_err(errors::of_core)
    }

    /// Key of content hashes. `hash_blocks(prompt, hash_key=index.hash_key)` hashes as the index does.
    #[getter(hash_key)]
    fn py_hash_key(&self) -> u64 {
        self.hash_key()
    }

    /// Tokens of a block.
    #[getter(block_size)]
    fn py_block_size(&self) -> usize {
        self.block_size()
    }

    /// Names in slot order; a freed slot is None until it is given again.
    #[getter]
    fn replicas<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.index.replicas())
    }

    /// Add an empty replica and return its slot.
    ///
    /// Args:
    ///     name: of at most 65,536 bytes.
    ///     capacity_tokens: overrides the index's own.
    ///     reuse_reports: its engine reports blocks that requests reuse, in the shape of a store (vLLM with
    ///         `kv_cache_report_mode="full"`). A block stored again is then no further copy, and one removal ends it.
    ///
    /// Raises:
    ///     ConfigError: the name is taken or cannot be one, or there is no room for another replica, by number or `max_bytes`.
    #[pyo3(signature = (name, capacity_tokens=None, *, reuse_reports=false))]
    fn add_replica(
        &self,
        name: Text<'_>,
        #[pyo3(from_py_with = sizes::capacity_tokens)] capacity_tokens: Option<u64>,
        reuse_reports: bool,
    ) -> PyResult<u16> {
        let slot = self.index.add_replica_with(&name, self.capacity_blocks(capacity_tokens), reuse_reports);
        slot.map(|slot| slot.0).map_err(errors::of_core)
    }

    /// Raise unless `max_bytes` leaves room for so many replicas; who adds several asks before the first.
    ///
    /// Args:
    ///     replicas: how many will be there, those that are there included.
    ///
    /// Raises:
    ///     ConfigError: what the index reserves for them while it holds nothing is more than `max_bytes`.
    fn check_room(&self, #[pyo3(from_py_with = sizes::token_count)] replicas: usize) -> PyResult<()> {
        self.index.check_room(replicas).map_err(errors::of_core)
    }

    /// Remove a replica with all it holds. Costs what it holds.
    ///
    /// Args:
    ///     name: the replica.
    ///
    /// Raises:
    ///     UnknownReplicaError: no replica has that name.
    fn remove_replica(&self, py: Python<'_>, name: Text<'_>) -> PyResult<()> {
        py.detach(|| self.index.remove_replica(&*name)).map_err(errors::of_core)
    }

    /// Forget what one replica holds, or all of them.
    ///
    /// Args:
    ///     name: the replica; None: all of them.
    ///
    /// Raises:
    ///     UnknownReplicaError: no replica has that name.
    #[pyo3(signature = (name=None))]
    fn clear(&self, py: Python<'_>, name: Option<Text<'_>>) -> PyResult<()> {
        let Some(name) = name else {
            self.new_epoch(py);
            return Ok(());
        };
        py.detach(|| self.index.clear(&*name)).map_err(errors::of_core)
    }

    /// Forget what all replicas hold: the weights have changed.
    fn new_epoch(&self, py: Python<'_>) {
        py.detach(|| self.index.new_epoch());
    }

    /// Give a replica another capacity and evict down to it.
    ///
    /// Args:
    ///     name: the replica.
    ///     tokens: what it holds at most; None: unlimited.
    ///
    /// Raises:
    ///     ConfigError: the capacity is below 0.
    ///     UnknownReplicaError: no replica has that name.
    fn set_capacity(
        &self,
        py: Python<'_>,
        name: Text<'_>,
        #[pyo3(from_py_with = sizes::capacity_tokens)] tokens: Option<u64>,
    ) -> PyResult<()> {
        py.detach(|| self.index.set_capacity(&*name, self.capacity_blocks(tokens))).map_err(errors::of_core)
    }

    /// Tokens that each slot holds, believed and known.
    ///
    /// Returns:
    ///     A list of one number for each slot.
    fn held_tokens(&self) -> Vec<u64> {
        let size = self.block_size() as u64;
        self.index.held_blocks().into_iter().map(|blocks| blocks * size).collect()
    }

    /// State and counters.
    ///
    /// Returns:
    ///     Blocks, bytes, evictions and events as plain numbers.
    fn stats(&self) -> IndexStats {
        self.index.stats().into()
    }

    /// The whole index as bytes: versioned, checksummed, exact to the order of eviction.
    ///
    /// Returns:
    ///     What `from_bytes` reads.
    fn to_bytes<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &py.detach(|| self.index.to_bytes()))
    }

    /// The index that `to_bytes` saved.
    ///
    /// Args:
    ///     data: the bytes.
    ///
    /// Returns:
    ///     An equal index.
    ///
    /// Raises:
    ///     ConfigError: the bytes were cut or altered, or are of another version.
    #[staticmethod]
    fn from_bytes(py: Python<'_>, data: &[u8]) -> PyResult<Self> {
        py.detach(|| Index::from_bytes(data)).map(|index| Self { index }).map_err(errors::of_core)
    }

    fn __reduce__(slf: Bound<'_, Self>) -> PyResult<(Bound<'_, PyAny>, (Bound<'_, PyBytes>,))> {
        let bytes = slf.get().to_bytes(slf.py());
        Ok((slf.get_type().getattr(intern!(slf.py(), "from_bytes"))?, (bytes,)))
    }

    fn __len__(&self) -> usize {
        self.index.stats().blocks as usize
    }

    #[expect(clippy::unused_self, reason = "the signature of a method")]
    fn __bool__(&self) -> bool {
        true
    }

    fn __repr__(&self) -> String {
        let stats = self.index.stats();
        let (size, replicas, blocks) = (self.block_size(), stats.replicas, grouped(stats.blocks));
        format!("<PrefixIndex block_size={size} replicas={replicas} blocks={blocks}>")
    }
}

/// `BlockHash` is a transparent `u64`.
fn as_block_hashes(values: &[u64]) -> &[BlockHash] {
    // SAFETY: same layout, and every u64 is a valid hash.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), values.len()) }
}

/// 120412 -> `120_412`.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i) % 3 == 0 {
            text.push('_');
        }
        text.push(digit);
    }
    text
}
