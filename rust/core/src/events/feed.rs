//! What is known of a replica's event feed beyond the blocks themselves.

use super::groups::Groups;
use super::numbers::{Back, Batch as NumberedBatch, Numbers};
use super::pages::Pages;
use super::tagged::Tagged;
use super::windows::Window;
use crate::outcome::{Applied, FeedStats};

/// Where counters of numbers end: a number can be anything, and a saved index has no counter above it.
pub(crate) const MOST: u64 = u64::MAX / 2;

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
    /// The data-parallel rank that the first batch named.
    pub rank: Option<i64>,
    /// Numbers of the batches applied.
    pub numbers: Numbers,
    pub counters: FeedStats,
}

impl Default for Feed {
    fn default() -> Self {
        Feed {
            groups: Groups::default(),
            windows: Vec::new(),
            pages: Pages::default(),
            tagged: Tagged::default(),
            ratio: 1,
            rank: None,
            numbers: Numbers::default(),
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
        (self.pages, self.tagged, self.ratio) = (Pages::default(), Tagged::default(), 1);
    }

    /// Counts a batch that says that it is of another rank than the first.
    pub(super) fn compare_rank(&mut self, rank: Option<i64>) {
        let Some(rank) = rank else { return };
        let first = *self.rank.get_or_insert(rank);
        self.counters.other_rank += u64::from(rank != first);
    }

    /// Compares a batch's number with those of the batches applied; without `room` it forgets one of them. True if the engine
    /// began again.
    pub(super) fn follow(&mut self, batch: NumberedBatch, room: bool, done: &mut Applied) -> bool {
        let NumberedBatch { number, content, .. } = batch;
        let last = self.numbers.last();
        match last.filter(|&last| number <= last).map(|_| self.numbers.back(number, content, last)) {
            Some(Back::Restarted) => (done.restarted, done.missed) = (true, number),
            Some(Back::Repeated | Back::Late) => done.stale = true,
            None => done.missed = last.map_or(0, |last| number - last - 1),
        }
        let add = |counter: &mut u64, more: u64| *counter = counter.saturating_add(more).min(MOST);
        add(&mut self.counters.missed, done.missed);
        add(&mut self.counters.restarts, u64::from(done.restarted));
        add(&mut self.counters.stale, u64::from(done.stale));
        if done.restarted {
            self.numbers.clear();
        }
        if !done.stale {
            self.numbers.push(batch, room);
        }
        done.restarted
    }

    /// What it takes beside itself.
    pub(crate) fn bytes(&self) -> usize {
        let windows: usize = self.windows.iter().map(Window::bytes).sum();
        self.kept_bytes() + windows + self.pages.bytes() + self.tagged.bytes()
    }

    /// What of that stays once it holds nothing.
    pub(crate) fn kept_bytes(&self) -> usize {
        self.windows.capacity() * size_of::<Window>() + self.groups.bytes() + self.numbers.bytes()
    }
}
