//! What is held: blocks, holders and names together, and the changes that have to reach all three.
//!
//! Runs are split where holds part, grow at their ends, and join again where holds agree. [`Belief`](crate::belief) and
//! [`Truth`](crate::events) say what changes; that it leaves every structure right is the business of this file alone.

use crate::event_map::EventMap;
use crate::first_blocks::FirstBlocks;
use crate::holders::{Hold, Holders, Kind};
use crate::ids::{BlockHash, EngineHash, Slot};
use crate::outcome::Stats;
use crate::trie::{Place, RunId, Trie};

/// The blocks, who holds them, and what engines call them.
#[derive(Debug)]
pub(crate) struct Holdings {
    pub(crate) trie: Trie,
    pub(crate) holders: Holders,
    pub(crate) names: EventMap,
    /// What has been done to the holdings. Only counters: what follows from the state is counted when asked for.
    pub(crate) counters: Stats,
    /// Bytes that all of this may reserve.
    pub(crate) limit: Option<usize>,
    key: u64,
}

impl Holdings {
    /// Nothing, held by nobody; `key` only places entries in tables.
    pub(crate) fn new(key: u64) -> Self {
        Holdings {
            trie: Trie::new(key, FirstBlocks::new(key)),
            holders: Holders::default(),
            names: EventMap::new(key),
            counters: Stats::default(),
            limit: None,
            key,
        }
    }

    /// Makes room for a replica.
    pub(crate) fn open(&mut self, slot: Slot) {
        self.holders.open(slot);
        self.names.open(slot);
        self.trie.runs.widen(self.holders.replicas().len());
    }

    /// The replica holds nothing any more. Costs what it holds.
    pub(crate) fn clear(&mut self, slot: Slot) {
        for list in Kind::ALL {
            self.clear_list(slot, list);
        }
        self.names.clear(slot);
        self.release_if_empty();
    }

    /// The replica holds nothing any more of what its events have said. Costs what that is.
    pub(crate) fn clear_reported(&mut self, slot: Slot) {
        self.clear_list(slot, Kind::Known);
        self.names.clear(slot);
        self.release_if_empty();
    }

    fn clear_list(&mut self, slot: Slot, list: Kind) {
        while let Some(run) = self.holders.first(slot, list) {
            self.drop_holder(run, slot);
        }
    }

    /// An empty trie costs nothing: its arrays, which never shrink, are given back.
    pub(crate) fn release_if_empty(&mut self) {
        if self.trie.runs.live() == 0 {
            self.begin_anew();
        }
    }

    /// Nobody holds anything any more. Costs the same whatever was held.
    pub(crate) fn reset(&mut self) {
        self.trie.runs.firsts().clear();
        self.begin_anew();
    }

    fn begin_anew(&mut self) {
        let slots = self.holders.replicas().len();
        self.trie = Trie::new(self.key, self.trie.runs.firsts().clone());
        self.names = EventMap::new(self.key);
        self.holders.reset();
        if let Some(last) = slots.checked_sub(1) {
            self.open(Slot(last as u16));
        }
    }

    /// How the replica holds the run, if it does.
    #[inline]
    pub(crate) fn hold(&self, run: RunId, slot: Slot) -> Option<Hold> {
        self.holders.hold(&self.trie.runs, run, slot)
    }

    #[inline]
    pub(crate) fn is_held(&self, run: RunId, slot: Slot) -> bool {
        self.trie.runs.is_held(run, slot)
    }

    /// A hold to be changed in a way that leaves the record in its place of its list.
    pub(crate) fn hold_mut(&mut self, run: RunId, slot: Slot) -> &mut Hold {
        self.holders.hold_mut(&self.trie.runs, run, slot)
    }

    /// The replica holds the run from now on.
    pub(crate) fn add(&mut self, run: RunId, slot: Slot, hold: Hold) {
        self.holders.add(&mut self.trie.runs, run, slot, hold);
    }

    /// The replica, which holds the run, holds it in another way from now on.
    pub(crate) fn renew(&mut self, run: RunId, slot: Slot, hold: Hold) {
        self.holders.renew(&self.trie.runs, run, slot, hold);
    }

    /// The replica holds the run no more. The shape of the trie is left for `tidy`.
    pub(crate) fn remove(&mut self, run: RunId, slot: Slot) {
        self.holders.remove(&mut self.trie.runs, run, slot);
    }

    /// Reported blocks of a replica with more copies than this on some medium.
    pub(crate) fn blocks_above(&self, slot: Slot, most: u16) -> u64 {
        let runs = &self.trie.runs;
        let known =
            std::iter::successors(self.holders.first(slot, Kind::Known), |&run| self.holders.after(runs, slot, run));
        let crowded = |run: &RunId| match self.holders.hold(runs, *run, slot) {
            Some(Hold::Truth { copies }) => copies.iter().any(|&copies| copies > most),
            _ => false,
        };
        known.filter(crowded).map(|run| u64::from(self.trie.run(run).len)).sum()
    }

    /// Of a prefix that a replica holds, the blocks that are belief; none at all if nothing is.
    pub(crate) fn believed(&self, slot: Slot, prefix: &[BlockHash]) -> Vec<bool> {
        let mut believed = Vec::new();
        if self.holders.replicas()[slot.index()].believed > 0 {
            let mut path = Vec::new();
            self.trie.descend(RunId::ROOT, prefix, &mut path);
            for run in path {
                let is_belief = self.hold(run, slot).is_some_and(|hold| hold.is_belief());
                believed.resize(believed.len() + self.trie.run(run).len as usize, is_belief);
            }
        }
        believed
    }

    /// The next run of belief to be evicted.
    pub(crate) fn oldest(&mut self, slot: Slot) -> Option<RunId> {
        self.holders.oldest(&self.trie.runs, slot)
    }

    /// Where the block lies that a replica calls so. Its own names count while it knows the block.
    pub(crate) fn place_of(&self, slot: Slot, name: EngineHash) -> Option<Place> {
        let own = self.names.own(slot, name, &self.trie);
        let known = |&place: &Place| {
            let hold = self.trie.chunks.view(place).and_then(|run| self.hold(run, slot));
            hold.is_some_and(|hold| !hold.is_belief())
        };
        own.filter(known).or_else(|| self.names.shared(name, &self.trie))
    }

    /// Splits a run after `at` of its blocks; gives the run of the blocks before. Costs a record per holder.
    pub(crate) fn split(&mut self, run: RunId, at: u32) -> RunId {
        let head = self.trie.split(run, at);
        self.holders.split(&mut self.trie.runs, run, head);
        head
    }

    /// Isolates blocks `from..to` of a run: gives the run that is just these.
    pub(crate) fn cut(&mut self, run: RunId, from: u32, to: u32) -> RunId {
        if from > 0 {
            self.split(run, from);
        }
        if to - from < self.trie.run(run).len { self.split(run, to - from) } else { run }
    }

    /// Splits a run, if the bound leaves room for it.
    pub(crate) fn try_split(&mut self, run: RunId, at: u32) -> Option<RunId> {
        let fits = self.limit.is_none() || self.fits(&self.cut_growth(run));
        fits.then(|| self.split(run, at))
    }

    /// Isolates a block of a run that a replica comes to hold, if the bound leaves room for it.
    pub(crate) fn try_cut_for(&mut self, run: RunId, at: u32, slot: Slot) -> Option<RunId> {
        let fits = self.limit.is_none() || self.fits(&self.cut_growth(run).and_hold(self, run, slot));
        fits.then(|| self.cut(run, at, at + 1))
    }

    /// Isolates blocks of a run, if the bound leaves room for it.
    pub(crate) fn try_cut(&mut self, run: RunId, from: u32, to: u32) -> Option<RunId> {
        let fits = self.limit.is_none() || self.fits(&self.cut_growth(run));
        fits.then(|| self.cut(run, from, to))
    }

    /// Goes down from below `from` along these blocks, splits the last run if the path ends inside of it, and writes the runs to
    /// `path`. Gives the blocks matched.
    pub(crate) fn descend(&mut self, from: RunId, hashes: &[BlockHash], path: &mut Vec<RunId>) -> usize {
        let (matched, inside) = self.trie.descend(from, hashes, path);
        if let (Some(inside), Some(last)) = (inside, path.last_mut()) {
            *last = self.split(*last, inside);
        }
        matched
    }

    /// The run whose last block lies at a place.
    pub(crate) fn run_ending_at(&mut self, place: Place) -> RunId {
        let Some(run) = self.trie.chunks.view(place) else { return RunId::ROOT };
        let found = self.trie.run(run);
        let inside = place.at + 1 - found.start;
        if inside < found.len { self.split(run, inside) } else { run }
    }

    /// Whether the replica alone holds a leaf, so that it can grow in place.
    pub(crate) fn is_own_leaf(&self, run: RunId, slot: Slot) -> bool {
        let found = self.trie.run(run);
        found.records.len == 1 && found.children == 0 && self.is_held(run, slot)
    }

    /// Adds blocks below `parent` that no run has, held by one replica. Gives the run that has them now and where they lie:
    /// the parent itself grows if it is a leaf that the replica holds alone and in the same way.
    pub(crate) fn extend(&mut self, parent: RunId, blocks: &[BlockHash], slot: Slot, hold: Hold) -> (RunId, Place) {
        let grows = self.is_own_leaf(parent, slot) && self.hold(parent, slot) == Some(hold);
        if grows && self.trie.is_at_end(parent, blocks.len()) {
            let before = self.trie.run(parent).len;
            self.holders.resized(slot, &hold, before, before + blocks.len() as u32);
            return (parent, self.trie.lengthen(parent, blocks));
        }
        self.graft(parent, blocks, slot, hold)
    }

    /// The same in a run of their own.
    pub(crate) fn graft(&mut self, parent: RunId, blocks: &[BlockHash], slot: Slot, hold: Hold) -> (RunId, Place) {
        let run = self.trie.graft(parent, blocks);
        self.add(run, slot, hold);
        (run, self.trie.run(run).place(0))
    }

    /// The replica holds blocks `from..to` of the run no more; and none of the run, if the bound leaves no room to cut it.
    pub(crate) fn drop_range(&mut self, run: RunId, from: u32, to: u32, slot: Slot) {
        let found = *self.trie.run(run);
        if from > 0 && to == found.len && found.records.len == 1 && found.children == 0 {
            // The end of a leaf that nobody else holds: it is cut off, and no run is made for it.
            let hold = *self.hold_mut(run, slot);
            self.names.cut(found.place(from), &self.trie);
            self.trie.shorten(run, to - from);
            self.holders.resized(slot, &hold, to, from);
        } else {
            let whole = to - from == found.len;
            let piece = if whole { run } else { self.try_cut(run, from, to).unwrap_or(run) };
            self.drop_holder(piece, slot);
        }
    }

    /// The replica holds the run no more.
    pub(crate) fn drop_holder(&mut self, run: RunId, slot: Slot) {
        self.remove(run, slot);
        self.tidy(run);
    }

    /// Holds of this run have changed: removes it if nobody holds it or a block after it, joins what agrees now. The run may
    /// be gone already.
    pub(crate) fn tidy(&mut self, run: RunId) {
        let mut at = run;
        while at != RunId::ROOT && self.trie.run(at).len > 0 && self.is_needless(at) {
            self.names.cut(self.trie.run(at).place(0), &self.trie);
            at = self.trie.remove_leaf(at);
        }
        if at == RunId::ROOT || self.trie.run(at).len == 0 {
            return;
        }
        let at = self.merge_down(at).unwrap_or(at);
        self.merge_down(self.trie.run(at).parent);
    }

    /// Whether a run stands for nothing. Without a holder, but with children, it stands for a hole.
    pub(crate) fn is_needless(&self, run: RunId) -> bool {
        let run = self.trie.run(run);
        run.records.len == 0 && run.children == 0
    }

    /// Joins a run with its only child if every replica holds both alike; gives the joined run, which has the child's id.
    pub(crate) fn merge_down(&mut self, run: RunId) -> Option<RunId> {
        let child = self.trie.run(run).only_child().filter(|_| run != RunId::ROOT)?;
        if !self.holders.same(&self.trie.runs, run, child) || !self.trie.can_share_chunk(run, child) {
            return None;
        }
        if self.limit.is_some() && !self.fits_joined(run, child) {
            return None;
        }
        if let Some(moved) = self.trie.share_chunk(run, child) {
            self.names.moved(moved, &self.trie);
        }
        self.holders.join(&self.trie.runs, run);
        self.trie.join(run, child);
        Some(child)
    }

    /// Joins the runs of a path where its holds agree now, from the leaf up.
    pub(crate) fn merge_path(&mut self, path: &[RunId]) {
        for &run in path.iter().rev() {
            self.merge_down(run);
        }
    }

    pub(crate) fn live_bytes(&self) -> usize {
        self.trie.live_bytes() + self.holders.live_bytes() + self.names.live_bytes()
    }

    pub(crate) fn reserved_bytes(&self) -> usize {
        self.trie.reserved_bytes() + self.holders.reserved_bytes() + self.names.reserved_bytes()
    }
}
