//! A trie of runs with one list of idle runs, oldest first. Knows blocks and pins, no requests and no capacity.

use rustc_hash::FxHashMap;

use crate::hash::common_prefix;
use crate::ids::BlockHash;
use crate::linked_slab::{Id, Links, List, Listed, Slab, ids};

ids! {
    /// Id of a run. None is above every first run.
    RunId
}

/// Blocks in a row that were used together; never empty while it lives.
#[derive(Debug, Default)]
struct Run {
    blocks: Vec<BlockHash>,
    parent: RunId,
    children: u32,
    /// Requests in flight that hold it. Zero: it is in the idle list.
    running: u32,
    links: Links<RunId>,
}

impl Listed for Run {
    type Id = RunId;

    #[inline]
    fn links(&mut self) -> &mut Links<RunId> {
        &mut self.links
    }
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

#[derive(Debug, Default)]
pub(super) struct Runs {
    slab: Slab<Run>,
    /// (run above, first block) -> run.
    heads: FxHashMap<(RunId, BlockHash), RunId>,
    /// Runs that no request holds, least recently used first.
    idle: List<RunId>,
    blocks: usize,
    pinned: usize,
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
            let held = common_prefix(&run.blocks, rest).max(1);
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
        while id != RunId::NONE {
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
                self.idle.unlink(&mut self.slab, id);
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
        if tail != RunId::NONE {
            let run = self.run_mut(tail);
            if run.children == 0 && run.running == 1 {
                run.blocks.extend_from_slice(blocks);
                return tail;
            }
            run.children += 1;
        }
        let id = self.slab.insert(Run { blocks: blocks.to_vec(), parent: tail, running: 1, ..Run::default() });
        self.heads.insert((tail, first), id);
        id
    }

    /// Take one pin off `tail` and all above it. What becomes idle is the youngest, the head younger than the tail.
    pub fn release(&mut self, tail: RunId) {
        let mut id = tail;
        while id != RunId::NONE {
            let run = self.run_mut(id);
            run.running -= 1;
            let (idle, blocks, parent) = (run.running == 0, run.blocks.len(), run.parent);
            if idle {
                self.pinned -= blocks;
                self.idle.push_last(&mut self.slab, id);
            }
            id = parent;
        }
    }

    /// Remove up to `most` blocks from the end of the oldest idle run; returns how many went.
    pub fn evict_oldest(&mut self, most: usize, log: Option<&mut Vec<BlockHash>>) -> usize {
        let Some(id) = self.idle.first.some() else { return 0 };
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
            self.idle.unlink(&mut self.slab, id);
            self.heads.remove(&(parent, first));
            if parent != RunId::NONE {
                self.run_mut(parent).children -= 1;
            }
            self.slab.remove(id);
        }
        gone
    }

    /// Cut `id` after `at` blocks. `id` stays the lower part, so that what points to its end still does.
    fn split(&mut self, id: RunId, at: usize) -> RunId {
        let run = self.run_mut(id);
        let lower = run.blocks.split_off(at);
        let upper = std::mem::replace(&mut run.blocks, lower);
        let (parent, running, first_upper, first_lower) = (run.parent, run.running, upper[0], run.blocks[0]);
        let upper = self.slab.insert(Run { blocks: upper, parent, children: 1, running, ..Run::default() });
        self.run_mut(id).parent = upper;
        self.heads.insert((parent, first_upper), upper);
        self.heads.insert((upper, first_lower), id);
        if running == 0 {
            self.idle.insert_after(&mut self.slab, id, upper);
        }
        upper
    }

    fn run(&self, id: RunId) -> &Run {
        self.slab.get(id)
    }

    fn run_mut(&mut self, id: RunId) -> &mut Run {
        self.slab.get_mut(id)
    }
}

#[cfg(test)]
impl Runs {
    /// Every invariant that the code above relies on.
    pub fn validate(&self) {
        let mut seen = std::collections::HashSet::new();
        let (mut id, mut older) = (self.idle.first, RunId::NONE);
        while id != RunId::NONE {
            let run = self.run(id);
            assert!(seen.insert(id) && run.running == 0 && run.links.prev == older);
            for (&(parent, _), child) in &self.heads {
                assert!(parent != id || seen.contains(child), "a child is idle and older");
            }
            (older, id) = (id, run.links.next);
        }
        assert_eq!(self.idle.last, older);
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
        assert_eq!(self.heads.len(), self.slab.live());
    }
}
