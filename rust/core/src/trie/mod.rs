//! The blocks: a trie of *runs*, whose hashes lie in *chunks*. Knows coverage as sets of slots, and nothing else of who holds
//! what.
//!
//! The functions here keep the structure right: extents, ends, depths, the head table, the starts of runs in chunks. What
//! else hangs on a run (records of holders) or on a block (engines' names) moves along in [`Holdings`](crate::holdings).

mod chunks;
mod runs;
mod walk;

use std::collections::BTreeMap;

pub(crate) use chunks::{ChunkId, Chunks, NO_NAME, Place};
pub(crate) use runs::{Records, Run, RunId, Runs};
pub(crate) use walk::Walk;

use crate::first_blocks::FirstBlocks;
use crate::hash::common_prefix;
use crate::ids::BlockHash;

/// Blocks that have moved from position 0 of a chunk on to the end of another.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moved {
    pub from: ChunkId,
    pub to: ChunkId,
    pub base: u32,
}

/// Runs and their blocks.
#[derive(Debug)]
pub(crate) struct Trie {
    pub(crate) runs: Runs,
    pub(crate) chunks: Chunks,
}

impl Trie {
    /// An empty trie; `key` places entries in the head table and has no other effect. `firsts` has no counts.
    pub(crate) fn new(key: u64, firsts: FirstBlocks) -> Self {
        Trie { runs: Runs::new(key, firsts), chunks: Chunks::default() }
    }

    #[inline]
    pub(crate) fn run(&self, id: RunId) -> &Run {
        self.runs.get(id)
    }

    /// The blocks of a run.
    #[inline]
    pub(crate) fn blocks(&self, id: RunId) -> &[BlockHash] {
        let run = self.run(id);
        &self.chunks.blocks(run.chunk)[run.start as usize..run.end() as usize]
    }

    /// Goes down from below `from` along these blocks and writes the runs to `path`. Gives the blocks matched, and the blocks
    /// that belong to the last run if the path ends inside of it.
    pub(crate) fn descend(&self, from: RunId, hashes: &[BlockHash], path: &mut Vec<RunId>) -> (usize, Option<u32>) {
        path.clear();
        let (mut at, mut matched) = (from, 0);
        while let Some(next) = hashes.get(matched).and_then(|&first| self.runs.head(at, first)) {
            let run = self.run(next);
            let (rest, len) = (&hashes[matched..], run.len as usize);
            let passed = if rest.len() >= len && rest[len - 1] == run.tail {
                len // without a look at the blocks
            } else {
                // The first block is equal, as the table says; only hashes that are no chain can make a search doubt it.
                common_prefix(self.blocks(next), rest).max(1)
            };
            path.push(next);
            matched += passed;
            if passed < len {
                return (matched, Some(passed as u32));
            }
            at = next;
        }
        (matched, None)
    }

    /// Splits a run after `at` of its blocks, 0 < `at` < len, and gives the new run of the blocks before. The *head* is the
    /// new one: the children, of which a system prompt has thousands, stay with the tail. No block is copied.
    pub(crate) fn split(&mut self, run: RunId, at: u32) -> RunId {
        let old = *self.run(run);
        let (tail, first) = (self.chunks.block(old.place(at - 1)), self.chunks.block(old.place(at)));
        let head = self.runs.insert(Run { tail, len: at, ..old });
        self.runs.copy_cover(run, head);
        self.runs.replace(run, head);
        self.runs.set_only_child(head, run);
        let rest = self.runs.get_mut(run);
        *rest = Run { first, start: old.start + at, len: old.len - at, depth: old.depth + at, parent: head, ..*rest };
        self.runs.insert_head(run);
        self.chunks.set_view(old.place(0), head);
        self.chunks.set_view(old.place(at), run);
        head
    }

    /// Joins a run with its only child, which lies right behind it in the same chunk: the child has the blocks of both, so
    /// that its own children stay as they are.
    pub(crate) fn join(&mut self, run: RunId, child: RunId) {
        let (upper, seam) = (*self.run(run), self.run(child).place(0));
        self.runs.remove_head(child);
        self.runs.replace(run, child);
        let lower = self.runs.get_mut(child);
        (lower.first, lower.start, lower.depth, lower.parent) = (upper.first, upper.start, upper.depth, upper.parent);
        lower.len += upper.len;
        self.chunks.drop_view(seam);
        self.chunks.set_view(upper.place(0), child);
        self.runs.remove(run);
    }

    /// A new run of these blocks below `parent`, held by nobody yet. It continues the parent's chunk if that ends with the
    /// parent.
    pub(crate) fn graft(&mut self, parent: RunId, blocks: &[BlockHash]) -> RunId {
        let above = *self.run(parent);
        let (first, tail, len) = (blocks[0], blocks[blocks.len() - 1], blocks.len() as u32);
        let depth = above.depth + above.len;
        let run = self.runs.insert(Run { tail, first, len, depth, parent, ..Run::default() });
        let place = if self.is_at_end(parent, blocks.len()) {
            self.chunks.append(above.chunk, blocks);
            above.place(above.len)
        } else {
            Place { chunk: self.chunks.create(blocks, run), at: 0 }
        };
        let grafted = self.runs.get_mut(run);
        (grafted.chunk, grafted.start) = (place.chunk, place.at);
        self.chunks.set_view(place, run);
        self.runs.insert_head(run);
        self.runs.adopt(run);
        run
    }

    /// Whether a run ends its chunk, and so many more blocks fit there.
    pub(crate) fn is_at_end(&self, run: RunId, blocks: usize) -> bool {
        let run = self.run(run);
        run.len > 0 && run.end() == self.chunks.len(run.chunk) && self.chunks.has_positions(run.chunk, blocks)
    }

    /// Appends blocks to a leaf that ends its chunk; where they lie.
    pub(crate) fn lengthen(&mut self, leaf: RunId, blocks: &[BlockHash]) -> Place {
        let (run, chunks) = (self.runs.get_mut(leaf), &mut self.chunks);
        let place = run.place(run.len);
        chunks.append(run.chunk, blocks);
        run.len += blocks.len() as u32;
        run.tail = chunks.block(run.place(run.len - 1));
        place
    }

    /// Takes the last blocks from a leaf, not all of them.
    pub(crate) fn shorten(&mut self, leaf: RunId, blocks: u32) {
        let (run, chunks) = (self.runs.get_mut(leaf), &mut self.chunks);
        run.len -= blocks;
        run.tail = chunks.block(run.place(run.len - 1));
        chunks.truncate(run.chunk, run.end());
    }

    /// Removes a leaf, which nobody holds; gives its parent.
    pub(crate) fn remove_leaf(&mut self, leaf: RunId) -> RunId {
        let run = *self.run(leaf);
        self.runs.remove_head(leaf);
        self.runs.disown(leaf);
        self.chunks.drop_view(run.place(0));
        self.chunks.truncate(run.chunk, run.start);
        self.runs.remove(leaf);
        run.parent
    }

    /// Whether a run and its only child can lie behind each other in one chunk. They can if the child's chunk is not the longer
    /// one, so that a block is copied O(log n) times at most.
    pub(crate) fn can_share_chunk(&self, run: RunId, child: RunId) -> bool {
        let (upper, lower) = (self.run(run), self.run(child));
        let (front, back) = (upper.chunk, lower.chunk);
        let added = self.chunks.len(back);
        front == back
            || upper.end() == self.chunks.len(front)
                && lower.start == 0
                && added <= self.chunks.len(front)
                && self.chunks.has_positions(front, added as usize)
                && !self.chunks.is_fixed(back)
    }

    /// Makes a run and its only child, which can, share a chunk; which blocks have moved for it.
    pub(crate) fn share_chunk(&mut self, run: RunId, child: RunId) -> Option<Moved> {
        let (to, from) = (self.run(run).chunk, self.run(child).chunk);
        if to == from {
            return None;
        }
        let views = self.views(from);
        if self.chunks.is_named(from) {
            self.allow_names(to);
        }
        let head = self.chunks.head(from);
        let base = self.chunks.join(to, from);
        for (start, view) in std::iter::once((0, head)).chain(views) {
            let moved = self.runs.get_mut(view);
            (moved.chunk, moved.start) = (to, base + start);
            self.chunks.set_view(moved.place(0), view);
        }
        Some(Moved { from, to, base })
    }

    /// From now on blocks of this chunk can have names.
    pub(crate) fn allow_names(&mut self, chunk: ChunkId) {
        if !self.chunks.is_named(chunk) {
            let views = self.views(chunk);
            self.chunks.allow_names(chunk, views);
        }
    }

    /// Bytes that a chunk grows by once its blocks can have names.
    pub(crate) fn naming_bytes(&self, chunk: ChunkId) -> usize {
        if self.chunks.is_named(chunk) { 0 } else { self.chunks.naming_bytes(chunk, self.views(chunk).len()) }
    }

    /// Bytes that the starts of runs of two chunks take more in one.
    pub(crate) fn views_growth(&self, to: ChunkId, from: ChunkId) -> usize {
        self.chunks.views_growth(to, self.views(from).len() + 1)
    }

    /// The runs of a chunk by their starts, but for the one at position 0: each is the child of the one before.
    fn views(&self, chunk: ChunkId) -> BTreeMap<u32, RunId> {
        let mut views = BTreeMap::new();
        let mut run = self.chunks.head(chunk);
        loop {
            let end = self.run(run).end();
            let next = self.chunks.blocks(chunk).get(end as usize);
            let Some(next) = next.and_then(|&first| self.runs.head(run, first)) else { return views };
            views.insert(end, next);
            run = next;
        }
    }

    pub(crate) fn live_bytes(&self) -> usize {
        self.runs.live_bytes() + self.chunks.live_bytes()
    }

    pub(crate) fn reserved_bytes(&self) -> usize {
        self.runs.reserved_bytes() + self.chunks.reserved_bytes()
    }
}
