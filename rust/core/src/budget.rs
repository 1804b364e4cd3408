//! `max_bytes`: the bound of what the index reserves, kept by giving up the globally oldest belief.

use crate::engine::Engine;
use crate::ids::{BlockHash, Slot};
use crate::radix::Walk;

/// Runs that one insert makes at most: two splits and a new leaf, and as many records and chunks.
const NEW_RUNS: usize = 3;

impl Engine {
    /// Evicts the globally oldest belief until these blocks fit within the bound. Looks before anything grows: what is evicted
    /// leaves free places, which are used again, while an array that has grown never shrinks.
    pub(crate) fn make_room(&mut self, hashes: &[BlockHash]) {
        let Some(most) = self.config.max_bytes else { return };
        let mut walk = Walk::new(&self.tree, &self.chunks);
        walk.feed(hashes, |_, _| ());
        let fresh = hashes.len() - walk.matched();
        loop {
            let arrays = self.tree.growth(NEW_RUNS) + self.chunks.growth(NEW_RUNS) + self.pool.growth(NEW_RUNS);
            let need = arrays + fresh * size_of::<BlockHash>();
            if (self.reserved_bytes() + need) as u64 > most {
                if !self.evict_globally_oldest() {
                    return;
                }
            } else if (self.reserved_bytes() + need + self.tree.table_growth(NEW_RUNS)) as u64 > most {
                // Not one by one: each rebuilding of the table costs as much as its entries.
                let enough = self.tree.table_room() / 8 * 7;
                while self.tree.table_entries() > enough && self.evict_globally_oldest() {}
                self.tree.rebuild_table();
                return;
            } else {
                return;
            }
        }
    }

    /// Evicts the run touched longest ago, whoever holds it; false if nothing can go.
    fn evict_globally_oldest(&mut self) -> bool {
        let Some((slot, _)) = self.globally_oldest() else { return false };
        let Some(run) = self.oldest(slot) else { return false };
        let len = u64::from(self.tree.run(run).len);
        let Some((_, gone)) = self.evict_oldest(slot, len) else { return false };
        self.counters.evicted_bytes += gone as u64;
        true
    }

    /// Evicts belief, oldest first over all replicas, until what is reserved is within the bound or no belief is left. Of
    /// the touch that caused it the head stays as far as it fits; gives the blocks of it that had to go.
    pub(crate) fn enforce_budget(&mut self) -> usize {
        let Some(most) = self.config.max_bytes else { return 0 };
        let mut current = 0;
        while self.reserved_bytes() as u64 > most {
            let Some((slot, stamp)) = self.globally_oldest() else { break };
            let Some(run) = self.oldest(slot) else { break };
            let len = u64::from(self.tree.run(run).len);
            let blocks = if stamp == self.stamp { len / 2 + 1 } else { len };
            let gone = self.evict_oldest(slot, blocks).map_or(0, |(_, gone)| gone);
            self.counters.evicted_bytes += gone as u64;
            current += if stamp == self.stamp { gone } else { 0 };
            if self.tree.live() == 0 {
                self.release_memory();
            }
        }
        current
    }

    /// Whether events alone have filled the index beyond the bound: belief has been given up by then.
    pub(crate) fn is_over_budget(&self) -> bool {
        self.config.max_bytes.is_some_and(|most| self.reserved_bytes() as u64 > most)
    }

    /// The replica whose next run to go was touched longest ago, and that touch. Looks at each replica once.
    fn globally_oldest(&mut self) -> Option<(Slot, u64)> {
        let slots = (0..self.replicas.len()).map(|index| Slot(index as u16));
        slots
            .filter_map(|slot| self.oldest(slot).map(|run| (slot, self.lru_key(run, slot).0)))
            .min_by_key(|&(_, stamp)| stamp)
    }
}
