//! Reading: how much of a prompt each replica holds.

use super::Trie;
use super::runs::{MAX_WORDS, RunId};
use crate::hash::common_prefix;
use crate::ids::{BlockHash, Slot};
use crate::linked_slab::Id;

/// A walk down the tree that is fed a prompt's hashes, all at once or a few at a time.
pub(crate) struct Walk<'a> {
    trie: &'a Trie,
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
    pub(crate) fn new(trie: &'a Trie) -> Self {
        let mut holders = [0; MAX_WORDS];
        holders[..trie.runs.words()].fill(u64::MAX);
        Walk { trie, run: RunId::ROOT, inside: 0, holders, matched: 0, first: RunId::NONE }
    }

    /// A walk that has entered the run of a prompt's first block.
    #[inline]
    pub(crate) fn enter(trie: &'a Trie, run: RunId) -> Self {
        let mut holders = [0; MAX_WORDS];
        for (word, bits) in holders[..trie.runs.words()].iter_mut().enumerate() {
            *bits = trie.runs.word(run, word);
        }
        Walk { trie, run, inside: 0, holders, matched: 0, first: run }
    }

    /// Goes on with further hashes; `settle` gets each replica whose prefix ends, as (slot, blocks). False once the prompt
    /// has left the tree or nobody holds more of it.
    #[inline]
    pub(crate) fn feed(&mut self, mut hashes: &[BlockHash], mut settle: impl FnMut(usize, u32)) -> bool {
        while let Some(&first) = hashes.first() {
            let run = self.trie.run(self.run);
            if self.inside == run.len {
                let Some(next) = self.trie.runs.head(self.run, first) else { return false };
                (self.run, self.inside) = (next, 0);
                if self.first == RunId::NONE {
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
                common_prefix(&self.trie.chunks.blocks(run.chunk)[from..from + reach], &hashes[..reach])
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

    /// The run the walk is in.
    pub(crate) fn run(&self) -> RunId {
        self.run
    }

    /// The replicas that hold all that was matched, if anything was.
    pub(crate) fn holders(&self) -> impl Iterator<Item = Slot> {
        let mut slots = Vec::new();
        if self.matched > 0 {
            for (word, &bits) in self.holders[..self.trie.runs.words()].iter().enumerate() {
                each_bit(word, bits, |slot| slots.push(Slot(slot as u16)));
            }
        }
        slots.into_iter()
    }

    /// The run of the prompt's first block.
    #[inline]
    pub(crate) fn first_run(&self) -> Option<RunId> {
        self.first.some()
    }

    /// The replicas that hold all that was matched.
    #[inline]
    pub(crate) fn finish(self, mut settle: impl FnMut(usize, u32)) {
        if self.matched == 0 {
            return;
        }
        for (word, &bits) in self.holders[..self.trie.runs.words()].iter().enumerate() {
            each_bit(word, bits, |slot| settle(slot, self.matched));
        }
    }

    /// Keeps the holders of the run just entered; false if none is left.
    #[inline]
    fn narrow(&mut self, settle: &mut impl FnMut(usize, u32)) -> bool {
        let mut left = 0;
        for word in 0..self.trie.runs.words() {
            let cover = self.trie.runs.word(self.run, word);
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
