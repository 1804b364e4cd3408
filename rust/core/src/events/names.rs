//! The event map: engines' names of blocks to where the blocks lie, one for all replicas.
//!
//! Open addressing with linear probing over 8-byte entries: 16 bits of tag and the place. The name itself is in the chunk,
//! so an entry is right once its tag is and the chunk agrees; and as a place survives splits and joins of runs, so does
//! the entry. The size is not a power of two, so what is reserved stays near what is used.

use crate::arena::{ChunkId, Chunks, NO_NAME, Place};
use crate::ids::EngineHash;

const EMPTY: u64 = 0;
/// An entry that was removed; probing goes on behind it. Neither value has the bit that every tag has.
const GONE: u64 = 1;
const AT_BITS: u32 = Place::AT_BITS;
const TAG_SHIFT: u32 = AT_BITS + Place::CHUNK_BITS;
const _: () = assert!(TAG_SHIFT == 48);
const SMALLEST: usize = 64;
/// Names that are looked up side by side.
pub(crate) const BATCH: usize = 16;

/// Where probing for a name begins, and its tag.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Home {
    at: usize,
    pub tag: u64,
}

/// Shared names.
#[derive(Debug)]
pub(crate) struct Names {
    table: Vec<u64>,
    live: usize,
    /// Entries that are not empty.
    used: usize,
    key: u64,
}

impl Names {
    /// No names; `key` only places entries.
    pub(crate) fn new(key: u64) -> Self {
        Names { table: Vec::new(), live: 0, used: 0, key: key | 1 }
    }

    /// Where the block lies that has this name.
    #[inline]
    pub(crate) fn find(&self, name: EngineHash, chunks: &Chunks) -> Option<Place> {
        self.probe_from(self.home(name), name, chunks).ok()
    }

    /// Where the block lies that has this name, whose home is known, or the entry that it would get.
    #[inline]
    pub(crate) fn probe_from(&self, home: Home, name: EngineHash, chunks: &Chunks) -> Result<Place, usize> {
        let Home { mut at, tag } = home;
        let mut free = usize::MAX;
        while let Some(&entry) = self.table.get(at) {
            if entry <= GONE {
                free = free.min(at);
                if entry == EMPTY {
                    break;
                }
            } else if entry >> TAG_SHIFT == tag && chunks.name(place(entry)) == name {
                return Ok(place(entry));
            }
            at = self.next(at);
        }
        Err(free)
    }

    /// Makes room for so many names, so that entries that `probe` gives stay right.
    pub(crate) fn reserve(&mut self, names: usize, chunks: &Chunks) {
        // Between 53 % and 85 % full: 9.4 to 15 bytes a name, and a probe ends within three cache lines on average.
        if (self.used + names) * 20 > self.table.len() * 17 {
            self.rebuild(self.live + names, chunks);
        }
    }

    /// Where probing for each of up to `BATCH` names begins. Loads those entries: so the loads overlap, where those of one
    /// probe after the other would each wait for memory.
    #[inline]
    pub(crate) fn homes(&self, names: impl Iterator<Item = EngineHash>) -> [Home; BATCH] {
        let mut homes = [Home { at: 0, tag: 0 }; BATCH];
        let mut all = 0;
        for (home, name) in homes.iter_mut().zip(names) {
            *home = self.home(name);
            all |= self.table.get(home.at).copied().unwrap_or(EMPTY);
        }
        std::hint::black_box(all);
        homes
    }

    /// Gives the name with this tag, which the chunk has already, to the block at a place; `free` is what probing gave.
    #[inline]
    pub(crate) fn insert(&mut self, free: usize, tag: u64, place: Place) {
        self.used += usize::from(self.table[free] == EMPTY);
        self.table[free] = entry(tag, place);
        self.live += 1;
    }

    #[inline]
    fn put(&mut self, home: Home, place: Place) {
        let Home { mut at, tag } = home;
        while self.table[at] != EMPTY {
            at = self.next(at);
        }
        self.used += 1;
        self.table[at] = entry(tag, place);
    }

    /// Forgets the block at a place, if it has a name.
    pub(crate) fn remove(&mut self, place: Place, chunks: &Chunks) {
        let name = chunks.name(place);
        let Some(mut at) = self.index_of(place, name) else { return };
        self.live -= 1;
        self.table[at] = GONE;
        // Nothing is probed for past an empty entry, so what was removed right before one can be empty too.
        while self.table[self.next(at)] == EMPTY && self.table[at] == GONE {
            self.table[at] = EMPTY;
            self.used -= 1;
            at = at.checked_sub(1).unwrap_or(self.table.len() - 1);
        }
    }

    /// The blocks of a chunk lie behind those of another now, from position `base` on.
    pub(crate) fn moved(&mut self, from: ChunkId, to: ChunkId, base: u32, chunks: &Chunks) {
        for (at, &name) in chunks.names(to).iter().enumerate().skip(base as usize) {
            let old = Place { chunk: from, at: at as u32 - base };
            if let Some(index) = self.index_of(old, name) {
                self.table[index] = entry(self.home(name).tag, Place { chunk: to, at: at as u32 });
            }
        }
    }

    fn index_of(&self, place: Place, name: EngineHash) -> Option<usize> {
        if name == NO_NAME {
            return None;
        }
        let Home { mut at, tag } = self.home(name);
        let wanted = entry(tag, place);
        loop {
            match *self.table.get(at)? {
                EMPTY => return None,
                found if found == wanted => return Some(at),
                _ => at = self.next(at),
            }
        }
    }

    /// A table of which so many entries fill 53 %. Goes through the smaller of the chunks and the old table.
    fn rebuild(&mut self, entries: usize, chunks: &Chunks) {
        let size = (entries * 15 / 8).max(SMALLEST);
        let old = std::mem::replace(&mut self.table, vec![EMPTY; size]);
        self.used = 0;
        if old.len() < chunks.slots() {
            for place in old.iter().filter(|&&entry| entry > GONE).map(|&entry| place(entry)) {
                self.put(self.home(chunks.name(place)), place);
            }
            return;
        }
        for (chunk, names) in chunks.all_names() {
            for (at, batch) in names.chunks(BATCH).enumerate() {
                let homes = self.homes(batch.iter().copied());
                for (offset, (&name, home)) in batch.iter().zip(homes).enumerate() {
                    if name != NO_NAME {
                        self.put(home, Place { chunk, at: (at * BATCH + offset) as u32 });
                    }
                }
            }
        }
    }

    /// Where probing for a name begins, and its tag.
    #[inline]
    fn home(&self, name: EngineHash) -> Home {
        let product = name.0.wrapping_mul(self.key);
        let hash = product ^ product >> 32;
        let at = (u128::from(hash) * self.table.len() as u128) >> 64;
        Home { at: at as usize, tag: hash & 0xFFFF | 1 }
    }

    #[inline]
    fn next(&self, at: usize) -> usize {
        if at + 1 == self.table.len() { 0 } else { at + 1 }
    }

    pub(crate) fn len(&self) -> usize {
        self.live
    }

    pub(crate) fn live_bytes(&self) -> usize {
        self.live * (size_of::<u64>() + size_of::<EngineHash>())
    }

    pub(crate) fn reserved_bytes(&self) -> usize {
        self.table.capacity() * size_of::<u64>()
    }
}

#[inline]
fn entry(tag: u64, place: Place) -> u64 {
    tag << TAG_SHIFT | u64::from(place.chunk.0) << AT_BITS | u64::from(place.at)
}

#[inline]
fn place(entry: u64) -> Place {
    let chunk = (entry >> AT_BITS) as u32 & ((1 << Place::CHUNK_BITS) - 1);
    Place { chunk: ChunkId(chunk), at: entry as u32 & ((1 << AT_BITS) - 1) }
}
