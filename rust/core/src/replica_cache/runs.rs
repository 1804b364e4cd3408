//! A trie of runs with one list of idle runs, oldest first. Knows blocks and pins, no requests and no capacity.

use rustc_hash::FxHashMap;

use crate::ids::BlockHash;

pub(super) type RunId = u32;

/// Above every first run, after every last one.
pub(super) const NO_RUN: RunId = RunId::MAX;

/// Blocks in a row that were used together; never empty while it lives.
#[derive(Debug)]
struct Run {
    blocks: Vec<BlockHash>,
    parent: RunId,
    children: u32,
    /// Requests in flight that hold it. Zero: it stands in the idle list.
    running: u32,
    older: RunId,
    younger: RunId,
}

/// Where a sequence leads from a given run.
#[derive(Debug)]
pub(super) struct Walk {
    from: RunId,
    /// Last run that is held to its end.
    last: RunId,
    /// A further run, held up to this many blocks (at least one, not all).
    cut: Option<(RunId, usize)>,
    /// Leading blocks held.
    pub held: usize,
    /// Those of them that no running request holds.
    pub held_idle: usize,
}

#[derive(Debug)]
pub(super) struct Runs {
    slab: Vec<Run>,
    free: Vec<RunId>,
    /// (run above, first block) -> run.
    heads: FxHashMap<(RunId, BlockHash), RunId>,
    oldest: RunId,
    youngest: RunId,
    blocks: usize,
    pinned: usize,
}

impl Default for Runs {
    fn default() -> Self {
        Self {
            slab: Vec::new(),
            free: Vec::new(),
            heads: FxHashMap::default(),
            oldest: NO_RUN,
            youngest: NO_RUN,
            blocks: 0,
            pinned: 0,
        }
    }
}

impl Runs {
    pub fn blocks(&self) -> usize {
        self.blocks
    }

    /// Every block held, in no order.
    pub fn all(&self) -> impl Iterator<Item = BlockHash> {
        self.heads.values().flat_map(|&id| self.run(id).blocks.iter().copied())
    }

    pub fn pinned(&self) -> usize {
        self.pinned
    }

    /// Follow `blocks` from the end of `from`. Hashes are chained, so equality at one position proves all before it.
    pub fn walk(&self, from: RunId, blocks: &[BlockHash]) -> Walk {
        let mut walk = Walk { from, last: from, cut: None, held: 0, held_idle: 0 };
        while let Some(id) = blocks.get(walk.held).and_then(|first| self.heads.get(&(walk.last, *first))).copied() {
            let run = self.run(id);
            let rest = &blocks[walk.held..];
            let whole =
                rest.len() >= run.blocks.len() && rest[run.blocks.len() - 1] == run.blocks[run.blocks.len() - 1];
            let held = if whole { run.blocks.len() } else { equal_prefix(&run.blocks, rest) };
            walk.held += held;
            walk.held_idle += if run.running == 0 { held } else { 0 };
            if held < run.blocks.len() {
                walk.cut = Some((id, held));
                break;
            }
            walk.last = id;
        }
        walk
    }

    /// The block `back` places before the end of `tail`.
    pub fn block(&self, tail: RunId, mut back: usize) -> Option<BlockHash> {
        let mut id = tail;
        while id != NO_RUN {
            let run = self.run(id);
            if back < run.blocks.len() {
                return Some(run.blocks[run.blocks.len() - 1 - back]);
            }
            back -= run.blocks.len();
            id = run.parent;
        }
        None
    }

    /// Pin what `walk` found beyond its start, and return the run that ends there.
    pub fn pin(&mut self, walk: &Walk) -> RunId {
        let tail = walk.cut.map_or(walk.last, |(run, at)| self.split(run, at));
        let mut id = tail;
        while id != walk.from {
            if self.run(id).running == 0 {
                self.unlink(id);
                self.pinned += self.run(id).blocks.len();
            }
            let run = self.run_mut(id);
            run.running += 1;
            id = run.parent;
        }
        tail
    }

    /// Add pinned blocks behind the run `tail`, which the caller pins; returns the run that ends with them.
    pub fn append(&mut self, tail: RunId, blocks: &[BlockHash]) -> RunId {
        let Some(&first) = blocks.first() else { return tail };
        self.blocks += blocks.len();
        self.pinned += blocks.len();
        if tail != NO_RUN {
            let run = self.run_mut(tail);
            if run.children == 0 && run.running == 1 {
                run.blocks.extend_from_slice(blocks);
                return tail;
            }
            run.children += 1;
        }
        let id = self.add(Run {
            blocks: blocks.to_vec(),
            parent: tail,
            children: 0,
            running: 1,
            older: NO_RUN,
            younger: NO_RUN,
        });
        self.heads.insert((tail, first), id);
        id
    }

    /// Take one pin off `tail` and all above it. What becomes idle is the youngest, the head younger than the tail.
    pub fn release(&mut self, tail: RunId) {
        let mut id = tail;
        while id != NO_RUN {
            let run = self.run_mut(id);
            run.running -= 1;
            let (idle, blocks, parent) = (run.running == 0, run.blocks.len(), run.parent);
            if idle {
                self.pinned -= blocks;
                self.link_after(self.youngest, id);
            }
            id = parent;
        }
    }

    /// Remove up to `most` blocks from the end of the oldest idle run; returns how many went.
    pub fn evict_oldest(&mut self, most: usize, log: Option<&mut Vec<BlockHash>>) -> usize {
        let id = self.oldest;
        if id == NO_RUN {
            return 0;
        }
        debug_assert_eq!(self.run(id).children, 0, "a run is never older than what follows it");
        let run = self.run_mut(id);
        let (first, parent) = (run.blocks[0], run.parent);
        let keep = run.blocks.len().saturating_sub(most);
        let gone = run.blocks.len() - keep;
        if let Some(log) = log {
            log.extend(run.blocks[keep..].iter().rev());
        }
        run.blocks.truncate(keep);
        self.blocks -= gone;
        if keep == 0 {
            self.unlink(id);
            self.heads.remove(&(parent, first));
            if parent != NO_RUN {
                self.run_mut(parent).children -= 1;
            }
            self.run_mut(id).blocks = Vec::new();
            self.free.push(id);
        }
        gone
    }

    /// Cut `id` after `at` blocks. `id` stays the lower part, so that what points to its end still does.
    fn split(&mut self, id: RunId, at: usize) -> RunId {
        let run = self.run_mut(id);
        let lower = run.blocks.split_off(at);
        let upper = std::mem::replace(&mut run.blocks, lower);
        let (parent, running, first_upper, first_lower) = (run.parent, run.running, upper[0], run.blocks[0]);
        let upper = self.add(Run { blocks: upper, parent, children: 1, running, older: NO_RUN, younger: NO_RUN });
        self.run_mut(id).parent = upper;
        self.heads.insert((parent, first_upper), upper);
        self.heads.insert((upper, first_lower), id);
        if running == 0 {
            self.link_after(id, upper);
        }
        upper
    }

    fn add(&mut self, run: Run) -> RunId {
        if let Some(id) = self.free.pop() {
            self.slab[id as usize] = run;
            return id;
        }
        self.slab.push(run);
        (self.slab.len() - 1) as RunId
    }

    fn link_after(&mut self, older: RunId, id: RunId) {
        let younger = if older == NO_RUN { self.oldest } else { self.run(older).younger };
        let run = self.run_mut(id);
        (run.older, run.younger) = (older, younger);
        if older == NO_RUN {
            self.oldest = id;
        } else {
            self.run_mut(older).younger = id;
        }
        if younger == NO_RUN { self.youngest = id } else { self.run_mut(younger).older = id }
    }

    fn unlink(&mut self, id: RunId) {
        let (older, younger) = (self.run(id).older, self.run(id).younger);
        if older == NO_RUN {
            self.oldest = younger;
        } else {
            self.run_mut(older).younger = younger;
        }
        if younger == NO_RUN { self.youngest = older } else { self.run_mut(younger).older = older }
    }

    fn run(&self, id: RunId) -> &Run {
        &self.slab[id as usize]
    }

    fn run_mut(&mut self, id: RunId) -> &mut Run {
        &mut self.slab[id as usize]
    }
}

fn equal_prefix(run: &[BlockHash], rest: &[BlockHash]) -> usize {
    let (mut low, mut high) = (1, run.len().min(rest.len()));
    while low < high {
        let middle = usize::midpoint(low, high + 1);
        if run[middle - 1] == rest[middle - 1] { low = middle } else { high = middle - 1 }
    }
    low
}

#[cfg(test)]
impl Runs {
    /// Every invariant that the code above relies on.
    pub fn validate(&self) {
        let mut seen = std::collections::HashSet::new();
        let (mut id, mut older) = (self.oldest, NO_RUN);
        while id != NO_RUN {
            let run = self.run(id);
            assert!(seen.insert(id) && run.running == 0 && run.older == older);
            for (&(parent, _), child) in &self.heads {
                assert!(parent != id || seen.contains(child), "a child is idle and older");
            }
            (older, id) = (id, run.younger);
        }
        assert_eq!(self.youngest, older);
        let mut children = FxHashMap::default();
        let (mut blocks, mut pinned) = (0, 0);
        for (&(parent, first), &id) in &self.heads {
            let run = self.run(id);
            assert!(run.parent == parent && run.blocks[0] == first);
            assert_eq!(seen.contains(&id), run.running == 0);
            *children.entry(parent).or_insert(0) += 1;
            blocks += run.blocks.len();
            pinned += if run.running > 0 { run.blocks.len() } else { 0 };
        }
        for &id in self.heads.values() {
            assert_eq!(self.run(id).children, children.get(&id).copied().unwrap_or(0));
        }
        assert_eq!((blocks, pinned), (self.blocks, self.pinned));
        assert_eq!(self.heads.len() + self.free.len(), self.slab.len());
    }
}
