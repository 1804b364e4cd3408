//! The dull twins, the oracle of every test: a block LRU per replica for belief, a residency multiset for truth.

pub mod history;
mod lru;
pub mod payloads;
pub mod peers;
mod prompt;
mod residency;
mod twin;

pub use lru::BlockLru;
pub use prompt::Prompt;
pub use residency::{Names, Orphan, Orphans, Residency};
pub use twin::Twin;
