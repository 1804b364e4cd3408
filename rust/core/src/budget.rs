//! `max_bytes`: the bound of what the index reserves, growth of its arrays included.
//!
//! Room is made before anything grows, by giving up the globally oldest belief: what is evicted leaves free places, which
//! are used again, while an array that has grown never shrinks. What still finds no room is not stored.

use crate::belief::evict_oldest;
use crate::growth::Growth;
use crate::holdings::Holdings;
use crate::ids::{BlockHash, Slot};

/// Evicts the globally oldest belief until the bound leaves room for what an operation adds; false if it never does.
pub(crate) fn admit(held: &mut Holdings, mut growth: impl FnMut(&Holdings) -> Growth) -> bool {
    if held.limit.is_none() {
        return true;
    }
    loop {
        let growth = growth(held);
        if held.fits(&growth) {
            return true;
        }
        if !held.rebuild_table_for(&growth) && !evict_globally_oldest(held) {
            return false;
        }
    }
}

/// The same for bytes outside of the holdings, which are set apart from the bound.
pub(crate) fn admit_apart(held: &mut Holdings, bytes: impl FnOnce() -> usize) -> bool {
    let Some(limit) = held.limit else { return true };
    let bytes = bytes();
    let admitted = bytes == 0 || admit(held, |_| Growth::of_bytes(bytes));
    held.limit = Some(if admitted { limit.saturating_sub(bytes) } else { limit });
    admitted
}

/// Makes room for a prompt; how many of its blocks there is room for.
pub(crate) fn make_room(held: &mut Holdings, slot: Slot, hashes: &[BlockHash]) -> usize {
    let growth = |held: &Holdings, blocks: usize| held.chain_growth(slot, None, &hashes[..blocks], None);
    if admit(held, |held| growth(held, hashes.len())) {
        return hashes.len();
    }
    let (mut fits, mut over) = (0, hashes.len());
    while over - fits > 1 {
        let middle = fits.midpoint(over);
        if held.fits(&growth(held, middle)) {
            fits = middle;
        } else {
            over = middle;
        }
    }
    fits
}

/// Evicts belief, oldest first over all replicas, until what is reserved is within the bound; false if it never is.
pub(crate) fn enforce(held: &mut Holdings) -> bool {
    while !held.fits(&Growth::default()) {
        if !evict_globally_oldest(held) {
            return false;
        }
        held.release_if_empty();
    }
    true
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
