//! Events that arrive while nothing matches: a gauge per replica that only a match at that replica resets.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::MAX_REPLICAS;
use crate::ids::Slot;

const WORDS: usize = MAX_REPLICAS / 64;
/// Where a gauge ends: those of all replicas together are still a number, though they come from a snapshot.
const MOST: u64 = u64::MAX / MAX_REPLICAS as u64;

/// Blocks from store events of each replica since a query last matched there. All that a reader writes, and only after new
/// events: `waiting` tells in one load of a word whether any replica of it has something to reset.
#[derive(Debug, Default)]
pub(crate) struct Unmatched {
    blocks: Vec<AtomicU64>,
    waiting: [AtomicU64; WORDS],
}

impl Unmatched {
    /// Makes room for a slot, at zero.
    pub(crate) fn open(&mut self, slot: Slot) {
        slot.extend(&mut self.blocks);
        self.set(slot, 0);
    }

    /// So many more blocks.
    pub(crate) fn add(&mut self, slot: Slot, blocks: u64) {
        self.set(slot, self.blocks_of(slot).saturating_add(blocks));
    }

    /// Another value, [`MOST`] at most.
    pub(crate) fn set(&mut self, slot: Slot, blocks: u64) {
        let (word, bit) = (slot.index() / 64, slot.index() % 64);
        *self.blocks[slot.index()].get_mut() = blocks.min(MOST);
        let waiting = self.waiting[word].get_mut();
        *waiting = *waiting & !(1 << bit) | u64::from(blocks > 0) << bit;
    }

    /// A query matched these slots, the bits of a word of a coverage set.
    #[inline]
    pub(crate) fn matched(&self, word: usize, slots: u64) {
        let mut reset = self.waiting[word].load(Ordering::Relaxed) & slots;
        if reset == 0 {
            return;
        }
        self.waiting[word].fetch_and(!reset, Ordering::Relaxed);
        while reset != 0 {
            self.blocks[word * 64 + reset.trailing_zeros() as usize].store(0, Ordering::Relaxed);
            reset &= reset - 1;
        }
    }

    /// The gauge of a slot.
    pub(crate) fn blocks_of(&self, slot: Slot) -> u64 {
        self.blocks.get(slot.index()).map_or(0, |blocks| blocks.load(Ordering::Relaxed))
    }

    pub(crate) fn bytes(&self) -> usize {
        self.blocks.capacity() * size_of::<AtomicU64>()
    }

    /// All gauges together.
    pub(crate) fn total(&self) -> u64 {
        self.blocks.iter().map(|blocks| blocks.load(Ordering::Relaxed)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gauges_of_all_replicas_add_up_whatever_was_loaded() {
        let mut gauges = Unmatched::default();
        for slot in (0..MAX_REPLICAS as u16).map(Slot) {
            gauges.open(slot);
            gauges.set(slot, u64::MAX);
            gauges.add(slot, 1);
        }
        assert_eq!(gauges.total(), MOST * MAX_REPLICAS as u64);
    }
}
