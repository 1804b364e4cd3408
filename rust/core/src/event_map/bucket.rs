//! A bucket of the table of names: eight entries in one cache line.

use crate::memory::Zero;
use crate::trie::{ChunkId, Place};

/// Entries of a bucket, in two words of four tags each.
pub(super) const LANES: usize = 8;
const AT_BITS: u32 = Place::AT_BITS;
const _: () = assert!(AT_BITS + Place::CHUNK_BITS == 48);
/// The lowest bit of each tag of a word. It is no part of the tag: the eight of them count the entries that passed.
const COUNT: u64 = 0x0001_0001_0001_0001;
/// Set in the tag of every entry.
pub(super) const USED: u16 = 1 << 15;

/// One cache line.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(64))]
pub(super) struct Bucket {
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
    pub(super) fn lanes(&self, tag: u16) -> Lanes {
        let wanted = u64::from(tag) * COUNT;
        let zeros = |word: u64| word.wrapping_sub(COUNT) & !word & (COUNT << 15);
        let [first, second] = self.tags;
        Lanes(zeros((first & !COUNT) ^ wanted) >> 15 | zeros((second & !COUNT) ^ wanted) >> 14)
    }

    /// Lanes that are not empty, and those that are.
    #[inline]
    pub(super) fn used(&self) -> Lanes {
        let [first, second] = self.tags;
        Lanes(first >> 15 & COUNT | second >> 14 & COUNT << 1)
    }

    #[inline]
    pub(super) fn vacant(&self) -> Lanes {
        Lanes(self.used().0 ^ (3 * COUNT))
    }

    #[inline]
    pub(super) fn tag(&self, lane: usize) -> u16 {
        (self.tags[lane / 4] >> (lane % 4 * 16)) as u16 & !1
    }

    /// Fills an empty lane.
    #[inline]
    pub(super) fn fill(&mut self, lane: usize, tag: u16, place: Place) {
        self.tags[lane / 4] |= u64::from(tag) << (lane % 4 * 16);
        self.set_place(lane, place);
    }

    /// Fills an empty lane with an entry of another bucket.
    #[inline]
    pub(super) fn copy(&mut self, lane: usize, from: &Bucket, entry: usize) {
        self.tags[lane / 4] |= u64::from(from.tag(entry)) << (lane % 4 * 16);
        (self.high[lane], self.low[lane]) = (from.high[entry], from.low[entry]);
    }

    /// Empties a lane.
    #[inline]
    pub(super) fn empty(&mut self, lane: usize) {
        self.tags[lane / 4] &= !(0xFFFE << (lane % 4 * 16));
    }

    /// Whether an entry lies behind this bucket though its probe begins at or before it.
    #[inline]
    pub(super) fn is_passed(&self) -> bool {
        (self.tags[0] | self.tags[1]) & COUNT != 0
    }

    /// Counts one such entry more. A carry runs over the bits between those of the count if they are ones.
    #[inline]
    pub(super) fn count_in(&mut self) {
        let [first, second] = self.tags;
        if first & second & COUNT == COUNT {
            return; // so many that they are not known any more
        }
        let more = |word: u64| word & !COUNT | (word | !COUNT).wrapping_add(1) & COUNT;
        self.tags[0] = more(first);
        if first & COUNT == COUNT {
            self.tags[1] = more(second);
        }
    }

    /// Counts one such entry less. A borrow runs over the bits between if they are zeros.
    #[inline]
    pub(super) fn count_out(&mut self) {
        let [first, second] = self.tags;
        if first & second & COUNT == COUNT {
            return;
        }
        let less = |word: u64| word & !COUNT | (word & COUNT).wrapping_sub(1) & COUNT;
        self.tags[0] = less(first);
        if first & COUNT == 0 {
            self.tags[1] = less(second);
        }
    }

    #[inline]
    pub(super) fn place(&self, lane: usize) -> Place {
        let place = u64::from(self.high[lane]) << 32 | u64::from(self.low[lane]);
        Place { chunk: ChunkId((place >> AT_BITS) as u32), at: place as u32 & ((1 << AT_BITS) - 1) }
    }

    #[inline]
    pub(super) fn set_place(&mut self, lane: usize, place: Place) {
        let bits = u64::from(place.chunk.0) << AT_BITS | u64::from(place.at);
        (self.high[lane], self.low[lane]) = ((bits >> 32) as u16, bits as u32);
    }
}

/// Lanes found in a bucket: bits 0, 16, 32 and 48 are those of the first word, each one's neighbour those of the second.
pub(super) struct Lanes(u64);

impl Lanes {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
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

#[cfg(test)]
mod tests {
    use super::{Bucket, COUNT};

    /// Counts go up and down and leave tags alone; from 255 on they stay.
    #[test]
    fn counts_up_and_down() {
        let tags = [0x1234_5678_9ABC_DEF0 & !COUNT, !COUNT];
        let number = |bucket: &Bucket| {
            (0..8).fold(0, |number, bit| number | (bucket.tags[bit / 4] >> (bit % 4 * 16) & 1) << bit)
        };
        let mut bucket = Bucket { tags, ..Bucket::default() };
        for count in 1..300 {
            bucket.count_in();
            assert_eq!((number(&bucket), bucket.tags.map(|word| word & !COUNT)), (count.min(255), tags));
        }
        bucket.count_out();
        assert_eq!(number(&bucket), 255);
        let mut bucket = Bucket { tags, ..Bucket::default() };
        (0..254).for_each(|_| bucket.count_in());
        for count in (0..254).rev() {
            bucket.count_out();
            assert_eq!((number(&bucket), bucket.tags.map(|word| word & !COUNT)), (count, tags));
        }
        assert!(!bucket.is_passed());
    }
}
