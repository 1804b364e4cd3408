//! The workload of the goals: 64 system prompts of 2,000 tokens, conversations of 8,800 tokens, each at one replica.

use std::collections::HashSet;

use prefixroute_core::hash::mix;
use prefixroute_core::testing::Prompt;
use prefixroute_core::{Config, Index, Slot};

/// Blocks of a system prompt: 2,000 tokens.
pub const SYSTEM: usize = 125;
/// Blocks of a conversation with its system prompt: 8,800 tokens.
pub const PROMPT: usize = 550;
const SYSTEMS: u64 = 64;
/// Conversations that a shared fleet draws from.
const CONVERSATIONS: u64 = 64 * 256;

/// A deterministic stream of numbers.
#[derive(Clone, Debug)]
pub struct Draw(pub u64);

impl Draw {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.0, self.0.rotate_left(32))
    }
}

/// Conversation number `id`, `len` blocks long.
pub fn conversation(id: u64, len: usize) -> Prompt {
    let (mut system, mut own) = (Draw((id % SYSTEMS) << 32), Draw((id + 1_000) << 32));
    Prompt::new((0..len).map(|at| if at < SYSTEM { system.next() } else { own.next() }))
}

/// A filled index and what it was filled with.
pub struct Fleet {
    pub index: Index,
    pub prompts: Vec<(Slot, Prompt)>,
}

/// How a fleet learns of its blocks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Feed {
    Belief,
    Events,
}

impl Fleet {
    /// `replicas` replicas with at least `blocks` blocks each, in conversations of `len` blocks that are at one replica only.
    pub fn new(replicas: usize, blocks: usize, len: usize, feed: Feed) -> Self {
        Fleet::of(replicas, blocks.div_ceil(len), len, feed, |id| id)
    }

    /// The same with conversations drawn from 64 x 256, so that some are at several replicas.
    pub fn shared(replicas: usize, blocks: usize, feed: Feed) -> Self {
        Fleet::of(replicas, blocks.div_ceil(PROMPT), PROMPT, feed, |id| Draw(id).next() % CONVERSATIONS)
    }

    fn of(replicas: usize, each: usize, len: usize, feed: Feed, pick: impl Fn(u64) -> u64) -> Self {
        let index = Index::with_table_key(Config::default(), 0x9E37_79B9_7F4A_7C15).unwrap();
        let slots: Vec<Slot> = (0..replicas).map(|i| index.add_replica(&i.to_string(), None).unwrap()).collect();
        let mut seen = HashSet::new();
        let pairs = (0..each).flat_map(|_| slots.iter().copied()).enumerate();
        let pairs = pairs.map(|(id, slot)| (slot, pick(id as u64))).filter(|pair| seen.insert(*pair));
        let prompts: Vec<(Slot, Prompt)> = pairs.map(|(slot, id)| (slot, conversation(id, len))).collect();
        let fleet = Fleet { index, prompts };
        fleet.give_all(&fleet.prompts, feed);
        fleet
    }

    pub fn give_all(&self, prompts: &[(Slot, Prompt)], feed: Feed) {
        for (slot, prompt) in prompts {
            self.give(*slot, prompt, feed);
        }
    }

    pub fn give(&self, slot: Slot, prompt: &Prompt, feed: Feed) {
        match feed {
            Feed::Belief => drop(self.index.insert(slot, &prompt.chain, 0.0).unwrap()),
            Feed::Events => prompt.store(&self.index, slot),
        }
    }
}
