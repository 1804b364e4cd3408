//! The table from engines' names to places: buckets of eight entries, one cache line each.
//!
//! 16 bits of tag and 48 of place an entry. The name itself is in the chunk, so an entry is right once its tag is and the
//! chunk agrees; and as a place survives splits and joins of runs, so does the entry. Each bucket counts the entries that
//! had to go on behind it, so a probe stops at the first bucket that nothing passed, and removing leaves no mark. A probe
//! reads one line, nearly always. The size is not a power of two, so what is reserved stays near what is used.

use super::stored_form;
use crate::ids::EngineHash;
use crate::memory::{Table as Buckets, Zero, prefetch};
use crate::spread::Spread;
use crate::trie::{ChunkId, Chunks, Moved, NO_NAME, Place};

/// Entries of a bucket, in two words of four tags each.
const LANES: usize = 8;
const AT_BITS: u32 = Place::AT_BITS;
const _: () = assert!(AT_BITS + Place::CHUNK_BITS == 48);
/// Names whose buckets are on their way from memory while one is looked up.
const AHEAD: usize = 16;
/// The lowest bit of each tag of a word. It is no part of the tag: the eight of them count the entries that passed.
const COUNT: u64 = 0x0001_0001_0001_0001;
/// A count that is no longer known: it stays.
const MANY: u8 = u8::MAX;
/// Set in the tag of every entry.
const USED: u16 = 1 << 15;
/// Tags that an entry can have: the last bits of its name's hash.
const TAGS: u64 = 1 << 14;

/// Bits of the hash that places a name among so many buckets. Between 512 and 4,096 hashes share a bucket, so the tag tells
/// the hashes of a bucket and of some before it apart; and while a table grows eightfold, hashes stay what they are.
fn hash_bits(buckets: usize) -> u32 {
    buckets.ilog2() / 3 * 3 + 12
}

/// One cache line.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
struct Bucket {
    /// A tag of zero marks an empty lane.
    tags: [u64; 2],
    /// Bits 32..48 of the places, then bits 0..32.
    high: [u16; LANES],
    low: [u32; LANES],
}

const _: () = assert!(size_of::<Bucket>() == 64);

// SAFETY: integers. All zeros are a bucket of empty lanes that nothing passed.
unsafe impl Zero for Bucket {}

impl Bucket {
    /// Lanes with this tag. The first given has it for sure, later ones may be taken for it by mistake: a borrow in the
    /// subtraction that finds four zeros at once runs on.
    #[inline]
    fn lanes(&self, tag: u16) -> Lanes {
        let wanted = u64::from(tag) * COUNT;
        let zeros = |word: u64| word.wrapping_sub(COUNT) & !word & (COUNT << 15);
        let [first, second] = self.tags;
        Lanes(zeros((first & !COUNT) ^ wanted) >> 15 | zeros((second & !COUNT) ^ wanted) >> 14)
    }

    /// Lanes that are not empty, and those that are.
    #[inline]
    fn used(&self) -> Lanes {
        let [first, second] = self.tags;
        Lanes(first >> 15 & COUNT | second >> 14 & COUNT << 1)
    }

    #[inline]
    fn vacant(&self) -> Lanes {
        Lanes(self.used().0 ^ (3 * COUNT))
    }

    #[inline]
    fn tag(&self, lane: usize) -> u16 {
        (self.tags[lane / 4] >> (lane % 4 * 16)) as u16 & !1
    }

    /// Fills an empty lane.
    #[inline]
    fn fill(&mut self, lane: usize, tag: u16, place: Place) {
        self.tags[lane / 4] |= u64::from(tag) << (lane % 4 * 16);
        self.set_place(lane, place);
    }

    /// Empties a lane.
    #[inline]
    fn empty(&mut self, lane: usize) {
        self.tags[lane / 4] &= !(0xFFFE << (lane % 4 * 16));
    }

    /// Whether an entry lies behind this bucket though its probe begins at or before it.
    #[inline]
    fn is_passed(&self) -> bool {
        (self.tags[0] | self.tags[1]) & COUNT != 0
    }

    /// How many such entries there are; [`MANY`] once they were so many.
    fn passed(&self) -> u8 {
        let nibble = |word: u64| (word & 1 | word >> 15 & 2 | word >> 30 & 4 | word >> 45 & 8) as u8;
        nibble(self.tags[0]) | nibble(self.tags[1]) << 4
    }

    fn set_passed(&mut self, passed: u8) {
        let spread = |bits: u64| bits & 1 | (bits & 2) << 15 | (bits & 4) << 30 | (bits & 8) << 45;
        for (word, bits) in self.tags.iter_mut().zip([passed, passed >> 4]) {
            *word = *word & !COUNT | spread(u64::from(bits));
        }
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

impl Lanes {
    #[inline]
    fn is_empty(&self) -> bool {
        self.0 == 0
    }
}

impl Iterator for Lanes {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        let bit = self.0.trailing_zeros() as usize;
        self.0 &= self.0.wrapping_sub(1);
        (bit < 64).then_some((bit / 16 + bit % 2 * 4) % LANES)
    }
}

/// The bucket where probing for a name begins, and its tag.
#[derive(Clone, Copy, Debug)]
pub(super) struct Home {
    bucket: u32,
    tag: u16,
}

/// The homes of names in a row, whose buckets are fetched a few names ahead, so that the waits for memory overlap. The table
/// must not be rebuilt meanwhile.
pub(super) struct Homes<'a> {
    names: &'a [EngineHash],
    at: usize,
    ahead: [Home; AHEAD],
}

impl<'a> Homes<'a> {
    #[inline]
    pub(super) fn new(table: &Table, names: &'a [EngineHash]) -> Self {
        let mut ahead = [Home { bucket: 0, tag: 0 }; AHEAD];
        for (home, &name) in ahead.iter_mut().zip(names) {
            *home = table.fetch(name);
        }
        Homes { names, at: 0, ahead }
    }

    /// The next name with its home. The table is given each time, as callers change it in between.
    #[inline]
    pub(super) fn next(&mut self, table: &Table) -> Option<(EngineHash, Home)> {
        let &name = self.names.get(self.at)?;
        let next = &mut self.ahead[self.at % AHEAD];
        let home = *next;
        if let Some(&later) = self.names.get(self.at + AHEAD) {
            *next = table.fetch(later);
        }
        self.at += 1;
        Some((name, home))
    }
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
    buckets: Buckets<Bucket>,
    /// Bits of the hashes of names.
    bits: u32,
    live: usize,
    spread: Spread,
}

impl Table {
    /// No names; `key` only places entries.
    pub(super) fn new(key: u64) -> Self {
        Table { buckets: Buckets::empty(), bits: hash_bits(1), live: 0, spread: Spread::new(key) }
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
        let bucket = home.bucket as usize;
        let found = &self.buckets[bucket];
        match found.vacant().next() {
            // As nearly always for a new name.
            Some(lane) if found.lanes(home.tag).is_empty() && !found.is_passed() => Err(Entry { bucket, lane }),
            _ => self.search(home, name, chunks),
        }
    }

    /// The same for a home that has such a tag, is full, or has been passed.
    #[inline(never)]
    fn search(&self, home: Home, name: EngineHash, chunks: &Chunks) -> Result<Place, Entry> {
        let mut bucket = home.bucket as usize;
        loop {
            let found = &self.buckets[bucket];
            for place in found.lanes(home.tag).map(|lane| found.place(lane)) {
                if chunks.name(place) == name {
                    return Ok(place);
                }
            }
            let next = self.next(bucket);
            // Where entries come and go in a small table, each bucket may have been passed by some that are left.
            if !found.is_passed() || next == home.bucket as usize {
                return Err(self.vacancy(home));
            }
            bucket = next;
        }
    }

    /// The first empty lane for an entry with this home.
    #[inline]
    fn vacancy(&self, home: Home) -> Entry {
        let mut bucket = home.bucket as usize;
        loop {
            if let Some(lane) = self.buckets[bucket].vacant().next() {
                return Entry { bucket, lane };
            }
            bucket = self.next(bucket);
        }
    }

    /// Makes room for so many names, so that entries that `probe` gives stay right.
    pub(super) fn reserve(&mut self, names: usize, chunks: &Chunks) {
        // Between 53 % and 75 % full: 10.7 to 15 bytes a name. At 87 % one name in twelve would lie behind its first bucket.
        if (self.live + names) * 4 > self.buckets.len() * LANES * 3 {
            self.rebuild(self.live + names, chunks);
        }
    }

    /// Gives the name with this home, which the chunk has already, to the block at a place; `free` is what probing gave.
    #[inline]
    pub(super) fn insert(&mut self, free: Entry, home: Home, place: Place) {
        self.put(free, home, place);
        self.live += 1;
    }

    #[inline]
    fn put(&mut self, free: Entry, home: Home, place: Place) {
        self.buckets[free.bucket].fill(free.lane, home.tag, place);
        self.pass(home, free.bucket, |passed| passed.saturating_add(1));
    }

    /// Counts an entry in or out of the buckets between its home and its own.
    #[inline]
    fn pass(&mut self, home: Home, to: usize, count: fn(u8) -> u8) {
        if to != home.bucket as usize {
            self.pass_behind(home, to, count);
        }
    }

    #[inline(never)]
    fn pass_behind(&mut self, home: Home, to: usize, count: fn(u8) -> u8) {
        let mut bucket = home.bucket as usize;
        while bucket != to {
            let passed = self.buckets[bucket].passed();
            self.buckets[bucket].set_passed(count(passed));
            bucket = self.next(bucket);
        }
    }

    /// Forgets the blocks of a chunk from a place to its end.
    pub(super) fn remove_from(&mut self, place: Place, chunks: &Chunks) {
        let Some(names) = chunks.names(place.chunk).get(place.at as usize..) else { return };
        let mut at = place;
        let mut homes = Homes::new(self, names);
        while let Some((name, home)) = homes.next(self) {
            if name != NO_NAME {
                self.remove(home, at);
            }
            at.at += 1;
        }
    }

    #[inline]
    fn remove(&mut self, home: Home, place: Place) {
        let Some(entry) = self.entry_of(home, place) else { return };
        self.live -= 1;
        self.buckets[entry.bucket].empty(entry.lane);
        self.pass(home, entry.bucket, |passed| if passed == MANY { MANY } else { passed - 1 });
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
        let mut bucket = home.bucket as usize;
        loop {
            let found = self.buckets.get(bucket)?;
            if let Some(lane) = found.lanes(home.tag).find(|&lane| found.place(lane) == place) {
                return Some(Entry { bucket, lane });
            }
            let next = self.next(bucket);
            if !found.is_passed() || next == home.bucket as usize {
                return None;
            }
            bucket = next;
        }
    }

    /// A table of which so many entries fill 53 %.
    fn rebuild(&mut self, entries: usize, chunks: &Chunks) {
        let buckets = (entries * 9 / 4).div_ceil(LANES).max(8);
        let (old, bits) = (std::mem::replace(&mut self.buckets, Buckets::new(buckets)), self.bits);
        self.bits = hash_bits(buckets);
        if bits == self.bits {
            self.put_in_order(&old, chunks);
        } else if old.len() * LANES < chunks.slots() {
            for bucket in old.iter() {
                for place in bucket.used().map(|lane| bucket.place(lane)) {
                    self.put_anywhere(self.home(chunks.name(place)), place);
                }
            }
        } else {
            self.put_all(chunks);
        }
    }

    /// Puts the entries of a smaller table in this one. Their hashes follow from where they lie, so no name is read; and as
    /// the order of hashes is that of buckets, both tables are gone through from start to end.
    fn put_in_order(&mut self, old: &[Bucket], chunks: &Chunks) {
        let (bits, hashes) = (self.bits, 1_u64 << self.bits);
        let first = |bucket: usize| ((bucket as u64) << bits).div_ceil(old.len() as u64);
        // Buckets in front of the next one that entries have passed, so that they may lie there.
        let mut before = old.iter().rev().take_while(|bucket| bucket.is_passed()).count();
        let mut next = 0;
        for (at, bucket) in old.iter().enumerate() {
            let own = std::mem::replace(&mut next, first(at + 1));
            let start = match before {
                0 => own,
                _ if before <= at => first(at - before),
                _ => first((at + old.len()).saturating_sub(before)).wrapping_sub(hashes),
            };
            let certain = before < old.len() && next.wrapping_sub(start) <= TAGS;
            for lane in bucket.used() {
                let place = bucket.place(lane);
                let home = if certain {
                    let above = u64::from(bucket.tag(lane) >> 1).wrapping_sub(start) & (TAGS - 1);
                    self.home_of(start.wrapping_add(above) & (hashes - 1))
                } else {
                    self.home(chunks.name(place))
                };
                self.put_anywhere(home, place);
            }
            before = if bucket.is_passed() { before + 1 } else { 0 };
        }
    }

    /// Puts all names of all chunks in the table.
    fn put_all(&mut self, chunks: &Chunks) {
        for (chunk, names) in chunks.all_names() {
            let mut homes = Homes::new(self, names);
            let mut at = Place { chunk, at: 0 };
            while let Some((name, home)) = homes.next(self) {
                if name != NO_NAME {
                    self.put_anywhere(home, at);
                }
                at.at += 1;
            }
        }
    }

    /// The same for a home that is full.
    #[inline(never)]
    fn put_behind(&mut self, home: Home, place: Place) {
        self.put(self.vacancy(home), home, place);
    }

    #[inline]
    fn put_anywhere(&mut self, home: Home, place: Place) {
        let bucket = &mut self.buckets[home.bucket as usize];
        match bucket.vacant().next() {
            Some(lane) => bucket.fill(lane, home.tag, place),
            None => self.put_behind(home, place),
        }
    }

    #[inline]
    pub(super) fn home(&self, name: EngineHash) -> Home {
        self.home_of(self.spread.of(name.0) >> (64 - self.bits))
    }

    /// The home of a name with this hash.
    #[inline]
    fn home_of(&self, hash: u64) -> Home {
        let bucket = (u128::from(hash) * self.buckets.len() as u128) >> self.bits;
        Home { bucket: bucket as u32, tag: USED | ((hash & (TAGS - 1)) as u16) << 1 }
    }

    /// The same, and asks for its bucket.
    #[inline]
    fn fetch(&self, name: EngineHash) -> Home {
        let home = self.home(stored_form(name));
        if let Some(bucket) = self.buckets.get(home.bucket as usize) {
            prefetch(bucket);
        }
        home
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

    #[cfg(feature = "testing")]
    pub(super) fn mapped_bytes(&self) -> usize {
        self.buckets.mapped_bytes()
    }

    pub(super) fn reserved_bytes(&self) -> usize {
        self.buckets.len() * size_of::<Bucket>()
    }
}
