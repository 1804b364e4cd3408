//! `max_bytes`: the bound of what the index reserves, kept by giving up the globally oldest belief.

use crate::belief::evict_oldest;
use crate::holdings::Holdings;
use crate::ids::{BlockHash, Slot};
use crate::trie::Walk;

/// Runs that one insert makes at most: two splits and a new leaf, and as many records and chunks.
const NEW_RUNS: usize = 3;

/// The bound. `apart` is, in each call, what is reserved outside of the holdings.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    pub(crate) max_bytes: Option<u64>,
}

impl Budget {
    /// Whether events alone have filled the index beyond the bound: belief has been given up by then.
    pub(crate) fn is_exceeded(self, held: &Holdings, apart: usize) -> bool {
        self.max_bytes.is_some_and(|most| (held.reserved_bytes() + apart) as u64 > most)
    }

    /// Evicts the globally oldest belief until these blocks fit within the bound. Looks before anything grows: what is evicted
    /// leaves free places, which are used again, while an array that has grown never shrinks.
    pub(crate) fn make_room(self, held: &mut Holdings, apart: usize, hashes: &[BlockHash]) {
        let Some(most) = self.max_bytes else { return };
        let mut walk = Walk::new(&held.trie);
        walk.feed(hashes, |_, _| ());
        let fresh = (hashes.len() - walk.matched()) * size_of::<BlockHash>();
        loop {
            let (runs, chunks) = (&held.trie.runs, &held.trie.chunks);
            let arrays = runs.growth(NEW_RUNS) + chunks.growth(NEW_RUNS) + held.holders.growth(NEW_RUNS);
            let need = held.reserved_bytes() + apart + arrays + fresh;
            if need as u64 > most {
                if !evict_globally_oldest(held) {
                    return;
                }
            } else if (need + runs.table_growth(NEW_RUNS)) as u64 > most {
                // Not one by one: each rebuilding of the table costs as much as its entries.
                let enough = runs.table_room() / 8 * 7;
                while held.trie.runs.table_entries() > enough && evict_globally_oldest(held) {}
                held.trie.runs.rebuild_table();
                return;
            } else {
                return;
            }
        }
    }

    /// Evicts belief, oldest first over all replicas, until what is reserved is within the bound or no belief is left. Of
    /// the touch that caused it, `stamp`, the head stays as far as it fits; gives the blocks of it that had to go.
    pub(crate) fn enforce(self, held: &mut Holdings, apart: usize, stamp: u64) -> usize {
        let mut current = 0;
        while self.is_exceeded(held, apart) {
            let Some((slot, touched, len)) = globally_oldest(held) else { break };
            let blocks = if touched == stamp { len / 2 + 1 } else { len };
            let gone = evict_oldest(held, slot, blocks).map_or(0, |(_, gone)| gone);
            held.counters.evicted_bytes += gone as u64;
            current += if touched == stamp { gone } else { 0 };
            held.release_if_empty();
        }
        current
    }
}

/// Evicts the run touched longest ago, whoever holds it; false if nothing can go.
fn evict_globally_oldest(held: &mut Holdings) -> bool {
    let Some((slot, _, len)) = globally_oldest(held) else { return false };
    let Some((_, gone)) = evict_oldest(held, slot, len) else { return false };
    held.counters.evicted_bytes += gone as u64;
    true
}

/// The replica whose next run to go was touched longest ago, that touch, and the run's length. Looks at each replica once.
fn globally_oldest(held: &mut Holdings) -> Option<(Slot, u64, u64)> {
    let slots = (0..held.holders.replicas().len()).map(|index| Slot(index as u16));
    let oldest = slots.filter_map(|slot| {
        let run = held.oldest(slot)?;
        Some((slot, held.hold_mut(run, slot).stamp(), u64::from(held.trie.run(run).len)))
    });
    oldest.min_by_key(|&(_, stamp, _)| stamp)
}
