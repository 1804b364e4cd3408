//! The table from engines' names to places: buckets of eight entries, one cache line each.
//!
//! 16 bits of tag and 48 of place an entry. The name itself is in the chunk, so an entry is right once its tag is and the
//! chunk agrees; and as a place survives splits and joins of runs, so does the entry. Beside each bucket stands how many
//! entries had to go on behind it, so a probe stops at the first bucket that nothing passed, and removing leaves no mark.
//! The size is not a power of two, so what is reserved stays near what is used.

use crate::ids::EngineHash;
use crate::trie::{ChunkId, Chunks, Moved, NO_NAME, Place};

/// Entries of a bucket, in two words of four tags each.
const LANES: usize = 8;
const AT_BITS: u32 = Place::AT_BITS;
const _: () = assert!(AT_BITS + Place::CHUNK_BITS == 48);
/// Names that are looked up side by side.
pub(super) const BATCH: usize = 16;

/// One cache line. A tag of zero marks an empty lane.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
struct Bucket {
    tags: [u64; 2],
    /// Bits 32..48 of the places, then bits 0..32.
    high: [u16; LANES],
    low: [u32; LANES],
}

const _: () = assert!(size_of::<Bucket>() == 64);

impl Bucket {
    const EMPTY: Bucket = Bucket { tags: [0; 2], high: [0; LANES], low: [0; LANES] };

    /// Lanes with this tag. The first given has it for sure, later ones may be taken for it by mistake: a borrow in the
    /// subtraction that finds four zeros at once runs on.
    #[inline]
    fn lanes(&self, tag: u16) -> Lanes {
        const ONES: u64 = 0x0001_0001_0001_0001;
        let wanted = u64::from(tag) * ONES;
        let zeros = |word: u64| word.wrapping_sub(ONES) & !word & (ONES << 15);
        Lanes(zeros(self.tags[0] ^ wanted) >> 15 | zeros(self.tags[1] ^ wanted) >> 14)
    }

    #[inline]
    fn tag(&self, lane: usize) -> u16 {
        (self.tags[lane / 4] >> (lane % 4 * 16)) as u16
    }

    #[inline]
    fn set_tag(&mut self, lane: usize, tag: u16) {
        let shift = lane % 4 * 16;
        let word = &mut self.tags[lane / 4];
        *word = *word & !(0xFFFF << shift) | u64::from(tag) << shift;
    }

    #[inline]
    fn place(&self, lane: usize) -> Place {
        let place = u64::from(self.high[lane]) << 32 | u64::from(self.low[lane]);
        Place { chunk: ChunkId((place >> AT_BITS) as u32), at: place as u32 & ((1 << AT_BITS) - 1) }
    }

    #[inline]
    fn set_place(&mut self, lane: usize, place: Place) {
        let bits = u64::from(place.chunk.0) << AT_BITS | u64::from(place.at);
        (self.high[lane], self.low[lane]) = ((bits >> 32) as u16, bits as u32);
    }
}

/// Lanes found in a bucket: bits 0, 16, 32 and 48 are those of the first word, each one's neighbour those of the second.
struct Lanes(u64);

impl Iterator for Lanes {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        let bit = self.0.trailing_zeros() as usize;
        self.0 &= self.0.wrapping_sub(1);
        (bit < 64).then_some(bit / 16 + bit % 2 * 4)
    }
}

/// The bucket where probing for a name begins, and its tag.
#[derive(Clone, Copy, Debug)]
pub(super) struct Home {
    bucket: usize,
    tag: u16,
}

/// A lane of a bucket.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    bucket: usize,
    lane: usize,
}

/// Names to places.
#[derive(Debug)]
pub(super) struct Table {
    buckets: Vec<Bucket>,
    /// For each bucket, the entries that lie behind it though their probe begins at or before it. 255 stays 255.
    passed: Vec<u8>,
    live: usize,
    key: u64,
}

impl Table {
    /// No names; `key` only places entries.
    pub(super) fn new(key: u64) -> Self {
        Table { buckets: Vec::new(), passed: Vec::new(), live: 0, key: key | 1 }
    }

    /// Where the block lies that has this name.
    #[inline]
    pub(super) fn find(&self, name: EngineHash, chunks: &Chunks) -> Option<Place> {
        if self.buckets.is_empty() { None } else { self.probe_from(self.home(name), name, chunks).ok() }
    }

    /// Where the block lies that has this name, whose home is known, or the entry that it would get. `reserve` has made
    /// room.
    #[inline]
    pub(super) fn probe_from(&self, home: Home, name: EngineHash, chunks: &Chunks) -> Result<Place, Entry> {
        let mut bucket = home.bucket;
        loop {
            let found = &self.buckets[bucket];
            for lane in found.lanes(home.tag) {
                let place = found.place(lane);
                if chunks.name(place) == name {
                    return Ok(place);
                }
            }
            let next = self.next(bucket);
            // Where entries come and go in a small table, each bucket may have been passed by some that are left.
            if self.passed[bucket] == 0 || next == home.bucket {
                return Err(self.vacancy(home));
            }
            bucket = next;
        }
    }

    /// The first empty lane for an entry with this home.
    #[inline]
    fn vacancy(&self, home: Home) -> Entry {
        let mut bucket = home.bucket;
        loop {
            if let Some(lane) = self.buckets[bucket].lanes(0).next() {
                return Entry { bucket, lane };
            }
            bucket = self.next(bucket);
        }
    }

    /// Makes room for so many names, so that entries that `probe` gives stay right.
    pub(super) fn reserve(&mut self, names: usize, chunks: &Chunks) {
        // Between 53 % and 87 % full: 9.3 to 15 bytes a name. At 87 % one name in twelve lies behind its first bucket.
        if (self.live + names) * 8 > self.buckets.len() * LANES * 7 {
            self.rebuild(self.live + names, chunks);
        }
    }

    /// Where probing for each of up to `BATCH` names begins. Loads those buckets: so the loads overlap, where those of one
    /// probe after the other would each wait for memory. Best asked for a batch ahead.
    #[inline]
    pub(super) fn homes(&self, names: impl Iterator<Item = EngineHash>) -> [Home; BATCH] {
        let mut homes = [Home { bucket: 0, tag: 0 }; BATCH];
        let mut all = 0;
        for (home, name) in homes.iter_mut().zip(names) {
            *home = self.home(name);
            all |= self.buckets.get(home.bucket).map_or(0, |bucket| bucket.tags[0]);
        }
        std::hint::black_box(all);
        homes
    }

    /// Gives the name with this home, which the chunk has already, to the block at a place; `free` is what probing gave.
    #[inline]
    pub(super) fn insert(&mut self, free: Entry, home: Home, place: Place) {
        self.put(free, home, place);
        self.live += 1;
    }

    #[inline]
    fn put(&mut self, free: Entry, home: Home, place: Place) {
        let bucket = &mut self.buckets[free.bucket];
        bucket.set_tag(free.lane, home.tag);
        bucket.set_place(free.lane, place);
        let mut passed = home.bucket;
        while passed != free.bucket {
            self.passed[passed] = self.passed[passed].saturating_add(1);
            passed = self.next(passed);
        }
    }

    /// Forgets the blocks of a chunk from a place to its end.
    pub(super) fn remove_from(&mut self, place: Place, chunks: &Chunks) {
        let Some(names) = chunks.names(place.chunk).get(place.at as usize..) else { return };
        let mut at = place;
        let mut ahead = self.homes(names.iter().copied());
        for (batch, later) in names.chunks(BATCH).zip(1..) {
            let homes = ahead;
            ahead = self.homes(names.iter().skip(later * BATCH).copied());
            for (&name, home) in batch.iter().zip(homes) {
                if name != NO_NAME {
                    self.remove(home, at);
                }
                at.at += 1;
            }
        }
    }

    #[inline]
    fn remove(&mut self, home: Home, place: Place) {
        let Some(entry) = self.entry_of(home, place) else { return };
        self.live -= 1;
        self.buckets[entry.bucket].set_tag(entry.lane, 0);
        let mut passed = home.bucket;
        while passed != entry.bucket {
            if self.passed[passed] < u8::MAX {
                self.passed[passed] -= 1;
            }
            passed = self.next(passed);
        }
    }

    /// Blocks of a chunk lie behind those of another now.
    pub(super) fn moved(&mut self, Moved { from, to, base }: Moved, chunks: &Chunks) {
        for (at, &name) in chunks.names(to).iter().enumerate().skip(base as usize) {
            let old = Place { chunk: from, at: at as u32 - base };
            if name == NO_NAME {
                continue;
            }
            if let Some(entry) = self.entry_of(self.home(name), old) {
                self.buckets[entry.bucket].set_place(entry.lane, Place { chunk: to, at: at as u32 });
            }
        }
    }

    /// The entry of the block at this place, whose name has this home.
    #[inline]
    fn entry_of(&self, home: Home, place: Place) -> Option<Entry> {
        let mut bucket = home.bucket;
        loop {
            let found = self.buckets.get(bucket)?;
            if let Some(lane) = found.lanes(home.tag).find(|&lane| found.place(lane) == place) {
                return Some(Entry { bucket, lane });
            }
            let next = self.next(bucket);
            if self.passed[bucket] == 0 || next == home.bucket {
                return None;
            }
            bucket = next;
        }
    }

    /// A table of which so many entries fill 53 %. Goes through the smaller of the chunks and the old table.
    fn rebuild(&mut self, entries: usize, chunks: &Chunks) {
        let buckets = (entries * 15 / 8).div_ceil(LANES).max(8);
        let old = std::mem::replace(&mut self.buckets, vec![Bucket::EMPTY; buckets]);
        self.passed = vec![0; buckets];
        if old.len() * LANES < chunks.slots() {
            for bucket in &old {
                for place in (0..LANES).filter(|&lane| bucket.tag(lane) != 0).map(|lane| bucket.place(lane)) {
                    self.put_anywhere(self.home(chunks.name(place)), place);
                }
            }
            return;
        }
        for (chunk, names) in chunks.all_names() {
            for (at, batch) in names.chunks(BATCH).enumerate() {
                let homes = self.homes(batch.iter().copied());
                for (offset, (&name, home)) in batch.iter().zip(homes).enumerate() {
                    if name != NO_NAME {
                        self.put_anywhere(home, Place { chunk, at: (at * BATCH + offset) as u32 });
                    }
                }
            }
        }
    }

    #[inline]
    fn put_anywhere(&mut self, home: Home, place: Place) {
        self.put(self.vacancy(home), home, place);
    }

    #[inline]
    fn home(&self, name: EngineHash) -> Home {
        let product = name.0.wrapping_mul(self.key);
        let hash = product ^ product >> 32;
        let bucket = (u128::from(hash) * self.buckets.len() as u128) >> 64;
        Home { bucket: bucket as usize, tag: hash as u16 | 1 }
    }

    #[inline]
    fn next(&self, bucket: usize) -> usize {
        if bucket + 1 == self.buckets.len() { 0 } else { bucket + 1 }
    }

    pub(super) fn len(&self) -> usize {
        self.live
    }

    pub(super) fn live_bytes(&self) -> usize {
        self.live * (size_of::<u64>() + size_of::<EngineHash>())
    }

    pub(super) fn reserved_bytes(&self) -> usize {
        self.buckets.capacity() * size_of::<Bucket>() + self.passed.capacity()
    }
}
