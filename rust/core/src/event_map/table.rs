//! The table from engines' names to places: buckets of eight entries, one cache line each.
//!
//! 16 bits of tag and 48 of place an entry. The name itself is in the chunk, so an entry is right once its tag is and the
//! chunk agrees; and as a place survives splits and joins of runs, so does the entry. Each bucket counts the entries that
//! had to go on behind it, so a probe stops at the first bucket that nothing passed, and removing leaves no mark. A probe
//! reads one line, nearly always. The size is not a power of two, so what is reserved stays near what is used.

use super::bucket::{Bucket, LANES, USED};
use super::stored_form;
use crate::ids::EngineHash;
use crate::memory::{Table as Buckets, prefetch};
use crate::spread::Spread;
use crate::trie::{Chunks, Moved, NO_NAME, Place};

/// Names whose buckets are on their way from memory while one is looked up.
const AHEAD: usize = 32;
/// Tags that an entry can have: the last bits of its name's hash.
const TAGS: u64 = 1 << 14;

/// Tags to spare where hashes of buckets are reckoned, for what division leaves.
const SLACK: u64 = 256;

/// Bits of the hash that places a name among so many buckets. Between 512 and 4,096 hashes share a bucket, so the tag tells
/// the hashes of a bucket and of some before it apart; and while a table grows eightfold, hashes stay what they are.
fn hash_bits(buckets: usize) -> u32 {
    buckets.ilog2() / 3 * 3 + 12
}

/// Buckets of which so many entries fill 44 %.
fn buckets_for(entries: usize) -> usize {
    (entries * 9 / 4).div_ceil(LANES).max(8)
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

/// The hashes that share a bucket, about: enough to tell a hash from its last bits.
struct Hashes {
    bits: u32,
    buckets: usize,
    /// Hashes of a bucket, in parts of [`Self::ONE`].
    each: u64,
    /// Entries can have their homes so many buckets before their own.
    certain: usize,
}

impl Hashes {
    const ONE: u32 = 20;

    fn new(bits: u32, buckets: usize) -> Self {
        let each = (1_u64 << bits << Self::ONE) / buckets as u64;
        let certain = (((TAGS - SLACK) << Self::ONE) / (each + 1) - 1) as usize;
        Hashes { bits, buckets, each, certain }
    }

    /// Not above the hashes of the entries of a bucket, but for the first bits.
    #[inline]
    fn least(&self, bucket: usize) -> u64 {
        ((bucket + self.buckets - self.certain) as u64 * self.each) >> Self::ONE
    }

    /// The hash of an entry.
    #[inline]
    fn of(&self, least: u64, tag: u16) -> u64 {
        let above = u64::from(tag >> 1).wrapping_sub(least) & (TAGS - 1);
        (least + above) & ((1 << self.bits) - 1)
    }
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
        let (mut bucket, mut free) = (home.bucket as usize, None);
        loop {
            let found = &self.buckets[bucket];
            for place in found.lanes(home.tag).map(|lane| found.place(lane)) {
                if chunks.name(place) == name {
                    return Ok(place);
                }
            }
            free = free.or_else(|| found.vacant().next().map(|lane| Entry { bucket, lane }));
            bucket = self.next(bucket);
            // Where entries come and go in a small table, each bucket may have been passed by some that are left.
            if !found.is_passed() || bucket == home.bucket as usize {
                return Err(free.unwrap_or_else(|| self.vacancy(bucket)));
            }
        }
    }

    /// The first empty lane of a bucket and those behind it.
    #[inline]
    fn vacancy(&self, mut bucket: usize) -> Entry {
        loop {
            if let Some(lane) = self.buckets[bucket].vacant().next() {
                return Entry { bucket, lane };
            }
            bucket = self.next(bucket);
        }
    }

    /// Makes room for so many names, so that entries that `probe` gives stay right.
    pub(super) fn reserve(&mut self, names: usize, chunks: &Chunks) {
        // Between 44 % and 75 % full: 10.7 to 18 bytes a name. At 87 % one name in twelve would lie behind its first bucket.
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
        self.pass(home, free.bucket, Bucket::count_in);
    }

    /// Counts an entry in or out of the buckets between its home and its own.
    #[inline]
    fn pass(&mut self, home: Home, to: usize, count: fn(&mut Bucket)) {
        if to != home.bucket as usize {
            self.pass_behind(home, to, count);
        }
    }

    #[inline(never)]
    fn pass_behind(&mut self, home: Home, to: usize, count: fn(&mut Bucket)) {
        let mut bucket = home.bucket as usize;
        while bucket != to {
            count(&mut self.buckets[bucket]);
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
        self.pass(home, entry.bucket, Bucket::count_out);
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

    /// Takes no more than the names need, with some room to grow.
    pub(super) fn shrink(&mut self, chunks: &Chunks) {
        let buckets = if self.live == 0 { 0 } else { buckets_for(self.live) };
        if buckets >= self.buckets.len() {
            return;
        }
        (self.buckets, self.bits) = (Buckets::new(buckets), hash_bits(buckets.max(1)));
        for (chunk, names) in chunks.all_names() {
            for (at, &name) in names.iter().enumerate().filter(|&(_, &name)| name != NO_NAME) {
                let home = self.home(name);
                self.put(self.vacancy(home.bucket as usize), home, Place { chunk, at: at as u32 });
            }
        }
    }

    /// Bytes that the table grows by for so many more names.
    pub(super) fn growth(&self, names: usize) -> usize {
        let entries = self.live + names;
        if entries * 4 <= self.buckets.len() * LANES * 3 {
            return 0;
        }
        buckets_for(entries).saturating_sub(self.buckets.len()) * size_of::<Bucket>()
    }

    /// Grows until so many entries fill 44 % of it.
    fn rebuild(&mut self, entries: usize, chunks: &Chunks) {
        let old = self.buckets.len();
        self.buckets.grow(buckets_for(entries));
        let before = std::mem::replace(&mut self.bits, hash_bits(self.buckets.len()));
        if before == self.bits {
            self.spread_out(old, chunks);
        } else {
            self.put_anew(old, chunks);
        }
    }

    /// Moves the entries of the first `old` buckets to where they belong among all. Their hashes follow from where they lie,
    /// so no name is read; and as the order of hashes is that of buckets, no entry moves towards the front. So buckets are
    /// emptied from the last to the first, and each fills some behind it that have been emptied.
    fn spread_out(&mut self, old: usize, chunks: &Chunks) {
        let hashes = Hashes::new(self.bits, old);
        let round = self.passed_before(old);
        let (mut passed, mut front) = (0, Vec::new());
        for at in (0..old).rev() {
            passed = if passed > 0 { passed - 1 } else { self.passed_before(at) };
            let before = if passed == at { at + round } else { passed };
            let bucket = std::mem::take(&mut self.buckets[at]);
            let least = if before <= hashes.certain { Some(hashes.least(at)) } else { None };
            for lane in bucket.used() {
                let home = match least {
                    Some(least) => self.home_of(hashes.of(least, bucket.tag(lane))),
                    None => self.home(chunks.name(bucket.place(lane))),
                };
                if !self.put_behind(at, home, &bucket, lane) {
                    front.push((home, bucket.place(lane)));
                }
            }
        }
        for (home, place) in front {
            self.put_anywhere(home, place);
        }
    }

    /// How many buckets in a row in front of this one entries have passed, so that they may lie in it.
    fn passed_before(&self, at: usize) -> usize {
        self.buckets[..at].iter().rev().take_while(|bucket| bucket.is_passed()).count()
    }

    /// Puts an entry of another bucket in a table that is empty from bucket `from` on; false if it belongs before, or past
    /// the end.
    #[inline]
    fn put_behind(&mut self, from: usize, home: Home, bucket: &Bucket, lane: usize) -> bool {
        if (home.bucket as usize) < from {
            return false;
        }
        let found = &mut self.buckets[home.bucket as usize];
        if let Some(free) = found.vacant().next() {
            found.copy(free, bucket, lane);
            return true;
        }
        let free = self.vacancy(home.bucket as usize);
        let fits = free.bucket > home.bucket as usize;
        if fits {
            self.put(free, home, bucket.place(lane));
        }
        fits
    }

    /// Finds places anew for all entries, which lie in the first `old` buckets, as hashes have gained bits.
    fn put_anew(&mut self, old: usize, chunks: &Chunks) {
        let few = old * LANES < chunks.slots();
        let entries = |bucket: &Bucket| bucket.used().map(|lane| bucket.place(lane)).collect::<Vec<_>>();
        let places: Vec<Place> = if few { self.buckets[..old].iter().flat_map(entries).collect() } else { Vec::new() };
        self.buckets[..old].fill(Bucket::default());
        if few {
            for place in places {
                self.put_anywhere(self.home(chunks.name(place)), place);
            }
        } else {
            self.put_all(chunks);
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

    #[inline]
    fn put_anywhere(&mut self, home: Home, place: Place) {
        self.put(self.vacancy(home.bucket as usize), home, place);
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
