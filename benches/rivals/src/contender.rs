//! One index under test, driven over its own fastest public calls; what a caller has at hand anyway (hashes of the prompt,
//! a decoded event) is prepared outside of the clock, in the type that the index takes.

use crate::workload::{Blocks, Chain};

#[cfg(feature = "dynamo")]
mod dynamo;
mod ours;
#[cfg(feature = "smg")]
mod smg;
#[cfg(feature = "smg")]
mod smg_radix;
#[cfg(feature = "wheel")]
mod wheel;

#[cfg(feature = "dynamo")]
pub use dynamo::{DynamoConcurrent, DynamoRadix};
pub use ours::{Belief, Ours};
#[cfg(feature = "smg")]
pub use smg::{SmgChain, SmgTokenTree};
#[cfg(feature = "smg")]
pub use smg_radix::SmgRadix;
#[cfg(feature = "wheel")]
pub use wheel::DynamoWheel;

/// An index that is fed by engines' events.
pub trait Contender {
    const NAME: &'static str;
    /// Hashes of one prompt, in the type that a lookup takes.
    type Query: Clone;
    /// One decoded event.
    type Event;

    fn with_replicas(replicas: usize) -> Self;

    fn query(chain: &Chain) -> Self::Query;

    /// These blocks are stored, one after the other, behind the block that the engine calls `parent`.
    fn stored(replica: usize, parent: Option<u64>, blocks: Blocks<'_>) -> Self::Event;

    /// The blocks with these names are evicted.
    fn removed(replica: usize, names: &[u64]) -> Self::Event;

    /// Applies an event; what the index takes by value is moved out of it.
    fn apply(&self, event: &mut Self::Event);

    /// The timed lookup. `query` may be consumed; `out` is filled by indexes that answer into a caller's array.
    fn lookup(&self, query: &mut Self::Query, out: &mut [u32]);

    /// Leading blocks held by each replica.
    fn answer(&self, chain: &Chain, out: &mut [u32]);

    /// Bytes that it has from the system past the allocator.
    fn mapped_bytes(&self) -> usize {
        0
    }

    /// Returns when every event is applied (an index with a queue drains it).
    fn finish(&self) {}
}

/// An index that is fed by the router's own decisions and keeps each replica below a capacity.
pub trait Believer {
    const NAME: &'static str;
    /// A prompt as an insert takes it.
    type Prompt;

    fn with_capacity(replicas: usize, blocks: usize) -> Self;

    fn prompt(tokens: &[u32]) -> Self::Prompt;

    fn insert(&mut self, replica: usize, prompt: &Self::Prompt);

    /// Brings each replica down to its capacity, where inserting does not do so itself.
    fn evict(&mut self) {}

    /// Leading tokens of the prompt that the best replica holds.
    fn best(&self, prompt: &Self::Prompt) -> usize;
}
