//! What sliding-window groups hold: it bounds how much of a prefix is usable.
//!
//! A prefix that ends at block k can be used if every sliding group still holds the blocks of its window before that end. An
//! engine's hash commits to all tokens before it and is the same in each group, so a window's block is found by the name
//! that the indexed group has for the same place, or by its own tokens. Where that tells nothing, as inside a block of the
//! index or of the indexed group, a window's block is found by the chain of names from the one behind it.

use std::collections::BTreeSet;

use super::residence::Residence;
use super::tagged::Tagged;
use crate::holders::take_copy;
use crate::ids::{BlockHash, EngineHash};
use crate::memory::{Map, btree_bytes, map_growth, tidy_map};

/// A block of a window.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Held {
    /// Copies on each tier.
    pub copies: [u16; 3],
    /// The block of the index that ends where it ends, once that is known.
    pub block: Option<BlockHash>,
    /// The block of the group right before it.
    pub before: Option<EngineHash>,
}

/// What an event says of a block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Told {
    /// The block of the index that ends where it ends, if that is known.
    pub block: Option<BlockHash>,
    /// The name before it in the event, or the event's parent.
    pub before: Option<EngineHash>,
    /// The event names all blocks of its tokens. Of one that leaves some out, names are taken to follow on each other unless
    /// their places say otherwise: an engine leaves out what lies between the windows that it keeps.
    pub listed: bool,
}

fn ends_bytes(names: usize) -> usize {
    btree_bytes(names, size_of::<(BlockHash, EngineHash)>())
}

/// A sliding-window group of a replica.
#[derive(Clone, Debug)]
pub(crate) struct Window {
    pub group: u32,
    /// Tokens of the window.
    pub tokens: u32,
    /// Tokens of a block; partial ones have less. 0 until a store has told.
    pub block_size: usize,
    pub held: Map<EngineHash, Held>,
    /// Copies that lie apart from the plain ones of their tier.
    pub tagged: Tagged,
    /// Blocks of the index at whose end blocks of the group are held, and the names of these: one has two where an adapter
    /// was loaded again, say.
    ends: BTreeSet<(BlockHash, EngineHash)>,
}

impl Window {
    pub(crate) fn new(group: u32, tokens: u32, block_size: usize) -> Self {
        let (held, ends, tagged) = (Map::default(), BTreeSet::new(), Tagged::default());
        Window { group, tokens, block_size, held, tagged, ends }
    }

    /// Copies as they were saved; false if the name has some already.
    pub(crate) fn restore(&mut self, name: EngineHash, held: Held) -> bool {
        if self.held.insert(name, held).is_some() {
            return false;
        }
        self.ends.extend(held.block.map(|block| (block, name)));
        true
    }

    /// The group holds nothing any more.
    pub(crate) fn forget(&mut self) {
        *self = Window::new(self.group, self.tokens, self.block_size);
    }

    /// One more copy of a block.
    pub(super) fn store(&mut self, name: EngineHash, told: Told, residence: Residence, reuse_reports: bool) {
        match (self.held.get(&name), told.block) {
            (None, block) => _ = self.restore(name, Held { block, ..Held::default() }),
            (Some(Held { block: None, .. }), Some(block)) => self.place(name, block),
            _ => {}
        }
        let held = self.held.entry(name).or_default();
        let on_tier = &mut held.copies[residence.medium.index()];
        held.before = if told.listed { told.before.or(held.before) } else { held.before.or(told.before) };
        if !(reuse_reports && self.tagged.is_at(name, residence, *on_tier)) {
            *on_tier = on_tier.saturating_add(1);
            self.tagged.add(name, residence);
        }
    }

    /// Whether a block is held, but not known to end at this block of the index.
    pub(crate) fn has_elsewhere(&self, name: EngineHash, block: BlockHash) -> bool {
        self.held.get(&name).is_some_and(|held| held.block != Some(block))
    }

    /// What the place of one more block takes at most.
    pub(crate) fn place_growth(&self) -> usize {
        ends_bytes(self.ends.len() + 1) - ends_bytes(self.ends.len())
    }

    /// The indexed group named a block, which can have moved: a connector leaves out what the GPU says later.
    pub(crate) fn place(&mut self, name: EngineHash, block: BlockHash) {
        let Some(held) = self.held.get_mut(&name) else { return };
        if let Some(before) = held.block.replace(block) {
            self.leave(name, before);
        }
        self.ends.insert((block, name));
    }

    /// One copy less; false if there is none at that residence.
    pub(crate) fn remove(&mut self, name: EngineHash, residence: Residence) -> bool {
        let Some(held) = self.held.get_mut(&name) else { return false };
        let on_tier = &mut held.copies[residence.medium.index()];
        if !self.tagged.take(name, residence, *on_tier) {
            return false;
        }
        take_copy(on_tier);
        if held.copies == [0; 3] {
            let block = held.block;
            self.held.remove(&name);
            if let Some(block) = block {
                self.leave(name, block);
            }
        }
        true
    }

    /// A name leads to a block no more.
    fn leave(&mut self, name: EngineHash, block: BlockHash) {
        self.ends.remove(&(block, name));
        if self.ends.is_empty() {
            self.ends = BTreeSet::new(); // which an emptied one is not: it keeps a node
        }
    }

    /// A held block that ends where a block of the index ends.
    fn at_end(&self, block: BlockHash) -> Option<EngineHash> {
        let names = (block, EngineHash(0))..=(block, EngineHash(u64::MAX));
        self.ends.range(names).next().map(|&(_, name)| name)
    }

    /// The longest part of a held prefix that this window leaves usable, in blocks of the index. `believed`: blocks that the
    /// replica is believed to hold, in all of its groups. `elsewhere`: whether the indexed group has a name, but not at the end
    /// of so many tokens of the prefix.
    pub(crate) fn usable(
        &self,
        prefix: &[BlockHash],
        believed: &[bool],
        block_size: usize,
        elsewhere: impl Fn(EngineHash, usize) -> bool,
    ) -> usize {
        let size = self.block_size;
        if size == 0 {
            return prefix.len();
        }
        let need = (self.tokens as usize - 1).div_ceil(size).max(1);
        let (mut end, mut run, mut before) = (0, 0, None);
        for position in (1..=prefix.len() * block_size / size).rev().map(|at| at * size) {
            let block = (position % block_size == 0).then(|| prefix[position / block_size - 1]);
            let by_end = block.and_then(|block| self.at_end(block));
            let name = by_end.or_else(|| before.filter(|&name| !elsewhere(name, position)));
            let held = name.and_then(|name| self.held.get(&name));
            let held = held.filter(|held| held.block.is_none_or(|found| block == Some(found)));
            let is_believed = believed.get((position - 1) / block_size) == Some(&true);
            if !(held.is_some() || is_believed) || (run == 0 && block.is_none()) {
                (end, run, before) = (0, 0, None);
                continue;
            }
            end = if run == 0 { position / block_size } else { end };
            run += 1;
            if run == need {
                break;
            }
            before = held.and_then(|held| held.before);
        }
        end
    }

    pub(crate) fn bytes(&self) -> usize {
        self.held.allocation_size() + ends_bytes(self.ends.len()) + self.tagged.bytes()
    }

    /// What so many more blocks at a residence take at most.
    pub(crate) fn growth(&mut self, residence: Residence, blocks: usize) -> usize {
        tidy_map(&mut self.held, blocks);
        let ends = ends_bytes(self.ends.len() + blocks) - ends_bytes(self.ends.len());
        map_growth(&self.held, blocks) + ends + self.tagged.growth(residence, blocks)
    }
}
