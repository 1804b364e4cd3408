//! Every invariant of the holdings, checked from scratch.

use std::collections::HashMap;

use crate::holders::{Hold, Kind, Record};
use crate::holdings::Holdings;
use crate::ids::{BlockHash, Slot};
use crate::linked_slab::Id;
use crate::trie::{NO_NAME, Place, RunId};

type Check = Result<(), String>;

fn ensure(holds: bool, what: impl FnOnce() -> String) -> Check {
    if holds { Ok(()) } else { Err(what()) }
}

impl Holdings {
    /// The first invariant that does not hold.
    pub(crate) fn validate(&self) -> Check {
        self.validate_runs()?;
        let runs: Vec<RunId> = self.trie.runs.ids().collect();
        (0..self.holders.replicas().len()).try_for_each(|slot| self.check_lists(Slot(slot as u16), &runs))
    }

    /// The same but for the order in which belief would go.
    pub(crate) fn validate_runs(&self) -> Check {
        let runs: Vec<RunId> = self.trie.runs.ids().collect();
        ensure(runs.len() == self.trie.runs.live(), || {
            format!("{} runs, {} counted", runs.len(), self.trie.runs.live())
        })?;
        ensure(runs.len() == self.trie.runs.table_entries(), || "table and trie differ in size".into())?;
        self.check_children(&runs)?;
        for &run in &runs {
            self.check_run(run)?;
            self.check_merged(run)?;
        }
        self.check_chunks(&runs)?;
        self.check_counts(&runs)
    }

    /// Each run is below a run that is there, which knows the number of its children, and an only child by its id.
    fn check_children(&self, runs: &[RunId]) -> Check {
        let mut below: HashMap<RunId, Vec<RunId>> = HashMap::new();
        for &run in runs {
            below.entry(self.trie.run(run).parent).or_default().push(run);
        }
        for &run in runs.iter().chain([&RunId::ROOT]) {
            let (found, children) = (self.trie.run(run), below.remove(&run).unwrap_or_default());
            ensure(found.children as usize == children.len(), || format!("children of {run:?}: {children:?}"))?;
            let only = found.only_child();
            ensure(only.is_none_or(|only| [only] == children[..]), || format!("{only:?} is no child of {run:?}"))?;
        }
        ensure(below.is_empty(), || format!("runs below runs that are not there: {below:?}"))
    }

    fn record(&self, run: RunId, slot: Slot) -> &Record {
        self.holders.record(&self.trie.runs, run, slot)
    }

    fn check_run(&self, id: RunId) -> Check {
        let run = self.trie.run(id);
        let blocks = self.trie.chunks.blocks(run.chunk);
        let name = |what: &str| format!("{what} of {id:?}: {run:?}");
        ensure(run.len > 0 && run.end() as usize <= blocks.len(), || name("extent"))?;
        ensure(blocks[run.start as usize] == run.first, || name("first block"))?;
        ensure(blocks[run.end() as usize - 1] == run.tail, || name("last block"))?;
        ensure(self.trie.runs.head(run.parent, run.first) == Some(id), || name("table entry"))?;
        let above = self.trie.run(run.parent);
        ensure(run.depth == above.depth + above.len, || name("depth"))?;
        let holders = run.records.len as usize;
        ensure(self.trie.runs.holders(id).count() == holders, || name("holders"))?;
        ensure(!self.is_needless(id), || name("a needless run, ghost"))?;
        ensure(holders <= 1 << run.records.class, || name("records"))
    }

    /// Splits are merged again: a run and its only child differ in a hold. (In two chunks they join when
    /// one of them is touched and the sizes allow it.)
    fn check_merged(&self, id: RunId) -> Check {
        let Some(child) = self.trie.run(id).only_child() else { return Ok(()) };
        let (run, below) = (self.trie.run(id), self.trie.run(child));
        let holds = |id: RunId| -> Vec<(Slot, Hold)> {
            self.trie.runs.holders(id).map(|slot| (slot, self.record(id, slot).hold)).collect()
        };
        let parked =
            |id: RunId| self.trie.runs.holders(id).any(|slot| Kind::of(&self.record(id, slot).hold) == Kind::Parked);
        let same = holds(id) == holds(child) && !parked(id);
        ensure(run.chunk != below.chunk || !same, || format!("{id:?} and its only child {child:?} are alike"))
    }

    fn check_chunks(&self, runs: &[RunId]) -> Check {
        let mut blocks = 0;
        for &id in runs {
            let run = self.trie.run(id);
            blocks += run.len as usize;
            if run.start == 0 {
                ensure(self.trie.chunks.head(run.chunk) == id, || format!("head of the chunk of {id:?}"))?;
            } else {
                let above = self.trie.run(run.parent);
                let seam = above.chunk == run.chunk && above.end() == run.start;
                ensure(seam, || format!("{id:?} does not follow its parent in the chunk"))?;
            }
            if self.trie.chunks.is_named(run.chunk) {
                for offset in [0, run.len - 1] {
                    let view = self.trie.chunks.view(run.place(offset));
                    ensure(view == Some(id), || format!("view of {id:?} is {view:?}"))?;
                }
            }
        }
        ensure(blocks == self.trie.chunks.total_blocks(), || "blocks outside of runs".into())
    }

    fn check_counts(&self, runs: &[RunId]) -> Check {
        let (mut held, mut named, mut records) = (0, 0, 0);
        for &id in runs {
            let run = self.trie.run(id);
            if run.records.len > 0 {
                held += u64::from(run.len);
                records += 1 << run.records.class;
            }
            for at in run.start..run.end() {
                let place = Place { chunk: run.chunk, at };
                let name = self.trie.chunks.name(place);
                if name != NO_NAME {
                    named += 1;
                    let found = self.names.shared(name, &self.trie);
                    ensure(found == Some(place), || format!("{name:?} leads to {found:?}, not {place:?}"))?;
                }
            }
        }
        let counted = (self.holders.blocks(), self.holders.live_records(), self.names.shared_names());
        let recounted = (held, records, named);
        ensure(recounted == counted, || format!("blocks held, records, names: {recounted:?}, counted {counted:?}"))
    }

    fn check_lists(&self, slot: Slot, runs: &[RunId]) -> Check {
        let (mut listed, mut believed, mut known) = (0, 0, 0);
        for list in Kind::ALL {
            let (mut next, mut prev) = (self.holders.first(slot, list), RunId::NONE);
            while let Some(run) = next {
                ensure(self.is_held(run, slot), || format!("{run:?} is listed, not held"))?;
                let record = self.record(run, slot);
                ensure(Kind::of(&record.hold) == list && record.links.prev == prev, || {
                    format!("links of {run:?} {slot:?}")
                })?;
                if list == Kind::Lru && prev != RunId::NONE {
                    ensure(
                        self.holders.lru_key(&self.trie.runs, prev, slot)
                            < self.holders.lru_key(&self.trie.runs, run, slot),
                        || format!("LRU order at {run:?}"),
                    )?;
                }
                let count = if record.hold.is_belief() { &mut believed } else { &mut known };
                *count += u64::from(self.trie.run(run).len);
                listed += 1;
                (prev, next) = (run, self.holders.after(&self.trie.runs, slot, run));
            }
        }
        let held = runs.iter().filter(|&&run| self.is_held(run, slot)).count();
        ensure(held == listed, || format!("{slot:?} holds {held} runs, {listed} listed"))?;
        let replica = &self.holders.replicas()[slot.index()];
        ensure((replica.believed, replica.known) == (believed, known), || format!("counts of {slot:?}"))
    }

    /// Believed runs of a replica, parked ones first.
    fn lru_runs(&self, slot: Slot) -> Vec<RunId> {
        let mut runs = Vec::new();
        for list in [Kind::Parked, Kind::Lru] {
            let mut next = self.holders.first(slot, list);
            while let Some(run) = next {
                runs.push(run);
                next = self.holders.after(&self.trie.runs, slot, run);
            }
        }
        runs
    }

    /// A replica's believed blocks in the order in which they would go.
    pub(crate) fn lru_order(&self, slot: Slot) -> Vec<BlockHash> {
        let mut runs = self.lru_runs(slot);
        runs.sort_by_key(|&run| self.holders.lru_key(&self.trie.runs, run, slot));
        let blocks = runs.into_iter().flat_map(|id| {
            let run = self.trie.run(id);
            (run.start..run.end()).rev().map(move |at| self.trie.chunks.block(Place { chunk: run.chunk, at }))
        });
        blocks.collect()
    }
}
