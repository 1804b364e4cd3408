//! What the calls of an index give back, as frozen Python objects.

use prefixroute_core as core;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple, PyType};

/// A frozen class with the fields of a value of the core: compared, hashed, copied and pickled by value.
macro_rules! value_class {
    ($(#[$doc:meta])* $class:ident of $core:path { $($(#[$field_doc:meta])* $field:ident: $type:ty),* $(,)? }) => {
        value_class! { $(#[$doc])* $class { $($(#[$field_doc])* $field: $type),* } }

        impl From<$core> for $class {
            fn from(value: $core) -> Self {
                Self { $($field: value.$field),* }
            }
        }
    };
    ($(#[$doc:meta])* $class:ident { $($(#[$field_doc:meta])* $field:ident: $type:ty),* $(,)? }) => {
        $(#[$doc])*
        #[allow(clippy::struct_field_names, reason = "the names that the core gives")]
        #[pyclass(frozen, get_all, eq, hash, module = "prefixroute._core")]
        #[derive(PartialEq, Eq, Hash)]
        pub struct $class {
            $($(#[$field_doc])* $field: $type),*
        }

        #[pymethods]
        impl $class {
            #[new]
            #[allow(clippy::too_many_arguments, clippy::fn_params_excessive_bools, reason = "one for each field")]
            pub const fn new($($field: $type),*) -> Self {
                Self { $($field),* }
            }

            fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyType>, Bound<'py, PyTuple>)> {
                let fields = [$(self.$field.into_pyobject(py)?.to_owned().into_any()),*];
                Ok((py.get_type::<Self>(), PyTuple::new(py, fields)?))
            }

            /// The fields by name.
            fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
                let fields = PyDict::new(py);
                $(fields.set_item(stringify!($field), self.$field)?;)*
                Ok(fields)
            }

            fn __repr__(&self) -> String {
                let fields: &[String] = &[$(format!(concat!(stringify!($field), "={}"), self.$field)),*];
                format!(concat!(stringify!($class), "({})"), fields.join(", "))
            }
        }
    };
}
pub(crate) use value_class;

value_class! {
    /// What an insert did, in blocks. Hand it to `retract` to take it back.
    Insertion of core::Inserted {
        /// Leading blocks that the replica held already.
        held_before: usize,
        /// Blocks that are new and stayed.
        stored: usize,
        /// New blocks that found no room.
        dropped: usize,
        /// Older blocks of this replica that made room.
        evicted: usize,
        /// Names this insert to `retract`.
        stamp: u64,
    }
}

impl Insertion {
    /// Positions kept and the stamp, for `retract`.
    pub fn retract_key(&self) -> (usize, u64) {
        (self.held_before, self.stamp)
    }
}

value_class! {
    /// What a store event did, in blocks.
    Stored of core::Stored {
        /// Blocks that the replica did not hold.
        stored: usize,
        /// Believed blocks that the event confirmed.
        confirmed: usize,
        /// Further copies of blocks that it held.
        copies: usize,
        /// Blocks that wait for their parent.
        orphaned: usize,
        /// Waiting blocks that found their parent.
        adopted: usize,
        /// Blocks that found no room under `max_bytes`.
        dropped: usize,
        /// Blocks that a replica which reports reuse said again.
        reused: usize,
        /// Blocks of attention groups that the index does not follow.
        unindexed: usize,
        /// Blocks that nobody can place: named without content and never stored, or parts of a block whose start is unknown.
        placeless: usize,
        /// Blocks smaller than the index's that completed none of its blocks: what follows them may.
        unfilled: usize,
    }
}

value_class! {
    /// What a removal event did.
    Removed of core::Removed {
        /// Copies taken away.
        removed: usize,
        /// Names that no copy of this replica has.
        unknown: usize,
    }
}

value_class! {
    /// State and counters of an index.
    IndexStats of core::Stats {
        /// Live replicas.
        replicas: usize,
        /// Distinct blocks held by at least one replica.
        blocks: u64,
        /// Pairs of (block, replica) held.
        memberships: u64,
        /// Of these, pairs that are belief.
        believed: u64,
        /// Runs of the tree.
        runs: usize,
        /// Entries of the head table.
        table_entries: usize,
        /// Bytes that hold something.
        live_bytes: u64,
        /// Bytes allocated, `live_bytes` included.
        reserved_bytes: u64,
        /// Names of engines in the event map.
        event_names: usize,
        /// Blocks in the orphan buffer now.
        orphans: usize,
        /// Blocks ever put in the orphan buffer.
        orphaned: u64,
        /// Blocks that the orphan buffer had no room for.
        orphans_dropped: u64,
        /// Removals of what was not there.
        unknown_removals: u64,
        /// Blocks that replicas which report reuse said again.
        reused: u64,
        /// New blocks that found no room in their replica.
        dropped: u64,
        /// Blocks evicted by a replica's capacity.
        evicted_capacity: u64,
        /// Blocks evicted by `max_bytes`.
        evicted_bytes: u64,
        /// Blocks expired.
        expired: u64,
        /// Blocks taken back by `retract`.
        retracted: u64,
        /// Blocks from store events of replicas that no query has matched since, over all replicas.
        unmatched_event_blocks: u64,
    }
}

value_class! {
    /// Counters of a replica's event feed since it was added.
    FeedStats of core::FeedStats {
        /// Batches applied.
        batches: u64,
        /// Events in them.
        events: u64,
        /// Events that were malformed.
        refused: u64,
        /// Events of unknown types.
        unrecognized: u64,
        /// Blocks of attention groups that the index does not follow.
        unindexed: u64,
        /// Blocks that nobody could place.
        placeless: u64,
        /// Events on media of unknown names, which count as the slowest tier.
        unknown_media: u64,
        /// Batches that never came, by their sequence numbers.
        missed: u64,
        /// Times that the engine began again.
        restarts: u64,
        /// Batches that came again, or too late.
        stale: u64,
        /// Batches of another data-parallel rank than the first one.
        other_rank: u64,
    }
}

/// What a batch of events did. Counts are in blocks unless they say events.
#[pyclass(frozen, get_all, module = "prefixroute._core")]
pub struct Applied {
    /// When the engine sent it, in seconds on its clock.
    timestamp: f64,
    /// The data-parallel rank that sent it, or None.
    rank: Option<i64>,
    /// Events of the batch.
    events: usize,
    /// Blocks that the replica did not hold.
    stored: usize,
    /// Believed blocks that the events confirmed.
    confirmed: usize,
    /// Further copies of blocks that it held.
    copies: usize,
    /// Blocks that wait for their parent.
    orphaned: usize,
    /// Waiting blocks that found their parent.
    adopted: usize,
    /// Blocks that found no room under `max_bytes`.
    dropped: usize,
    /// Blocks that a replica which reports reuse said again.
    reused: usize,
    /// Blocks of attention groups that the index does not follow.
    unindexed: usize,
    /// Blocks that nobody can place: named without content and never stored, or parts of a block whose start is unknown.
    placeless: usize,
    /// Blocks smaller than the index's that completed none of its blocks: what follows them may.
    unfilled: usize,
    /// Copies taken away.
    removed: usize,
    /// Names in removals that no copy of this replica has.
    unknown: usize,
    /// Clear events.
    cleared: usize,
    /// Events that are malformed, each of which cost itself alone.
    refused: usize,
    /// Events of types that this version does not know.
    unrecognized: usize,
    /// Batches missing before this one, by its sequence number.
    missed: u64,
    /// Why events were refused or not recognized: the first eight.
    reasons: Vec<String>,
    /// Adapters whose blocks it stored, each once: the first 256.
    adapters: Vec<String>,
    /// Some event spoke of a medium other than the GPU.
    tiered: bool,
    /// The engine began again: what it held before was forgotten.
    restarted: bool,
    /// A batch that had been applied before: nothing was done.
    stale: bool,
}

impl From<core::Applied> for Applied {
    fn from(done: core::Applied) -> Self {
        let (stored, removed) = (done.stored, done.removed);
        Self {
            timestamp: done.timestamp,
            rank: done.rank,
            events: done.events,
            stored: stored.stored,
            confirmed: stored.confirmed,
            copies: stored.copies,
            orphaned: stored.orphaned,
            adopted: stored.adopted,
            dropped: stored.dropped,
            reused: stored.reused,
            unindexed: stored.unindexed,
            placeless: stored.placeless,
            unfilled: stored.unfilled,
            removed: removed.removed,
            unknown: removed.unknown,
            cleared: done.cleared,
            refused: done.refused,
            unrecognized: done.unrecognized,
            missed: done.missed,
            reasons: done.reasons,
            adapters: done.adapters,
            tiered: done.tiered,
            restarted: done.restarted,
            stale: done.stale,
        }
    }
}

impl Applied {
    /// The counts by name.
    fn counts(&self) -> [(&'static str, u64); 17] {
        [
            ("events", self.events as u64),
            ("stored", self.stored as u64),
            ("confirmed", self.confirmed as u64),
            ("copies", self.copies as u64),
            ("orphaned", self.orphaned as u64),
            ("adopted", self.adopted as u64),
            ("dropped", self.dropped as u64),
            ("reused", self.reused as u64),
            ("unindexed", self.unindexed as u64),
            ("placeless", self.placeless as u64),
            ("unfilled", self.unfilled as u64),
            ("removed", self.removed as u64),
            ("unknown", self.unknown as u64),
            ("cleared", self.cleared as u64),
            ("refused", self.refused as u64),
            ("unrecognized", self.unrecognized as u64),
            ("missed", self.missed),
        ]
    }
}

#[pymethods]
impl Applied {
    /// The fields by name.
    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let fields = PyDict::new(py);
        fields.set_item("timestamp", self.timestamp)?;
        fields.set_item("rank", self.rank)?;
        for (name, count) in self.counts() {
            fields.set_item(name, count)?;
        }
        fields.set_item("reasons", &self.reasons)?;
        fields.set_item("adapters", &self.adapters)?;
        fields.set_item("tiered", self.tiered)?;
        fields.set_item("restarted", self.restarted)?;
        fields.set_item("stale", self.stale)?;
        Ok(fields)
    }

    fn __repr__(&self) -> String {
        let counts = self.counts().into_iter().filter(|(_, count)| *count > 0);
        let counts: Vec<String> = counts.map(|(name, count)| format!(" {name}={count}")).collect();
        format!("<Applied{}>", counts.concat())
    }
}
