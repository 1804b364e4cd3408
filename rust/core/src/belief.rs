//! Belief: what replicas should hold by the decisions made, kept as their engines would keep it.

use crate::holders::Hold;
use crate::holdings::Holdings;
use crate::ids::{BlockHash, Slot};
use crate::outcome::Inserted;
use crate::trie::RunId;

/// The rules of belief: a capacity per replica, and the number and time of the last touch.
#[derive(Debug)]
pub(crate) struct Belief {
    /// Blocks of belief by slot.
    capacities: Vec<Option<u64>>,
    /// Number of the last touch.
    pub(crate) stamp: u64,
    /// Latest time seen.
    pub(crate) clock: f64,
    /// Runs of the path being worked on, kept for its memory.
    path: Vec<RunId>,
}

/// Blocks evicted: of older touches, and of the current one.
#[derive(Clone, Copy, Debug, Default)]
struct Evicted {
    older: usize,
    current: usize,
}

impl Belief {
    pub(crate) fn new() -> Self {
        Belief { capacities: Vec::new(), stamp: 0, clock: f64::NEG_INFINITY, path: Vec::new() }
    }

    /// A replica with this capacity.
    pub(crate) fn open(&mut self, slot: Slot, capacity: Option<u64>) {
        slot.extend(&mut self.capacities);
        self.capacities[slot.index()] = capacity;
    }

    pub(crate) fn capacity(&self, slot: Slot) -> Option<u64> {
        self.capacities[slot.index()]
    }

    /// Time that goes back counts as the latest seen.
    pub(crate) fn advance(&mut self, now: f64) {
        self.clock = self.clock.max(now);
    }

    /// Believes a prompt's blocks at a replica. Of its own blocks those at the end go if there is no room for all.
    pub(crate) fn insert(&mut self, held: &mut Holdings, slot: Slot, hashes: &[BlockHash]) -> Inserted {
        let matched = held.descend(RunId::ROOT, hashes, &mut self.path);
        let held_before = leading(held, slot, &self.path).1;
        self.stamp += 1;
        let fresh = self.believe(held, slot, &hashes[matched..]);
        held.merge_path(&self.path);
        let gone = self.evict(held, slot);
        let dropped = gone.current.min(fresh);
        let evicted = gone.older + gone.current - dropped;
        held.counters.dropped += dropped as u64;
        held.counters.evicted_capacity += evicted as u64;
        Inserted { held_before, stored: fresh - dropped, dropped, evicted, stamp: self.stamp }
    }

    /// Holds and touches the runs of the path and new blocks below them, leaf first; how many blocks are new to the replica.
    fn believe(&self, held: &mut Holdings, slot: Slot, rest: &[BlockHash]) -> usize {
        let now = Hold::Belief { stamp: self.stamp, at: self.clock, pins: 0, parked: false };
        let mut fresh = rest.len();
        let above = self.path.last().copied().unwrap_or(RunId::ROOT);
        if held.is_own_leaf(above, slot) {
            // Touched first, new blocks are held like the leaf, and become part of it.
            self.touch_run(held, above, slot);
        }
        let below = if rest.is_empty() { RunId::ROOT } else { held.extend(above, rest, slot, now).0 };
        for &run in self.path.iter().rev().filter(|&&run| run != below) {
            if held.is_held(run, slot) {
                self.touch_run(held, run, slot);
            } else {
                fresh += held.trie.run(run).len as usize;
                held.add(run, slot, now);
            }
        }
        fresh
    }

    /// Gives the belief of a held run the current stamp and the end of the LRU list; truth stays as it is.
    fn touch_run(&self, held: &mut Holdings, run: RunId, slot: Slot) {
        let Hold::Belief { pins, .. } = *held.hold_mut(run, slot) else { return };
        held.renew(run, slot, Hold::Belief { stamp: self.stamp, at: self.clock, pins, parked: false });
    }

    /// Leaves the leading blocks held on the path, cut where the prompt ends; how many blocks these are.
    fn descend_held(&mut self, held: &mut Holdings, slot: Slot, hashes: &[BlockHash]) -> usize {
        let (_, inside) = held.trie.descend(RunId::ROOT, hashes, &mut self.path);
        let (runs, blocks) = leading(held, slot, &self.path);
        let all = runs == self.path.len();
        if let (Some(inside), Some(last)) = (inside, self.path.last_mut().filter(|_| all)) {
            let beyond = held.trie.run(*last).len - inside;
            match held.try_split(*last, inside) {
                Some(cut) => *last = cut,
                None => self.path.truncate(runs - 1),
            }
            return blocks - beyond as usize;
        }
        self.path.truncate(runs);
        blocks
    }

    /// Goes down along these blocks; the last run is cut where they end, if the bound leaves room for it.
    fn descend_where_room(&mut self, held: &mut Holdings, hashes: &[BlockHash]) {
        let (_, inside) = held.trie.descend(RunId::ROOT, hashes, &mut self.path);
        if let (Some(inside), Some(last)) = (inside, self.path.last_mut()) {
            *last = held.try_split(*last, inside).unwrap_or(*last);
        }
    }

    /// Touches the leading blocks held; how many blocks lead.
    pub(crate) fn touch(&mut self, held: &mut Holdings, slot: Slot, hashes: &[BlockHash]) -> usize {
        self.stamp += 1;
        let blocks = self.descend_held(held, slot, hashes);
        for &run in self.path.iter().rev() {
            self.touch_run(held, run, slot);
        }
        held.merge_path(&self.path);
        blocks
    }

    /// Pins the leading blocks held; how many blocks lead.
    pub(crate) fn pin(&mut self, held: &mut Holdings, slot: Slot, hashes: &[BlockHash]) -> usize {
        let blocks = self.descend_held(held, slot, hashes);
        for &run in &self.path {
            if let Hold::Belief { pins, .. } = held.hold_mut(run, slot) {
                *pins = pins.saturating_add(1);
            }
        }
        held.merge_path(&self.path);
        blocks
    }

    /// Takes a pin from each of these blocks and evicts what is over capacity.
    pub(crate) fn unpin(&mut self, held: &mut Holdings, slot: Slot, hashes: &[BlockHash]) {
        self.descend_where_room(held, hashes);
        for &run in &self.path {
            if !held.is_held(run, slot) {
                continue;
            }
            let Hold::Belief { pins, .. } = held.hold_mut(run, slot) else { continue };
            *pins = pins.saturating_sub(1);
            if *pins == 0 {
                held.holders.unpark(&held.trie.runs, run, slot);
            }
        }
        held.merge_path(&self.path);
        self.evict_and_count(held, slot);
    }

    /// Takes back belief from position `keep` on that this stamp touched last; how many blocks.
    pub(crate) fn retract(
        &mut self,
        held: &mut Holdings,
        slot: Slot,
        hashes: &[BlockHash],
        keep: usize,
        stamp: u64,
    ) -> usize {
        self.descend_where_room(held, hashes);
        let mut gone = 0;
        for &run in self.path.iter().rev() {
            let found = held.trie.run(run);
            let (depth, len) = (found.depth as usize, found.len as usize);
            if depth + len <= keep {
                break;
            }
            let ours = |hold| matches!(hold, Hold::Belief { stamp: last, pins: 0, .. } if last == stamp);
            if !held.hold(run, slot).is_some_and(ours) {
                continue;
            }
            if depth < keep {
                held.try_split(run, (keep - depth) as u32);
            }
            gone += held.trie.run(run).len as usize;
            held.remove(run, slot);
        }
        // Only now, as tidying may join runs of the path that are still to come.
        for &run in self.path.iter().rev() {
            held.tidy(run);
        }
        held.counters.retracted += gone as u64;
        gone
    }

    /// Another capacity in blocks of belief.
    pub(crate) fn set_capacity(&mut self, held: &mut Holdings, slot: Slot, capacity: Option<u64>) {
        self.capacities[slot.index()] = capacity;
        self.evict_and_count(held, slot);
    }

    fn evict_and_count(&self, held: &mut Holdings, slot: Slot) {
        let gone = self.evict(held, slot);
        held.counters.evicted_capacity += (gone.older + gone.current) as u64;
    }

    /// Evicts down to capacity.
    fn evict(&self, held: &mut Holdings, slot: Slot) -> Evicted {
        let mut gone = Evicted::default();
        let Some(capacity) = self.capacities[slot.index()] else { return gone };
        while let Some(over) = believed(held, slot).checked_sub(capacity).filter(|&over| over > 0) {
            let Some((stamp, blocks)) = evict_oldest(held, slot, over) else { break };
            if stamp == self.stamp {
                gone.current += blocks;
            } else {
                gone.older += blocks;
            }
        }
        gone
    }

    /// Drops a replica's belief that was last touched `ttl` seconds ago or before; how many blocks.
    pub(crate) fn expire(&self, held: &mut Holdings, slot: Slot, ttl: Option<f64>) -> usize {
        let Some(ttl) = ttl else { return 0 };
        let mut gone = 0;
        while let Some(run) = held.oldest(slot) {
            let over = matches!(held.hold_mut(run, slot), Hold::Belief { at, .. } if *at + ttl <= self.clock);
            if !over {
                break;
            }
            gone += held.trie.run(run).len as usize;
            held.drop_holder(run, slot);
        }
        held.counters.expired += gone as u64;
        gone
    }

    pub(crate) fn release_scratch(&mut self) {
        self.path = Vec::new();
    }

    pub(crate) fn bytes(&self) -> usize {
        self.path.capacity() * size_of::<RunId>() + self.capacities.capacity() * size_of::<Option<u64>>()
    }
}

/// Runs and blocks that the replica holds from the start of a path on.
fn leading(held: &Holdings, slot: Slot, path: &[RunId]) -> (usize, usize) {
    let lead = path.iter().take_while(|&&run| held.is_held(run, slot));
    lead.fold((0, 0), |(runs, blocks), &run| (runs + 1, blocks + held.trie.run(run).len as usize))
}

fn believed(held: &Holdings, slot: Slot) -> u64 {
    held.holders.replicas()[slot.index()].believed
}

/// Evicts up to so many blocks of a replica's least recently used run, from its tail; the run's last touch, and how many.
pub(crate) fn evict_oldest(held: &mut Holdings, slot: Slot, most: u64) -> Option<(u64, usize)> {
    let run = held.oldest(slot)?;
    let stamp = held.hold_mut(run, slot).stamp();
    let len = held.trie.run(run).len;
    let blocks = u64::from(len).min(most) as u32;
    held.drop_range(run, len - blocks, len, slot);
    Some((stamp, blocks as usize))
}
