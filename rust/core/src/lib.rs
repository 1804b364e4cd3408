//! The index of prefixroute: which replica holds how much of a prompt's prefix. Knows no Python.

mod belief;
mod budget;
pub mod columns;
mod config;
pub mod draws;
mod engine;
mod error;
mod event_map;
mod events;
mod first_blocks;
mod growth;
pub mod hash;
mod holders;
mod holdings;
mod ids;
mod index;
mod linked_slab;
mod lock;
mod memory;
mod outcome;
pub mod peers;
pub mod policies;
mod recency;
mod registry;
pub mod replica_cache;
pub mod routing;
pub mod sim;
mod snapshot;
mod spread;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod trie;
mod unmatched;
#[cfg(any(test, feature = "testing"))]
mod validate;

pub use config::{Config, MOST_COPIES, ORPHAN_BLOCKS, PROVISIONAL_S};
pub use error::{
    Error, MAX_BLOCK_SIZE, MAX_NAME_BYTES, MAX_PAYLOAD_BYTES, MAX_PROMPT_BLOCKS, MAX_REPLICAS, MAX_RUNS, Result,
};
pub use events::{Back, Group, GroupKind, Numbers, REMEMBERED_BATCHES, Residence, StoreEvent};
pub use ids::{BlockHash, ContentHash, EngineHash, Medium, Slot};
pub use index::Index;
pub use outcome::{Applied, Contents, FeedStats, Inserted, Removed, Stats, Stored, StoredEvent};
pub use registry::ReplicaKey;
