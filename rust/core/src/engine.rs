//! The state of an index: the tree, its memory, and what is known of each replica.

use std::collections::HashMap;

use crate::arena::{Chunks, Hold, Pool};
use crate::config::Config;
use crate::error::{MAX_REPLICAS, MAX_RUNS};
use crate::events::{Names, Orphans};
use crate::hash::TokenChain;
use crate::ids::{BlockHash, Medium, Slot};
use crate::lru::{List, Replica};
use crate::outcome::Stats;
use crate::radix::{RunId, Tree, Walk};
use crate::unmatched::Unmatched;

/// Blocks hashed ahead of a walk: what the processor overlaps well, and little lost when the prompt leaves the tree.
const HASH_AHEAD: usize = 32;

/// Everything behind the lock. Knows slots, not names; the caller has checked that a slot is live.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) config: Config,
    pub(crate) tree: Tree,
    pub(crate) chunks: Chunks,
    pub(crate) pool: Pool,
    pub(crate) replicas: Vec<Replica>,
    pub(crate) names: Names,
    pub(crate) orphans: Orphans,
    /// Replicas that have sent events, as a coverage set.
    pub(crate) fed: [u64; MAX_REPLICAS / 64],
    /// Number of the last touch.
    pub(crate) stamp: u64,
    /// Latest time seen.
    pub(crate) clock: f64,
    /// Distinct blocks that somebody holds.
    pub(crate) held_blocks: u64,
    pub(crate) counters: Stats,
    /// Events that no query has met, by replica.
    pub(crate) unmatched: Unmatched,
    /// Runs of the path being worked on, kept for its memory.
    pub(crate) path: Vec<RunId>,
    /// Replicas with sliding-window groups, which bound what is usable.
    pub(crate) windowed: Vec<Slot>,
    pub(crate) key: u64,
}

impl Engine {
    /// An empty engine; `key` only places entries in tables.
    pub(crate) fn new(config: Config, key: u64) -> Self {
        Engine {
            config,
            tree: Tree::new(key),
            chunks: Chunks::default(),
            pool: Pool::default(),
            replicas: Vec::new(),
            names: Names::new(key),
            orphans: Orphans::default(),
            fed: [0; MAX_REPLICAS / 64],
            stamp: 0,
            clock: f64::NEG_INFINITY,
            held_blocks: 0,
            counters: Stats::default(),
            unmatched: Unmatched::default(),
            path: Vec::new(),
            windowed: Vec::new(),
            key,
        }
    }

    /// An empty replica in that slot; `capacity` overrides the index's own.
    pub(crate) fn open(&mut self, slot: Slot, capacity: Option<u64>, reuse_reports: bool) {
        if self.replicas.len() <= slot.index() {
            self.replicas.resize_with(slot.index() + 1, Replica::default);
            self.tree.widen(self.replicas.len());
        }
        self.clear(slot);
        self.set_fed(slot, false);
        self.replicas[slot.index()].feed = None;
        self.windowed.retain(|&windowed| windowed != slot);
        self.unmatched.open(slot);
        let replica = &mut self.replicas[slot.index()];
        replica.capacity = capacity.or(self.config.capacity_blocks);
        replica.reuse_reports = reuse_reports;
    }

    /// Forgets what a replica holds.
    pub(crate) fn clear(&mut self, slot: Slot) {
        for list in List::ALL {
            while let Some(run) = self.first(slot, list) {
                self.drop_holder(run, slot);
            }
        }
        self.orphans.clear(slot);
        let replica = &mut self.replicas[slot.index()];
        replica.own_names.clear();
        if let Some(feed) = &mut replica.feed {
            feed.forget();
        }
        if self.tree.live() == 0 {
            self.release_memory();
        }
    }

    /// Forgets what all replicas hold.
    pub(crate) fn new_epoch(&mut self) {
        for replica in &mut self.replicas {
            replica.forget();
        }
        self.orphans = Orphans::default();
        self.held_blocks = 0;
        self.release_memory();
    }

    /// Nobody holds anything: an empty tree costs nothing.
    pub(crate) fn release_memory(&mut self) {
        self.tree = Tree::new(self.key);
        self.tree.widen(self.replicas.len());
        self.chunks = Chunks::default();
        self.pool = Pool::default();
        self.names = Names::new(self.key);
        self.path = Vec::new();
        for replica in &mut self.replicas {
            replica.own_names = HashMap::new();
        }
    }

    pub(crate) fn set_fed(&mut self, slot: Slot, fed: bool) {
        let (word, bit) = (slot.index() / 64, slot.index() % 64);
        self.fed[word] = self.fed[word] & !(1 << bit) | u64::from(fed) << bit;
    }

    pub(crate) fn is_fed(&self, slot: Slot) -> bool {
        self.fed[slot.index() / 64] >> (slot.index() % 64) & 1 == 1
    }

    /// Tokens that each slot holds of a prompt's prefix; `out` is zeroed.
    #[inline]
    pub(crate) fn match_blocks(&self, hashes: &[BlockHash], out: &mut [u32]) {
        // A prompt that nobody has begins nowhere: no walk is needed to know that.
        let Some(run) = hashes.first().and_then(|&first| self.tree.head(RunId::ROOT, first)) else { return };
        let size = self.config.block_size as u32;
        let mut walk = Walk::enter(&self.tree, &self.chunks, run);
        walk.feed(hashes, |slot, blocks| settle(out, slot, blocks, size));
        self.end_walk(walk, out);
        if !self.windowed.is_empty() {
            self.bound_by_windows(hashes, out);
        }
    }

    /// Of what replicas with sliding-window groups hold, what those groups leave usable.
    #[cold]
    fn bound_by_windows(&self, hashes: &[BlockHash], out: &mut [u32]) {
        let size = self.config.block_size;
        for &slot in &self.windowed {
            let Some((tokens, feed)) = out.get_mut(slot.index()).zip(self.feed(slot)) else { continue };
            let mut blocks = *tokens as usize / size;
            loop {
                let usable = feed.windows.iter().map(|window| window.usable(&hashes[..blocks], size)).min();
                match usable {
                    Some(usable) if usable < blocks => blocks = usable,
                    _ => break,
                }
            }
            *tokens = (*tokens).min((blocks as u32).saturating_mul(size as u32));
        }
    }

    /// The same for a prompt that is hashed as the walk goes, a few blocks ahead.
    pub(crate) fn match_chain(&self, chain: &mut TokenChain<'_>, out: &mut [u32]) {
        if !self.windowed.is_empty() {
            let mut hashes = Vec::new();
            chain.append(&mut hashes);
            return self.match_blocks(&hashes, out);
        }
        let size = self.config.block_size as u32;
        let mut walk = Walk::new(&self.tree, &self.chunks);
        let mut ahead = [BlockHash(0); HASH_AHEAD];
        loop {
            let hashed = chain.fill(&mut ahead);
            if hashed == 0 || !walk.feed(&ahead[..hashed], |slot, blocks| settle(out, slot, blocks, size)) {
                break;
            }
        }
        self.end_walk(walk, out);
    }

    /// Leading tokens that each slot holds, by the best medium of each block.
    pub(crate) fn match_media(&self, hashes: &[BlockHash]) -> Vec<[u32; 3]> {
        let size = self.config.block_size as u32;
        let mut tokens = vec![[0_u32; 3]; self.replicas.len()];
        let mut usable = vec![0; self.replicas.len()];
        self.match_blocks(hashes, &mut usable);
        let mut walk = Walk::new(&self.tree, &self.chunks);
        for (at, &block) in hashes.iter().enumerate() {
            if !walk.feed(&[block], |_, _| ()) {
                break;
            }
            let held = (at as u32).saturating_mul(size);
            for slot in walk.holders().filter(|slot| usable[slot.index()] > held) {
                let tokens = &mut tokens[slot.index()][self.best_medium(walk.run(), slot).index()];
                *tokens = tokens.saturating_add(size);
            }
        }
        tokens
    }

    fn best_medium(&self, run: RunId, slot: Slot) -> Medium {
        let Some(Hold::Truth { copies }) = self.hold(run, slot) else { return Medium::Gpu };
        Medium::ALL.into_iter().find(|medium| copies[medium.index()] > 0).unwrap_or(Medium::Gpu)
    }

    /// Ends a walk: the replicas that hold everything matched, and the signal that queries meet events.
    #[inline]
    pub(crate) fn end_walk(&self, walk: Walk<'_>, out: &mut [u32]) {
        let size = self.config.block_size as u32;
        let first = walk.first_run();
        walk.finish(|slot, blocks| settle(out, slot, blocks, size));
        if let Some(run) = first {
            for word in 0..self.tree.words() {
                self.unmatched.matched(word, self.tree.word(run, word));
            }
        }
    }

    /// Whether the tree might run out of ids in the next call.
    pub(crate) fn is_full(&self) -> bool {
        self.tree.live() >= MAX_RUNS - (1 << 16)
    }

    /// State and counters.
    pub(crate) fn stats(&self) -> Stats {
        let believed = self.replicas.iter().map(|replica| replica.believed).sum();
        let known: u64 = self.replicas.iter().map(|replica| replica.known).sum();
        Stats {
            blocks: self.held_blocks,
            believed,
            memberships: believed + known,
            runs: self.tree.live(),
            table_entries: self.tree.table_entries(),
            live_bytes: self.live_bytes() as u64,
            reserved_bytes: self.reserved_bytes() as u64,
            event_names: self.names.len() + self.replicas.iter().map(|replica| replica.own_names.len()).sum::<usize>(),
            orphans: self.orphans.len(),
            unmatched_event_blocks: self.unmatched.total(),
            ..self.counters
        }
    }

    fn live_bytes(&self) -> usize {
        self.tree.live_bytes()
            + self.chunks.live_bytes()
            + self.pool.live_bytes()
            + self.names.live_bytes()
            + self.apart_bytes()
    }

    pub(crate) fn reserved_bytes(&self) -> usize {
        self.tree.reserved_bytes()
            + self.chunks.reserved_bytes()
            + self.pool.reserved_bytes()
            + self.names.reserved_bytes()
            + self.path.capacity() * size_of::<RunId>()
            + self.apart_bytes()
    }

    fn apart_bytes(&self) -> usize {
        let own: usize = self.replicas.iter().map(Replica::own_bytes).sum();
        own + self.orphans.bytes() + self.replicas.capacity() * size_of::<Replica>()
    }
}

#[inline]
fn settle(out: &mut [u32], slot: usize, blocks: u32, size: u32) {
    if let Some(tokens) = out.get_mut(slot) {
        *tokens = blocks.saturating_mul(size);
    }
}
