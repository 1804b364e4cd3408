//! Blocks of store events that wait for their parent, in a bounded buffer.

use std::collections::{BTreeMap, BTreeSet};

use super::residence::Residence;
use crate::ids::{EngineHash, Slot};
use crate::memory::btree_bytes;
use crate::outcome::Content;

/// A block that waits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Orphan {
    pub slot: Slot,
    pub parent: EngineHash,
    pub name: EngineHash,
    pub content: Content,
    pub residence: Residence,
}

fn bytes_of(blocks: usize) -> usize {
    let entries = [size_of::<(u64, Orphan)>(), size_of::<(EngineHash, u64)>(), size_of::<(Slot, EngineHash, u64)>()];
    entries.iter().map(|&entry| btree_bytes(blocks, entry)).sum()
}

/// The buffer: first in, first out, found by parent and by name. Each step costs O(log n).
#[derive(Debug, Default)]
pub(crate) struct Orphans {
    waiting: BTreeMap<u64, Orphan>,
    by_parent: BTreeSet<(EngineHash, u64)>,
    by_name: BTreeSet<(Slot, EngineHash, u64)>,
    next: u64,
}

impl Orphans {
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Adds a block; the oldest, if it had to go.
    pub(crate) fn push(&mut self, orphan: Orphan, limit: usize) -> Option<Orphan> {
        let number = self.next;
        self.next += 1;
        self.waiting.insert(number, orphan);
        self.by_parent.insert((orphan.parent, number));
        self.by_name.insert((orphan.slot, orphan.name, number));
        let oldest = self.waiting.first_key_value().map(|(&oldest, _)| oldest);
        oldest.filter(|_| self.waiting.len() > limit).and_then(|oldest| self.take(oldest))
    }

    fn take(&mut self, number: u64) -> Option<Orphan> {
        let orphan = self.waiting.remove(&number)?;
        self.by_parent.remove(&(orphan.parent, number));
        self.by_name.remove(&(orphan.slot, orphan.name, number));
        if self.waiting.is_empty() {
            // Emptied trees keep a node each.
            *self = Orphans { next: self.next, ..Orphans::default() };
        }
        Some(orphan)
    }

    /// Takes the blocks that wait for this name and whose replica knows it now, oldest first.
    pub(crate) fn take_children(&mut self, parent: EngineHash, known: impl Fn(Slot) -> bool) -> Vec<Orphan> {
        let numbers = self.by_parent.range((parent, 0)..=(parent, u64::MAX)).map(|&(_, number)| number);
        let ours: Vec<u64> = numbers.filter(|number| known(self.waiting[number].slot)).collect();
        ours.into_iter().filter_map(|number| self.take(number)).collect()
    }

    /// Numbers of the copies of a block that wait, oldest first.
    fn copies(&self, slot: Slot, name: EngineHash) -> impl Iterator<Item = u64> {
        self.by_name.range((slot, name, 0)..=(slot, name, u64::MAX)).map(|&(_, _, number)| number)
    }

    /// The oldest waiting copy of a block.
    pub(crate) fn find(&self, slot: Slot, name: EngineHash) -> Option<&Orphan> {
        self.copies(slot, name).next().map(|number| &self.waiting[&number])
    }

    /// Whether a copy of a block waits that lies there.
    pub(crate) fn waits(&self, slot: Slot, name: EngineHash, residence: Residence) -> bool {
        self.copies(slot, name).any(|number| self.waiting[&number].residence == residence)
    }

    /// Takes the oldest copy of a block away that waits and lies there; false if none does.
    pub(crate) fn remove(&mut self, slot: Slot, name: EngineHash, residence: Residence) -> bool {
        let number = self.copies(slot, name).find(|number| self.waiting[number].residence == residence);
        number.and_then(|number| self.take(number)).is_some()
    }

    /// Forgets a replica.
    pub(crate) fn clear(&mut self, slot: Slot) {
        let all = (slot, EngineHash(0), 0)..=(slot, EngineHash(u64::MAX), u64::MAX);
        let numbers: Vec<u64> = self.by_name.range(all).map(|&(_, _, number)| number).collect();
        for number in numbers {
            self.take(number);
        }
    }

    /// The blocks that wait, oldest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Orphan> {
        self.waiting.values()
    }

    /// What the three trees take at most.
    pub(crate) fn bytes(&self) -> usize {
        bytes_of(self.len())
    }

    /// What one more block takes at most.
    pub(crate) fn growth(&self) -> usize {
        bytes_of(self.len() + 1) - bytes_of(self.len())
    }
}
