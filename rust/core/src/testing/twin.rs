//! An index that is obviously right and slow: the same calls as the engine, a block at a time.

use std::collections::{HashMap, HashSet, VecDeque};

use super::lru::BlockLru;
use super::residency::{Names, Orphan, Orphans, Residency};
use crate::config::Config;
use crate::ids::{BlockHash, EngineHash, Medium, Slot};
use crate::outcome::{Content, Inserted, Removed, Stats, Stored, StoredEvent};

/// What becomes of a block of an event: it follows the one before, is what its name is known for, or waits.
#[derive(Clone, Copy, Debug)]
enum Step {
    Chained(BlockHash),
    Known(BlockHash),
    Waits,
}

impl Step {
    fn block(self) -> Option<BlockHash> {
        match self {
            Step::Chained(block) | Step::Known(block) => Some(block),
            Step::Waits => None,
        }
    }
}

#[derive(Clone, Debug, Default)]
struct Replica {
    belief: BlockLru,
    capacity: Option<u64>,
    reuse_reports: bool,
    fed: bool,
    unmatched: u64,
}

/// The twin of the engine. Slots are made by `open` and may be opened again.
#[derive(Clone, Debug)]
pub struct Twin {
    config: Config,
    replicas: Vec<Replica>,
    truth: Residency,
    names: Names,
    orphans: Orphans,
    place: HashMap<BlockHash, (Option<BlockHash>, usize)>,
    stamp: u64,
    clock: f64,
    counters: Stats,
}

impl Twin {
    /// An empty index.
    pub fn new(config: Config) -> Self {
        Twin {
            config,
            replicas: Vec::new(),
            truth: Residency::default(),
            names: Names::default(),
            orphans: Orphans::default(),
            place: HashMap::new(),
            stamp: 0,
            clock: f64::NEG_INFINITY,
            counters: Stats::default(),
        }
    }

    /// An empty replica in that slot.
    pub fn open(&mut self, slot: Slot, capacity: Option<u64>, reuse_reports: bool) {
        if self.replicas.len() <= slot.index() {
            self.replicas.resize(slot.index() + 1, Replica::default());
        }
        self.clear(slot);
        self.replicas[slot.index()] =
            Replica { capacity: capacity.or(self.config.capacity_blocks), reuse_reports, ..Replica::default() };
    }

    /// Whether the replica holds the block, believed or known.
    pub fn holds(&self, slot: Slot, block: BlockHash) -> bool {
        self.replicas[slot.index()].belief.contains(block) || self.truth.holds(slot, block)
    }

    /// Leading blocks held.
    pub fn held(&self, slot: Slot, hashes: &[BlockHash]) -> usize {
        hashes.iter().take_while(|&&block| self.holds(slot, block)).count()
    }

    /// A query matched this replica.
    pub fn matched(&mut self, slot: Slot) {
        self.replicas[slot.index()].unmatched = 0;
    }

    /// Leading tokens held, by the best medium of each block.
    pub fn held_media(&self, slot: Slot, hashes: &[BlockHash]) -> [u32; 3] {
        let mut tokens = [0; 3];
        for &block in &hashes[..self.held(slot, hashes)] {
            let copies = self.truth.copies(slot, block);
            let best = copies.iter().position(|&count| count > 0).unwrap_or(0);
            tokens[best] += self.config.block_size as u32;
        }
        tokens
    }

    /// Belief from a decision.
    pub fn insert(&mut self, slot: Slot, hashes: &[BlockHash], now: f64) -> Inserted {
        self.clock = self.clock.max(now);
        self.expire_slot(slot);
        self.settle();
        let held_before = self.held(slot, hashes);
        self.stamp += 1;
        let mut fresh = 0;
        for (depth, &block) in hashes.iter().enumerate() {
            self.place.insert(block, (depth.checked_sub(1).map(|before| hashes[before]), depth));
            if !self.truth.holds(slot, block) {
                let belief = &mut self.replicas[slot.index()].belief;
                fresh += usize::from(belief.touch(block, depth, self.stamp, self.clock));
            }
        }
        let gone = self.evict(slot);
        let dropped = gone.iter().filter(|&&stamp| stamp == self.stamp).count().min(fresh);
        let evicted = gone.len() - dropped;
        self.counters.dropped += dropped as u64;
        self.counters.evicted_capacity += evicted as u64;
        self.settle();
        Inserted { held_before, stored: fresh - dropped, dropped, evicted, stamp: self.stamp }
    }

    /// Touches the leading believed blocks; how many blocks lead.
    pub fn touch(&mut self, slot: Slot, hashes: &[BlockHash], now: f64) -> usize {
        self.clock = self.clock.max(now);
        self.stamp += 1;
        let held = self.held(slot, hashes);
        for (depth, &block) in hashes[..held].iter().enumerate() {
            if !self.truth.holds(slot, block) {
                self.replicas[slot.index()].belief.touch(block, depth, self.stamp, self.clock);
            }
        }
        held
    }

    /// Takes back blocks that this insert touched last.
    pub fn retract(&mut self, slot: Slot, hashes: &[BlockHash], keep: usize, stamp: u64) -> usize {
        let belief = &mut self.replicas[slot.index()].belief;
        let gone = hashes.iter().skip(keep).filter(|&&block| belief.retract(block, stamp)).count();
        self.counters.retracted += gone as u64;
        self.settle();
        gone
    }

    /// Pins the leading blocks held; how many blocks lead.
    pub fn pin(&mut self, slot: Slot, hashes: &[BlockHash]) -> usize {
        let held = self.held(slot, hashes);
        hashes[..held].iter().for_each(|&block| self.replicas[slot.index()].belief.pin(block, true));
        held
    }

    /// Takes a pin from each of these blocks.
    pub fn unpin(&mut self, slot: Slot, hashes: &[BlockHash]) {
        for &block in hashes {
            self.replicas[slot.index()].belief.pin(block, false);
        }
        self.counters.evicted_capacity += self.evict(slot).len() as u64;
        self.settle();
    }

    /// Takes all pins, as saving and loading does.
    pub fn unpin_all(&mut self) {
        self.replicas.iter_mut().for_each(|replica| replica.belief.unpin_all());
    }

    /// Another capacity, in blocks of belief.
    pub fn set_capacity(&mut self, slot: Slot, capacity: Option<u64>) {
        self.replicas[slot.index()].capacity = capacity;
        self.counters.evicted_capacity += self.evict(slot).len() as u64;
        self.settle();
    }

    /// Forgets what a replica holds.
    pub fn clear(&mut self, slot: Slot) {
        self.replicas[slot.index()].belief = BlockLru::default();
        self.truth.clear(slot);
        self.names.clear(slot);
        self.orphans.clear(slot);
        self.settle();
    }

    /// Forgets what all replicas hold.
    pub fn new_epoch(&mut self) {
        (0..self.replicas.len()).for_each(|index| self.clear(Slot(index as u16)));
    }

    /// Drops belief whose time is over; how many blocks.
    pub fn expire(&mut self, now: f64) -> usize {
        self.clock = self.clock.max(now);
        let gone = (0..self.replicas.len()).map(|index| self.expire_slot(Slot(index as u16))).sum();
        self.settle();
        gone
    }

    /// The replica sends events, though none has come yet.
    pub fn expect_events(&mut self, slot: Slot) {
        self.replicas[slot.index()].fed = true;
    }

    /// A store event.
    pub fn stored(&mut self, slot: Slot, event: &StoredEvent<'_>, now: f64) -> Stored {
        self.clock = self.clock.max(now);
        self.replicas[slot.index()].fed = true;
        let (mut done, mut at) = (Stored::default(), 0);
        while at < event.engine.len() {
            let is_report = |&at: &usize| self.is_report(slot, event.engine[at], event.contents.get(at), event.medium);
            let from = at + (at..event.engine.len()).take_while(is_report).count();
            done.reused += from - at;
            at = from + (from..event.engine.len()).take_while(|at| !is_report(at)).count();
            if from < at {
                let named = self.store_named(slot, &event.part(from..at), &mut done);
                self.adopt(named, &mut done);
            }
        }
        self.counters.reused += done.reused as u64;
        self.replicas[slot.index()].unmatched += (done.stored + done.confirmed) as u64;
        done
    }

    /// A removal event.
    pub fn removed(&mut self, slot: Slot, engine: &[EngineHash], medium: Medium) -> Removed {
        let mut done = Removed::default();
        for &name in engine {
            let block = self.names.get(slot, name, &self.truth);
            if let Some(block) = block.filter(|&block| self.truth.remove(slot, block, medium)) {
                if !self.truth.holds(slot, block) {
                    self.names.drop_own(slot, name);
                }
                done.removed += 1;
            } else if self.orphans.remove(slot, name, medium) {
                done.removed += 1;
            } else {
                done.unknown += 1;
            }
            self.settle();
        }
        self.counters.unknown_removals += done.unknown as u64;
        done
    }

    /// State and counters; what only an engine has is zero.
    pub fn stats(&self) -> Stats {
        let mut distinct: HashSet<BlockHash> = self.truth.pairs().map(|(_, block)| block).collect();
        distinct.extend(self.replicas.iter().flat_map(|replica| replica.belief.blocks()));
        let believed = self.replicas.iter().map(|replica| replica.belief.len() as u64).sum();
        Stats {
            blocks: distinct.len() as u64,
            believed,
            memberships: believed + self.truth.pairs().count() as u64,
            event_names: self.names.len(),
            orphans: self.orphans.len(),
            unmatched_event_blocks: self.replicas.iter().map(|replica| replica.unmatched).sum(),
            ..self.counters
        }
    }

    /// A replica's believed blocks in the order in which they would go.
    pub fn order(&self, slot: Slot) -> Vec<BlockHash> {
        self.replicas[slot.index()].belief.order()
    }

    fn known(&self, slot: Slot, name: EngineHash) -> Option<BlockHash> {
        self.names.get(slot, name, &self.truth).filter(|&block| self.truth.holds(slot, block))
    }

    /// Whether a store of a block there is a report of one that the replica holds.
    fn is_report(&self, slot: Slot, name: EngineHash, content: Content, medium: Medium) -> bool {
        let is_same = |block: &BlockHash| !matches!(content, Content::Prefix(told) if told != *block);
        let known = self.known(slot, name).filter(is_same);
        let copies = known.map_or(0, |block| self.truth.copies(slot, block)[medium.index()]);
        self.replicas[slot.index()].reuse_reports && copies > 0
    }

    /// Stores blocks, of which those that the replica knows by name stay what they are. Gives the names stored.
    fn store_named(&mut self, slot: Slot, event: &StoredEvent<'_>, done: &mut Stored) -> VecDeque<EngineHash> {
        let parent = event.parent.map(|name| self.names.get(slot, name, &self.truth));
        let above = parent.map_or(Some(event.seed), |block| block.map(|block| block.0));
        let (steps, moves) = self.steps_of(slot, event, above);
        let mut carried = Vec::new();
        for at in moves {
            let name = event.engine[at];
            let Some(block) = self.known(slot, name) else { continue };
            carried.push((at, self.truth.take(slot, block)));
            self.names.drop_own(slot, name);
            self.settle();
        }
        let named = self.take_steps(slot, event, above, &steps, done);
        for (at, copies) in carried {
            let now = self.known(slot, event.engine[at]);
            let Some(block) = now.filter(|_| matches!(steps[at], Step::Chained(_)) && now == steps[at].block()) else {
                continue;
            };
            for medium in Medium::ALL {
                (0..copies[medium.index()]).for_each(|_| self.truth.add(slot, block, medium));
            }
        }
        named
    }

    fn steps_of(&self, slot: Slot, event: &StoredEvent<'_>, mut above: Option<u64>) -> (Vec<Step>, Vec<usize>) {
        let (mut steps, mut moves) = (Vec::new(), Vec::new());
        for (at, (&name, content)) in event.engine.iter().zip(event.contents.iter()).enumerate() {
            let told = above.map(|above| content.chained(above));
            let step = match (told, self.known(slot, name)) {
                (Some(told), Some(known)) if told != known => {
                    let gpu = Medium::Gpu.index();
                    let elsewhere = self.truth.copies(slot, known)[gpu] == 0;
                    if matches!(content, Content::Prefix(_)) || event.medium == Medium::Gpu && elsewhere {
                        moves.push(at);
                        Step::Chained(told)
                    } else {
                        Step::Known(known)
                    }
                }
                (Some(told), _) => Step::Chained(told),
                (None, Some(known)) => Step::Known(known),
                (None, None) => Step::Waits,
            };
            above = step.block().map(|block| block.0);
            steps.push(step);
        }
        (steps, moves)
    }

    fn take_steps(
        &mut self,
        slot: Slot,
        event: &StoredEvent<'_>,
        mut above: Option<u64>,
        steps: &[Step],
        done: &mut Stored,
    ) -> VecDeque<EngineHash> {
        let (mut named, mut parent, mut lost) = (VecDeque::new(), event.parent, false);
        for (at, (&name, &step)) in event.engine.iter().zip(steps).enumerate() {
            match step {
                Step::Chained(block) => {
                    let continues = at > 0 && matches!(steps[at - 1], Step::Chained(_));
                    let before = parent.and_then(|parent| self.names.get(slot, parent, &self.truth));
                    lost = if continues { lost } else { parent.is_some() && before.map(|block| block.0) != above };
                    if let Some(parent) = parent.filter(|_| lost) {
                        self.wait(slot, event, at, parent, done);
                    } else {
                        let before = if continues { steps[at - 1].block() } else { before };
                        self.add_copy(slot, name, block, before, event.medium, done);
                        named.push_back(name);
                    }
                }
                Step::Known(block) => {
                    if self.known(slot, name) == Some(block) {
                        self.add_known(slot, block, event.medium, done);
                    } else {
                        done.placeless += 1;
                    }
                    named.push_back(name);
                }
                Step::Waits => parent.into_iter().for_each(|parent| self.wait(slot, event, at, parent, done)),
            }
            above = step.block().map(|block| block.0);
            parent = Some(name);
        }
        named
    }

    fn wait(&mut self, slot: Slot, event: &StoredEvent<'_>, at: usize, parent: EngineHash, done: &mut Stored) {
        let Some(content) = event.contents.iter().nth(at) else { return };
        let orphan = Orphan { slot, parent, name: event.engine[at], content, medium: event.medium };
        if self.replicas[slot.index()].reuse_reports && self.orphans.waits(&orphan) {
            done.reused += 1;
            return;
        }
        self.counters.orphans_dropped += u64::from(self.orphans.push(orphan, self.config.orphan_blocks));
        self.counters.orphaned += 1;
        done.orphaned += 1;
    }

    /// One more copy of a block that the replica holds.
    fn add_known(&mut self, slot: Slot, block: BlockHash, medium: Medium, done: &mut Stored) {
        done.copies += 1;
        self.truth.add(slot, block, medium);
    }

    fn add_copy(
        &mut self,
        slot: Slot,
        name: EngineHash,
        block: BlockHash,
        before: Option<BlockHash>,
        medium: Medium,
        done: &mut Stored,
    ) {
        let depth = before.map_or(0, |before| self.place[&before].1 + 1);
        self.place.insert(block, (before, depth));
        if self.replicas[slot.index()].belief.remove(block) {
            done.confirmed += 1;
            self.truth.add(slot, block, medium);
        } else if self.truth.holds(slot, block) {
            self.add_known(slot, block, medium, done);
        } else {
            done.stored += 1;
            self.truth.add(slot, block, medium);
        }
        self.names.set(slot, name, block);
    }

    fn adopt(&mut self, mut named: VecDeque<EngineHash>, done: &mut Stored) {
        while let Some(name) = named.pop_front() {
            for orphan in self.orphans.take(name, |slot| self.names.get(slot, name, &self.truth).is_some()) {
                if self.is_report(orphan.slot, orphan.name, orphan.content, orphan.medium) {
                    done.reused += 1;
                    done.adopted += 1;
                    named.push_back(orphan.name);
                    continue;
                }
                let adopted = orphan.content.as_contents(|contents| {
                    let (parent, engine) = (Some(orphan.parent), &[orphan.name]);
                    let event = StoredEvent { engine, parent, contents, seed: 0, medium: orphan.medium };
                    self.store_named(orphan.slot, &event, done)
                });
                done.adopted += adopted.len();
                named.extend(adopted);
            }
        }
    }

    /// Evicts down to capacity; the last touch of each block that went.
    fn evict(&mut self, slot: Slot) -> Vec<u64> {
        let replica = &mut self.replicas[slot.index()];
        let mut gone = Vec::new();
        while replica.capacity.is_some_and(|capacity| replica.belief.len() as u64 > capacity) {
            let Some((block, stamp, _)) = replica.belief.oldest() else { break };
            replica.belief.remove(block);
            gone.push(stamp);
        }
        gone
    }

    fn expire_slot(&mut self, slot: Slot) -> usize {
        let replica = &mut self.replicas[slot.index()];
        let Some(ttl) = self.config.ttl_of(replica.fed) else { return 0 };
        let mut gone = 0;
        while let Some((block, _, _)) = replica.belief.oldest().filter(|&(_, _, at)| at + ttl <= self.clock) {
            replica.belief.remove(block);
            gone += 1;
        }
        self.counters.expired += gone as u64;
        gone
    }

    /// Names live as long as their block stands in the tree: while someone holds it or a block after it.
    fn settle(&mut self) {
        if self.names.is_empty() {
            return;
        }
        let mut alive = HashSet::new();
        let believed = self.replicas.iter().flat_map(|replica| replica.belief.blocks());
        for block in self.truth.pairs().map(|(_, block)| block).chain(believed) {
            let mut next = Some(block);
            while let Some(block) = next.filter(|&block| alive.insert(block)) {
                next = self.place.get(&block).and_then(|&(before, _)| before);
            }
        }
        self.names.retain(|block| alive.contains(&block));
    }
}
