//! Who holds which run, and how: a record per (run, replica), and three lists per replica that run through its records.
//!
//! The LRU list goes from the next to be evicted to the most recent. One touch puts its path in with the leaf first, so
//! that the tail of a chain goes before its head: the list is ordered by (stamp, depth descending). What was next to go
//! but is pinned is parked in a list of its own, so that evictions need not pass over it again.
//!
//! Coverage itself is in the [`Runs`], which lookups read; every function that changes it is here.

mod pool;

use std::cmp::Reverse;

use pool::Pool;
pub(crate) use pool::{CLASSES, Hold, Record, take_copy};

use crate::ids::Slot;
use crate::linked_slab::{Id, Linked, Links, List};
use crate::trie::{RunId, Runs};

/// A list of a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Belief that can be evicted, least recently used first.
    Lru = 0,
    /// Pinned belief that would have been evicted.
    Parked = 1,
    /// What the engine's events said.
    Known = 2,
}

impl Kind {
    pub(crate) const ALL: [Kind; 3] = [Kind::Lru, Kind::Parked, Kind::Known];

    /// The list that a record with this hold is in.
    pub(crate) fn of(hold: &Hold) -> Kind {
        match hold {
            Hold::Truth { .. } => Kind::Known,
            Hold::Belief { parked: true, .. } => Kind::Parked,
            Hold::Belief { .. } => Kind::Lru,
        }
    }
}

/// What one replica holds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Held {
    /// Blocks by belief.
    pub believed: u64,
    /// Blocks by its events.
    pub known: u64,
    lists: [List<RunId>; 3],
}

impl Held {
    fn count(&mut self, hold: &Hold) -> &mut u64 {
        if hold.is_belief() { &mut self.believed } else { &mut self.known }
    }
}

/// The holders of all runs.
#[derive(Debug, Default)]
pub(crate) struct Holders {
    pool: Pool,
    replicas: Vec<Held>,
    /// Distinct blocks that somebody holds.
    blocks: u64,
}

/// The links of one replica's records, which lie wherever the coverage of their run says.
struct Records<'a> {
    runs: &'a Runs,
    pool: &'a mut Pool,
    slot: Slot,
}

impl Linked for Records<'_> {
    type Id = RunId;

    #[inline]
    fn links(&mut self, run: RunId) -> &mut Links<RunId> {
        &mut self.pool.get_mut(place_of(self.runs, run, self.slot)).links
    }
}

/// Where the record of a holder lies.
#[inline]
fn place_of(runs: &Runs, run: RunId, slot: Slot) -> usize {
    runs.get(run).records.start as usize + runs.rank(run, slot)
}

impl Holders {
    /// Makes room for a replica.
    pub(crate) fn open(&mut self, slot: Slot) {
        slot.extend(&mut self.replicas);
    }

    /// Nobody holds anything any more, and the runs are gone too.
    pub(crate) fn reset(&mut self) {
        *self = Holders { replicas: vec![Held::default(); self.replicas.len()], ..Holders::default() };
    }

    /// What each slot holds.
    pub(crate) fn replicas(&self) -> &[Held] {
        &self.replicas
    }

    /// Distinct blocks that somebody holds.
    pub(crate) fn blocks(&self) -> u64 {
        self.blocks
    }

    #[inline]
    pub(crate) fn record(&self, runs: &Runs, run: RunId, slot: Slot) -> &Record {
        self.pool.get(place_of(runs, run, slot))
    }

    /// How the replica holds the run, if it does.
    #[inline]
    pub(crate) fn hold(&self, runs: &Runs, run: RunId, slot: Slot) -> Option<Hold> {
        runs.is_held(run, slot).then(|| self.record(runs, run, slot).hold)
    }

    /// A hold to be changed in a way that leaves the record in its place of its list: pins, copies.
    pub(crate) fn hold_mut(&mut self, runs: &Runs, run: RunId, slot: Slot) -> &mut Hold {
        &mut self.pool.get_mut(place_of(runs, run, slot)).hold
    }

    /// First run of a list.
    pub(crate) fn first(&self, slot: Slot, list: Kind) -> Option<RunId> {
        self.replicas[slot.index()].lists[list as usize].first.some()
    }

    /// The run after this one in the list that it is in.
    pub(crate) fn after(&self, runs: &Runs, slot: Slot, run: RunId) -> Option<RunId> {
        self.record(runs, run, slot).links.next.some()
    }

    /// The list that a record with this hold is in, and the links of the replica's records.
    #[inline]
    fn list<'a>(&'a mut self, runs: &'a Runs, slot: Slot, hold: &Hold) -> (&'a mut List<RunId>, Records<'a>) {
        let list = &mut self.replicas[slot.index()].lists[Kind::of(hold) as usize];
        (list, Records { runs, pool: &mut self.pool, slot })
    }

    /// The replica holds the run from now on, as the latest in its list.
    pub(crate) fn add(&mut self, runs: &mut Runs, run: RunId, slot: Slot, hold: Hold) {
        self.add_unlinked(runs, run, slot, hold);
        self.link_last(runs, run, slot);
    }

    /// The same but for the list, which [`link_last`](Self::link_last) is left to.
    pub(crate) fn add_unlinked(&mut self, runs: &mut Runs, run: RunId, slot: Slot, hold: Hold) {
        let at = runs.rank(run, slot);
        let found = runs.get_mut(run);
        let blocks = u64::from(found.len);
        self.blocks += if found.records.len == 0 { blocks } else { 0 };
        found.records = self.pool.insert(found.records, at, Record::new(hold));
        runs.flip(run, slot);
        *self.replicas[slot.index()].count(&hold) += blocks;
    }

    pub(crate) fn link_last(&mut self, runs: &Runs, run: RunId, slot: Slot) {
        let hold = self.record(runs, run, slot).hold;
        let (list, mut records) = self.list(runs, slot, &hold);
        list.push_last(&mut records, run);
    }

    /// The replica does not hold the run any more.
    pub(crate) fn remove(&mut self, runs: &mut Runs, run: RunId, slot: Slot) {
        let hold = self.record(runs, run, slot).hold;
        let (list, mut records) = self.list(runs, slot, &hold);
        list.unlink(&mut records, run);
        let at = runs.rank(run, slot);
        let found = runs.get_mut(run);
        let blocks = u64::from(found.len);
        found.records = self.pool.remove(found.records, at);
        self.blocks -= if found.records.len == 0 { blocks } else { 0 };
        runs.flip(run, slot);
        *self.replicas[slot.index()].count(&hold) -= blocks;
    }

    /// The replica holds the run in another way from now on, as the latest in the list that this is.
    pub(crate) fn renew(&mut self, runs: &Runs, run: RunId, slot: Slot, hold: Hold) {
        let record = self.pool.get_mut(place_of(runs, run, slot));
        let before = std::mem::replace(record, Record::new(hold));
        let (list, mut records) = self.list(runs, slot, &before.hold);
        list.close(&mut records, before.links);
        let (list, mut records) = self.list(runs, slot, &hold);
        list.push_last(&mut records, run);
        if before.hold.is_belief() != hold.is_belief() {
            let (blocks, replica) = (u64::from(runs.get(run).len), &mut self.replicas[slot.index()]);
            *replica.count(&before.hold) -= blocks;
            *replica.count(&hold) += blocks;
        }
    }

    /// A run that the replica holds alone has another length.
    pub(crate) fn resized(&mut self, slot: Slot, hold: &Hold, before: u32, now: u32) {
        for blocks in [self.replicas[slot.index()].count(hold), &mut self.blocks] {
            *blocks = *blocks - u64::from(before) + u64::from(now);
        }
    }

    /// A run was split: who holds it holds the head too, in the same way. The head goes right behind the tail in each list,
    /// being less deep.
    pub(crate) fn split(&mut self, runs: &mut Runs, run: RunId, head: RunId) {
        let records = runs.get(run).records;
        runs.get_mut(head).records = self.pool.duplicate(records);
        for slot in runs.holders(run) {
            let hold = self.record(runs, run, slot).hold;
            let (list, mut records) = self.list(runs, slot, &hold);
            list.insert_after(&mut records, run, head);
        }
    }

    /// A run will be joined with its child, which the same replicas hold: its own records go.
    pub(crate) fn join(&mut self, runs: &Runs, run: RunId) {
        for slot in runs.holders(run) {
            let hold = self.record(runs, run, slot).hold;
            let (list, mut records) = self.list(runs, slot, &hold);
            list.unlink(&mut records, run);
        }
        self.pool.free(runs.get(run).records);
    }

    /// Whether every replica holds both runs alike.
    pub(crate) fn same(&self, runs: &Runs, a: RunId, b: RunId) -> bool {
        let (a_records, b_records) = (runs.get(a).records, runs.get(b).records);
        let alike = |(a, b): (&Record, &Record)| a.hold == b.hold;
        a_records.len == b_records.len
            && runs.same_cover(a, b)
            && self.pool.array(a_records).iter().zip(self.pool.array(b_records)).all(alike)
    }

    /// The next run to be evicted; those that are pinned are parked on the way.
    pub(crate) fn oldest(&mut self, runs: &Runs, slot: Slot) -> Option<RunId> {
        loop {
            let run = self.first(slot, Kind::Lru)?;
            match self.record(runs, run, slot).hold {
                Hold::Belief { stamp, at, pins, .. } if pins > 0 => {
                    self.renew(runs, run, slot, Hold::Belief { stamp, at, pins, parked: true });
                }
                _ => return Some(run),
            }
        }
    }

    /// Puts a parked record, whose last pin is gone, back where it belongs: near the front, as it was there before.
    pub(crate) fn unpark(&mut self, runs: &Runs, run: RunId, slot: Slot) {
        let Hold::Belief { stamp, at, pins, parked: true } = self.record(runs, run, slot).hold else { return };
        let mut prev = RunId::NONE;
        let mut next = self.first(slot, Kind::Lru);
        while let Some(other) = next.filter(|&other| self.lru_key(runs, other, slot) < self.lru_key(runs, run, slot)) {
            (prev, next) = (other, self.after(runs, slot, other));
        }
        let hold = Hold::Belief { stamp, at, pins, parked: false };
        let before = std::mem::replace(self.hold_mut(runs, run, slot), hold);
        let (list, mut records) = self.list(runs, slot, &before);
        list.unlink(&mut records, run);
        let (list, mut records) = self.list(runs, slot, &hold);
        list.insert_after(&mut records, prev, run);
    }

    /// What the LRU list is ordered by.
    pub(crate) fn lru_key(&self, runs: &Runs, run: RunId, slot: Slot) -> (u64, Reverse<u32>) {
        (self.record(runs, run, slot).hold.stamp(), Reverse(runs.get(run).depth))
    }

    /// Records in arrays, used or not.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn live_records(&self) -> usize {
        self.pool.live()
    }

    /// Bytes that the records will grow by for so many more arrays of each class.
    pub(crate) fn growth(&self, more: &[usize; CLASSES]) -> usize {
        self.pool.growth(more)
    }

    pub(crate) fn live_bytes(&self) -> usize {
        self.pool.live_bytes()
    }

    pub(crate) fn reserved_bytes(&self) -> usize {
        self.pool.reserved_bytes() + self.replicas.capacity() * size_of::<Held>()
    }
}
