//! What an operation makes the holdings reserve at most: asked before it is done, where `max_bytes` bounds them.

use crate::hash::common_prefix;
use crate::holders::CLASSES;
use crate::holdings::Holdings;
use crate::ids::{BlockHash, Slot};
use crate::trie::{ChunkId, Chunks, Place, RunId};

/// Runs that one operation begins in a chunk at most: two splits, and a leaf at its end.
const STARTS: usize = 3;

/// What an operation adds at most.
#[derive(Clone, Debug, Default)]
pub(crate) struct Growth {
    runs: usize,
    chunks: usize,
    /// Arrays of records, by class.
    arrays: [usize; CLASSES],
    /// Bytes of all else.
    bytes: usize,
}

impl Growth {
    /// So many bytes.
    pub(crate) fn of_bytes(bytes: usize) -> Self {
        Growth { bytes, ..Growth::default() }
    }

    /// The same, and a replica comes to hold a run.
    pub(crate) fn and_hold(mut self, held: &Holdings, run: RunId, slot: Slot) -> Self {
        self.hold(held, run, slot);
        self
    }

    /// A run is split.
    fn split(&mut self, held: &Holdings, run: RunId) {
        let run = held.trie.run(run);
        self.runs += 1;
        self.arrays[usize::from(run.records.class)] += usize::from(run.records.len > 0);
        // As if it were the last of all that an operation begins in one chunk.
        self.bytes += held.trie.chunks.views_growth(run.chunk, STARTS);
    }

    /// A replica comes to hold a run.
    fn hold(&mut self, held: &Holdings, run: RunId, slot: Slot) {
        let records = held.trie.run(run).records;
        if held.is_held(run, slot) {
            return;
        }
        if records.len == 0 {
            self.arrays[0] += 1;
        } else if records.len == 1 << records.class {
            self.arrays[usize::from(records.class) + 1] += 1;
        }
    }
}

/// A chain below a place, as it lies before anything is done: the runs that it goes through.
struct Path {
    runs: Vec<RunId>,
    matched: usize,
}

impl Holdings {
    /// Whether the bound leaves room for this.
    pub(crate) fn fits(&self, growth: &Growth) -> bool {
        let Some(most) = self.limit else { return true };
        self.reserved_with(growth) + self.trie.runs.table_growth(growth.runs) <= most
    }

    /// Bytes reserved once this is added, but for the growth of the head table.
    fn reserved_with(&self, growth: &Growth) -> usize {
        let arrays = self.trie.chunks.growth(growth.chunks) + self.holders.growth(&growth.arrays);
        self.reserved_bytes() + arrays + self.trie.runs.growth(growth.runs) + growth.bytes
    }

    /// Makes the head table anew, in the size it has, if it is only its removed entries that leave no room. Not one by one: each
    /// rebuilding costs as much as the entries.
    pub(crate) fn rebuild_table_for(&mut self, growth: &Growth) -> bool {
        let runs = &self.trie.runs;
        let lacking = runs.table_growth(growth.runs);
        let seldom = runs.table_entries() + growth.runs <= runs.table_room() / 8 * 7;
        if lacking == 0 || !seldom || self.limit.is_some_and(|most| self.reserved_with(growth) > most) {
            return false;
        }
        self.trie.runs.rebuild_table();
        true
    }

    /// What it takes at most to hold a chain below a place; with `names`, to name its blocks as well.
    pub(crate) fn chain_growth(
        &self,
        slot: Slot,
        parent: Option<Place>,
        chain: &[BlockHash],
        names: Option<usize>,
    ) -> Growth {
        let gets_names = names.is_some();
        let mut growth = Growth { bytes: names.unwrap_or(0), ..Growth::default() };
        let Path { runs, matched } = self.path_of(parent, chain, &mut growth);
        let mut above: Option<ChunkId> = None;
        for &run in &runs {
            growth.hold(self, run, slot);
            let chunk = self.trie.run(run).chunk;
            if gets_names && above != Some(chunk) {
                growth.bytes += self.trie.naming_bytes(chunk);
                above = Some(chunk);
            }
        }
        let fresh = chain.len() - matched;
        if fresh > 0 {
            growth.runs += 1;
            growth.arrays[0] += 1;
            // A run at the end of its chunk grows in place, another gets a new one: whichever takes more.
            let last = runs.last().copied().or_else(|| parent.and_then(|place| self.trie.chunks.view(place)));
            let grown = last.map_or(0, |last| {
                let chunk = self.trie.run(last).chunk;
                self.trie.chunks.append_growth(chunk, fresh, gets_names) + self.trie.chunks.views_growth(chunk, STARTS)
            });
            growth.chunks += 1;
            growth.bytes += grown.max(Chunks::new_bytes(fresh, gets_names));
        }
        growth
    }

    fn path_of(&self, parent: Option<Place>, chain: &[BlockHash], growth: &mut Growth) -> Path {
        let (mut above, mut matched, mut runs) = (RunId::ROOT, 0, Vec::new());
        if let Some((place, run)) = parent.and_then(|place| Some((place, self.trie.chunks.view(place)?))) {
            let found = self.trie.run(run);
            let rest = &self.trie.blocks(run)[(place.at + 1 - found.start) as usize..];
            above = run;
            if !rest.is_empty() {
                growth.split(self, run);
                matched = common_prefix(rest, chain);
                if matched > 0 {
                    runs.push(run);
                }
                if matched < rest.len() {
                    growth.split(self, run);
                    return Path { runs, matched };
                }
            }
        }
        let mut below = Vec::new();
        let (more, inside) = self.trie.descend(above, &chain[matched..], &mut below);
        if let (Some(_), Some(&last)) = (inside, below.last()) {
            growth.split(self, last);
        }
        runs.extend(below);
        Path { runs, matched: matched + more }
    }

    /// What it takes at most to isolate blocks of a run and take their record away.
    pub(crate) fn cut_growth(&self, run: RunId) -> Growth {
        let mut growth = Growth::default();
        growth.split(self, run);
        growth.split(self, run);
        let class = usize::from(self.trie.run(run).records.class);
        growth.arrays[class.saturating_sub(1)] += 1;
        growth
    }

    /// Whether the bound leaves room for a run and its child in one chunk.
    pub(crate) fn fits_joined(&self, run: RunId, child: RunId) -> bool {
        let (to, from, chunks) = (self.trie.run(run).chunk, self.trie.run(child).chunk, &self.trie.chunks);
        let gets_names = chunks.is_named(from);
        let naming = if gets_names { self.trie.naming_bytes(to) } else { 0 };
        let bytes = || {
            let blocks = chunks.append_growth(to, chunks.len(from) as usize, gets_names);
            blocks + naming + self.trie.views_growth(to, from)
        };
        to == from || self.fits(&Growth::of_bytes(bytes()))
    }
}
