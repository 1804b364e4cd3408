//! What is known of a replica's event feed beyond the blocks themselves.

use std::collections::BTreeMap;

use super::groups::Groups;
use super::pages::Pages;
use super::windows::Window;
use crate::ids::{EngineHash, Medium};
use crate::outcome::{Applied, FeedStats};

/// Copies by name, tier and tag.
type Tagged = BTreeMap<(EngineHash, Medium, u64), u32>;

/// The state of a feed. Most replicas of a fleet have one attention group, blocks of the index's size and no owners, and
/// need no more of it than the counters.
#[derive(Clone, Debug)]
pub(crate) struct Feed {
    pub groups: Groups,
    pub windows: Vec<Window>,
    pub pages: Pages,
    /// Copies that lie apart from the plain ones of their tier.
    pub tagged: Tagged,
    /// Blocks of the index in the largest engine block so far.
    pub ratio: u32,
    /// Number of the last batch.
    pub sequence: Option<u64>,
    pub counters: FeedStats,
}

impl Default for Feed {
    fn default() -> Self {
        Feed {
            groups: Groups::default(),
            windows: Vec::new(),
            pages: Pages::default(),
            tagged: BTreeMap::new(),
            ratio: 1,
            sequence: None,
            counters: FeedStats::default(),
        }
    }
}

impl Feed {
    /// Holds nothing any more. What was learnt of the replica's groups stays.
    pub(crate) fn forget(&mut self) {
        self.windows.iter_mut().for_each(Window::forget);
        self.forget_indexed();
    }

    /// The indexed group holds nothing any more.
    pub(crate) fn forget_indexed(&mut self) {
        (self.pages, self.tagged, self.ratio) = (Pages::default(), BTreeMap::new(), 1);
    }

    /// Compares a batch's number with the last one. True if the engine began again.
    pub(super) fn follow(&mut self, sequence: u64, done: &mut Applied) -> bool {
        match self.sequence {
            Some(last) if sequence > last => done.missed = sequence - last - 1,
            Some(_) if sequence == 0 => done.restarted = true,
            Some(_) => done.stale = true,
            None => {}
        }
        self.counters.missed += done.missed;
        self.counters.restarts += u64::from(done.restarted);
        self.counters.stale += u64::from(done.stale);
        if !done.stale {
            self.sequence = Some(sequence);
        }
        done.restarted
    }

    /// Tagged copies of a block on a tier.
    pub(crate) fn tagged_copies(&self, name: EngineHash, medium: Medium) -> u32 {
        self.tagged.range((name, medium, 0)..=(name, medium, u64::MAX)).map(|(_, copies)| copies).sum()
    }

    /// One tagged copy less; false if there is none.
    pub(crate) fn untag(&mut self, name: EngineHash, medium: Medium, tag: u64) -> bool {
        let key = (name, medium, tag);
        let Some(copies) = self.tagged.get_mut(&key) else { return false };
        *copies -= 1;
        if *copies == 0 {
            self.tagged.remove(&key);
        }
        true
    }

    /// About what it takes.
    pub(crate) fn bytes(&self) -> usize {
        size_of::<Self>()
            + self.pages.bytes()
            + self.windows.iter().map(Window::bytes).sum::<usize>()
            + self.tagged.len() * size_of::<((EngineHash, Medium, u64), u32)>() * 3 / 2
    }
}
