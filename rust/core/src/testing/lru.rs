//! Belief of one replica, block by block.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};

use crate::ids::BlockHash;

#[derive(Clone, Copy, Debug)]
struct Entry {
    stamp: u64,
    at: f64,
    depth: usize,
    pins: u32,
}

/// Least recently used blocks go first, and of one touch the deepest.
#[derive(Clone, Debug, Default)]
pub struct BlockLru {
    entries: HashMap<BlockHash, Entry>,
    order: BTreeSet<(u64, Reverse<usize>, BlockHash)>,
}

impl BlockLru {
    /// Blocks held.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether nothing is held.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether the block is held.
    pub fn contains(&self, block: BlockHash) -> bool {
        self.entries.contains_key(&block)
    }

    /// Creates or touches the block; true if it is new.
    pub fn touch(&mut self, block: BlockHash, depth: usize, stamp: u64, at: f64) -> bool {
        let old = self.entries.get(&block).copied();
        if let Some(old) = old {
            self.order.remove(&(old.stamp, Reverse(old.depth), block));
        }
        let pins = old.map_or(0, |old| old.pins);
        self.entries.insert(block, Entry { stamp, at, depth, pins });
        self.order.insert((stamp, Reverse(depth), block));
        old.is_none()
    }

    /// Takes the block away; true if it was there.
    pub fn remove(&mut self, block: BlockHash) -> bool {
        let Some(old) = self.entries.remove(&block) else { return false };
        self.order.remove(&(old.stamp, Reverse(old.depth), block))
    }

    /// Takes the block away if that stamp touched it last and nobody pins it.
    pub fn retract(&mut self, block: BlockHash, stamp: u64) -> bool {
        let ours = self.entries.get(&block).is_some_and(|entry| entry.stamp == stamp && entry.pins == 0);
        ours && self.remove(block)
    }

    /// Adds or takes a pin.
    pub fn pin(&mut self, block: BlockHash, add: bool) {
        if let Some(entry) = self.entries.get_mut(&block) {
            entry.pins = if add { entry.pins.saturating_add(1) } else { entry.pins.saturating_sub(1) };
        }
    }

    /// Takes all pins.
    pub fn unpin_all(&mut self) {
        self.entries.values_mut().for_each(|entry| entry.pins = 0);
    }

    /// The next block to go and the stamp and time of its last touch.
    pub fn oldest(&self) -> Option<(BlockHash, u64, f64)> {
        let mut order = self.order.iter().map(|&(_, _, block)| (block, self.entries[&block]));
        let (block, entry) = order.find(|(_, entry)| entry.pins == 0)?;
        Some((block, entry.stamp, entry.at))
    }

    /// All blocks in the order in which they would go, pinned ones included.
    pub fn order(&self) -> Vec<BlockHash> {
        self.order.iter().map(|&(_, _, block)| block).collect()
    }

    /// The blocks held.
    pub fn blocks(&self) -> impl Iterator<Item = BlockHash> + '_ {
        self.entries.keys().copied()
    }
}
