//! Truth: what engines say in their events.

use prefixroute_core::{EngineHash, Residence, StoreEvent};
use pyo3::prelude::*;

use super::{PrefixIndex, as_block_hashes};
use crate::errors;
use crate::event::{engine_hashes, group_of};
use crate::hashes::{detached_if_long, hash_value, hash_values};
use crate::namespace::{Base, Namespace};
use crate::outcomes::{Applied, FeedStats, Removed, Stored};
use crate::sizes;
use crate::text::Text;
use crate::tokens;

/// A block of an event costs as much as hashing so many tokens.
const EVENT_COST: usize = 128;
/// A byte of a batch of events costs as much as hashing so many tokens.
const PAYLOAD_COST: usize = 4;

#[pymethods]
impl PrefixIndex {
    /// Apply an engine's batch of KV events, as vLLM and SGLang send it: one call from bytes to index.
    ///
    /// Events are maps or arrays; hashes are ints of either sign or bytes; unknown fields and types are passed over. The group
    /// of full or MLA attention is followed in blocks of any size, and sliding-window groups bound what `match` gives.
    /// An event that is malformed costs itself alone.
    ///
    /// Args:
    ///     name: the replica (one data-parallel rank).
    ///     payload: the MessagePack bytes, 64 MiB at most.
    ///     sequence: the batch's number. Gaps are counted. Of a number that is not above the last one, the bytes tell: those
    ///         that were applied under that number come again, and a number that was missing is too late; both do nothing.
    ///         Anything else means that the engine began again, at whatever number: what it held is forgotten first.
    ///         None: no numbers are compared.
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
        let work = || self.index.apply(&*name, payload, &base.spec(), sequence, now);
        detached_if_long(py, payload.len() * PAYLOAD_COST, work).map(Applied::from).map_err(errors::of_core)
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
        let (namespace, tokens) = (Namespace::read(namespace)?, tokens::token_ids(token_ids)?);
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
        let work = || self.index.store(&*name, &event, now);
        detached_if_long(py, names.len() * EVENT_COST, work).map(Stored::from).map_err(errors::of_core)
    }

    /// An engine stored blocks, whose hashes are those of this index: chained, as `BlockHashes` has them. No token ids are
    /// needed. A simulated replica sends such events, and an engine whose block hashes this index is given to match.
    ///
    /// Args:
    ///     name: the replica.
    ///     block_hashes: uint64 hashes, one after the other.
    ///     parent: the hash of the block before; None: the first block starts a prompt.
    ///     medium: as in `apply_stored`.
    ///     now: seconds on the caller's clock.
    ///
    /// Returns:
    ///     What was stored.
    ///
    /// Raises:
    ///     UnknownReplicaError: no replica has that name.
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
        let work = || self.index.store_hashes(&*name, as_block_hashes(&blocks), parent, residence, now);
        detached_if_long(py, blocks.len() * EVENT_COST, work).map(Stored::from).map_err(errors::of_core)
    }

    /// The replica sends events, though none has come yet: what is inserted there is provisional.
    ///
    /// Args:
    ///     name: the replica.
    ///
    /// Raises:
    ///     UnknownReplicaError: no replica has that name.
    fn expect_events(&self, name: Text<'_>) -> PyResult<()> {
        self.index.expect_events(&*name).map_err(errors::of_core)
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
        let work = || self.index.remove(&*name, engine_hashes(&names), residence, group);
        detached_if_long(py, names.len() * EVENT_COST, work).map(Removed::from).map_err(errors::of_core)
    }

    /// An engine reset its cache.
    ///
    /// Args:
    ///     name: the replica.
    ///
    /// Raises:
    ///     UnknownReplicaError: no replica has that name.
    fn apply_cleared(&self, py: Python<'_>, name: Text<'_>) -> PyResult<()> {
        py.detach(|| self.index.clear(&*name)).map_err(errors::of_core)
    }

    /// Blocks from store events of each slot since a query last matched there. Where it grows while prompts are routed, the
    /// hashes of that engine and of the router do not agree.
    fn unmatched_event_blocks(&self) -> Vec<u64> {
        self.index.unmatched_event_blocks()
    }

    /// Blocks of each slot with more copies than requests can have made, 1,024: its engine reports reuse, see
    /// `add_replica(reuse_reports=True)`, or removals are lost. Costs O(runs).
    fn crowded_blocks(&self) -> Vec<u64> {
        self.index.crowded_blocks()
    }

    /// Counters of a replica's event feed since it was added.
    ///
    /// Args:
    ///     name: the replica.
    ///
    /// Returns:
    ///     Counts of batches, events, blocks, gaps and refusals.
    ///
    /// Raises:
    ///     UnknownReplicaError: no replica has that name.
    fn feed_stats(&self, name: Text<'_>) -> PyResult<FeedStats> {
        self.index.feed_stats(&*name).map(FeedStats::from).map_err(errors::of_core)
    }
}

fn residence(medium: Option<&str>, ownership: Option<&str>) -> Residence {
    Residence::of(medium.map(str::as_bytes), ownership.map(str::as_bytes)).0
}
