//! Records of holders: one per (run, replica), those of one run in an array ordered by slot.

use super::{grow, step_of};
use crate::ids::Medium;
use crate::radix::RunId;

/// Array sizes are powers of two up to the greatest number of replicas.
const CLASSES: usize = 11;
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
        /// It was the next to be evicted when pinned: it waits outside the LRU list.
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
}

/// A holder's record: the hold, and the neighbours in the replica's list that it belongs to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record {
    pub prev: RunId,
    pub next: RunId,
    pub hold: Hold,
}

impl Record {
    pub(crate) fn new(hold: Hold) -> Self {
        Record { prev: RunId::NONE, next: RunId::NONE, hold }
    }
}

/// The arrays. A freed one heads the list of its size, linked through its first record.
#[derive(Debug)]
pub(crate) struct Pool {
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
    /// An array of `1 << class` records.
    pub(crate) fn alloc(&mut self, class: u8) -> u32 {
        let size = 1 << class;
        self.live += size;
        let head = self.free[class as usize];
        if head != FREE_END {
            self.free[class as usize] = self.records[head as usize].next.0;
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
    pub(crate) fn free(&mut self, start: u32, class: u8) {
        self.live -= 1 << class;
        self.records[start as usize].next = RunId(self.free[class as usize]);
        self.free[class as usize] = start;
    }

    /// Inserts a record into an array of `len`, whose start it gives: a full one moves to the next size.
    pub(crate) fn insert(&mut self, start: u32, class: u8, len: usize, at: usize, record: Record) -> (u32, u8) {
        let (mut start, mut class) = (start, class);
        if len == 0 {
            (start, class) = (self.alloc(0), 0);
        } else if len == 1 << class {
            let bigger = self.alloc(class + 1);
            self.records.copy_within(start as usize..start as usize + len, bigger as usize);
            self.free(start, class);
            (start, class) = (bigger, class + 1);
        }
        let first = start as usize;
        self.records.copy_within(first + at..first + len, first + at + 1);
        self.records[first + at] = record;
        (start, class)
    }

    /// Takes a record out of an array of `len`; an empty array is given back, a quarter-full one moves to half its size.
    pub(crate) fn remove(&mut self, start: u32, class: u8, len: usize, at: usize) -> (u32, u8) {
        let first = start as usize;
        self.records.copy_within(first + at + 1..first + len, first + at);
        if len == 1 {
            self.free(start, class);
            return (0, 0);
        }
        if len - 1 > 1 << class >> 2 || class < 2 {
            return (start, class);
        }
        let smaller = self.alloc(class - 1);
        self.records.copy_within(first..first + len - 1, smaller as usize);
        self.free(start, class);
        (smaller, class - 1)
    }

    /// A copy of an array of `len`.
    pub(crate) fn duplicate(&mut self, start: u32, class: u8, len: usize) -> u32 {
        let copy = self.alloc(class);
        self.records.copy_within(start as usize..start as usize + len, copy as usize);
        copy
    }

    #[inline]
    pub(crate) fn get(&self, at: usize) -> &Record {
        &self.records[at]
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, at: usize) -> &mut Record {
        &mut self.records[at]
    }

    pub(crate) fn array(&self, start: u32, len: usize) -> &[Record] {
        &self.records[start as usize..start as usize + len]
    }

    /// Records in arrays, used or not.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn live(&self) -> usize {
        self.live
    }

    /// Bytes that the array will grow by for so many more single records.
    pub(crate) fn growth(&self, more: usize) -> usize {
        let mut free = self.free[0];
        let reused = (0..more).take_while(|_| {
            let found = free != FREE_END;
            if found {
                free = self.records[free as usize].next.0;
            }
            found
        });
        let lacking = more - reused.count();
        if self.records.len() + lacking <= self.records.capacity() { 0 } else { step_of(&self.records) }
    }

    pub(crate) fn live_bytes(&self) -> usize {
        self.live * size_of::<Record>()
    }

    pub(crate) fn reserved_bytes(&self) -> usize {
        self.records.capacity() * size_of::<Record>()
    }
}
