//! Blocks that the answers under way take.

use std::collections::BTreeMap;

/// Sums over decoding requests: how many blocks their answers take at any decode step, in time that does not depend on
/// how many requests there are.
///
/// An answer whose prompt has `p` tokens and that began at step `j` takes `(s + c) / b - (p - 1) / b` blocks of `b` tokens
/// at step `s`, with `c = p - 1 - j`. Only the phase `c % b` decides at which of `b` steps in a row it takes another.
#[derive(Debug)]
pub(super) struct Growth {
    block_size: i128,
    requests: i128,
    /// Sum of `c / b - (p - 1) / b`.
    whole: i128,
    /// Requests by phase.
    phases: BTreeMap<i128, i128>,
    /// Blocks of answers that grow no more.
    fixed: usize,
}

impl Growth {
    pub fn new(block_size: usize) -> Self {
        Self { block_size: block_size as i128, requests: 0, whole: 0, phases: BTreeMap::new(), fixed: 0 }
    }

    /// Count an answer that begins at step `joined`, behind a prompt of so many tokens.
    pub fn add(&mut self, prompt_tokens: u64, joined: u64) {
        self.change(prompt_tokens, joined, 1);
    }

    /// Count it no more.
    pub fn remove(&mut self, prompt_tokens: u64, joined: u64) {
        self.change(prompt_tokens, joined, -1);
    }

    /// Let an answer keep the blocks that it has at a step, and take no more.
    pub fn fix(&mut self, prompt_tokens: u64, joined: u64, step: u64) -> usize {
        self.remove(prompt_tokens, joined);
        let blocks = self.blocks_of(prompt_tokens, joined, step);
        self.fixed += blocks;
        blocks
    }

    /// Give back blocks of an answer that grew no more.
    pub fn unfix(&mut self, blocks: usize) {
        self.fixed -= blocks;
    }

    fn change(&mut self, prompt_tokens: u64, joined: u64, by: i128) {
        let (last, joined) = (i128::from(prompt_tokens) - 1, i128::from(joined));
        let behind = last - joined;
        self.requests += by;
        self.whole += by * (behind.div_euclid(self.block_size) - last / self.block_size);
        let phase = behind.rem_euclid(self.block_size);
        let count = self.phases.entry(phase).or_insert(0);
        *count += by;
        if *count == 0 {
            self.phases.remove(&phase);
        }
    }

    fn blocks_of(&self, prompt_tokens: u64, joined: u64, step: u64) -> usize {
        let last = i128::from(prompt_tokens) - 1;
        let grown = i128::from(step) - i128::from(joined);
        count((last + grown) / self.block_size - last / self.block_size)
    }

    /// Blocks that all answers take at a step.
    pub fn blocks_at(&self, step: u64) -> usize {
        let (whole, rest) = (i128::from(step) / self.block_size, i128::from(step) % self.block_size);
        let one_more: i128 = self.phases.range(self.block_size - rest..).map(|(_, count)| count).sum();
        count(self.requests * whole + self.whole + one_more) + self.fixed
    }
}

/// A number of blocks: never negative, as no answer is asked about a step before it began.
fn count(blocks: i128) -> usize {
    usize::try_from(blocks).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn sums_are_those_over_each_answer(
            answers in prop::collection::vec((1..100_u64, 0..90_u64, any::<bool>()), 0..12),
            step in 90..400_u64,
            block_size in 1..40_usize,
        ) {
            let mut growth = Growth::new(block_size);
            for &(prompt, joined, _) in &answers {
                growth.add(prompt, joined);
            }
            for &(prompt, joined, _) in answers.iter().filter(|answer| answer.2) {
                growth.remove(prompt, joined);
            }
            let size = block_size as u64;
            let blocks = |&(prompt, joined, _): &(u64, u64, bool)| {
                (prompt + step - joined).div_ceil(size) - prompt.div_ceil(size)
            };
            let expected: u64 = answers.iter().filter(|answer| !answer.2).map(blocks).sum();
            prop_assert_eq!(growth.blocks_at(step) as u64, expected);
        }
    }
}
