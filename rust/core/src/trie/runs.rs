//! Runs, the head table that finds them, and their coverage.
//!
//! A run is a stretch of one chain over which every replica's hold is the same. The hash of its last block commits to all
//! blocks before, so one comparison proves a whole run. As hashes are chained, one table from a run's first hash to the run
//! is at once the child map of every run.

use hashbrown::HashTable;

use super::chunks::{ChunkId, Place};
use crate::error::MAX_REPLICAS;
use crate::first_blocks::FirstBlocks;
use crate::ids::{BlockHash, Slot};
use crate::linked_slab::{Element, Id, Slab, ids};
use crate::spread::Spread;

/// Words of a coverage set at most.
pub(crate) const MAX_WORDS: usize = MAX_REPLICAS / 64;

ids! {
    /// Id of a run.
    RunId
}

impl RunId {
    /// The empty run above all others. It is never held, split, merged or removed.
    pub(crate) const ROOT: RunId = RunId(0);
}

/// Where the records of a run's holders lie: kept here, made by [`Pool`](crate::holders).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Records {
    pub start: u32,
    /// Holders.
    pub len: u16,
    /// The array has room for `1 << class`.
    pub class: u8,
}

/// One cache line. `len` is 0 in the root and in a removed run.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(crate) struct Run {
    /// Hash of the last block.
    pub tail: BlockHash,
    /// Hash of the first block: the key in the head table, with `parent`.
    pub first: BlockHash,
    /// Holders among slots 0..64. Here, as every lookup reads it; that of further slots lies apart.
    pub cover: u64,
    pub chunk: ChunkId,
    /// Position of the first block in the chunk.
    pub start: u32,
    pub len: u32,
    /// Blocks before the first.
    pub depth: u32,
    pub parent: RunId,
    pub children: u32,
    /// The ids of all children, xored. That of an only child is the child itself, which is all that the tree ever asks for;
    /// and a run with thousands of children gains and loses one without a look at the others.
    pub(super) child_ids: u32,
    pub records: Records,
}

const _: () = assert!(size_of::<Run>() == 64);

impl Default for Run {
    fn default() -> Self {
        Run {
            tail: BlockHash(0),
            first: BlockHash(0),
            cover: 0,
            chunk: ChunkId(0),
            start: 0,
            len: 0,
            depth: 0,
            parent: RunId::NONE,
            children: 0,
            child_ids: 0,
            records: Records::default(),
        }
    }
}

impl Element for Run {
    type Id = RunId;

    fn next_free(&mut self) -> &mut RunId {
        &mut self.parent
    }
}

impl Run {
    /// Where the block at this offset lies.
    pub(crate) fn place(&self, offset: u32) -> Place {
        Place { chunk: self.chunk, at: self.start + offset }
    }

    /// Chunk position after the last block.
    pub(crate) fn end(&self) -> u32 {
        self.start + self.len
    }

    /// The only child.
    pub(crate) fn only_child(&self) -> Option<RunId> {
        (self.children == 1).then_some(RunId(self.child_ids))
    }
}

/// The runs. Coverage of slots from 64 on lies apart in `wide`, `stride` words for each run, as only big fleets need it.
#[derive(Debug)]
pub(crate) struct Runs {
    slab: Slab<Run>,
    heads: HashTable<RunId>,
    wide: Vec<u64>,
    stride: usize,
    spread: Spread,
    /// The first blocks of the root's children, which lookups read without the lock.
    firsts: FirstBlocks,
}

impl Runs {
    pub(crate) fn new(key: u64, firsts: FirstBlocks) -> Self {
        let mut slab = Slab::default();
        slab.insert(Run::default());
        Runs { slab, heads: HashTable::new(), wide: Vec::new(), stride: 0, spread: Spread::new(key), firsts }
    }

    #[inline]
    pub(crate) fn get(&self, id: RunId) -> &Run {
        self.slab.get(id)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, id: RunId) -> &mut Run {
        self.slab.get_mut(id)
    }

    /// All runs but the root, in the order of their ids.
    pub(crate) fn ids(&self) -> impl Iterator<Item = RunId> + '_ {
        let runs = self.slab.all().iter().enumerate();
        runs.filter(|(_, run)| run.len > 0).map(|(index, _)| RunId::new(index))
    }

    /// What prompts can begin with.
    pub(crate) fn firsts(&self) -> &FirstBlocks {
        &self.firsts
    }

    /// Words of a coverage set.
    #[inline]
    pub(crate) fn words(&self) -> usize {
        1 + self.stride
    }

    /// Bytes that coverage sets grow by for so many slots.
    pub(crate) fn widen_growth(&self, slots: usize) -> usize {
        let stride = slots.div_ceil(64).saturating_sub(1);
        if stride > self.stride { self.slab.all().len() * stride * 8 } else { 0 }
    }

    /// Makes room in coverage sets for so many slots.
    pub(crate) fn widen(&mut self, slots: usize) {
        let stride = slots.div_ceil(64).saturating_sub(1);
        if stride <= self.stride {
            return;
        }
        let mut wide = vec![0; self.slab.all().len() * stride];
        if self.stride > 0 {
            for (new, old) in wide.chunks_exact_mut(stride).zip(self.wide.chunks_exact(self.stride)) {
                new[..old.len()].copy_from_slice(old);
            }
        }
        (self.wide, self.stride) = (wide, stride);
    }

    #[inline]
    pub(crate) fn word(&self, id: RunId, word: usize) -> u64 {
        if word == 0 { self.get(id).cover } else { self.wide[id.index() * self.stride + word - 1] }
    }

    fn word_mut(&mut self, id: RunId, word: usize) -> &mut u64 {
        if word == 0 { &mut self.get_mut(id).cover } else { &mut self.wide[id.index() * self.stride + word - 1] }
    }

    #[inline]
    pub(crate) fn is_held(&self, id: RunId, slot: Slot) -> bool {
        self.word(id, slot.index() / 64) >> (slot.index() % 64) & 1 == 1
    }

    pub(crate) fn flip(&mut self, id: RunId, slot: Slot) {
        *self.word_mut(id, slot.index() / 64) ^= 1 << (slot.index() % 64);
    }

    /// Holders in slots below this one: the place of its record in the run's array.
    #[inline]
    pub(crate) fn rank(&self, id: RunId, slot: Slot) -> usize {
        let (word, bit) = (slot.index() / 64, slot.index() % 64);
        let here = (self.word(id, word) & ((1 << bit) - 1)).count_ones() as usize;
        if word == 0 { here } else { here + self.held_before(id, word) }
    }

    /// Holders in the words of coverage before this one, of which only big fleets have any.
    #[cold]
    fn held_before(&self, id: RunId, word: usize) -> usize {
        (0..word).map(|word| self.word(id, word).count_ones() as usize).sum()
    }

    /// Holders in slot order.
    pub(crate) fn holders(&self, id: RunId) -> impl Iterator<Item = Slot> + use<> {
        let mut words = [0; MAX_WORDS];
        let count = self.words();
        for (word, bits) in words[..count].iter_mut().enumerate() {
            *bits = self.word(id, word);
        }
        let mut word = 0;
        std::iter::from_fn(move || {
            while word < count && words[word] == 0 {
                word += 1;
            }
            let bits = words.get_mut(word).filter(|bits| **bits != 0)?;
            let bit = bits.trailing_zeros();
            *bits &= *bits - 1;
            Some(Slot((word * 64) as u16 + bit as u16))
        })
    }

    /// Whether the same replicas hold both.
    pub(crate) fn same_cover(&self, a: RunId, b: RunId) -> bool {
        (0..self.words()).all(|word| self.word(a, word) == self.word(b, word))
    }

    /// The child of a run that starts with this block.
    #[inline]
    pub(crate) fn head(&self, parent: RunId, first: BlockHash) -> Option<RunId> {
        let same = |&id: &RunId| {
            let run = self.get(id);
            run.first == first && run.parent == parent
        };
        self.heads.find(self.spread.of(first.0), same).copied()
    }

    /// Puts a run in the table; `first` and `parent` are set.
    pub(crate) fn insert_head(&mut self, id: RunId) {
        let (runs, spread) = (&self.slab, self.spread);
        let hash = |&id: &RunId| spread.of(runs.get(id).first.0);
        self.heads.insert_unique(hash(&id), id, hash);
        let Run { first, parent, .. } = *self.get(id);
        if parent == RunId::ROOT {
            self.firsts.add(first);
        }
    }

    /// Takes a run out of the table; `first` is still what it was.
    pub(crate) fn remove_head(&mut self, id: RunId) {
        let Run { first, parent, .. } = *self.get(id);
        if let Ok(entry) = self.heads.find_entry(self.spread.of(first.0), |&other| other == id) {
            entry.remove();
            if parent == RunId::ROOT {
                self.firsts.remove(first);
            }
        }
    }

    /// `new` takes the place of `old` in the table and among its parent's children: both start with the same block.
    pub(crate) fn replace(&mut self, old: RunId, new: RunId) {
        let Run { first, parent, .. } = *self.get(old);
        if let Some(entry) = self.heads.find_mut(self.spread.of(first.0), |&other| other == old) {
            *entry = new;
        }
        self.get_mut(parent).child_ids ^= old.0 ^ new.0;
    }

    /// Hangs a run under its `parent`.
    pub(crate) fn adopt(&mut self, id: RunId) {
        let parent = self.get(id).parent;
        let above = self.get_mut(parent);
        above.children += 1;
        above.child_ids ^= id.0;
    }

    /// Takes a run out of its parent's children.
    pub(crate) fn disown(&mut self, id: RunId) {
        let parent = self.get(id).parent;
        let above = self.get_mut(parent);
        above.children -= 1;
        above.child_ids ^= id.0;
    }

    pub(crate) fn set_only_child(&mut self, id: RunId, child: RunId) {
        let run = self.get_mut(id);
        (run.children, run.child_ids) = (1, child.0);
    }

    /// A new run, which is in no table and below no other yet.
    pub(crate) fn insert(&mut self, run: Run) -> RunId {
        let id = self.slab.insert(run);
        let words = self.slab.all().len() * self.stride;
        if words > self.wide.len() {
            if words > self.wide.capacity() {
                self.wide.reserve_exact(self.slab.capacity() * self.stride - self.wide.len());
            }
            self.wide.resize(words, 0);
        }
        id
    }

    /// Removes a run, which is out of the table and of its parent's children.
    pub(crate) fn remove(&mut self, id: RunId) {
        self.slab.remove(id);
        for word in 1..self.words() {
            *self.word_mut(id, word) = 0;
        }
    }

    /// Gives a run the holders of another; those of slots 0..64 it has.
    pub(crate) fn copy_cover(&mut self, from: RunId, to: RunId) {
        // Word by word: `copy_within` of no words at all costs 50 ns, as glibc masks a load from nowhere.
        for word in 1..self.words() {
            *self.word_mut(to, word) = self.word(from, word);
        }
    }

    /// Runs without the root.
    pub(crate) fn live(&self) -> usize {
        self.slab.live() - 1
    }

    /// Entries of the head table.
    pub(crate) fn table_entries(&self) -> usize {
        self.heads.len()
    }

    /// Bytes that the arrays of runs will grow by for so many more.
    pub(crate) fn growth(&self, more: usize) -> usize {
        self.slab.growth(more) * (size_of::<Run>() + 8 * self.stride)
    }

    /// Bytes that the head table will grow by for so many more entries: it doubles.
    pub(crate) fn table_growth(&self, more: usize) -> usize {
        const FIRST: usize = 64;
        if self.heads.len() + more <= self.heads.capacity() { 0 } else { self.heads.allocation_size().max(FIRST) }
    }

    /// Entries that the head table has room for once it is rebuilt.
    pub(crate) fn table_room(&self) -> usize {
        self.heads.num_buckets() / 8 * 7
    }

    /// Makes the head table anew in the size it has: places of removed entries are free again.
    pub(crate) fn rebuild_table(&mut self) {
        let (runs, spread) = (&self.slab, self.spread);
        let hash = |&id: &RunId| spread.of(runs.get(id).first.0);
        let mut heads = HashTable::with_capacity(self.heads.num_buckets() / 8 * 7);
        for id in self.heads.drain() {
            heads.insert_unique(hash(&id), id, hash);
        }
        self.heads = heads;
    }

    pub(crate) fn live_bytes(&self) -> usize {
        self.live() * (size_of::<Run>() + 8 * self.stride + size_of::<RunId>() + 1)
    }

    pub(crate) fn reserved_bytes(&self) -> usize {
        self.slab.capacity() * size_of::<Run>()
            + self.wide.capacity() * 8
            + self.heads.allocation_size()
            + self.firsts.bytes()
    }
}
