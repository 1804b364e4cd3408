//! Prompts of tests and benches: what an engine says of their blocks, and the chain that an index makes of that.

use std::ops::Range;

use crate::hash::{chained, mix};
use crate::{BlockHash, Contents, EngineHash, Index, Medium, Slot, StoredEvent};

/// What begins every chain here.
const SEED: u64 = 1;

/// A prompt, block by block.
#[derive(Clone, Debug)]
pub struct Prompt {
    /// Content hashes.
    pub contents: Vec<u64>,
    /// The hashes chained.
    pub chain: Vec<BlockHash>,
    /// The engine's names: one for each block with all before it.
    pub names: Vec<EngineHash>,
}

impl Prompt {
    /// The prompt of these contents.
    pub fn new(contents: impl IntoIterator<Item = u64>) -> Self {
        let contents: Vec<u64> = contents.into_iter().collect();
        let chain: Vec<BlockHash> = chained(SEED, contents.iter().copied()).collect();
        let names = chain.iter().map(|block| EngineHash(block.0.rotate_left(17))).collect();
        Prompt { contents, chain, names }
    }

    /// The prompt number `own`, which shares its first `fork` blocks with all of its family.
    pub fn forked(family: u64, fork: usize, own: u64, len: usize) -> Self {
        Prompt::new((0..len).map(|at| if at < fork { family * 1_000 + at as u64 + 1 } else { mix(own, at as u64) }))
    }

    /// The event of an engine that stores these blocks on its GPU.
    pub fn event(&self, blocks: Range<usize>) -> StoredEvent<'_> {
        StoredEvent {
            engine: &self.names[blocks.clone()],
            parent: blocks.start.checked_sub(1).map(|before| self.names[before]),
            contents: Contents::Blocks(&self.contents[blocks]),
            seed: SEED,
            medium: Medium::Gpu,
        }
    }

    /// Stores all of it at a replica, which lives.
    ///
    /// # Panics
    ///
    /// No replica lives in that slot.
    pub fn store(&self, index: &Index, slot: Slot) {
        #[expect(clippy::expect_used, reason = "what a test sets up")]
        index.stored(slot, &self.event(0..self.names.len()), 0.0).expect("a live replica");
    }
}
