//! What the calls of an index give back.

use std::ops::Range;

use crate::hash::{chained, mix};
use crate::ids::{BlockHash, EngineHash, Medium};

/// What an insert did. `held_before + stored + dropped` is the prompt's length in blocks where nothing lay behind a hole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Inserted {
    /// Leading blocks that the replica held already.
    pub held_before: usize,
    /// Blocks that are new and stayed.
    pub stored: usize,
    /// New blocks that found no room.
    pub dropped: usize,
    /// Older blocks of this replica that made room.
    pub evicted: usize,
    /// Names this insert to `retract`.
    pub stamp: u64,
}

/// A store event of an engine. All borrowed; `engine` and `contents` are equally long.
#[derive(Clone, Copy, Debug)]
pub struct StoredEvent<'a> {
    /// The engine's names of the blocks, in order.
    pub engine: &'a [EngineHash],
    /// The engine's name of the block before; `None` if the first block starts a prompt.
    pub parent: Option<EngineHash>,
    /// What is in the blocks.
    pub contents: Contents<'a>,
    /// Seed of the namespace, used if there is no parent.
    pub seed: u64,
    /// Where the copy lies.
    pub medium: Medium,
}

impl StoredEvent<'_> {
    /// The same of some of its blocks.
    pub(crate) fn part(&self, blocks: Range<usize>) -> Self {
        StoredEvent {
            engine: &self.engine[blocks.clone()],
            parent: blocks.start.checked_sub(1).map_or(self.parent, |before| Some(self.engine[before])),
            contents: match self.contents {
                Contents::Blocks(contents) => Contents::Blocks(&contents[blocks]),
                Contents::Prefixes(prefixes) => Contents::Prefixes(&prefixes[blocks]),
            },
            ..*self
        }
    }
}

/// What is in the blocks of a store event.
#[derive(Clone, Copy, Debug)]
pub enum Contents<'a> {
    /// Content hashes (extra keys included), each of its block alone.
    Blocks(&'a [u64]),
    /// Chained hashes, each of its block and all before: the sender hashes prompts as this index does.
    Prefixes(&'a [BlockHash]),
}

/// What is in one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    Block(u64),
    Prefix(BlockHash),
}

impl Content {
    /// The chained hash of the block, behind the one with the hash `before`.
    pub(crate) fn chained(self, before: u64) -> BlockHash {
        match self {
            Self::Block(content) => BlockHash(mix(before, content)),
            Self::Prefix(block) => block,
        }
    }

    /// The same as what an event of one block has.
    pub(crate) fn as_contents<R>(self, work: impl FnOnce(Contents<'_>) -> R) -> R {
        match self {
            Self::Block(content) => work(Contents::Blocks(&[content])),
            Self::Prefix(block) => work(Contents::Prefixes(&[block])),
        }
    }
}

impl Contents<'_> {
    /// Blocks described.
    pub fn len(&self) -> usize {
        match self {
            Self::Blocks(contents) => contents.len(),
            Self::Prefixes(blocks) => blocks.len(),
        }
    }

    /// Whether no block is described.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What is in each block.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Content> {
        (0..self.len()).map(|at| self.get(at))
    }

    /// What is in one of the blocks.
    pub(crate) fn get(&self, at: usize) -> Content {
        match self {
            Self::Blocks(contents) => Content::Block(contents[at]),
            Self::Prefixes(blocks) => Content::Prefix(blocks[at]),
        }
    }

    /// Appends the chained hashes of the blocks, behind the one with the hash `before`.
    pub(crate) fn chain(&self, before: u64, out: &mut Vec<BlockHash>) {
        match self {
            Self::Prefixes(blocks) => out.extend_from_slice(blocks),
            Self::Blocks(contents) => out.extend(chained(before, contents.iter().copied())),
        }
    }
}

/// What a store event did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stored {
    /// Blocks that the replica did not hold.
    pub stored: usize,
    /// Believed blocks that the event confirmed.
    pub confirmed: usize,
    /// Further copies of blocks that it held.
    pub copies: usize,
    /// Blocks that wait for their parent.
    pub orphaned: usize,
    /// Waiting blocks, of any replica, that found their parent.
    pub adopted: usize,
    /// Blocks that found no room under `max_bytes`.
    pub dropped: usize,
    /// Blocks that a replica which reports reuse said again.
    pub reused: usize,
    /// Blocks of attention groups that the index does not follow.
    pub unindexed: usize,
    /// Blocks that nobody can place: named without content and never stored, or parts of a block whose start is unknown.
    pub placeless: usize,
    /// Blocks smaller than the index's that completed none of its blocks: what follows them may.
    pub unfilled: usize,
}

/// What a removal event did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Removed {
    /// Copies taken away.
    pub removed: usize,
    /// Names that no copy of this replica has.
    pub unknown: usize,
}

/// What a batch of events did.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Applied {
    /// When the engine sent it, in seconds on its clock.
    pub timestamp: f64,
    /// The data-parallel rank that sent it, if it says so.
    pub rank: Option<i64>,
    /// Events of the batch.
    pub events: usize,
    /// What its stores did, in blocks.
    pub stored: Stored,
    /// What its removals did.
    pub removed: Removed,
    /// Clear events.
    pub cleared: usize,
    /// Events that are malformed, each of which cost itself alone.
    pub refused: usize,
    /// Events of types that this version does not know.
    pub unrecognized: usize,
    /// Why events were refused or not recognized: the first few.
    pub reasons: Vec<String>,
    /// Adapters whose blocks it stored, each once: the first few.
    pub adapters: Vec<String>,
    /// Batches missing before this one, by its sequence number.
    pub missed: u64,
    /// Some store spoke of a medium other than the GPU.
    pub tiered: bool,
    /// The engine began again: what it held before is forgotten.
    pub restarted: bool,
    /// A batch that was applied before: nothing was done.
    pub stale: bool,
}

/// Counters of a replica's event feed since it was added.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FeedStats {
    /// Batches applied.
    pub batches: u64,
    /// Events in them.
    pub events: u64,
    /// Events that were malformed.
    pub refused: u64,
    /// Events of unknown types.
    pub unrecognized: u64,
    /// Blocks of attention groups that the index does not follow.
    pub unindexed: u64,
    /// Blocks that nobody could place.
    pub placeless: u64,
    /// Events on media of unknown names, which count as the slowest tier.
    pub unknown_media: u64,
    /// Batches that never came, by their sequence numbers.
    pub missed: u64,
    /// Times that the engine began again.
    pub restarts: u64,
    /// Batches that came again, or too late.
    pub stale: u64,
    /// Batches of another data-parallel rank than the first one: engines' ranks have caches of their own.
    pub other_rank: u64,
}

/// State and counters of an index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Live replicas.
    pub replicas: usize,
    /// Distinct blocks held by at least one replica.
    pub blocks: u64,
    /// Pairs of (block, replica) held.
    pub memberships: u64,
    /// Of these, pairs that are belief.
    pub believed: u64,
    /// Runs of the tree.
    pub runs: usize,
    /// Entries of the head table.
    pub table_entries: usize,
    /// Bytes that hold something.
    pub live_bytes: u64,
    /// Bytes allocated, `live_bytes` included.
    pub reserved_bytes: u64,
    /// Names of engines in the event map.
    pub event_names: usize,
    /// Blocks in the orphan buffer now.
    pub orphans: usize,
    /// Blocks ever put in the orphan buffer.
    pub orphaned: u64,
    /// Blocks that the orphan buffer had no room for.
    pub orphans_dropped: u64,
    /// Removals of what was not there.
    pub unknown_removals: u64,
    /// Blocks that replicas which report reuse said again.
    pub reused: u64,
    /// New blocks that found no room, in their replica or under `max_bytes`.
    pub dropped: u64,
    /// Blocks evicted by a replica's capacity.
    pub evicted_capacity: u64,
    /// Blocks evicted by `max_bytes`.
    pub evicted_bytes: u64,
    /// Blocks evicted by time.
    pub expired: u64,
    /// Blocks taken back by `retract`.
    pub retracted: u64,
    /// Blocks from store events of replicas that no query has matched since, summed over replicas: if it grows while
    /// prompts are routed, the hashes of an engine and the router do not agree. See `Index::unmatched_event_blocks`.
    pub unmatched_event_blocks: u64,
}
