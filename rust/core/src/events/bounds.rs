//! How much of a prefix the sliding-window groups of a replica leave usable.

use super::apply::{StoreEvent, contents, dropped};
use super::feed::Feed;
use super::residence::Residence;
use super::truth::Truth;
use super::windows::{Told, Window};
use crate::budget::admit_apart;
use crate::hash::mix;
use crate::holdings::Holdings;
use crate::ids::{BlockHash, EngineHash, Slot};
use crate::outcome::{Removed, Stored};

impl Feed {
    /// A removal event of a sliding-window group.
    pub(super) fn remove_from_window(&mut self, group: u32, names: &[EngineHash], residence: Residence) -> Removed {
        let Some(window) = self.windows.iter_mut().find(|window| window.group == group) else {
            return Removed { removed: 0, unknown: names.len() };
        };
        let removed = names.iter().filter(|&&name| window.remove(name, residence)).count();
        Removed { removed, unknown: names.len() - removed }
    }
}

impl Truth {
    /// A store event of a sliding-window group of so many tokens.
    pub(super) fn store_window(
        &mut self,
        held: &mut Holdings,
        slot: Slot,
        event: &StoreEvent<'_>,
        tokens: u32,
    ) -> Stored {
        let reuse_reports = self.sender(slot).reuse_reports;
        let told = self.window_blocks(held, slot, event);
        let windows = &mut self.feed_mut(slot).windows;
        let growth = || match windows.iter_mut().find(|window| window.group == event.group.index) {
            Some(window) => window.growth(event.residence, event.names.len()),
            None => size_of::<Window>() + Window::new(0, tokens, 0).growth(event.residence, event.names.len()),
        };
        if !admit_apart(held, growth) {
            return dropped(held, event.names.len());
        }
        let at = windows.iter().position(|window| window.group == event.group.index).unwrap_or_else(|| {
            windows.reserve_exact(1);
            windows.push(Window::new(event.group.index, tokens, 0));
            windows.len() - 1
        });
        let window = &mut windows[at];
        // Partial blocks are smaller, and give way to whole ones.
        window.block_size = window.block_size.max(event.block_size);
        for (&name, told) in event.names.iter().zip(told) {
            window.store(name, told, event.residence, reuse_reports);
        }
        if !self.windowed.contains(&slot) {
            self.windowed.push(slot);
        }
        Stored { unindexed: event.names.len(), ..Stored::default() }
    }

    /// What an event of a sliding-window group says of its blocks.
    fn window_blocks(&self, held: &Holdings, slot: Slot, event: &StoreEvent<'_>) -> Vec<Told> {
        let (names, size) = (event.names, event.block_size);
        // Names without tokens follow on nothing. Of blocks without a name, the event says neither which ones they are nor
        // their extra keys: names alone are left, in order.
        let listed = !event.tokens.is_empty() && event.tokens.len() == names.len() * size;
        let chain = if listed { self.window_chain(held, slot, event) } else { None };
        let by_tokens = |at: usize| {
            let end = (at + 1) * size;
            chain.as_ref()?.get((end / self.block_size).checked_sub(1).filter(|_| end % self.block_size == 0)?).copied()
        };
        let before = |at: usize| match at.checked_sub(1) {
            None => event.parent.filter(|_| listed),
            Some(_) if event.tokens.is_empty() => None,
            Some(before) => Some(names[before]),
        };
        let block = |(at, &name): (usize, &EngineHash)| Told {
            block: self.block_of(held, slot, name).or_else(|| by_tokens(at)),
            before: before(at),
            listed,
        };
        names.iter().enumerate().map(block).collect()
    }

    /// The blocks of the index in an event's tokens, if it is known what they follow.
    fn window_chain(&self, held: &Holdings, slot: Slot, event: &StoreEvent<'_>) -> Option<Vec<BlockHash>> {
        let mut hash = match event.parent {
            None => event.seed,
            Some(parent) => {
                let windows = self.feed(slot).map_or(&[][..], |feed| &feed.windows);
                let window = windows.iter().find(|window| window.group == event.group.index);
                let ours = window.and_then(|window| window.held.get(&parent)?.block);
                ours.or_else(|| self.block_of(held, slot, parent))?.0
            }
        };
        let contents = contents(event.tokens, event.keys, self.block_size, self.hash_key);
        let chained = contents.into_iter().map(|content| {
            hash = mix(hash, content);
            BlockHash(hash)
        });
        Some(chained.collect())
    }

    /// The block of the index that ends where an engine's block ends.
    fn block_of(&self, held: &Holdings, slot: Slot, name: EngineHash) -> Option<BlockHash> {
        self.end_of(held, slot, name).and_then(|(block, tokens)| block.filter(|_| tokens == 0))
    }

    /// Where the indexed group's block of a name ends: so many tokens behind a block of the index, or behind the start.
    fn end_of(&self, held: &Holdings, slot: Slot, name: EngineHash) -> Option<(Option<BlockHash>, usize)> {
        let (above, tokens) = self.feed(slot)?.pages.end(name).unwrap_or((Some(name), 0));
        let Some(above) = above else { return Some((None, tokens)) };
        held.place_of(slot, above).map(|place| (Some(held.trie.chunks.block(place)), tokens))
    }

    /// The indexed group has named these blocks: windows find their places.
    pub(super) fn place_in_windows(&mut self, held: &mut Holdings, slot: Slot, names: &[EngineHash]) {
        if self.feed(slot).is_none_or(|feed| feed.windows.iter().all(|window| window.held.is_empty())) {
            return;
        }
        for &name in names {
            let Some(block) = self.block_of(held, slot, name) else { continue };
            for window in &mut self.feed_mut(slot).windows {
                // A block without a place bounds as one that is not held.
                if window.has_elsewhere(name, block) && admit_apart(held, || window.place_growth()) {
                    window.place(name, block);
                }
            }
        }
    }

    /// Of what replicas with sliding-window groups hold of a prompt, what those groups leave usable.
    #[cold]
    pub(crate) fn bound_by_windows(&self, held: &Holdings, hashes: &[BlockHash], out: &mut [u32]) {
        let size = self.block_size;
        for &slot in &self.windowed {
            let Some((tokens, feed)) = out.get_mut(slot.index()).zip(self.feed(slot)) else { continue };
            let mut blocks = *tokens as usize / size;
            let believed = held.believed(slot, &hashes[..blocks]);
            let elsewhere = |name: EngineHash, tokens: usize| {
                let above = (tokens / size).checked_sub(1).map(|block| hashes[block]);
                self.end_of(held, slot, name).is_some_and(|end| end != (above, tokens % size))
            };
            let usable = |window: &Window, blocks: usize| window.usable(&hashes[..blocks], &believed, size, elsewhere);
            // A prefix that one window allows can be too long for another: down to one that all allow.
            while let Some(usable) = feed.windows.iter().map(|window| usable(window, blocks)).min() {
                if usable >= blocks {
                    break;
                }
                blocks = usable;
            }
            *tokens = (*tokens).min((blocks as u32).saturating_mul(size as u32));
        }
    }

    /// Whether any replica has a sliding-window group.
    #[inline]
    pub(crate) fn has_windows(&self) -> bool {
        !self.windowed.is_empty()
    }
}
