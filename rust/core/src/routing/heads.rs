//! The heads: which beginnings of prompts are shared, learned from where prompts leave what is known.
//!
//! A prompt *branches* at the last block that some replica holds, if it goes on behind it. The next turn of a conversation
//! branches where the last answer ended, which nobody else does. Prompts that share a system prompt, a document or a set of
//! examples branch at its end again and again: that block is the end of a head.

use std::collections::VecDeque;

use hashbrown::HashMap;
use rustc_hash::FxBuildHasher;

use crate::ids::BlockHash;
use crate::recency::RecencyMap;

/// Beginnings that shares are counted over.
const WINDOW: usize = 256;
/// Branches that are remembered to recognize the second prompt that branches there.
const REMEMBERED: usize = 4_096;

/// A beginning that prompts share.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Head {
    /// Its length.
    pub tokens: i64,
    /// Candidates that held it when a prompt last branched there.
    pub holders: usize,
    /// Candidates that there were.
    pub replicas: usize,
}

/// Counts, over the last beginnings, at which block they branched.
///
/// A *beginning* is a request that no replica holds anything of, the first of its session, or one that branches where another
/// has branched before.
#[derive(Debug, Default)]
pub struct Heads {
    branches: RecencyMap<BlockHash, u64>,
    latest: VecDeque<Option<BlockHash>>,
    counts: HashMap<BlockHash, (usize, Head), FxBuildHasher>,
}

impl Heads {
    /// Take in a request that is being booked and of which no replica held all: where it branched, with what is known of that
    /// head; `first` of its session or not.
    pub fn learn(&mut self, branch: Option<(BlockHash, Head)>, first: bool) {
        if let Some((branch, head)) = branch {
            let seen = self.branches.get(&branch).map_or(1, |seen| seen + 1);
            self.branches.insert(branch, seen);
            if self.branches.len() > REMEMBERED {
                self.branches.pop_first();
            }
            if seen < 2 && !first {
                return; // a conversation that goes on
            }
            let (count, known) = self.counts.entry(branch).or_default();
            *count += 1;
            *known = head;
        }
        self.latest.push_back(branch.map(|(branch, _)| branch));
        if self.latest.len() > WINDOW {
            let oldest = self.latest.pop_front().flatten();
            self.forget(oldest);
        }
    }

    fn forget(&mut self, branch: Option<BlockHash>) {
        let Some(branch) = branch else { return };
        if let Some((count, _)) = self.counts.get_mut(&branch) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&branch);
            }
        }
    }

    /// The share of the last beginnings that branched at a block.
    pub fn share(&self, branch: BlockHash) -> f64 {
        let beginnings = self.latest.len().max(1) as f64;
        self.counts.get(&branch).map_or(0.0, |(count, _)| *count as f64 / beginnings)
    }

    /// Beginnings that shares are of.
    pub fn beginnings(&self) -> usize {
        self.latest.len()
    }

    /// The head at which most of the last beginnings branched, and their share.
    pub fn commonest(&self) -> (Head, f64) {
        let most = self.counts.values().map(|(count, _)| *count).max().unwrap_or(0);
        // The one that was first among equals, in the order of the beginnings.
        let first = self.latest.iter().flatten().find(|branch| self.counts.get(*branch).is_some_and(|c| c.0 == most));
        first.map_or((Head::default(), 0.0), |branch| (self.counts[branch].1, self.share(*branch)))
    }
}
