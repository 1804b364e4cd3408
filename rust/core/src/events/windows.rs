//! What sliding-window groups hold: it bounds how much of a prefix is usable.
//!
//! A prefix that ends at block k can be used if every sliding group still holds the blocks of its window before that end. An
//! engine's hash commits to all tokens before it and is the same in each group, so a window's block is found by the name
//! that the indexed group has for the same place.

use std::collections::HashMap;

use crate::ids::{BlockHash, EngineHash};

/// Copies of a block, and where it lies once the indexed group has named it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Held {
    pub copies: u32,
    pub block: Option<BlockHash>,
}

/// A sliding-window group of a replica.
#[derive(Clone, Debug)]
pub(crate) struct Window {
    pub group: u32,
    /// Tokens of the window.
    pub tokens: u32,
    /// Tokens of a block, as the last store said.
    pub block_size: usize,
    pub held: HashMap<EngineHash, Held>,
    /// Blocks held, with the names that lead to each.
    blocks: HashMap<BlockHash, u32>,
    /// Names that have no block yet.
    unplaced: usize,
}

impl Window {
    pub(crate) fn new(group: u32, tokens: u32, block_size: usize) -> Self {
        Window { group, tokens, block_size, held: HashMap::new(), blocks: HashMap::new(), unplaced: 0 }
    }

    /// Copies as they were saved; false if the name has some already.
    pub(crate) fn restore(&mut self, name: EngineHash, held: Held) -> bool {
        if self.held.contains_key(&name) {
            return false;
        }
        self.store(name, held.block, false);
        self.held.insert(name, held);
        true
    }

    /// The group holds nothing any more.
    pub(crate) fn forget(&mut self) {
        *self = Window::new(self.group, self.tokens, self.block_size);
    }

    /// One more copy of a block.
    pub(crate) fn store(&mut self, name: EngineHash, block: Option<BlockHash>, reuse_reports: bool) {
        let held = self.held.entry(name).or_default();
        if held.copies == 0 {
            held.block = block;
            match block {
                Some(block) => *self.blocks.entry(block).or_default() += 1,
                None => self.unplaced += 1,
            }
        }
        held.copies = if reuse_reports { 1 } else { held.copies.saturating_add(1) };
    }

    /// The indexed group named a block.
    pub(crate) fn place(&mut self, name: EngineHash, block: BlockHash) {
        if self.unplaced == 0 {
            return;
        }
        if let Some(held) = self.held.get_mut(&name).filter(|held| held.block.is_none()) {
            held.block = Some(block);
            self.unplaced -= 1;
            *self.blocks.entry(block).or_default() += 1;
        }
    }

    /// Whether names wait for the indexed group.
    pub(crate) fn is_waiting(&self) -> bool {
        self.unplaced > 0
    }

    /// One copy less; false if there is none.
    pub(crate) fn remove(&mut self, name: EngineHash) -> bool {
        let Some(held) = self.held.get_mut(&name) else { return false };
        held.copies -= 1;
        if held.copies > 0 {
            return true;
        }
        match held.block {
            None => self.unplaced -= 1,
            Some(block) => {
                if let Some(names) = self.blocks.get_mut(&block) {
                    *names -= 1;
                    if *names == 0 {
                        self.blocks.remove(&block);
                    }
                }
            }
        }
        self.held.remove(&name);
        true
    }

    /// The longest part of a held prefix that this window leaves usable, in blocks of the index.
    pub(crate) fn usable(&self, prefix: &[BlockHash], block_size: usize) -> usize {
        // The window's own blocks where they are whole blocks of the index, else blocks of the index that its blocks divide.
        let step = if self.block_size % block_size == 0 { self.block_size / block_size } else { 1 };
        if step == 1 && block_size % self.block_size != 0 {
            return prefix.len();
        }
        let need = (self.tokens as usize - 1).div_ceil(step * block_size).max(1);
        let (mut end, mut run) = (0, 0);
        for at in (0..prefix.len() / step).rev() {
            if self.blocks.contains_key(&prefix[(at + 1) * step - 1]) {
                end = if run == 0 { at + 1 } else { end };
                run += 1;
                if run == need {
                    break;
                }
            } else {
                (end, run) = (0, 0);
            }
        }
        end * step
    }

    pub(crate) fn bytes(&self) -> usize {
        self.held.capacity() * (size_of::<(EngineHash, Held)>() + 1)
            + self.blocks.capacity() * (size_of::<(BlockHash, u32)>() + 1)
    }
}
