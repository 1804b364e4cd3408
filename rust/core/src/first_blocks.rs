//! What prompts can begin with, readable beside any writer: a prompt whose first block nobody holds needs no lock.
//!
//! A fixed table of counts by hash. A count of zero means that no run starts a prompt with such a block, any other that one
//! may. So the answer "nobody" is certain and ends a lookup, which without it spends most of its time on the lock. With
//! thousands of different first blocks few counts are zero, and the lock decides again.
//!
//! A writer counts a block in before it can be found, and out after it is gone, both under the lock. So a reader that knows
//! of a store (it has read something that was written after it) reads the count that was written before.

use std::sync::Arc;

#[cfg(loom)]
use loom::sync::atomic::{AtomicU8, Ordering};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU8, Ordering};

use crate::ids::BlockHash;
use crate::spread::Spread;

/// Counts. One byte each, so that a fleet with a few hundred system prompts passes nearly all misses on.
#[cfg(not(loom))]
const COUNTS: usize = 1 << 12;
#[cfg(loom)]
const COUNTS: usize = 1 << 1;
/// A count that is no longer known: it stays until all are forgotten.
const MANY: u8 = u8::MAX;

/// Counts of runs without a parent, by their first block.
#[derive(Clone, Debug)]
pub(crate) struct FirstBlocks {
    counts: Arc<[AtomicU8]>,
    spread: Spread,
}

impl FirstBlocks {
    pub(crate) fn new(key: u64) -> Self {
        FirstBlocks { counts: (0..COUNTS).map(|_| AtomicU8::new(0)).collect(), spread: Spread::new(key) }
    }

    #[inline]
    fn count(&self, block: BlockHash) -> &AtomicU8 {
        &self.counts[self.spread.of(block.0) as usize % COUNTS]
    }

    /// Whether a prompt that begins so can be held by anyone.
    #[inline]
    pub(crate) fn may_start(&self, block: BlockHash) -> bool {
        self.count(block).load(Ordering::Relaxed) != 0
    }

    /// A run will start with this block. Only the one writer calls this, and the two below.
    pub(crate) fn add(&self, block: BlockHash) {
        let count = self.count(block);
        count.store(count.load(Ordering::Relaxed).saturating_add(1), Ordering::Relaxed);
    }

    /// A run that started with this block is gone.
    pub(crate) fn remove(&self, block: BlockHash) {
        let count = self.count(block);
        let before = count.load(Ordering::Relaxed);
        if before < MANY {
            count.store(before.saturating_sub(1), Ordering::Relaxed);
        }
    }

    /// All runs are gone.
    pub(crate) fn clear(&self) {
        for count in self.counts.iter() {
            count.store(0, Ordering::Relaxed);
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.counts.len() + 2 * size_of::<usize>() // and how many share them
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::FirstBlocks;
    use crate::ids::BlockHash;

    #[test]
    fn counts_end_with_their_runs_or_stay() {
        let firsts = FirstBlocks::new(1);
        let block = BlockHash(7);
        assert!(!firsts.may_start(block));
        firsts.add(block);
        firsts.add(block);
        firsts.remove(block);
        assert!(firsts.may_start(block), "one is left");
        firsts.remove(block);
        assert!(!firsts.may_start(block));
        (0..300).for_each(|_| firsts.add(block));
        (0..300).for_each(|_| firsts.remove(block));
        assert!(firsts.may_start(block), "more than a count can tell: it stays on the safe side");
        firsts.clear();
        assert!(!firsts.may_start(block));
    }
}

/// Run with `RUSTFLAGS="--cfg loom" cargo test -p prefixroute-core --release --lib first_blocks`.
#[cfg(all(test, loom))]
mod models {
    use loom::sync::Arc;
    use loom::sync::atomic::{AtomicBool, Ordering};
    use loom::thread;

    use super::FirstBlocks;
    use crate::ids::BlockHash;
    use crate::lock::Shared;

    /// A writer stores a prompt and says so. A reader that has heard of it must find it; one that has not may.
    fn store_beside_a_lookup(count_first: bool) {
        loom::model(move || {
            let firsts = FirstBlocks::new(1);
            let held = Arc::new(Shared::new(false));
            let heard = Arc::new(AtomicBool::new(false));
            let writer = {
                let (firsts, held, heard) = (firsts.clone(), Arc::clone(&held), Arc::clone(&heard));
                thread::spawn(move || {
                    held.write(|held| {
                        if count_first {
                            firsts.add(BlockHash(7));
                        }
                        *held = true;
                    });
                    heard.store(true, Ordering::Release);
                    if !count_first {
                        firsts.add(BlockHash(7));
                    }
                })
            };
            let known = heard.load(Ordering::Acquire);
            let found = firsts.may_start(BlockHash(7)) && held.read(|&held| held);
            assert!(found || !known, "a stored prompt was missed");
            writer.join().unwrap();
        });
    }

    #[test]
    fn what_is_stored_is_found() {
        store_beside_a_lookup(true);
    }

    /// The negative control: a count that comes after the lock is too late.
    #[test]
    #[should_panic(expected = "a stored prompt was missed")]
    fn a_late_count_is_caught() {
        store_beside_a_lookup(false);
    }
}
