//! Truth: how many copies of a block each replica holds on each medium, and what the engines call them.

use std::collections::{HashMap, VecDeque};

use crate::ids::{BlockHash, EngineHash, Medium, Slot};
use crate::outcome::Content;

/// Copies per replica, block and medium.
#[derive(Clone, Debug, Default)]
pub struct Residency {
    copies: HashMap<(Slot, BlockHash), [u16; 3]>,
}

impl Residency {
    /// Copies of a block on each medium; all zero if it is not held.
    pub fn copies(&self, slot: Slot, block: BlockHash) -> [u16; 3] {
        self.copies.get(&(slot, block)).copied().unwrap_or_default()
    }

    /// Whether the replica holds the block on any medium.
    pub fn holds(&self, slot: Slot, block: BlockHash) -> bool {
        self.copies.contains_key(&(slot, block))
    }

    /// One more copy.
    pub fn add(&mut self, slot: Slot, block: BlockHash, medium: Medium) {
        let copies = self.copies.entry((slot, block)).or_default();
        copies[medium.index()] = copies[medium.index()].saturating_add(1);
    }

    /// One copy less; false if there is none on that medium.
    pub fn remove(&mut self, slot: Slot, block: BlockHash, medium: Medium) -> bool {
        let Some(copies) = self.copies.get_mut(&(slot, block)) else { return false };
        if copies[medium.index()] == 0 {
            return false;
        }
        copies[medium.index()] -= u16::from(copies[medium.index()] < u16::MAX);
        if *copies == [0; 3] {
            self.copies.remove(&(slot, block));
        }
        true
    }

    /// Takes all copies of a block.
    pub fn take(&mut self, slot: Slot, block: BlockHash) -> [u16; 3] {
        self.copies.remove(&(slot, block)).unwrap_or_default()
    }

    /// Forgets a replica.
    pub fn clear(&mut self, slot: Slot) {
        self.copies.retain(|&(other, _), _| other != slot);
    }

    /// All pairs held.
    pub fn pairs(&self) -> impl Iterator<Item = (Slot, BlockHash)> + '_ {
        self.copies.keys().copied()
    }
}

/// Names of blocks: the first name of a block is shared by all replicas, a name that disagrees is its replica's own.
#[derive(Clone, Debug, Default)]
pub struct Names {
    shared: HashMap<EngineHash, BlockHash>,
    name_of: HashMap<BlockHash, EngineHash>,
    own: HashMap<(Slot, EngineHash), BlockHash>,
}

impl Names {
    /// Names kept.
    pub fn len(&self) -> usize {
        self.shared.len() + self.own.len()
    }

    /// Whether no name is kept.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The replica calls this block so.
    pub fn set(&mut self, slot: Slot, name: EngineHash, block: BlockHash) {
        if self.shared.get(&name) == Some(&block) {
            self.own.remove(&(slot, name));
        } else if self.shared.contains_key(&name) || self.name_of.contains_key(&block) {
            self.own.insert((slot, name), block);
        } else {
            self.shared.insert(name, block);
            self.name_of.insert(block, name);
            self.own.remove(&(slot, name));
        }
    }

    /// The block a replica means; its own names only while it holds the block.
    pub fn get(&self, slot: Slot, name: EngineHash, truth: &Residency) -> Option<BlockHash> {
        let own = self.own.get(&(slot, name)).copied().filter(|&block| truth.holds(slot, block));
        own.or_else(|| self.shared.get(&name).copied())
    }

    /// The replica no longer holds what it calls so.
    pub fn drop_own(&mut self, slot: Slot, name: EngineHash) {
        self.own.remove(&(slot, name));
    }

    /// Forgets a replica's own names.
    pub fn clear(&mut self, slot: Slot) {
        self.own.retain(|&(other, _), _| other != slot);
    }

    /// Forgets the shared names of blocks that left the tree.
    pub fn retain(&mut self, alive: impl Fn(BlockHash) -> bool) {
        self.shared.retain(|_, block| alive(*block));
        self.name_of.retain(|block, _| alive(*block));
    }
}

/// A block of a store event that waits for its parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Orphan {
    /// Who stored it.
    pub slot: Slot,
    /// The parent's name.
    pub parent: EngineHash,
    /// Its own name.
    pub name: EngineHash,
    /// What is in it.
    pub(crate) content: Content,
    /// Where the copy lies.
    pub medium: Medium,
}

/// The orphan buffer: first in, first out.
#[derive(Clone, Debug, Default)]
pub struct Orphans {
    waiting: VecDeque<Orphan>,
}

impl Orphans {
    /// Blocks that wait.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Adds a block; true if the oldest had to go.
    pub fn push(&mut self, orphan: Orphan, limit: usize) -> bool {
        self.waiting.push_back(orphan);
        self.waiting.len() > limit && self.waiting.pop_front().is_some()
    }

    /// Takes the blocks that wait for this name and whose replica knows it now, oldest first.
    pub fn take(&mut self, parent: EngineHash, known: impl Fn(Slot) -> bool) -> Vec<Orphan> {
        let (taken, left): (VecDeque<_>, VecDeque<_>) =
            self.waiting.iter().partition(|orphan| orphan.parent == parent && known(orphan.slot));
        self.waiting = left;
        taken.into()
    }

    /// Whether a copy of the same block on the same medium waits.
    pub fn waits(&self, orphan: &Orphan) -> bool {
        let key = |orphan: &Orphan| (orphan.slot, orphan.name, orphan.medium);
        self.waiting.iter().any(|waiting| key(waiting) == key(orphan))
    }

    /// Takes the oldest waiting copy of a block away; false if none waits.
    pub fn remove(&mut self, slot: Slot, name: EngineHash, medium: Medium) -> bool {
        let same = |orphan: &Orphan| orphan.slot == slot && orphan.name == name && orphan.medium == medium;
        match self.waiting.iter().position(same) {
            Some(at) => self.waiting.remove(at).is_some(),
            None => false,
        }
    }

    /// Forgets a replica.
    pub fn clear(&mut self, slot: Slot) {
        self.waiting.retain(|orphan| orphan.slot != slot);
    }
}
