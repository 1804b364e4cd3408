//! Every invariant of the engine, checked from scratch.

use std::collections::HashSet;

use crate::arena::{Hold, NO_NAME, Place};
use crate::engine::Engine;
use crate::ids::{BlockHash, Slot};
use crate::lru::List;
use crate::radix::RunId;

type Check = Result<(), String>;

fn ensure(holds: bool, what: impl FnOnce() -> String) -> Check {
    if holds { Ok(()) } else { Err(what()) }
}

impl Engine {
    /// The first invariant that does not hold.
    pub(crate) fn validate(&self) -> Check {
        let runs = self.runs_below_root()?;
        ensure(runs.len() == self.tree.live(), || format!("{} runs, {} counted", runs.len(), self.tree.live()))?;
        ensure(runs.len() == self.tree.table_entries(), || "table and tree differ in size".into())?;
        for &run in &runs {
            self.check_run(run)?;
            self.check_merged(run)?;
        }
        self.check_chunks(&runs)?;
        self.check_counts(&runs)?;
        for slot in 0..self.replicas.len() {
            self.check_lists(Slot(slot as u16), &runs)?;
        }
        Ok(())
    }

    fn runs_below_root(&self) -> Result<Vec<RunId>, String> {
        let mut runs = Vec::new();
        let mut seen = HashSet::from([RunId::ROOT]);
        let mut open = vec![RunId::ROOT];
        while let Some(parent) = open.pop() {
            let (mut child, mut prev) = (self.tree.run(parent).child, RunId::NONE);
            while !child.is_none() {
                ensure(seen.insert(child), || format!("{child:?} is reached twice"))?;
                let run = self.tree.run(child);
                ensure(run.parent == parent && run.prev == prev, || format!("links of {child:?}"))?;
                runs.push(child);
                open.push(child);
                (prev, child) = (child, run.next);
            }
        }
        Ok(runs)
    }

    fn check_run(&self, id: RunId) -> Check {
        let run = self.tree.run(id);
        let blocks = self.chunks.blocks(run.chunk);
        let name = |what: &str| format!("{what} of {id:?}: {run:?}");
        ensure(run.len > 0 && run.end() as usize <= blocks.len(), || name("extent"))?;
        ensure(blocks[run.start as usize] == run.first, || name("first block"))?;
        ensure(blocks[run.end() as usize - 1] == run.tail, || name("last block"))?;
        ensure(self.tree.head(run.parent, run.first) == Some(id), || name("table entry"))?;
        let above = self.tree.run(run.parent);
        ensure(run.depth == above.depth + above.len, || name("depth"))?;
        ensure(self.tree.holders(id).count() == run.holders as usize, || name("holders"))?;
        ensure(run.holders > 0 || !run.child.is_none(), || name("a needless run, ghost"))?;
        ensure(run.holders == 0 || run.holders as usize <= 1 << run.class, || name("records"))
    }

    /// Splits are merged again: a run and its only child differ in a hold. (In two chunks they join when
    /// one of them is touched and the sizes allow it.)
    fn check_merged(&self, id: RunId) -> Check {
        let Some(child) = self.tree.only_child(id) else { return Ok(()) };
        let (run, below) = (self.tree.run(id), self.tree.run(child));
        let holds = |id: RunId| -> Vec<(Slot, Hold)> {
            self.tree.holders(id).map(|slot| (slot, self.record(id, slot).hold)).collect()
        };
        let parked =
            |id: RunId| self.tree.holders(id).any(|slot| List::of(&self.record(id, slot).hold) == List::Parked);
        let same = holds(id) == holds(child) && !parked(id);
        ensure(run.chunk != below.chunk || !same, || format!("{id:?} and its only child {child:?} are alike"))
    }

    fn check_chunks(&self, runs: &[RunId]) -> Check {
        let mut blocks = 0;
        for &id in runs {
            let run = self.tree.run(id);
            blocks += run.len as usize;
            if run.start == 0 {
                ensure(self.chunks.head(run.chunk) == id, || format!("head of the chunk of {id:?}"))?;
            } else {
                let above = self.tree.run(run.parent);
                let seam = above.chunk == run.chunk && above.end() == run.start;
                ensure(seam, || format!("{id:?} does not follow its parent in the chunk"))?;
            }
            if self.chunks.is_named(run.chunk) {
                for offset in [0, run.len - 1] {
                    let view = self.chunks.view(run.place(offset));
                    ensure(view == Some(id), || format!("view of {id:?} is {view:?}"))?;
                }
            }
        }
        ensure(blocks == self.chunks.total_blocks(), || "blocks outside of runs".into())
    }

    fn check_counts(&self, runs: &[RunId]) -> Check {
        let (mut held, mut named, mut records) = (0, 0, 0);
        for &id in runs {
            let run = self.tree.run(id);
            if run.holders > 0 {
                held += u64::from(run.len);
                records += 1 << run.class;
            }
            for at in run.start..run.end() {
                let place = Place { chunk: run.chunk, at };
                let name = self.chunks.name(place);
                if name != NO_NAME {
                    named += 1;
                    let found = self.names.find(name, &self.chunks);
                    ensure(found == Some(place), || format!("{name:?} leads to {found:?}, not {place:?}"))?;
                }
            }
        }
        ensure(held == self.held_blocks, || format!("{held} blocks held, {} counted", self.held_blocks))?;
        ensure(records == self.pool.live(), || format!("{records} records, {} counted", self.pool.live()))?;
        ensure(named == self.names.len(), || format!("{named} names, {} in the map", self.names.len()))
    }

    fn check_lists(&self, slot: Slot, runs: &[RunId]) -> Check {
        let (mut listed, mut believed, mut known) = (0, 0, 0);
        for list in List::ALL {
            let (mut next, mut prev) = (self.first(slot, list), RunId::NONE);
            while let Some(run) = next {
                ensure(self.tree.is_held(run, slot), || format!("{run:?} is listed, not held"))?;
                let record = self.record(run, slot);
                ensure(List::of(&record.hold) == list && record.prev == prev, || format!("links of {run:?} {slot:?}"))?;
                if list == List::Lru && !prev.is_none() {
                    ensure(self.lru_key(prev, slot) < self.lru_key(run, slot), || format!("LRU order at {run:?}"))?;
                }
                let count = if record.hold.is_belief() { &mut believed } else { &mut known };
                *count += u64::from(self.tree.run(run).len);
                listed += 1;
                (prev, next) = (run, self.after(slot, run));
            }
        }
        let held = runs.iter().filter(|&&run| self.tree.is_held(run, slot)).count();
        ensure(held == listed, || format!("{slot:?} holds {held} runs, {listed} listed"))?;
        let replica = &self.replicas[slot.index()];
        ensure((replica.believed, replica.known) == (believed, known), || format!("counts of {slot:?}"))
    }

    /// Believed runs of a replica, parked ones first.
    fn lru_runs(&self, slot: Slot) -> Vec<RunId> {
        let mut runs = Vec::new();
        for list in [List::Parked, List::Lru] {
            let mut next = self.first(slot, list);
            while let Some(run) = next {
                runs.push(run);
                next = self.after(slot, run);
            }
        }
        runs
    }

    /// A replica's believed blocks in the order in which they would go.
    pub(crate) fn lru_order(&self, slot: Slot) -> Vec<BlockHash> {
        let mut runs = self.lru_runs(slot);
        runs.sort_by_key(|&run| self.lru_key(run, slot));
        let blocks = runs.into_iter().flat_map(|id| {
            let run = self.tree.run(id);
            (run.start..run.end()).rev().map(move |at| self.chunks.block(Place { chunk: run.chunk, at }))
        });
        blocks.collect()
    }
}
