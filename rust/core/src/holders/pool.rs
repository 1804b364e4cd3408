//! The records of holders: one per (run, replica), those of one run in an array ordered by slot, so that a population count
//! of the run's coverage finds a record.

use crate::ids::Medium;
use crate::linked_slab::{Links, grow, growth};
use crate::trie::{Records, RunId};

/// Array sizes are powers of two up to the greatest number of replicas.
pub(crate) const CLASSES: usize = 11;
const FREE_END: u32 = u32::MAX;

/// How a replica holds a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Hold {
    /// It should, as a decision said so.
    Belief {
        /// Number of the last touch.
        stamp: u64,
        /// Time of the last touch.
        at: f64,
        /// Requests in flight that use it.
        pins: u32,
        /// It was the next to be evicted when pinned: it waits outside of the LRU list.
        parked: bool,
    },
    /// Its engine said so: copies on each medium.
    Truth {
        /// Copies, best medium first; never all zero.
        copies: [u16; 3],
    },
}

impl Hold {
    pub(crate) fn one_copy(medium: Medium) -> Self {
        let mut copies = [0; 3];
        copies[medium.index()] = 1;
        Hold::Truth { copies }
    }

    pub(crate) fn is_belief(&self) -> bool {
        matches!(self, Hold::Belief { .. })
    }

    /// The last touch; 0 of what events said.
    pub(crate) fn stamp(&self) -> u64 {
        if let Hold::Belief { stamp, .. } = self { *stamp } else { 0 }
    }
}

/// Takes one of so many copies away; false if there is none. A full count stays full: there may have been more.
pub(crate) fn take_copy(copies: &mut u16) -> bool {
    let any = *copies > 0;
    *copies -= u16::from(any && *copies < u16::MAX);
    any
}

/// A holder's record: the hold, and the neighbours in the replica's list that it belongs to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record {
    pub links: Links<RunId>,
    pub hold: Hold,
}

const _: () = assert!(size_of::<Record>() == 32);

impl Record {
    pub(crate) fn new(hold: Hold) -> Self {
        Record { links: Links::default(), hold }
    }
}

/// The arrays. A free one heads the list of its size, linked through its first record.
#[derive(Debug)]
pub(super) struct Pool {
    records: Vec<Record>,
    free: [u32; CLASSES],
    live: usize,
}

impl Default for Pool {
    fn default() -> Self {
        Pool { records: Vec::new(), free: [FREE_END; CLASSES], live: 0 }
    }
}

impl Pool {
    /// The start of an array of `1 << class` records.
    fn alloc(&mut self, class: u8) -> u32 {
        let size = 1 << class;
        self.live += size;
        let head = self.free[class as usize];
        if head != FREE_END {
            self.free[class as usize] = self.records[head as usize].links.next.0;
            return head;
        }
        let start = self.records.len() as u32;
        for _ in 0..size {
            grow(&mut self.records);
            self.records.push(Record::new(Hold::Truth { copies: [0; 3] }));
        }
        start
    }

    /// Gives an array back.
    pub(super) fn free(&mut self, Records { start, len, class }: Records) {
        if len > 0 {
            self.live -= 1 << class;
            self.records[start as usize].links.next = RunId(self.free[class as usize]);
            self.free[class as usize] = start;
        }
    }

    /// A copy of an array, in one of that size.
    fn copied(&mut self, from: Records, class: u8) -> Records {
        let start = self.alloc(class);
        self.records.copy_within(from.start as usize..from.start as usize + from.len as usize, start as usize);
        Records { start, class, ..from }
    }

    /// A copy of an array.
    pub(super) fn duplicate(&mut self, records: Records) -> Records {
        if records.len == 0 { records } else { self.copied(records, records.class) }
    }

    /// Inserts a record; an array that is full moves to one of twice the size.
    pub(super) fn insert(&mut self, mut records: Records, at: usize, record: Record) -> Records {
        if records.len == 0 {
            records = Records { start: self.alloc(0), len: 0, class: 0 };
        } else if records.len == 1 << records.class {
            let bigger = self.copied(records, records.class + 1);
            self.free(records);
            records = bigger;
        }
        let (first, len) = (records.start as usize, records.len as usize);
        self.records.copy_within(first + at..first + len, first + at + 1);
        self.records[first + at] = record;
        Records { len: records.len + 1, ..records }
    }

    /// Whether one more array of a class makes the array grow.
    fn grows_for(&self, class: u8) -> bool {
        self.free[usize::from(class)] == FREE_END && self.records.len() + (1 << class) > self.records.capacity()
    }

    /// Takes a record out; an empty array is given back, one that is a quarter full moves to one of half the size (not at half,
    /// where the next record would move it again).
    pub(super) fn remove(&mut self, records: Records, at: usize) -> Records {
        let (first, len) = (records.start as usize, records.len as usize);
        if len == 1 {
            self.free(records);
            return Records::default();
        }
        self.records.copy_within(first + at + 1..first + len, first + at);
        let left = Records { len: records.len - 1, ..records };
        if records.class < 2 || len - 1 > 1 << records.class >> 2 || self.grows_for(records.class - 1) {
            return left;
        }
        let smaller = self.copied(left, records.class - 1);
        self.free(records);
        smaller
    }

    #[inline]
    pub(super) fn get(&self, at: usize) -> &Record {
        &self.records[at]
    }

    #[inline]
    pub(super) fn get_mut(&mut self, at: usize) -> &mut Record {
        &mut self.records[at]
    }

    pub(super) fn array(&self, records: Records) -> &[Record] {
        &self.records[records.start as usize..][..records.len as usize]
    }

    /// Records in arrays, used or not.
    #[cfg(any(test, feature = "testing"))]
    pub(super) fn live(&self) -> usize {
        self.live
    }

    /// Bytes that the array will grow by for so many more arrays of each class.
    pub(super) fn growth(&self, more: &[usize; CLASSES]) -> usize {
        let some = |at: u32| (at != FREE_END).then_some(at);
        let lacking = more.iter().zip(&self.free).enumerate().map(|(class, (&more, &head))| {
            let free = std::iter::successors(some(head), |&at| some(self.records[at as usize].links.next.0));
            (more - free.take(more).count()) << class
        });
        growth(self.records.capacity(), self.records.len() + lacking.sum::<usize>()) * size_of::<Record>()
    }

    pub(super) fn live_bytes(&self) -> usize {
        self.live * size_of::<Record>()
    }

    pub(super) fn reserved_bytes(&self) -> usize {
        self.records.capacity() * size_of::<Record>()
    }
}
