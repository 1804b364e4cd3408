//! `max_bytes`: the bound of what the index reserves, kept by giving up the globally oldest belief.

use crate::engine::Engine;
use crate::ids::Slot;

impl Engine {
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
