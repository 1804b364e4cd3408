//! Belief: what replicas should hold by the decisions made, kept as their engines would keep it.

use crate::arena::Hold;
use crate::engine::Engine;
use crate::ids::{BlockHash, Slot};
use crate::outcome::Inserted;
use crate::radix::RunId;

/// Blocks evicted: of older touches, and of the current one.
#[derive(Clone, Copy, Debug, Default)]
struct Evicted {
    older: usize,
    current: usize,
}

impl Engine {
    /// Believes a prompt's blocks at a replica; see `Index::insert`.
    pub(crate) fn insert(&mut self, slot: Slot, hashes: &[BlockHash], now: f64) -> Inserted {
        self.clock = self.clock.max(now);
        self.expire_slot(slot);
        self.make_room(hashes);
        let matched = self.descend_split(RunId::ROOT, hashes);
        let path = std::mem::take(&mut self.path);
        let held_before = self.leading(slot, &path).1;
        self.stamp += 1;
        let fresh = self.believe(slot, &path, &hashes[matched..]);
        self.merge_path(&path);
        self.path = path;
        let gone = self.evict(slot);
        let dropped = gone.current.min(fresh);
        let evicted = gone.older + gone.current - dropped;
        let over_budget = self.enforce_budget().min(fresh - dropped);
        self.counters.dropped += dropped as u64;
        self.counters.evicted_capacity += evicted as u64;
        Inserted {
            held_before,
            stored: fresh - dropped - over_budget,
            dropped: dropped + over_budget,
            evicted,
            stamp: self.stamp,
        }
    }

    /// Holds and touches the runs of a path and new blocks below them, leaf first; how many blocks are new to the replica.
    fn believe(&mut self, slot: Slot, path: &[RunId], rest: &[BlockHash]) -> usize {
        let hold = Hold::Belief { stamp: self.stamp, at: self.clock, pins: 0, parked: false };
        let mut fresh = rest.len();
        let above = path.last().copied().unwrap_or(RunId::ROOT);
        if self.grows_in_place(above, slot) {
            self.touch_run(above, slot);
        }
        let below = self.extend(above, rest, slot, hold).0;
        for &run in path.iter().rev() {
            if run == below && !rest.is_empty() {
                continue;
            }
            if self.tree.is_held(run, slot) {
                self.touch_run(run, slot);
            } else {
                fresh += self.tree.run(run).len as usize;
                self.add_holder(run, slot, hold);
                self.link_last(run, slot);
            }
        }
        fresh
    }

    /// Whether new blocks below this run will become part of it once it is touched.
    fn grows_in_place(&self, run: RunId, slot: Slot) -> bool {
        let found = self.tree.run(run);
        run != RunId::ROOT && found.holders == 1 && found.child.is_none() && self.tree.is_held(run, slot)
    }

    /// Gives the belief of a held run the current stamp and the end of the LRU list; truth stays as it is.
    fn touch_run(&mut self, run: RunId, slot: Slot) {
        let Hold::Belief { pins, .. } = self.record(run, slot).hold else { return };
        self.unlink(run, slot);
        self.record_mut(run, slot).hold = Hold::Belief { stamp: self.stamp, at: self.clock, pins, parked: false };
        self.link_last(run, slot);
    }

    /// Joins the runs of a path where its holds agree now, from the leaf up.
    fn merge_path(&mut self, path: &[RunId]) {
        for &run in path.iter().rev() {
            self.merge_down(run);
        }
    }

    /// Runs and blocks that the replica holds from the start of a path on.
    pub(crate) fn leading(&self, slot: Slot, path: &[RunId]) -> (usize, usize) {
        let held = path.iter().take_while(|&&run| self.tree.is_held(run, slot));
        held.fold((0, 0), |(runs, blocks), &run| (runs + 1, blocks + self.tree.run(run).len as usize))
    }

    /// The path of the leading blocks held, cut where the prompt ends; its runs and blocks.
    fn held_path(&mut self, slot: Slot, hashes: &[BlockHash]) -> (Vec<RunId>, usize) {
        let (_, inside) = self.descend(RunId::ROOT, hashes);
        let (runs, _) = self.leading(slot, &self.path);
        if let Some(inside) = inside.filter(|_| runs == self.path.len()) {
            if let Some(last) = self.path.pop() {
                let head = self.split(last, inside);
                self.path.push(head);
            }
        }
        let mut path = std::mem::take(&mut self.path);
        path.truncate(runs);
        let blocks = path.iter().map(|&run| self.tree.run(run).len as usize).sum();
        (path, blocks)
    }

    /// Touches the leading blocks held; how many blocks lead.
    pub(crate) fn touch(&mut self, slot: Slot, hashes: &[BlockHash], now: f64) -> usize {
        self.clock = self.clock.max(now);
        self.stamp += 1;
        let (path, blocks) = self.held_path(slot, hashes);
        for &run in path.iter().rev() {
            self.touch_run(run, slot);
        }
        self.merge_path(&path);
        self.path = path;
        blocks
    }

    /// Pins the leading blocks held; how many blocks lead.
    pub(crate) fn pin(&mut self, slot: Slot, hashes: &[BlockHash]) -> usize {
        let (path, blocks) = self.held_path(slot, hashes);
        for &run in &path {
            if let Hold::Belief { pins, .. } = &mut self.record_mut(run, slot).hold {
                *pins = pins.saturating_add(1);
            }
        }
        self.merge_path(&path);
        self.path = path;
        blocks
    }

    /// Takes a pin from each of these blocks and evicts what is over capacity.
    pub(crate) fn unpin(&mut self, slot: Slot, hashes: &[BlockHash]) {
        self.descend_split(RunId::ROOT, hashes);
        let path = std::mem::take(&mut self.path);
        for &run in &path {
            if !self.tree.is_held(run, slot) {
                continue;
            }
            let Hold::Belief { pins, .. } = &mut self.record_mut(run, slot).hold else { continue };
            *pins = pins.saturating_sub(1);
            if *pins == 0 {
                self.unpark(run, slot);
            }
        }
        self.merge_path(&path);
        self.path = path;
        let gone = self.evict(slot);
        self.counters.evicted_capacity += (gone.older + gone.current) as u64;
    }

    /// Takes back belief from position `keep` on that this stamp touched last; how many blocks.
    pub(crate) fn retract(&mut self, slot: Slot, hashes: &[BlockHash], keep: usize, stamp: u64) -> usize {
        self.descend_split(RunId::ROOT, hashes);
        let path = std::mem::take(&mut self.path);
        let mut gone = 0;
        for &run in path.iter().rev() {
            let found = self.tree.run(run);
            let (depth, len) = (found.depth as usize, found.len as usize);
            if depth + len <= keep {
                break;
            }
            let ours = |hold| matches!(hold, Hold::Belief { stamp: last, pins: 0, .. } if last == stamp);
            if !self.hold(run, slot).is_some_and(ours) {
                continue;
            }
            if depth < keep {
                self.split(run, (keep - depth) as u32);
            }
            gone += self.tree.run(run).len as usize;
            self.remove_holder(run, slot);
        }
        for &run in path.iter().rev() {
            self.tidy(run);
        }
        self.path = path;
        self.counters.retracted += gone as u64;
        gone
    }

    /// Another capacity in blocks of belief.
    pub(crate) fn set_capacity(&mut self, slot: Slot, capacity: Option<u64>) {
        self.replicas[slot.index()].capacity = capacity;
        let gone = self.evict(slot);
        self.counters.evicted_capacity += (gone.older + gone.current) as u64;
    }

    /// Evicts down to capacity.
    fn evict(&mut self, slot: Slot) -> Evicted {
        let mut gone = Evicted::default();
        let Some(capacity) = self.replicas[slot.index()].capacity else { return gone };
        while let Some(over) = self.replicas[slot.index()].believed.checked_sub(capacity).filter(|&over| over > 0) {
            let Some((stamp, blocks)) = self.evict_oldest(slot, over) else { break };
            if stamp == self.stamp {
                gone.current += blocks;
            } else {
                gone.older += blocks;
            }
        }
        gone
    }

    /// Evicts up to so many blocks of the least recently used run, from its tail; the run's stamp and how many.
    pub(crate) fn evict_oldest(&mut self, slot: Slot, most: u64) -> Option<(u64, usize)> {
        let run = self.oldest(slot)?;
        let stamp = self.lru_key(run, slot).0;
        let len = self.tree.run(run).len;
        let blocks = u64::from(len).min(most) as u32;
        if blocks == len {
            self.drop_holder(run, slot);
        } else {
            self.drop_range(run, len - blocks, len, slot);
        }
        Some((stamp, blocks as usize))
    }

    /// Drops belief whose time is over in all replicas; how many blocks.
    pub(crate) fn expire(&mut self, now: f64) -> usize {
        self.clock = self.clock.max(now);
        (0..self.replicas.len()).map(|index| self.expire_slot(Slot(index as u16))).sum()
    }

    fn expire_slot(&mut self, slot: Slot) -> usize {
        let Some(ttl) = self.config.ttl_of(self.is_fed(slot)) else { return 0 };
        let mut gone = 0;
        while let Some(run) = self.oldest(slot) {
            let over = matches!(self.record(run, slot).hold, Hold::Belief { at, .. } if at + ttl <= self.clock);
            if !over {
                break;
            }
            gone += self.tree.run(run).len as usize;
            self.drop_holder(run, slot);
        }
        self.counters.expired += gone as u64;
        gone
    }
}
