//! Active blocks: those of the requests in flight at each replica, each counted once there.

use std::hash::{BuildHasher, RandomState};

use crate::holders::Hold;
use crate::holdings::Holdings;
use crate::ids::{BlockHash, Slot};
use crate::trie::{RunId, Walk};

/// The blocks of a request that nobody else has at its replica.
const OF_ONE: Hold = Hold::Belief { stamp: 0, at: 0.0, pins: 1, parked: false };

/// Blocks of requests in flight by slot: a trie in which each request pins its blocks, and what nobody pins is gone.
/// Nothing is ever evicted, so the order of the lists of holders means nothing here.
///
/// Kept only for policies that read it: it costs some 0.2 µs at booking and again at the end.
#[derive(Debug)]
pub struct Active {
    held: Holdings,
    block_size: usize,
    /// Runs of the path being worked on, kept for its memory.
    path: Vec<RunId>,
}

impl Active {
    /// No slots, and blocks of so many tokens.
    pub fn new(block_size: usize) -> Self {
        Self { held: Holdings::new(RandomState::new().hash_one(block_size)), block_size, path: Vec::new() }
    }

    /// Have at least so many slots.
    pub fn grow(&mut self, slots: usize) {
        for slot in self.held.holders.replicas().len()..slots {
            self.held.open(Slot(slot as u16));
        }
    }

    /// Make a slot new: another process has it, or none.
    pub fn reset(&mut self, slot: usize) {
        self.held.clear(Slot(slot as u16));
    }

    /// Count the blocks of a request that is booked.
    pub fn enter(&mut self, slot: usize, blocks: &[BlockHash]) {
        let (held, slot) = (&mut self.held, Slot(slot as u16));
        let known = held.descend(RunId::ROOT, blocks, &mut self.path);
        for &run in &self.path {
            if !held.is_held(run, slot) {
                held.add(run, slot, OF_ONE);
            } else if let Hold::Belief { pins, .. } = held.hold_mut(run, slot) {
                *pins += 1;
            }
        }
        if known < blocks.len() {
            let above = self.path.last().copied().unwrap_or(RunId::ROOT);
            held.extend(above, &blocks[known..], slot, OF_ONE);
        }
        held.merge_path(&self.path);
    }

    /// Count the blocks of a request no more.
    pub fn leave(&mut self, slot: usize, blocks: &[BlockHash]) {
        let (held, slot) = (&mut self.held, Slot(slot as u16));
        held.descend(RunId::ROOT, blocks, &mut self.path);
        for &run in &self.path {
            if !held.is_held(run, slot) {
                continue;
            }
            match held.hold_mut(run, slot) {
                Hold::Belief { pins, .. } if *pins > 1 => *pins -= 1,
                _ => held.remove(run, slot),
            }
        }
        // Only now, as tidying may join runs of the path that are still to come.
        for &run in self.path.iter().rev() {
            held.tidy(run);
        }
    }

    /// Tokens of the active blocks of each slot.
    pub fn tokens(&self) -> Vec<f64> {
        let held = self.held.holders.replicas().iter();
        held.map(|held| held.believed as f64 * self.block_size as f64).collect()
    }

    /// Leading tokens of a prompt whose blocks are active at each slot.
    pub fn hits(&self, blocks: &[BlockHash]) -> Vec<f64> {
        let mut hits = vec![0.0; self.held.holders.replicas().len()];
        let mut settle = |slot: usize, count: u32| hits[slot] = f64::from(count) * self.block_size as f64;
        let mut walk = Walk::new(&self.held.trie);
        walk.feed(blocks, &mut settle);
        walk.finish(settle);
        hits
    }

    /// Checks every invariant of the trie; the first one that does not hold.
    #[cfg(test)]
    pub(super) fn validate(&self) -> Result<(), String> {
        self.held.validate_runs()
    }
}
