//! The simulated truth: what one engine process holds in its prefix cache.
//!
//! [`ReplicaCache`] follows the rules of a paged engine such as vLLM: only full blocks are kept, a prefix shared by many
//! requests is kept once, blocks of running requests are pinned, the least recently used block goes first and, inside
//! one request, the tail before the head. The last token of a prompt is always computed again, so a hit is at most
//! `tokens - 1`, rounded down to blocks. [`EntryCache`] is the coarser model that caches whole entries.
//!
//! The blocks form a trie of *runs*: maximal stretches that were used together. A request touches runs, not blocks, so
//! serving the next turn of a long conversation costs the number of its runs plus the number of its new blocks.

mod entries;
mod runs;
#[cfg(test)]
mod tests;

use std::sync::Arc;

pub use entries::EntryCache;
use runs::{RunId, Runs, Walk};
use rustc_hash::FxHashMap;

use crate::ids::BlockHash;
use crate::linked_slab::Id;

/// A prompt, or a prompt with its output, as the cache sees it.
#[derive(Clone, Copy, Debug)]
pub struct Sequence<'a> {
    /// Chained hashes of the full blocks.
    pub blocks: &'a [BlockHash],
    /// All tokens, those of the unfinished last block included.
    pub tokens: usize,
}

/// A sequence that owns its hashes, or shares them with others.
#[derive(Clone, Debug)]
pub struct SharedSequence {
    hashes: Arc<Vec<BlockHash>>,
    blocks: usize,
    tokens: usize,
}

impl SharedSequence {
    /// The first `blocks` of these hashes, of a text of `tokens`.
    pub fn new(hashes: Arc<Vec<BlockHash>>, blocks: usize, tokens: usize) -> Self {
        Self { blocks: blocks.min(hashes.len()), hashes, tokens }
    }

    /// As the cache takes it.
    pub fn get(&self) -> Sequence<'_> {
        Sequence { blocks: &self.hashes[..self.blocks], tokens: self.tokens }
    }
}

/// A request in flight, from `start` to `finish` or `abort`. Never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RequestId(pub u64);

/// What `start` did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Started {
    /// The request, now running.
    pub request: RequestId,
    /// Leading tokens that need no prefill.
    pub hit_tokens: usize,
}

/// What `finish` did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Finished {
    /// Blocks that were not held before.
    pub stored: usize,
    /// Blocks at the end of the context that found no room beside the running requests.
    pub dropped: usize,
}

/// Why the cache refused; nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The running requests leave too little room.
    NoRoom {
        /// Blocks that the request would have to allocate or pin.
        needed: usize,
        /// Blocks that no running request holds.
        available: usize,
    },
    /// The request has ended, or was never started here.
    NotRunning(RequestId),
    /// The context does not begin with the blocks of the request's prompt.
    OtherContext(RequestId),
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NoRoom { needed, available } => {
                write!(f, "the request needs {needed} blocks, running requests leave {available}")
            }
            Self::NotRunning(id) => write!(f, "request {} is not running here", id.0),
            Self::OtherContext(id) => write!(f, "the context does not begin with the prompt of request {}", id.0),
        }
    }
}

impl std::error::Error for Refused {}

/// A change of what is held, as an engine would publish it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CacheEvent {
    /// These blocks, one after the other, follow `parent` (`None`: they begin a prompt).
    Stored {
        /// The block before the first of `blocks`.
        parent: Option<BlockHash>,
        /// New blocks in order.
        blocks: Vec<BlockHash>,
    },
    /// These blocks are gone, tail first.
    Removed {
        /// Blocks in the order in which they went.
        blocks: Vec<BlockHash>,
    },
}

#[derive(Clone, Copy, Debug)]
struct Running {
    /// Run whose end is the last full block of the request, none before the first.
    tail: RunId,
    blocks: usize,
    /// Blocks that hold the unfinished end: not shared, not cached.
    unfinished: usize,
}

/// Prefix cache of one replica with the rules of a paged engine; see the module text.
///
/// Not synchronised: a simulated replica belongs to one simulation.
#[derive(Debug)]
pub struct ReplicaCache {
    runs: Runs,
    block_size: usize,
    capacity: usize,
    running: FxHashMap<RequestId, Running>,
    started: u64,
    unfinished: usize,
    /// Blocks of outputs under way, which [`Self::reserve`] counts.
    reserved: usize,
    evicted: u64,
    refused: u64,
    events: Option<Vec<CacheEvent>>,
}

impl ReplicaCache {
    /// A cache of `capacity_tokens` rounded down to blocks (`None`: unlimited). `block_size` must not be zero.
    pub fn new(block_size: usize, capacity_tokens: Option<usize>) -> Self {
        let block_size = block_size.max(1);
        Self {
            runs: Runs::default(),
            block_size,
            capacity: capacity_tokens.map_or(usize::MAX, |tokens| tokens / block_size),
            running: FxHashMap::default(),
            started: 0,
            unfinished: 0,
            reserved: 0,
            evicted: 0,
            refused: 0,
            events: None,
        }
    }

    /// Keep a log of stored and removed blocks from now on, for [`Self::take_events`].
    pub fn record_events(&mut self) {
        self.events.get_or_insert_default();
    }

    /// The log since the last call, oldest first; empty if nothing is recorded.
    pub fn take_events(&mut self) -> Vec<CacheEvent> {
        self.events.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Tokens per block.
    pub fn block_size(&self) -> usize {
        self.block_size
    }

    /// Blocks held, shared ones once.
    pub fn blocks(&self) -> usize {
        self.runs.blocks()
    }

    /// Every block held, in no order.
    pub fn all_blocks(&self) -> impl Iterator<Item = BlockHash> {
        self.runs.all()
    }

    /// Blocks that running requests hold, their unfinished last blocks and the reserved ones included.
    pub fn pinned_blocks(&self) -> usize {
        self.runs.pinned() + self.unfinished + self.reserved
    }

    /// Blocks that no running request holds.
    pub fn room(&self) -> usize {
        self.capacity.saturating_sub(self.pinned_blocks())
    }

    /// Let the outputs of running requests take so many blocks, all together, beside what `start` and `grow` have placed.
    /// False, and nothing is changed, if there is no room for them. Give a request's blocks back before it is finished.
    pub fn reserve(&mut self, blocks: usize) -> bool {
        if blocks.saturating_sub(self.reserved) > self.room() {
            return false;
        }
        self.reserved = blocks;
        self.evict_down_to(self.capacity.saturating_sub(self.unfinished + blocks));
        true
    }

    /// Requests in flight.
    pub fn running(&self) -> usize {
        self.running.len()
    }

    /// Blocks evicted so far.
    pub fn evicted_blocks(&self) -> u64 {
        self.evicted
    }

    /// Requests that `serve` could not place, being larger than the free part of the cache.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Leading tokens of `prompt` that need no prefill now. Changes nothing, the order of eviction included.
    pub fn hit(&self, prompt: Sequence) -> usize {
        self.usable(self.runs.walk(RunId::NONE, prompt.blocks).held, prompt.tokens)
    }

    fn usable(&self, held_blocks: usize, prompt_tokens: usize) -> usize {
        // The engine needs the last token's logits, so it always computes at least that one.
        held_blocks.min(prompt_tokens.saturating_sub(1) / self.block_size) * self.block_size
    }

    /// Admit a request: pin what is held, allocate the rest, evict as needed.
    ///
    /// The new blocks are visible to later requests at once, as in an engine that registers blocks when it schedules them.
    ///
    /// # Errors
    ///
    /// [`Refused::NoRoom`] where running requests leave too few blocks.
    pub fn start(&mut self, prompt: Sequence) -> Result<Started, Refused> {
        let empty = Running { tail: RunId::NONE, blocks: 0, unfinished: 0 };
        let walk = self.runs.walk(RunId::NONE, prompt.blocks);
        let unfinished = prompt.tokens.div_ceil(self.block_size).saturating_sub(prompt.blocks.len());
        self.check_room(empty, &walk, prompt.blocks.len() - walk.held, unfinished)?;
        let request = RequestId(self.started);
        self.started += 1;
        let entry = self.place(empty, &walk, prompt.blocks, unfinished);
        self.running.insert(request, entry);
        Ok(Started { request, hit_tokens: self.usable(walk.held, prompt.tokens) })
    }

    /// Make room for what a running request has generated so far. All or nothing.
    ///
    /// # Errors
    ///
    /// [`Refused::NoRoom`] where running requests leave too few blocks, [`Refused::NotRunning`] of a request that has ended, and
    /// [`Refused::OtherContext`] where the context does not begin with its blocks.
    pub fn grow(&mut self, request: RequestId, context: Sequence) -> Result<(), Refused> {
        let entry = self.entry(request, context.blocks)?;
        let more = context.blocks.get(entry.blocks..).unwrap_or_default();
        let walk = self.runs.walk(entry.tail, more);
        let unfinished = context.tokens.div_ceil(self.block_size).saturating_sub(entry.blocks + more.len());
        self.check_room(entry, &walk, more.len() - walk.held, unfinished)?;
        let grown = self.place(entry, &walk, more, unfinished);
        self.running.insert(request, grown);
        Ok(())
    }

    /// End a request: what it computed becomes the most recently used, and its pins are gone.
    ///
    /// `context` is prompt and output, whose full blocks are kept; blocks that do not fit beside the other running
    /// requests are dropped from the end. Its unfinished last block takes its room first and is then free. A context
    /// shorter than the prompt keeps the prompt.
    ///
    /// # Errors
    ///
    /// [`Refused::NotRunning`] of a request that has ended, or is of another cache, and [`Refused::OtherContext`] where the context does
    /// not begin with its blocks.
    pub fn finish(&mut self, request: RequestId, context: Sequence) -> Result<Finished, Refused> {
        let entry = self.entry(request, context.blocks)?;
        self.running.remove(&request);
        let more = context.blocks.get(entry.blocks..).unwrap_or_default();
        let walk = self.runs.walk(entry.tail, more);
        // Idle blocks are part of the capacity, so those that the walk found always fit.
        let available = self.capacity - (self.pinned_blocks() - entry.unfinished) - walk.held_idle;
        let stored = (more.len() - walk.held).min(available);
        let kept = walk.held + stored;
        let unfinished = context.tokens.div_ceil(self.block_size).saturating_sub(entry.blocks + kept);
        let grown = self.place(entry, &walk, &more[..kept], unfinished.min(available - stored));
        self.unfinished -= grown.unfinished;
        self.runs.release(grown.tail);
        Ok(Finished { stored, dropped: more.len() - kept })
    }

    /// End a request without output: its prompt stays cached, its pins are gone.
    ///
    /// # Errors
    ///
    /// [`Refused::NotRunning`] of a request that has ended, or is of another cache.
    pub fn abort(&mut self, request: RequestId) -> Result<(), Refused> {
        let entry = self.entry(request, &[])?;
        self.running.remove(&request);
        self.unfinished -= entry.unfinished;
        self.runs.release(entry.tail);
        Ok(())
    }

    /// One request from start to finish with nothing in between; returns its hit tokens.
    ///
    /// A prompt that does not fit is counted in [`Self::refused`] and leaves the cache as it was.
    ///
    /// # Errors
    ///
    /// [`Refused::OtherContext`] where the context does not begin with the prompt's blocks; the prompt is cached all the same.
    pub fn serve(&mut self, prompt: Sequence, context: Sequence) -> Result<usize, Refused> {
        match self.start(prompt) {
            Ok(started) => {
                let finished = self.finish(started.request, context);
                if finished.is_err() {
                    self.abort(started.request)?;
                }
                finished.map(|_| started.hit_tokens)
            }
            Err(Refused::NoRoom { .. }) => {
                self.refused += 1;
                Ok(self.hit(prompt))
            }
            Err(other) => Err(other),
        }
    }

    /// Drop every block that no running request holds, as an engine does when its cache is reset.
    pub fn clear(&mut self) {
        self.evict_down_to(self.runs.pinned());
    }

    /// The request, if `context` agrees with its blocks as far as both go.
    fn entry(&self, request: RequestId, context: &[BlockHash]) -> Result<Running, Refused> {
        let entry = *self.running.get(&request).ok_or(Refused::NotRunning(request))?;
        let shared = context.len().min(entry.blocks);
        if shared > 0 && self.runs.block(entry.tail, entry.blocks - shared) != Some(context[shared - 1]) {
            return Err(Refused::OtherContext(request));
        }
        Ok(entry)
    }

    /// Fails if a request that is `entry` now cannot also hold `fresh` new blocks after `walk` and `unfinished` ones.
    fn check_room(&self, entry: Running, walk: &Walk, fresh: usize, unfinished: usize) -> Result<(), Refused> {
        let needed = walk.held_idle + fresh + unfinished;
        let available = self.capacity - (self.pinned_blocks() - entry.unfinished);
        if needed > available { Err(Refused::NoRoom { needed, available }) } else { Ok(()) }
    }

    /// `entry` with `more` blocks after its own, the first of them held as `walk` found, and `unfinished` beyond them.
    fn place(&mut self, entry: Running, walk: &Walk, more: &[BlockHash], unfinished: usize) -> Running {
        let fresh = &more[walk.held..];
        self.unfinished = self.unfinished - entry.unfinished + unfinished;
        let held = self.runs.pin(walk);
        self.evict_down_to(self.capacity.saturating_sub(fresh.len() + self.unfinished + self.reserved));
        if let (Some(events), false) = (&mut self.events, fresh.is_empty()) {
            events.push(CacheEvent::Stored { parent: self.runs.block(held, 0), blocks: fresh.to_vec() });
        }
        let tail = self.runs.append(held, fresh);
        Running { tail, blocks: entry.blocks + more.len(), unfinished }
    }

    fn evict_down_to(&mut self, blocks: usize) {
        while self.runs.blocks() > blocks {
            let excess = self.runs.blocks() - blocks;
            let mut gone = Vec::new();
            let removed = self.runs.evict_oldest(excess, self.events.is_some().then_some(&mut gone));
            if removed == 0 {
                break; // only pinned blocks are left
            }
            self.evicted += removed as u64;
            if let Some(events) = &mut self.events {
                events.push(CacheEvent::Removed { blocks: gone });
            }
        }
    }
}
