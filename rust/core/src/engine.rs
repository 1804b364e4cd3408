//! The state of an index behind its lock. Knows slots, not names; the caller has checked that a slot is live.
//!
//! Each part has one subject: [`Holdings`] what is held, [`Belief`] and [`Truth`] the rules by which decisions and events
//! change that, [`Budget`] the bound of all of it. The engine calls them in order and answers lookups.

use crate::belief::Belief;
use crate::budget;
use crate::config::Config;
use crate::error::{Error, MAX_RUNS, Result};
use crate::events::{Feed, Residence, StoreEvent, Truth};
use crate::growth::Growth;
use crate::hash::TokenChain;
use crate::holders::Hold;
use crate::holdings::Holdings;
use crate::ids::{BlockHash, EngineHash, Medium, Slot};
use crate::outcome::{Inserted, Removed, Stats, Stored, StoredEvent};
use crate::trie::{RunId, Walk};

/// Blocks hashed ahead of a walk: what the processor overlaps well, and little lost when the prompt leaves the trie.
const HASH_AHEAD: usize = 32;

/// The part of the bound that is kept for replicas to come, so that what has filled an index does not keep them out.
const SPARE_PART: u64 = 64;
/// Bytes of that at most: a few replicas'.
const SPARE_BYTES: u64 = 4_096;

/// Everything behind the lock.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) config: Config,
    pub(crate) held: Holdings,
    pub(crate) belief: Belief,
    pub(crate) truth: Truth,
}

impl Engine {
    /// An empty engine; `key` only places entries in tables.
    pub(crate) fn new(config: Config, key: u64) -> Self {
        Engine { config, held: Holdings::new(key), belief: Belief::new(), truth: Truth::new(&config) }
    }

    /// Typed error unless the bound leaves room for an index of so many slots, and so many bytes around it, even if it holds
    /// nothing.
    pub(crate) fn check_room(&self, slots: usize, around: usize) -> Result<()> {
        let Some(given) = self.config.max_bytes else { return Ok(()) };
        let least = self.empty_bytes(slots) + (around + self.truth.kept_bytes()) as u64;
        if given < least { Err(Error::Budget { given, least, replicas: slots }) } else { Ok(()) }
    }

    /// Bytes reserved by an engine of so many slots that holds nothing. Measured, so that no second account of what the parts
    /// reserve can disagree with them.
    fn empty_bytes(&self, slots: usize) -> u64 {
        let mut empty = Engine::new(Config { max_bytes: None, ..self.config }, 0);
        if let Some(last) = slots.checked_sub(1) {
            empty.open(Slot(last as u16), None, false);
        }
        empty.reserved_bytes(0)
    }

    /// Makes room for so many slots in place of `before`; typed error if giving up all belief does not.
    pub(crate) fn admit_slots(&mut self, before: usize, slots: usize, around: usize) -> Result<()> {
        let Some(given) = self.config.max_bytes else { return Ok(()) };
        let wider = self.held.trie.runs.widen_growth(slots) as u64;
        let growth = self.empty_bytes(slots).saturating_sub(self.empty_bytes(before)) + wider;
        self.set_limit(around);
        if budget::admit(&mut self.held, |_| Growth::of_bytes(growth as usize)) {
            return Ok(());
        }
        Err(Error::Budget { given, least: self.reserved_bytes(around) + growth, replicas: slots })
    }

    /// Begins an operation, which is to keep to the bound; [`Engine::end`] ends it. `around`: bytes reserved around the engine.
    pub(crate) fn begin(&mut self, around: usize) {
        let spare = self.config.max_bytes.map_or(0, |most| SPARE_BYTES.min(most / SPARE_PART));
        self.set_limit(around + spare as usize);
    }

    /// Leaves the holdings what of the bound is not reserved around the engine and apart from them.
    fn set_limit(&mut self, around: usize) {
        if let Some(most) = self.config.max_bytes {
            let most = usize::try_from(most).unwrap_or(usize::MAX);
            self.held.limit = Some(most.saturating_sub(around + self.apart_bytes()));
        }
    }

    /// Ends an operation.
    pub(crate) fn end(&mut self) {
        if self.config.max_bytes.is_some() {
            self.release_scratch();
        }
    }

    /// Makes the bound hold for what was loaded, whose tables have grown in another way. Belief goes first; if that is not
    /// enough, all goes.
    pub(crate) fn enforce_bound(&mut self, around: usize) {
        if self.config.max_bytes.is_none() {
            return;
        }
        self.held.names.shrink(&self.held.trie);
        self.set_limit(around);
        if !budget::enforce(&mut self.held) {
            let known: u64 = self.held.holders.replicas().iter().map(|held| held.known).sum();
            self.held.counters.dropped += known;
            self.new_epoch();
        }
        self.end();
    }

    /// An empty replica in that slot; `capacity` overrides the index's own.
    pub(crate) fn open(&mut self, slot: Slot, capacity: Option<u64>, reuse_reports: bool) {
        self.held.open(slot);
        self.belief.open(slot, capacity.or(self.config.capacity_blocks));
        self.truth.open(slot);
        self.clear(slot);
        self.truth.begin(slot, reuse_reports);
    }

    /// Forgets what a replica holds.
    pub(crate) fn clear(&mut self, slot: Slot) {
        self.truth.clear(&mut self.held, slot);
        if self.held.trie.runs.live() == 0 {
            self.release_scratch();
        }
    }

    /// Forgets what all replicas hold.
    pub(crate) fn new_epoch(&mut self) {
        self.held.reset();
        self.truth.reset();
        self.release_scratch();
    }

    fn release_scratch(&mut self) {
        self.belief.release_scratch();
        self.truth.release_scratch();
    }

    /// Believes a prompt's blocks at a replica; see `Index::insert`.
    pub(crate) fn insert(&mut self, slot: Slot, hashes: &[BlockHash], now: f64) -> Inserted {
        self.belief.advance(now);
        self.expire_slot(slot);
        let bounded = self.held.limit.is_some();
        let fits = if bounded { budget::make_room(&mut self.held, slot, hashes) } else { hashes.len() };
        let mut done = self.belief.insert(&mut self.held, slot, &hashes[..fits]);
        let over = hashes.len() - fits;
        done.dropped += over;
        self.held.counters.dropped += over as u64;
        done
    }

    /// Touches the leading blocks held; how many blocks lead.
    pub(crate) fn touch(&mut self, slot: Slot, hashes: &[BlockHash], now: f64) -> usize {
        self.belief.advance(now);
        self.belief.touch(&mut self.held, slot, hashes)
    }

    /// Drops belief whose time is over in all replicas; how many blocks.
    pub(crate) fn expire(&mut self, now: f64) -> usize {
        self.belief.advance(now);
        let slots = 0..self.held.holders.replicas().len();
        slots.map(|index| self.expire_slot(Slot(index as u16))).sum()
    }

    fn expire_slot(&mut self, slot: Slot) -> usize {
        let ttl = self.config.ttl_of(self.truth.sender(slot).fed);
        self.belief.expire(&mut self.held, slot, ttl)
    }

    /// The replica sends events.
    pub(crate) fn expect_events(&mut self, slot: Slot) {
        self.truth.set_fed(slot, true);
    }

    /// A store event whose blocks are those of the index, at a residence with this tag.
    pub(crate) fn store_blocks(&mut self, slot: Slot, event: &StoredEvent<'_>, tag: u64, now: f64) -> Stored {
        self.belief.advance(now);
        self.truth.store_blocks(&mut self.held, slot, event, tag)
    }

    /// A store event of any shape.
    pub(crate) fn store(&mut self, slot: Slot, event: &StoreEvent<'_>, contents: &[u64], now: f64) -> Stored {
        self.belief.advance(now);
        self.truth.store(&mut self.held, slot, event, contents)
    }

    /// A removal event of any shape.
    pub(crate) fn remove(&mut self, slot: Slot, names: &[EngineHash], residence: Residence, group: u32) -> Removed {
        self.truth.remove(&mut self.held, slot, names, residence, group)
    }

    /// The next batch of the replica's events may have any number.
    pub(crate) fn begin_feed_anew(&mut self, slot: Slot) {
        if self.truth.feed(slot).is_some() {
            self.truth.feed_mut(slot).numbers.clear();
        }
    }

    /// What is known of a replica's event feed.
    pub(crate) fn feed(&self, slot: Slot) -> Option<&Feed> {
        self.truth.feed(slot)
    }

    /// Tokens that each slot holds of a prompt's prefix; `out` is zeroed.
    #[inline]
    pub(crate) fn match_blocks(&self, hashes: &[BlockHash], out: &mut [u32]) {
        // A prompt that nobody has begins nowhere: no walk is needed to know that.
        let trie = &self.held.trie;
        let Some(run) = hashes.first().and_then(|&first| trie.runs.head(RunId::ROOT, first)) else { return };
        let size = self.config.block_size as u32;
        let mut walk = Walk::enter(trie, run);
        walk.feed(hashes, |slot, blocks| settle(out, slot, blocks, size));
        self.end_walk(walk, out);
        if self.truth.has_windows() {
            self.truth.bound_by_windows(&self.held, hashes, out);
        }
    }

    /// The same for a prompt that is hashed as the walk goes, a few blocks ahead.
    pub(crate) fn match_chain(&self, chain: &mut TokenChain<'_>, out: &mut [u32]) {
        if self.truth.has_windows() {
            let mut hashes = Vec::new();
            chain.append(&mut hashes);
            return self.match_blocks(&hashes, out);
        }
        let size = self.config.block_size as u32;
        let mut walk = Walk::new(&self.held.trie);
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
        let slots = self.held.holders.replicas().len();
        let (mut tokens, mut usable) = (vec![[0_u32; 3]; slots], vec![0; slots]);
        self.match_blocks(hashes, &mut usable);
        let mut walk = Walk::new(&self.held.trie);
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
        let Some(Hold::Truth { copies }) = self.held.hold(run, slot) else { return Medium::Gpu };
        Medium::ALL.into_iter().find(|medium| copies[medium.index()] > 0).unwrap_or(Medium::Gpu)
    }

    /// Ends a walk: the replicas that hold everything matched, and the signal that queries meet events.
    #[inline]
    fn end_walk(&self, walk: Walk<'_>, out: &mut [u32]) {
        let size = self.config.block_size as u32;
        let first = walk.first_run();
        walk.finish(|slot, blocks| settle(out, slot, blocks, size));
        if let Some(run) = first {
            let runs = &self.held.trie.runs;
            for word in 0..runs.words() {
                self.truth.unmatched.matched(word, runs.word(run, word));
            }
        }
    }

    /// Whether the trie might run out of ids in the next call.
    pub(crate) fn is_full(&self) -> bool {
        self.held.trie.runs.live() >= MAX_RUNS - (1 << 16)
    }

    /// State and counters.
    pub(crate) fn stats(&self) -> Stats {
        let Holdings { trie, holders, names, counters, .. } = &self.held;
        let believed = holders.replicas().iter().map(|held| held.believed).sum();
        let known: u64 = holders.replicas().iter().map(|held| held.known).sum();
        Stats {
            blocks: holders.blocks(),
            believed,
            memberships: believed + known,
            runs: trie.runs.live(),
            table_entries: trie.runs.table_entries(),
            live_bytes: (self.held.live_bytes() + self.truth.bytes()) as u64,
            event_names: names.len(),
            orphans: self.truth.orphans.len(),
            unmatched_event_blocks: self.truth.unmatched.total(),
            ..*counters
        }
    }

    /// Bytes reserved, with so many around the engine.
    pub(crate) fn reserved_bytes(&self, around: usize) -> u64 {
        (self.held.reserved_bytes() + self.apart_bytes() + around) as u64
    }

    /// Bytes reserved outside of the holdings.
    fn apart_bytes(&self) -> usize {
        self.truth.bytes() + self.truth.scratch_bytes() + self.belief.bytes()
    }
}

#[inline]
fn settle(out: &mut [u32], slot: usize, blocks: u32, size: u32) {
    if let Some(tokens) = out.get_mut(slot) {
        *tokens = blocks.saturating_mul(size);
    }
}
