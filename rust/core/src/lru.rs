//! What is known of one replica: three lists that run through the records of the runs it holds.
//!
//! The LRU list goes from the next to be evicted to the most recent. One touch puts its path in with the leaf first, so
//! that the tail of a chain goes before its head: the list is ordered by (stamp, depth descending). What was next to go
//! but is pinned is parked in a list of its own, so that evictions need not pass over it again.

use std::collections::HashMap;

use crate::arena::{Hold, Place, Record};
use crate::engine::Engine;
use crate::events::Feed;
use crate::ids::{BlockHash, EngineHash, Slot};
use crate::radix::RunId;

/// A list of a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum List {
    /// Belief that can be evicted, least recently used first.
    Lru = 0,
    /// Pinned belief that would have been evicted.
    Parked = 1,
    /// What the engine's events said.
    Known = 2,
}

impl List {
    pub(crate) const ALL: [List; 3] = [List::Lru, List::Parked, List::Known];

    /// The list that a record with this hold is in.
    pub(crate) fn of(hold: &Hold) -> List {
        match hold {
            Hold::Truth { .. } => List::Known,
            Hold::Belief { parked: true, .. } => List::Parked,
            Hold::Belief { .. } => List::Lru,
        }
    }
}

/// What is known of one replica.
#[derive(Debug)]
pub(crate) struct Replica {
    pub capacity: Option<u64>,
    /// Its engine reports reuse in the shape of a store: a block stored again is no further copy.
    pub reuse_reports: bool,
    /// Blocks held by belief.
    pub believed: u64,
    /// Blocks held by its events.
    pub known: u64,
    /// Names that disagree with the shared ones: valid while the replica knows the block at that place.
    pub own_names: HashMap<EngineHash, (Place, BlockHash)>,
    /// What its events have said beyond that; none of a replica that has sent none.
    pub feed: Option<Box<Feed>>,
    ends: [(RunId, RunId); 3],
}

impl Default for Replica {
    fn default() -> Self {
        Replica {
            capacity: None,
            reuse_reports: false,
            believed: 0,
            known: 0,
            own_names: HashMap::new(),
            feed: None,
            ends: [(RunId::NONE, RunId::NONE); 3],
        }
    }
}

impl Replica {
    /// Holds nothing any more; what was said of the replica itself stays.
    pub(crate) fn forget(&mut self) {
        let (capacity, reuse_reports, mut feed) = (self.capacity, self.reuse_reports, self.feed.take());
        if let Some(feed) = &mut feed {
            feed.forget();
        }
        *self = Replica { capacity, reuse_reports, feed, ..Replica::default() };
    }

    pub(crate) fn own_bytes(&self) -> usize {
        // A slot of the map is the pair and one byte of tag, seven of eight filled at most.
        self.own_names.capacity() * (size_of::<(EngineHash, (Place, BlockHash))>() + 1) * 8 / 7
            + self.feed.as_deref().map_or(0, Feed::bytes)
    }
}

impl Engine {
    /// Where the record of a holder lies.
    #[inline]
    pub(crate) fn record_at(&self, run: RunId, slot: Slot) -> usize {
        self.tree.run(run).records as usize + self.tree.rank(run, slot)
    }

    #[inline]
    pub(crate) fn record(&self, run: RunId, slot: Slot) -> &Record {
        self.pool.get(self.record_at(run, slot))
    }

    #[inline]
    pub(crate) fn record_mut(&mut self, run: RunId, slot: Slot) -> &mut Record {
        let at = self.record_at(run, slot);
        self.pool.get_mut(at)
    }

    /// How the replica holds the run, if it does.
    #[inline]
    pub(crate) fn hold(&self, run: RunId, slot: Slot) -> Option<Hold> {
        self.tree.is_held(run, slot).then(|| self.record(run, slot).hold)
    }

    /// First run of a list.
    pub(crate) fn first(&self, slot: Slot, list: List) -> Option<RunId> {
        let first = self.replicas[slot.index()].ends[list as usize].0;
        (!first.is_none()).then_some(first)
    }

    /// The run after this one in the list that it is in.
    pub(crate) fn after(&self, slot: Slot, run: RunId) -> Option<RunId> {
        let next = self.record(run, slot).next;
        (!next.is_none()).then_some(next)
    }

    /// Puts an unlinked record at the end of the list that its hold says.
    pub(crate) fn link_last(&mut self, run: RunId, slot: Slot) {
        let list = List::of(&self.record(run, slot).hold);
        let end = self.replicas[slot.index()].ends[list as usize].1;
        self.link(run, slot, list, end, RunId::NONE);
    }

    /// Puts an unlinked record right behind another, in the same list.
    pub(crate) fn link_after(&mut self, run: RunId, slot: Slot, before: RunId) {
        let list = List::of(&self.record(run, slot).hold);
        let next = self.record(before, slot).next;
        self.link(run, slot, list, before, next);
    }

    fn link_before(&mut self, run: RunId, slot: Slot, next: RunId) {
        let list = List::of(&self.record(run, slot).hold);
        let prev = self.record(next, slot).prev;
        self.link(run, slot, list, prev, next);
    }

    fn link(&mut self, run: RunId, slot: Slot, list: List, prev: RunId, next: RunId) {
        let record = self.record_mut(run, slot);
        (record.prev, record.next) = (prev, next);
        self.join(slot, list, prev, run);
        self.join(slot, list, run, next);
    }

    /// Takes a record out of its list.
    pub(crate) fn unlink(&mut self, run: RunId, slot: Slot) {
        let &Record { prev, next, hold } = self.record(run, slot);
        self.join(slot, List::of(&hold), prev, next);
    }

    /// Makes two runs neighbours in a list; none stands for its end.
    fn join(&mut self, slot: Slot, list: List, prev: RunId, next: RunId) {
        if prev.is_none() {
            self.replicas[slot.index()].ends[list as usize].0 = next;
        } else {
            self.record_mut(prev, slot).next = next;
        }
        if next.is_none() {
            self.replicas[slot.index()].ends[list as usize].1 = prev;
        } else {
            self.record_mut(next, slot).prev = prev;
        }
    }

    /// The replica holds the run from now on; the record is not in a list yet.
    pub(crate) fn add_holder(&mut self, run: RunId, slot: Slot, hold: Hold) {
        let at = self.tree.rank(run, slot);
        let found = *self.tree.run(run);
        let (records, class) =
            self.pool.insert(found.records, found.class, found.holders as usize, at, Record::new(hold));
        if found.holders == 0 {
            self.held_blocks += u64::from(found.len);
        }
        let run_now = self.tree.run_mut(run);
        (run_now.records, run_now.class, run_now.holders) = (records, class, found.holders + 1);
        self.tree.flip(run, slot);
        *self.count(slot, &hold) += u64::from(found.len);
    }

    /// The replica does not hold the run any more. The shape of the tree is left for `tidy`.
    pub(crate) fn remove_holder(&mut self, run: RunId, slot: Slot) {
        self.unlink(run, slot);
        let hold = self.record(run, slot).hold;
        let at = self.tree.rank(run, slot);
        let found = *self.tree.run(run);
        let (records, class) = self.pool.remove(found.records, found.class, found.holders as usize, at);
        if found.holders == 1 {
            self.held_blocks -= u64::from(found.len);
        }
        let run_now = self.tree.run_mut(run);
        (run_now.records, run_now.class, run_now.holders) = (records, class, found.holders - 1);
        self.tree.flip(run, slot);
        *self.count(slot, &hold) -= u64::from(found.len);
    }

    /// The count of blocks that a replica holds in this way.
    pub(crate) fn count(&mut self, slot: Slot, hold: &Hold) -> &mut u64 {
        let replica = &mut self.replicas[slot.index()];
        if hold.is_belief() { &mut replica.believed } else { &mut replica.known }
    }

    /// The next run to be evicted; those that are pinned are parked on the way.
    pub(crate) fn oldest(&mut self, slot: Slot) -> Option<RunId> {
        loop {
            let run = self.first(slot, List::Lru)?;
            match self.record(run, slot).hold {
                Hold::Belief { stamp, at, pins, .. } if pins > 0 => {
                    self.unlink(run, slot);
                    self.record_mut(run, slot).hold = Hold::Belief { stamp, at, pins, parked: true };
                    self.link_last(run, slot);
                }
                _ => return Some(run),
            }
        }
    }

    /// Puts a parked record, whose last pin is gone, back where it belongs: near the front, as it was there before.
    pub(crate) fn unpark(&mut self, run: RunId, slot: Slot) {
        let Hold::Belief { stamp, at, pins, parked: true } = self.record(run, slot).hold else { return };
        self.unlink(run, slot);
        self.record_mut(run, slot).hold = Hold::Belief { stamp, at, pins, parked: false };
        let key = (stamp, std::cmp::Reverse(self.tree.run(run).depth));
        let mut next = self.first(slot, List::Lru);
        while let Some(other) = next.filter(|&other| self.lru_key(other, slot) < key) {
            next = self.after(slot, other);
        }
        match next {
            Some(next) => self.link_before(run, slot, next),
            None => self.link_last(run, slot),
        }
    }

    /// What the LRU list is ordered by.
    pub(crate) fn lru_key(&self, run: RunId, slot: Slot) -> (u64, std::cmp::Reverse<u32>) {
        let stamp = match self.record(run, slot).hold {
            Hold::Belief { stamp, .. } => stamp,
            Hold::Truth { .. } => 0,
        };
        (stamp, std::cmp::Reverse(self.tree.run(run).depth))
    }
}
