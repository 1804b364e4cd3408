//! Runs, their children and the head table.
//!
//! A run is a stretch of one chain over which every replica's hold is the same. The hash of its last block commits to all
//! blocks before, so one comparison proves a whole run. As hashes are chained, one table from a run's first hash to the run
//! is at once the child map of every run.

use hashbrown::HashTable;

use crate::arena::{ChunkId, Place, grow, step_of};
use crate::error::MAX_REPLICAS;
use crate::ids::{BlockHash, Slot};

/// Words of a coverage set at most.
pub(crate) const MAX_WORDS: usize = MAX_REPLICAS / 64;

/// Id of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct RunId(pub u32);

impl RunId {
    /// No run.
    pub(crate) const NONE: RunId = RunId(u32::MAX);
    /// The empty run above all others. It is never held, split, merged or freed.
    pub(crate) const ROOT: RunId = RunId(0);

    #[inline]
    pub(crate) const fn index(self) -> usize {
        self.0 as usize
    }

    pub(crate) fn is_none(self) -> bool {
        self == RunId::NONE
    }
}

/// One cache line. `len` is 0 in the root and in a free run, which links to the next free one by `next`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    /// Hash of the last block.
    pub tail: BlockHash,
    /// Hash of the first block: the key in the head table, with `parent`.
    pub first: BlockHash,
    /// Holders among slots 0..64.
    pub cover: u64,
    pub chunk: ChunkId,
    /// Position of the first block in the chunk.
    pub start: u32,
    pub len: u32,
    pub parent: RunId,
    /// First child; children are a list through `next` and `prev`.
    pub child: RunId,
    pub next: RunId,
    pub prev: RunId,
    /// Blocks before the first.
    pub depth: u32,
    /// Start of the holders' records.
    pub records: u32,
    pub holders: u16,
    /// Size class of the array of records.
    pub class: u8,
}

const _: () = assert!(size_of::<Run>() == 64);

impl Run {
    const EMPTY: Run = Run {
        tail: BlockHash(0),
        first: BlockHash(0),
        cover: 0,
        chunk: ChunkId(0),
        start: 0,
        len: 0,
        parent: RunId::NONE,
        child: RunId::NONE,
        next: RunId::NONE,
        prev: RunId::NONE,
        depth: 0,
        records: 0,
        holders: 0,
        class: 0,
    };

    /// Where the block at this offset lies.
    pub(crate) fn place(&self, offset: u32) -> Place {
        Place { chunk: self.chunk, at: self.start + offset }
    }

    /// Chunk position after the last block.
    pub(crate) fn end(&self) -> u32 {
        self.start + self.len
    }
}

/// The runs. Coverage of slots from 64 on lies apart in `wide`, `stride` words for each run, as only big fleets need it.
#[derive(Debug)]
pub(crate) struct Tree {
    pub runs: Vec<Run>,
    heads: HashTable<RunId>,
    wide: Vec<u64>,
    stride: usize,
    free: RunId,
    live: usize,
    key: u64,
}

impl Tree {
    /// An empty tree; `key` places entries in the head table and has no other effect.
    pub(crate) fn new(key: u64) -> Self {
        Tree {
            runs: vec![Run::EMPTY],
            heads: HashTable::new(),
            wide: Vec::new(),
            stride: 0,
            free: RunId::NONE,
            live: 0,
            key: key | 1,
        }
    }

    #[inline]
    pub(crate) fn run(&self, id: RunId) -> &Run {
        &self.runs[id.index()]
    }

    #[inline]
    pub(crate) fn run_mut(&mut self, id: RunId) -> &mut Run {
        &mut self.runs[id.index()]
    }

    /// Words of a coverage set.
    #[inline]
    pub(crate) fn words(&self) -> usize {
        1 + self.stride
    }

    /// Makes room in coverage sets for so many slots.
    pub(crate) fn widen(&mut self, slots: usize) {
        let stride = slots.div_ceil(64).saturating_sub(1);
        if stride <= self.stride {
            return;
        }
        let mut wide = vec![0; self.runs.len() * stride];
        if self.stride > 0 {
            for (new, old) in wide.chunks_exact_mut(stride).zip(self.wide.chunks_exact(self.stride)) {
                new[..old.len()].copy_from_slice(old);
            }
        }
        (self.wide, self.stride) = (wide, stride);
    }

    #[inline]
    pub(crate) fn word(&self, id: RunId, word: usize) -> u64 {
        if word == 0 { self.run(id).cover } else { self.wide[id.index() * self.stride + word - 1] }
    }

    fn word_mut(&mut self, id: RunId, word: usize) -> &mut u64 {
        if word == 0 { &mut self.runs[id.index()].cover } else { &mut self.wide[id.index() * self.stride + word - 1] }
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
        let here = (self.word(id, word) & ((1 << bit) - 1)).count_ones();
        let before: u32 = (0..word).map(|word| self.word(id, word).count_ones()).sum();
        (before + here) as usize
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
            let run = &self.runs[id.index()];
            run.first == first && run.parent == parent
        };
        self.heads.find(place_of(self.key, first), same).copied()
    }

    /// Puts a run in the table; `first` and `parent` are set.
    pub(crate) fn insert_head(&mut self, id: RunId) {
        let (runs, key) = (&self.runs, self.key);
        let hash = |id: &RunId| place_of(key, runs[id.index()].first);
        self.heads.insert_unique(hash(&id), id, hash);
    }

    /// Takes a run out of the table; `first` is still what it was.
    pub(crate) fn remove_head(&mut self, id: RunId) {
        let first = self.run(id).first;
        if let Ok(entry) = self.heads.find_entry(place_of(self.key, first), |&other| other == id) {
            entry.remove();
        }
    }

    /// The table's entry of `old` is `new` from now on; both start with the same block.
    pub(crate) fn rename_head(&mut self, old: RunId, new: RunId) {
        let first = self.run(old).first;
        if let Some(entry) = self.heads.find_mut(place_of(self.key, first), |&other| other == old) {
            *entry = new;
        }
    }

    /// A free id; its run is empty and nobody holds it.
    pub(crate) fn alloc(&mut self) -> RunId {
        self.live += 1;
        if self.free.is_none() {
            grow(&mut self.runs);
            self.runs.push(Run::EMPTY);
            if self.stride > 0 {
                self.wide.reserve_exact(if self.wide.len() + self.stride > self.wide.capacity() {
                    self.runs.capacity() * self.stride - self.wide.len()
                } else {
                    0
                });
                self.wide.resize(self.runs.len() * self.stride, 0);
            }
            return RunId(self.runs.len() as u32 - 1);
        }
        let id = self.free;
        self.free = self.run(id).next;
        *self.run_mut(id) = Run::EMPTY;
        id
    }

    /// Gives an id back; the run is out of the table and of its parent's children.
    pub(crate) fn release(&mut self, id: RunId) {
        *self.run_mut(id) = Run { next: self.free, ..Run::EMPTY };
        for word in 1..self.words() {
            *self.word_mut(id, word) = 0;
        }
        self.free = id;
        self.live -= 1;
    }

    pub(crate) fn copy_cover(&mut self, from: RunId, to: RunId) {
        for word in 0..self.words() {
            *self.word_mut(to, word) = self.word(from, word);
        }
    }

    /// Hangs a run under its `parent`, as the first child.
    pub(crate) fn adopt(&mut self, id: RunId) {
        let parent = self.run(id).parent;
        let next = std::mem::replace(&mut self.run_mut(parent).child, id);
        let run = self.run_mut(id);
        (run.next, run.prev) = (next, RunId::NONE);
        if !next.is_none() {
            self.run_mut(next).prev = id;
        }
    }

    /// Takes a run out of its parent's children.
    pub(crate) fn disown(&mut self, id: RunId) {
        let Run { parent, next, prev, .. } = *self.run(id);
        if prev.is_none() {
            self.run_mut(parent).child = next;
        } else {
            self.run_mut(prev).next = next;
        }
        if !next.is_none() {
            self.run_mut(next).prev = prev;
        }
    }

    /// `new` stands where `old` stood among its parent's children.
    pub(crate) fn replace_child(&mut self, old: RunId, new: RunId) {
        let Run { parent, next, prev, .. } = *self.run(old);
        let run = self.run_mut(new);
        (run.parent, run.next, run.prev) = (parent, next, prev);
        if prev.is_none() {
            self.run_mut(parent).child = new;
        } else {
            self.run_mut(prev).next = new;
        }
        if !next.is_none() {
            self.run_mut(next).prev = new;
        }
    }

    /// The only child of a run.
    pub(crate) fn only_child(&self, id: RunId) -> Option<RunId> {
        let child = self.run(id).child;
        (!child.is_none() && self.run(child).next.is_none()).then_some(child)
    }

    /// Runs without the root.
    pub(crate) fn live(&self) -> usize {
        self.live
    }

    /// Entries of the head table.
    pub(crate) fn table_entries(&self) -> usize {
        self.heads.len()
    }

    /// Bytes that the arrays of runs will grow by for so many more.
    pub(crate) fn growth(&self, more: usize) -> usize {
        if self.live + 1 + more <= self.runs.capacity() {
            0
        } else {
            step_of(&self.runs) / size_of::<Run>() * (size_of::<Run>() + 8 * self.stride)
        }
    }

    /// Bytes that the head table will grow by for so many more entries: it doubles.
    pub(crate) fn table_growth(&self, more: usize) -> usize {
        if self.heads.len() + more <= self.heads.capacity() { 0 } else { self.heads.allocation_size() }
    }

    /// Entries that the head table has room for once it is rebuilt.
    pub(crate) fn table_room(&self) -> usize {
        self.heads.num_buckets() / 8 * 7
    }

    /// Makes the head table anew in the size it has: places of removed entries are free again.
    pub(crate) fn rebuild_table(&mut self) {
        let (runs, key) = (&self.runs, self.key);
        let hash = |id: &RunId| place_of(key, runs[id.index()].first);
        let mut heads = HashTable::with_capacity(self.heads.num_buckets() / 8 * 7);
        for id in self.heads.drain() {
            heads.insert_unique(hash(&id), id, hash);
        }
        self.heads = heads;
    }

    pub(crate) fn live_bytes(&self) -> usize {
        self.live * (size_of::<Run>() + 8 * self.stride + size_of::<RunId>() + 1)
    }

    pub(crate) fn reserved_bytes(&self) -> usize {
        self.runs.capacity() * size_of::<Run>() + self.wide.capacity() * 8 + self.heads.allocation_size()
    }
}

/// Hashes are well mixed but can be chosen; a secret odd factor makes their place in the table unknown.
#[inline]
fn place_of(key: u64, first: BlockHash) -> u64 {
    first.0.wrapping_mul(key).rotate_left(32)
}
