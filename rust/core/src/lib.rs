//! The index of prefixroute: which replica holds how much of a prompt's prefix. Knows no Python.

mod config;
mod error;
pub mod hash;
mod ids;
mod index;
mod outcome;
mod registry;
pub mod replica_cache;
pub mod testing;

pub use config::{Config, ORPHAN_BLOCKS, PROVISIONAL_TTL};
pub use error::{Error, MAX_BLOCK_SIZE, MAX_NAME_BYTES, MAX_REPLICAS, Result};
pub use ids::{BlockHash, ContentHash, EngineHash, Medium, Slot};
pub use index::Index;
pub use outcome::{Inserted, Removed, Stats, Stored, StoredEvent};
