//! Reading: how much of a prompt each replica holds.

use super::tree::{MAX_WORDS, RunId, Tree};
use crate::arena::Chunks;
use crate::ids::{BlockHash, Slot};

/// A walk down the tree that is fed a prompt's hashes, all at once or a few at a time.
pub(crate) struct Walk<'a> {
    tree: &'a Tree,
    chunks: &'a Chunks,
    /// The run the walk is in, and how many of its blocks it has passed.
    run: RunId,
    inside: u32,
    /// Replicas that hold everything so far.
    holders: [u64; MAX_WORDS],
    matched: u32,
    first: RunId,
}

impl<'a> Walk<'a> {
    #[inline]
    pub(crate) fn new(tree: &'a Tree, chunks: &'a Chunks) -> Self {
        let mut holders = [0; MAX_WORDS];
        holders[..tree.words()].fill(u64::MAX);
        Walk { tree, chunks, run: RunId::ROOT, inside: 0, holders, matched: 0, first: RunId::NONE }
    }

    /// A walk that has entered the run of a prompt's first block.
    #[inline]
    pub(crate) fn enter(tree: &'a Tree, chunks: &'a Chunks, run: RunId) -> Self {
        let mut holders = [0; MAX_WORDS];
        for (word, bits) in holders[..tree.words()].iter_mut().enumerate() {
            *bits = tree.word(run, word);
        }
        Walk { tree, chunks, run, inside: 0, holders, matched: 0, first: run }
    }

    /// Goes on with further hashes; `settle` gets each replica whose prefix ends, as (slot, blocks). False once the prompt
    /// has left the tree or nobody holds more of it.
    #[inline]
    pub(crate) fn feed(&mut self, mut hashes: &[BlockHash], mut settle: impl FnMut(usize, u32)) -> bool {
        while let Some(&first) = hashes.first() {
            let run = self.tree.run(self.run);
            if self.inside == run.len {
                let Some(next) = self.tree.head(self.run, first) else { return false };
                (self.run, self.inside) = (next, 0);
                if self.first.is_none() {
                    self.first = next;
                }
                if !self.narrow(&mut settle) {
                    return false;
                }
                continue;
            }
            let left = (run.len - self.inside) as usize;
            let reach = left.min(hashes.len());
            let passed = if reach == left && hashes[reach - 1] == run.tail {
                reach
            } else {
                let from = (run.start + self.inside) as usize;
                common_prefix(&self.chunks.blocks(run.chunk)[from..from + reach], &hashes[..reach])
            };
            self.inside += passed as u32;
            self.matched += passed as u32;
            if passed < reach {
                return false;
            }
            hashes = &hashes[passed..];
        }
        true
    }

    /// Blocks passed.
    pub(crate) fn matched(&self) -> usize {
        self.matched as usize
    }

    /// The run the walk is in.
    pub(crate) fn run(&self) -> RunId {
        self.run
    }

    /// The replicas that hold all that was matched, if anything was.
    pub(crate) fn holders(&self) -> impl Iterator<Item = Slot> {
        let mut slots = Vec::new();
        if self.matched > 0 {
            for (word, &bits) in self.holders[..self.tree.words()].iter().enumerate() {
                each_bit(word, bits, |slot| slots.push(Slot(slot as u16)));
            }
        }
        slots.into_iter()
    }

    /// The run of the prompt's first block.
    #[inline]
    pub(crate) fn first_run(&self) -> Option<RunId> {
        (!self.first.is_none()).then_some(self.first)
    }

    /// The replicas that hold all that was matched.
    #[inline]
    pub(crate) fn finish(self, mut settle: impl FnMut(usize, u32)) {
        if self.matched == 0 {
            return;
        }
        for (word, &bits) in self.holders[..self.tree.words()].iter().enumerate() {
            each_bit(word, bits, |slot| settle(slot, self.matched));
        }
    }

    /// Keeps the holders of the run just entered; false if none is left.
    #[inline]
    fn narrow(&mut self, settle: &mut impl FnMut(usize, u32)) -> bool {
        let mut left = 0;
        for word in 0..self.tree.words() {
            let cover = self.tree.word(self.run, word);
            let gone = self.holders[word] & !cover;
            if self.matched > 0 && gone != 0 {
                each_bit(word, gone, |slot| settle(slot, self.matched));
            }
            self.holders[word] &= cover;
            left |= self.holders[word];
        }
        left != 0
    }
}

#[inline]
fn each_bit(word: usize, mut bits: u64, mut visit: impl FnMut(usize)) {
    while bits != 0 {
        visit(word * 64 + bits.trailing_zeros() as usize);
        bits &= bits - 1;
    }
}

/// Length of the common prefix of two stretches of chains. An equal hash proves all before it, so it is searched by halves.
#[inline]
pub(crate) fn common_prefix(a: &[BlockHash], b: &[BlockHash]) -> usize {
    let (mut low, mut high) = (0, a.len().min(b.len()));
    if high > 0 && a[high - 1] == b[high - 1] {
        return high;
    }
    while low < high {
        let middle = low + (high - low) / 2;
        if a[middle] == b[middle] {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}
