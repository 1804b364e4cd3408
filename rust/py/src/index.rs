//! `PrefixIndex`: the core's index by name instead of slot, in tokens instead of blocks.

use std::borrow::Cow;
use std::hash::{BuildHasher, RandomState};
use std::sync::{PoisonError, RwLock};

use numpy::{IntoPyArray, PyArray1, PyArray2, PyArrayMethods, PyUntypedArrayMethods};
use prefixroute_core::hash::hash_tokens_keyed;
use prefixroute_core::{
    BlockHash, Config, EngineHash, Index, Medium, PROVISIONAL_S, Residence, Result as CoreResult, Slot, StoreEvent,
};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};

use crate::batch::{names_of, ragged};
use crate::errors;
use crate::event::{engine_hashes, group_of};
use crate::hashes::{BlockHashes, detached_if_long, hash_prompt, hash_value, hash_values};
use crate::namespace::{Base, Namespace};
use crate::out::{not_an_out_array, out_array, out_matrix};
use crate::outcomes::{Applied, FeedStats, IndexStats, Insertion, Removed, Stored};
use crate::sizes;
use crate::text::Text;
use crate::tokens::{Prompt, token_ids};

/// A block of an event costs as much as hashing so many tokens.
const EVENT_COST: usize = 128;
/// A byte of a batch of events costs as much as hashing so many tokens.
const PAYLOAD_COST: usize = 4;

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
///     max_bytes: bytes that the index may reserve; the oldest belief of all replicas makes room. None: unlimited.
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
    /// Held shared while a name's slot is in use, so that the slot cannot go to another replica in between.
    fleet: RwLock<()>,
}

impl PrefixIndex {
    fn block_size(&self) -> usize {
        self.index.config().block_size
    }

    fn hash_key(&self) -> u64 {
        self.index.config().hash_key
    }

    /// Does the work at the slot of a name. An error is made once the lock is free: that takes the interpreter, which
    /// whoever holds it may be waiting with for the lock.
    fn at<T>(&self, name: &str, work: impl FnOnce(Slot) -> CoreResult<T>) -> PyResult<T> {
        let fleet = self.fleet.read().unwrap_or_else(PoisonError::into_inner);
        let done = self.index.slot(name).map(work);
        drop(fleet);
        done.ok_or_else(|| unknown(name))?.map_err(errors::of_core)
    }

    /// A new `uint32[slots]`, or the caller's array, with what `work` writes: one length per slot, in tokens.
    #[inline]
    fn lengths<'py>(
        &self,
        py: Python<'py>,
        out: Option<&Bound<'py, PyAny>>,
        work: impl Fn(&mut [u32]) -> PyResult<usize>,
    ) -> PyResult<Bound<'py, PyArray1<u32>>> {
        if let Some(out) = out {
            let out = out_array(out, self.index.slots())?;
            // Written at the end, with the interpreter held: nothing else sees it half-filled, and it may even overlap
            // the prompt.
            let mut held = vec![0; out.len()];
            work(&mut held)?;
            // SAFETY: `out_array` checked that it is contiguous and writable; no Python code runs while it is borrowed.
            unsafe { out.as_slice_mut() }.map_err(|_| not_an_out_array())?.copy_from_slice(&held);
            return Ok(out.clone());
        }
        loop {
            // SAFETY: nobody else has seen the array, and `work` writes every element of it.
            let array = unsafe { PyArray1::<u32>::new(py, [self.index.slots()], false) };
            // SAFETY: as above.
            let held = unsafe { array.as_slice_mut() };
            let slots = work(held.map_err(|_| not_an_out_array())?)?;
            if slots <= array.len() {
                return Ok(array);
            }
            // A replica was added between the two looks at the fleet.
        }
    }

    /// Lengths held of a prompt, hashing no further than the longest of them.
    #[inline]
    fn match_prompt(
        &self,
        py: Python<'_>,
        prompt: &Prompt<'_>,
        namespace: &Namespace,
        out: &mut [u32],
    ) -> PyResult<usize> {
        match prompt {
            Prompt::Tokens(ids) => {
                let extra = namespace.extra();
                let work = || self.index.match_tokens(ids, namespace.seed, &extra, out);
                detached_if_long(py, ids.len(), work).map_err(errors::of_core)
            }
            Prompt::Text(_) => {
                let hashes = hash_prompt(py, prompt, self.block_size(), namespace, self.hash_key())?;
                Ok(self.index.match_blocks(hashes.blocks(), out))
            }
            Prompt::Hashed(hashes) => {
                hashes.check_index(self.block_size(), self.hash_key())?;
                Ok(self.index.match_blocks(hashes.blocks(), out))
            }
        }
    }

    /// The hashes of a prompt, whatever it is given as.
    fn hashed<'a>(
        &self,
        py: Python<'_>,
        prompt: &'a Bound<'_, PyAny>,
        namespace: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Hashed<'a>> {
        match Prompt::read(prompt)? {
            Prompt::Hashed(hashes) => {
                hashes.check_index(self.block_size(), self.hash_key())?;
                Ok(Hashed::Before(hashes))
            }
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
        let index = Index::new(config).map_err(errors::of_core)?;
        Ok(Self { index, fleet: RwLock::new(()) })
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
    ///     ConfigError: the name is taken or cannot be one, or there is no room for another replica.
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

    /// Remove a replica with all it holds. Costs what it holds.
    fn remove_replica(&self, py: Python<'_>, name: Text<'_>) -> PyResult<()> {
        py.detach(|| {
            let fleet = self.fleet.write().unwrap_or_else(PoisonError::into_inner);
            let done = self.index.slot(&name).map(|slot| self.index.remove_replica(slot));
            drop(fleet);
            done.ok_or_else(|| unknown(&name))?.map_err(errors::of_core)
        })
    }

    /// Forget what one replica holds, or all of them.
    #[pyo3(signature = (name=None))]
    fn clear(&self, py: Python<'_>, name: Option<Text<'_>>) -> PyResult<()> {
        py.detach(|| {
            let Some(name) = name else {
                self.index.new_epoch();
                return Ok(());
            };
            self.at(&name, |slot| self.index.clear(slot))
        })
    }

    /// Forget what all replicas hold: the weights have changed.
    fn new_epoch(&self, py: Python<'_>) {
        py.detach(|| self.index.new_epoch());
    }

    /// Give a replica another capacity (None: unlimited) and evict down to it.
    fn set_capacity(
        &self,
        py: Python<'_>,
        name: Text<'_>,
        #[pyo3(from_py_with = sizes::capacity_tokens)] tokens: Option<u64>,
    ) -> PyResult<()> {
        py.detach(|| self.at(&name, |slot| self.index.set_capacity(slot, self.capacity_blocks(tokens))))
    }

    /// Tokens of the prompt's prefix that each slot holds, as uint32[slots].
    #[pyo3(name = "match", signature = (prompt, namespace=None, out=None))]
    #[inline]
    fn match_<'py>(
        &self,
        py: Python<'py>,
        prompt: &Bound<'py, PyAny>,
        namespace: Option<&Bound<'py, PyAny>>,
        out: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyArray1<u32>>> {
        let (prompt, namespace) = (Prompt::read(prompt)?, Namespace::read(namespace)?);
        self.lengths(py, out, |held| self.match_prompt(py, &prompt, &namespace, held))
    }

    /// The same for prompts laid end to end: prompt i is flat[offsets[i]:offsets[i + 1]]. Returns uint32[n, slots].
    #[pyo3(signature = (flat, offsets, namespace=None, out=None))]
    fn match_many<'py>(
        &self,
        py: Python<'py>,
        flat: &Bound<'py, PyAny>,
        offsets: &Bound<'py, PyAny>,
        namespace: Option<&Bound<'py, PyAny>>,
        out: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyArray2<u32>>> {
        let (ids, namespace) = (token_ids(flat)?, Namespace::read(namespace)?);
        let prompts = ragged(&ids, offsets)?;
        let slots = self.index.slots();
        let out = out.map(|out| out_matrix(out, prompts.len(), slots)).transpose()?;
        let extra = namespace.extra();
        let mut held = vec![0; prompts.len() * slots];
        py.detach(|| {
            for (ids, row) in prompts.iter().zip(held.chunks_exact_mut(slots.max(1))) {
                self.index.match_tokens(ids, namespace.seed, &extra, row)?;
            }
            Ok(())
        })
        .map_err(errors::of_core)?;
        match out {
            None => held.into_pyarray(py).reshape([prompts.len(), slots]),
            Some(out) => {
                // SAFETY: checked by `out_matrix`; no Python code runs while it is borrowed.
                unsafe { out.as_slice_mut() }.map_err(|_| not_an_out_array())?.copy_from_slice(&held);
                Ok(out.clone())
            }
        }
    }

    /// The same for a prompt hashed before: uint64 hashes of its blocks, or `BlockHashes`.
    #[pyo3(signature = (hashes, out=None))]
    fn match_hashes<'py>(
        &self,
        py: Python<'py>,
        hashes: &Bound<'py, PyAny>,
        out: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyArray1<u32>>> {
        if let Ok(hashes) = hashes.cast::<BlockHashes>() {
            hashes.get().check_index(self.block_size(), self.hash_key())?;
            return self.lengths(py, out, |held| Ok(self.index.match_blocks(hashes.get().blocks(), held)));
        }
        let values = hash_values(hashes)?;
        self.lengths(py, out, |held| Ok(self.index.match_blocks(block_hashes(&values), held)))
    }

    /// Hash all of a prompt, write the tokens held to out, and return the hashes: one crossing for a router.
    #[pyo3(signature = (prompt, out, namespace=None))]
    fn hash_and_match<'py>(
        &self,
        py: Python<'py>,
        prompt: &Bound<'py, PyAny>,
        out: &Bound<'py, PyAny>,
        namespace: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, BlockHashes>> {
        let hashes = if let Ok(hashes) = prompt.cast::<BlockHashes>() {
            hashes.get().check_index(self.block_size(), self.hash_key())?;
            hashes.clone()
        } else {
            let (prompt, namespace) = (Prompt::read(prompt)?, Namespace::read(namespace)?);
            Bound::new(py, hash_prompt(py, &prompt, self.block_size(), &namespace, self.hash_key())?)?
        };
        self.lengths(py, Some(out), |held| Ok(self.index.match_blocks(hashes.get().blocks(), held)))?;
        Ok(hashes)
    }

    /// Tokens of the prefix by the best medium of each block: uint32[slots, 3] for GPU, CPU and disk.
    #[pyo3(signature = (prompt, namespace=None))]
    fn match_media<'py>(
        &self,
        py: Python<'py>,
        prompt: &Bound<'py, PyAny>,
        namespace: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyArray2<u32>>> {
        let media = self.index.match_media(self.hashed(py, prompt, namespace)?.blocks());
        let slots = media.len();
        media.into_flattened().into_pyarray(py).reshape([slots, Medium::ALL.len()])
    }

    /// Book a decision: the replica is believed to hold the prompt from now on.
    #[pyo3(signature = (name, prompt, namespace=None, now=0.0))]
    fn insert(
        &self,
        py: Python<'_>,
        name: Text<'_>,
        prompt: &Bound<'_, PyAny>,
        namespace: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = sizes::seconds)] now: f64,
    ) -> PyResult<Insertion> {
        let hashes = self.hashed(py, prompt, namespace)?;
        let blocks = hashes.blocks();
        let work = || self.at(&name, |slot| self.index.insert(slot, blocks, now));
        detached_if_long(py, blocks.len() * self.block_size(), work).map(Insertion::from)
    }

    /// Book prompts laid end to end. names is one name for all, or one for each prompt; stops at the first error.
    #[pyo3(signature = (names, flat, offsets, namespace=None, now=0.0))]
    fn insert_many(
        &self,
        py: Python<'_>,
        names: &Bound<'_, PyAny>,
        flat: &Bound<'_, PyAny>,
        offsets: &Bound<'_, PyAny>,
        namespace: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = sizes::seconds)] now: f64,
    ) -> PyResult<Vec<Insertion>> {
        let (ids, namespace) = (token_ids(flat)?, Namespace::read(namespace)?);
        let prompts = ragged(&ids, offsets)?;
        let names = names_of(names, prompts.len())?;
        if let Some(name) = names.iter().find(|name| self.index.slot(name).is_none()) {
            return Err(unknown(name));
        }
        let extra = namespace.extra();
        py.detach(|| {
            let mut hashes = Vec::new();
            let insert = |(name, ids): (&Cow<'_, str>, &&[u32])| {
                hashes.clear();
                hash_tokens_keyed(ids, self.block_size(), namespace.seed, &extra, self.hash_key(), &mut hashes)
                    .map_err(errors::of_core)?;
                self.at(name, |slot| self.index.insert(slot, &hashes, now)).map(Insertion::from)
            };
            names.iter().zip(&prompts).map(insert).collect()
        })
    }

    /// Take back the blocks that an insert added and nobody has touched since; returns how many.
    fn retract(
        &self,
        name: Text<'_>,
        hashes: &Bound<'_, BlockHashes>,
        insertion: &Bound<'_, Insertion>,
    ) -> PyResult<usize> {
        hashes.get().check_index(self.block_size(), self.hash_key())?;
        let (keep, stamp) = insertion.get().retract_key();
        self.at(&name, |slot| self.index.retract(slot, hashes.get().blocks(), keep, stamp))
    }

    /// Make the leading blocks held the most recently used; returns how many lead.
    #[pyo3(signature = (name, prompt, namespace=None, now=0.0))]
    fn touch(
        &self,
        py: Python<'_>,
        name: Text<'_>,
        prompt: &Bound<'_, PyAny>,
        namespace: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = sizes::seconds)] now: f64,
    ) -> PyResult<usize> {
        let hashes = self.hashed(py, prompt, namespace)?;
        self.at(&name, |slot| self.index.touch(slot, hashes.blocks(), now))
    }

    /// Keep the leading blocks held from eviction; returns how many lead. Unpin as many.
    fn pin(&self, name: Text<'_>, hashes: &Bound<'_, BlockHashes>) -> PyResult<usize> {
        hashes.get().check_index(self.block_size(), self.hash_key())?;
        self.at(&name, |slot| self.index.pin(slot, hashes.get().blocks()))
    }

    /// Take one pin from each of these blocks.
    fn unpin(&self, name: Text<'_>, hashes: &Bound<'_, BlockHashes>) -> PyResult<()> {
        hashes.get().check_index(self.block_size(), self.hash_key())?;
        self.at(&name, |slot| self.index.unpin(slot, hashes.get().blocks()))
    }

    /// Apply an engine's batch of KV events, as vLLM and SGLang send it: one call from bytes to index.
    ///
    /// Events are maps or arrays; hashes are ints of either sign or bytes; unknown fields and types are passed over. The group
    /// of full or MLA attention is followed in blocks of any size, and sliding-window groups bound what `match` gives.
    /// An event that is malformed costs itself alone.
    ///
    /// Args:
    ///     name: the replica (one data-parallel rank).
    ///     payload: the MessagePack bytes, 64 MiB at most.
    ///     sequence: the batch's number. Gaps are counted, a batch that came before does nothing, and number 0 after others
    ///         means that the engine began again: what it held is forgotten first. None: no numbers are compared.
    ///     namespace: where events are silent; they name the adapter and the salt, never the model.
    ///     now: seconds on the caller's clock.
    ///
    /// Returns:
    ///     What was done, with counts of blocks and events, and why events were refused.
    ///
    /// Raises:
    ///     ConfigError: the sequence is no number from 0 to 2**64 - 1; nothing was applied.
    ///     EventError: the bytes are no batch of events; nothing was applied.
    ///     UnknownReplicaError: no replica has that name.
    #[pyo3(signature = (name, payload, *, sequence=None, namespace=None, now=0.0))]
    fn apply(
        &self,
        py: Python<'_>,
        name: Text<'_>,
        payload: &[u8],
        #[pyo3(from_py_with = sizes::sequence)] sequence: Option<u64>,
        namespace: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = sizes::seconds)] now: f64,
    ) -> PyResult<Applied> {
        let base = Base::read(namespace)?;
        let work = || self.at(&name, |slot| self.index.apply(slot, payload, &base.spec(), sequence, now));
        detached_if_long(py, payload.len() * PAYLOAD_COST, work).map(Applied::from)
    }

    /// An engine stored these blocks, one after the other behind parent. Every store is a further copy, unless the replica
    /// was added with `reuse_reports`.
    ///
    /// Args:
    ///     name: the replica.
    ///     block_hashes: the engine's own, ints of either sign or bytes.
    ///     parent: the engine's hash of the block before; None: the first block starts a prompt.
    ///     token_ids: of all blocks. None at all: the blocks of these hashes are on that medium too, whatever they hold.
    ///     namespace: model, adapter, salt and extra keys, whose positions count from the first of these tokens.
    ///     medium: an engine's word in any case, such as "GPU", "cpu" or "STORAGE"; None: GPU. An unknown word counts as the
    ///         slowest tier.
    ///     ownership: who owns the copy on that medium; its removal has to say the same.
    ///     block_size: tokens of one of these blocks; None: as in the index. Blocks of other sizes are regrouped.
    ///     group: number of the attention group. A hash is a key within its group.
    ///     kind: its kind, as engines write it ("full_attention", "sliding_window", ...).
    ///     sliding_window: its window in tokens.
    ///     now: seconds on the caller's clock.
    ///
    /// Raises:
    ///     EventError: the token ids are not those of so many blocks, or the kind is unknown.
    ///     UnknownReplicaError: no replica has that name.
    #[pyo3(signature = (
        name, block_hashes, *, parent=None, token_ids, namespace=None, medium=None, ownership=None, block_size=None,
        group=0, kind=None, sliding_window=None, now=0.0
    ))]
    #[expect(clippy::too_many_arguments, reason = "the fields of an engine's event")]
    fn apply_stored(
        &self,
        py: Python<'_>,
        name: Text<'_>,
        block_hashes: &Bound<'_, PyAny>,
        parent: Option<&Bound<'_, PyAny>>,
        token_ids: &Bound<'_, PyAny>,
        namespace: Option<&Bound<'_, PyAny>>,
        medium: Option<Text<'_>>,
        ownership: Option<Text<'_>>,
        #[pyo3(from_py_with = sizes::optional_block_size)] block_size: Option<usize>,
        #[pyo3(from_py_with = sizes::group)] group: u32,
        kind: Option<Text<'_>>,
        #[pyo3(from_py_with = sizes::optional_group)] sliding_window: Option<u32>,
        #[pyo3(from_py_with = sizes::seconds)] now: f64,
    ) -> PyResult<Stored> {
        let names = hash_values(block_hashes)?;
        let parent = parent.map(|parent| hash_value(parent, 0)).transpose()?.map(EngineHash);
        let (namespace, tokens) = (Namespace::read(namespace)?, crate::tokens::token_ids(token_ids)?);
        let event = StoreEvent {
            names: engine_hashes(&names),
            parent,
            tokens: &tokens,
            keys: &namespace.extra(),
            block_size: block_size.unwrap_or(self.block_size()),
            seed: namespace.seed,
            residence: residence(medium.as_deref(), ownership.as_deref()),
            group: group_of(group, kind.as_deref(), sliding_window)?,
        };
        let work = || self.at(&name, |slot| self.index.store(slot, &event, now));
        detached_if_long(py, names.len() * EVENT_COST, work).map(Stored::from)
    }

    /// The same where the engine's hashes are those of this index: chained, as `BlockHashes` has them. No token ids are
    /// needed. A simulated replica sends such events, and an engine whose block hashes this index is given to match.
    #[pyo3(signature = (name, block_hashes, *, parent=None, medium=None, now=0.0))]
    fn apply_stored_hashes(
        &self,
        py: Python<'_>,
        name: Text<'_>,
        block_hashes: &Bound<'_, PyAny>,
        parent: Option<&Bound<'_, PyAny>>,
        medium: Option<Text<'_>>,
        #[pyo3(from_py_with = sizes::seconds)] now: f64,
    ) -> PyResult<Stored> {
        let blocks = hash_values(block_hashes)?;
        let parent = parent.map(|parent| hash_value(parent, 0)).transpose()?.map(EngineHash);
        let residence = residence(medium.as_deref(), None);
        let work = || {
            self.at(&name, |slot| self.index.store_hashes(slot, self::block_hashes(&blocks), parent, residence, now))
        };
        detached_if_long(py, blocks.len() * EVENT_COST, work).map(Stored::from)
    }

    /// The replica sends events, though none has come yet: what is inserted there is provisional.
    ///
    /// Raises:
    ///     UnknownReplicaError: no replica has that name.
    fn expect_events(&self, name: Text<'_>) -> PyResult<()> {
        self.at(&name, |slot| self.index.expect_events(slot))
    }

    /// An engine removed one copy of each of these blocks.
    ///
    /// Args:
    ///     name: the replica.
    ///     block_hashes: the engine's own.
    ///     medium: as in `apply_stored`.
    ///     ownership: as in `apply_stored`.
    ///     group: as in `apply_stored`.
    ///
    /// Raises:
    ///     UnknownReplicaError: no replica has that name.
    #[pyo3(signature = (name, block_hashes, *, medium=None, ownership=None, group=0))]
    fn apply_removed(
        &self,
        py: Python<'_>,
        name: Text<'_>,
        block_hashes: &Bound<'_, PyAny>,
        medium: Option<Text<'_>>,
        ownership: Option<Text<'_>>,
        #[pyo3(from_py_with = sizes::group)] group: u32,
    ) -> PyResult<Removed> {
        let (names, residence) = (hash_values(block_hashes)?, residence(medium.as_deref(), ownership.as_deref()));
        let work = || self.at(&name, |slot| self.index.remove(slot, engine_hashes(&names), residence, group));
        detached_if_long(py, names.len() * EVENT_COST, work).map(Removed::from)
    }

    /// An engine reset its cache.
    fn apply_cleared(&self, py: Python<'_>, name: Text<'_>) -> PyResult<()> {
        py.detach(|| self.at(&name, |slot| self.index.cleared(slot)))
    }

    /// Drop belief that is older than its time to live; returns how many blocks.
    fn expire(&self, py: Python<'_>, #[pyo3(from_py_with = sizes::seconds)] now: f64) -> PyResult<usize> {
        py.detach(|| self.index.expire(now)).map_err(errors::of_core)
    }

    /// Tokens that each slot holds, believed and known.
    fn held_tokens(&self) -> Vec<u64> {
        let size = self.block_size() as u64;
        self.index.held_blocks().into_iter().map(|blocks| blocks * size).collect()
    }

    /// Blocks from store events of each slot since a query last matched there. Where it grows while prompts are routed, the
    /// hashes of that engine and of the router do not agree.
    fn unmatched_event_blocks(&self) -> Vec<u64> {
        self.index.unmatched_event_blocks()
    }

    /// Counters of a replica's event feed since it was added.
    ///
    /// Raises:
    ///     UnknownReplicaError: no replica has that name.
    fn feed_stats(&self, name: Text<'_>) -> PyResult<FeedStats> {
        self.at(&name, |slot| self.index.feed_stats(slot)).map(FeedStats::from)
    }

    /// State and counters.
    fn stats(&self) -> IndexStats {
        self.index.stats().into()
    }

    /// The whole index as bytes: versioned, checksummed, exact to the order of eviction.
    fn to_bytes<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &py.detach(|| self.index.to_bytes()))
    }

    /// The index that `to_bytes` saved. Bytes that were cut or altered raise `ConfigError`.
    #[staticmethod]
    fn from_bytes(py: Python<'_>, data: &[u8]) -> PyResult<Self> {
        let index = py.detach(|| Index::from_bytes(data)).map_err(errors::of_core)?;
        Ok(Self { index, fleet: RwLock::new(()) })
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

#[cold]
fn unknown(name: &str) -> PyErr {
    errors::unknown_replica(format!("no replica is named {name:?}"))
}

fn residence(medium: Option<&str>, ownership: Option<&str>) -> Residence {
    Residence::of(medium.map(str::as_bytes), ownership.map(str::as_bytes)).0
}

/// `BlockHash` is a transparent `u64`.
fn block_hashes(values: &[u64]) -> &[BlockHash] {
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
