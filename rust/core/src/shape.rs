//! Changes of the tree's shape: runs are split where holds part, grow at their ends, and join again where holds agree.

use std::collections::BTreeMap;

use crate::arena::{ChunkId, Hold, Place};
use crate::engine::Engine;
use crate::ids::{BlockHash, Slot};
use crate::radix::{Run, RunId, common_prefix};

impl Engine {
    /// Splits a run after `at` of its blocks, 0 < `at` < len. The head is a new run, so that children and their links stay
    /// with the tail; costs a record per holder, no block is copied.
    pub(crate) fn split(&mut self, run: RunId, at: u32) -> RunId {
        let old = *self.tree.run(run);
        let head = self.tree.alloc();
        let tail = self.chunks.block(old.place(at - 1));
        *self.tree.run_mut(head) = Run { tail, len: at, child: run, ..old };
        self.tree.rename_head(run, head);
        self.tree.replace_child(run, head);
        self.tree.copy_cover(run, head);
        let first = self.chunks.block(old.place(at));
        let rest = self.tree.run_mut(run);
        *rest = Run {
            first,
            start: old.start + at,
            len: old.len - at,
            depth: old.depth + at,
            parent: head,
            next: RunId::NONE,
            prev: RunId::NONE,
            ..*rest
        };
        self.tree.insert_head(run);
        self.chunks.set_view(old.place(0), head);
        self.chunks.set_view(old.place(at), run);
        if old.holders > 0 {
            self.tree.run_mut(head).records = self.pool.duplicate(old.records, old.class, old.holders as usize);
            for slot in self.tree.holders(run) {
                self.link_after(head, slot, run);
            }
        }
        head
    }

    /// Isolates blocks `from..to` of a run: gives the run that is just these.
    pub(crate) fn cut(&mut self, run: RunId, from: u32, to: u32) -> RunId {
        if from > 0 {
            self.split(run, from);
        }
        if to - from < self.tree.run(run).len { self.split(run, to - from) } else { run }
    }

    /// Goes down from below `from` along these blocks and leaves the runs on `self.path`. Gives the blocks matched, and the
    /// blocks that belong to the last run if the path ends inside it.
    pub(crate) fn descend(&mut self, from: RunId, hashes: &[BlockHash]) -> (usize, Option<u32>) {
        self.path.clear();
        let (mut at, mut matched) = (from, 0);
        while let Some(next) = hashes.get(matched).and_then(|&first| self.tree.head(at, first)) {
            let run = self.tree.run(next);
            let rest = &hashes[matched..];
            let (start, len) = (run.start as usize, run.len as usize);
            let passed = if rest.len() >= len && rest[len - 1] == run.tail {
                len
            } else {
                // The first block is equal, as the table says; only hashes that are no chain can make a search doubt it.
                common_prefix(&self.chunks.blocks(run.chunk)[start..start + len], rest).max(1)
            };
            self.path.push(next);
            matched += passed;
            if passed < len {
                return (matched, Some(passed as u32));
            }
            at = next;
        }
        (matched, None)
    }

    /// The same, and splits the last run so that the path is whole runs.
    pub(crate) fn descend_split(&mut self, from: RunId, hashes: &[BlockHash]) -> usize {
        let (matched, inside) = self.descend(from, hashes);
        if let (Some(inside), Some(&last)) = (inside, self.path.last()) {
            let head = self.split(last, inside);
            self.path.pop();
            self.path.push(head);
        }
        matched
    }

    /// Adds blocks below `parent` that no run has, held by one replica. Gives the run that has them now and where they lie:
    /// the parent itself grows if it is a leaf that the replica holds alone and in the same way.
    pub(crate) fn extend(&mut self, parent: RunId, blocks: &[BlockHash], slot: Slot, hold: Hold) -> (RunId, Place) {
        let above = *self.tree.run(parent);
        let Some(&tail) = blocks.last() else { return (parent, above.place(above.len)) };
        let alone = above.holders == 1 && above.child.is_none() && self.hold(parent, slot) == Some(hold);
        if alone && self.is_at_end(&above, blocks.len()) {
            self.chunks.append(above.chunk, blocks);
            let run = self.tree.run_mut(parent);
            run.len += blocks.len() as u32;
            run.tail = tail;
            self.held_blocks += blocks.len() as u64;
            *self.count(slot, &hold) += blocks.len() as u64;
            return (parent, above.place(above.len));
        }
        let run = self.graft(parent, blocks);
        self.add_holder(run, slot, hold);
        self.link_last(run, slot);
        (run, self.tree.run(run).place(0))
    }

    /// A new run of these blocks below `parent`, held by nobody yet. It continues the parent's chunk if that ends with the
    /// parent.
    pub(crate) fn graft(&mut self, parent: RunId, blocks: &[BlockHash]) -> RunId {
        let above = *self.tree.run(parent);
        let run = self.tree.alloc();
        let place = if self.is_at_end(&above, blocks.len()) {
            self.chunks.append(above.chunk, blocks);
            above.place(above.len)
        } else {
            Place { chunk: self.chunks.create(blocks, run), at: 0 }
        };
        let (first, tail) = (blocks[0], blocks[blocks.len() - 1]);
        let found = self.tree.run_mut(run);
        *found = Run {
            tail,
            first,
            chunk: place.chunk,
            start: place.at,
            len: blocks.len() as u32,
            parent,
            depth: above.depth + above.len,
            ..*found
        };
        self.chunks.set_view(place, run);
        self.tree.insert_head(run);
        self.tree.adopt(run);
        run
    }

    /// Whether a run ends its chunk, and so many more blocks fit there.
    fn is_at_end(&self, run: &Run, blocks: usize) -> bool {
        run.len > 0 && run.end() == self.chunks.len(run.chunk) && self.chunks.has_positions(run.chunk, blocks)
    }

    /// Takes the last blocks from a leaf that one replica holds.
    fn shorten(&mut self, run: RunId, blocks: u32, slot: Slot) {
        let found = *self.tree.run(run);
        let hold = self.record(run, slot).hold;
        self.cut_chunk(found.chunk, found.end() - blocks);
        let tail = self.chunks.block(found.place(found.len - blocks - 1));
        let run = self.tree.run_mut(run);
        run.len -= blocks;
        run.tail = tail;
        self.held_blocks -= u64::from(blocks);
        *self.count(slot, &hold) -= u64::from(blocks);
    }

    /// The replica holds these blocks of the run no more, `from..to`.
    pub(crate) fn drop_range(&mut self, run: RunId, from: u32, to: u32, slot: Slot) {
        let found = self.tree.run(run);
        if from > 0 && to == found.len && found.holders == 1 && found.child.is_none() {
            self.shorten(run, to - from, slot);
        } else {
            let piece = self.cut(run, from, to);
            self.drop_holder(piece, slot);
        }
    }

    /// The replica holds the run no more.
    pub(crate) fn drop_holder(&mut self, run: RunId, slot: Slot) {
        self.remove_holder(run, slot);
        self.tidy(run);
    }

    /// Holds of this run have changed: frees it if nobody holds it or a block after it, joins what agrees now. The run may
    /// be gone already.
    pub(crate) fn tidy(&mut self, run: RunId) {
        let mut at = run;
        while at != RunId::ROOT && self.tree.run(at).len > 0 && self.is_needless(at) {
            let parent = self.tree.run(at).parent;
            self.free_leaf(at);
            at = parent;
        }
        if at == RunId::ROOT || self.tree.run(at).len == 0 {
            return;
        }
        let at = self.merge_down(at).unwrap_or(at);
        self.merge_down(self.tree.run(at).parent);
    }

    fn is_needless(&self, run: RunId) -> bool {
        let run = self.tree.run(run);
        run.holders == 0 && run.child.is_none()
    }

    fn free_leaf(&mut self, run: RunId) {
        let found = *self.tree.run(run);
        self.tree.remove_head(run);
        self.tree.disown(run);
        self.chunks.drop_view(found.place(0));
        self.cut_chunk(found.chunk, found.start);
        self.tree.release(run);
    }

    /// Cuts a chunk off and forgets the shared names of what was cut.
    fn cut_chunk(&mut self, chunk: ChunkId, len: u32) {
        self.names.remove_from(Place { chunk, at: len }, &self.chunks);
        self.chunks.truncate(chunk, len);
    }

    /// Joins a run with its only child if every replica holds both alike. Gives the joined run, which has the child's id, so
    /// that the child's children and their links stay.
    pub(crate) fn merge_down(&mut self, run: RunId) -> Option<RunId> {
        if run == RunId::ROOT {
            return None;
        }
        let child = self.tree.only_child(run)?;
        if !self.same_holds(run, child) || !self.share_chunk(run, child) {
            return None;
        }
        for slot in self.tree.holders(run) {
            self.unlink(run, slot);
        }
        let upper = *self.tree.run(run);
        if upper.holders > 0 {
            self.pool.free(upper.records, upper.class);
        }
        self.tree.remove_head(child);
        let lower_start = self.tree.run(child).place(0);
        self.tree.rename_head(run, child);
        self.tree.replace_child(run, child);
        let lower = self.tree.run_mut(child);
        (lower.first, lower.start, lower.depth) = (upper.first, upper.start, upper.depth);
        lower.len += upper.len;
        self.chunks.drop_view(lower_start);
        self.chunks.set_view(upper.place(0), child);
        self.tree.release(run);
        Some(child)
    }

    fn same_holds(&self, a: RunId, b: RunId) -> bool {
        let (a_run, b_run) = (self.tree.run(a), self.tree.run(b));
        if a_run.holders != b_run.holders || !self.tree.same_cover(a, b) {
            return false;
        }
        let len = a_run.holders as usize;
        let holds = self.pool.array(a_run.records, len).iter().zip(self.pool.array(b_run.records, len));
        holds.into_iter().all(|(a, b)| a.hold == b.hold)
    }

    /// Whether a run and its only child lie behind each other in one chunk, or do now: the child's chunk is copied behind the
    /// parent's if it is not the longer one. So a block is copied O(log n) times at most.
    fn share_chunk(&mut self, run: RunId, child: RunId) -> bool {
        let (front, back) = (self.tree.run(run).chunk, self.tree.run(child).chunk);
        if front == back {
            return true;
        }
        let at_seam = self.tree.run(run).end() == self.chunks.len(front) && self.tree.run(child).start == 0;
        let fits = self.chunks.has_positions(front, self.chunks.len(back) as usize);
        if !at_seam || !fits || self.chunks.len(back) > self.chunks.len(front) || self.chunks.is_fixed(back) {
            return false;
        }
        let views = self.views(back);
        if self.chunks.is_named(back) && !self.chunks.is_named(front) {
            let front_views = self.views(front);
            self.chunks.allow_names(front, front_views);
        }
        let head = self.chunks.head(back);
        let base = self.chunks.join(front, back);
        for (start, view) in std::iter::once((0, head)).chain(views) {
            let moved = self.tree.run_mut(view);
            (moved.chunk, moved.start) = (front, base + start);
            self.chunks.set_view(Place { chunk: front, at: base + start }, view);
        }
        self.names.moved(back, front, base, &self.chunks);
        true
    }

    /// The runs of a chunk by their starts, but for the one at position 0: each is the child of the one before.
    pub(crate) fn views(&self, chunk: ChunkId) -> BTreeMap<u32, RunId> {
        let mut views = BTreeMap::new();
        let mut run = self.chunks.head(chunk);
        loop {
            let end = self.tree.run(run).end();
            let next = self.chunks.blocks(chunk).get(end as usize);
            let Some(next) = next.and_then(|&first| self.tree.head(run, first)) else { return views };
            views.insert(end, next);
            run = next;
        }
    }
}
