//! Events of any shape: by attention group, on any medium, in blocks of any size.

use super::feed::Feed;
use super::groups::{Group, Role};
use super::pages::{Seam, block_name};
use super::residence::Residence;
use super::windows::Window;
use crate::arena::{Hold, Place};
use crate::engine::Engine;
use crate::hash::{ExtraKey, content_hash_keyed, content_hash_with};
use crate::ids::{BlockHash, EngineHash, Slot};
use crate::outcome::{Contents, Removed, Stored, StoredEvent};

/// A store event of any shape.
#[derive(Clone, Copy, Debug)]
pub struct StoreEvent<'a> {
    /// The engine's names of the blocks, in order.
    pub names: &'a [EngineHash],
    /// The engine's name of the block before; `None` if the first block starts a prompt.
    pub parent: Option<EngineHash>,
    /// Token ids of the blocks. None: the blocks of these names are at that residence too, whatever they hold.
    pub tokens: &'a [u32],
    /// Extra keys by position from the first token, in order.
    pub keys: &'a [ExtraKey<'a>],
    /// Tokens of one of these blocks.
    pub block_size: usize,
    /// Seed of the namespace, used if there is no parent.
    pub seed: u64,
    /// Where the copies lie.
    pub residence: Residence,
    /// The attention group.
    pub group: Group,
}

/// Content hashes of the index's blocks in these tokens.
pub(crate) fn contents(tokens: &[u32], keys: &[ExtraKey<'_>], block_size: usize, hash_key: u64) -> Vec<u64> {
    let blocks = tokens.chunks_exact(block_size);
    if keys.is_empty() {
        return blocks.map(|block| content_hash_keyed(block, hash_key)).collect();
    }
    let content = |(block, tokens): (usize, &[u32])| {
        let start = block * block_size;
        let before = |end: usize| keys.partition_point(|key| key.position < end);
        let inside = &keys[before(start)..before(start + block_size)];
        let inside: Vec<_> = inside.iter().map(|key| ((key.position - start) as u32, key.key)).collect();
        content_hash_with(tokens, &inside, hash_key).0
    };
    blocks.enumerate().map(content).collect()
}

/// Name of the `at`-th of the blocks that make up one of an engine's; the last has the engine's own name, by which events
/// continue the chain.
fn part_name(name: EngineHash, at: u32, ratio: u32) -> EngineHash {
    if at + 1 == ratio { name } else { block_name(name, at) }
}

impl Engine {
    pub(crate) fn feed(&self, slot: Slot) -> Option<&Feed> {
        self.replicas[slot.index()].feed.as_deref()
    }

    pub(crate) fn feed_mut(&mut self, slot: Slot) -> &mut Feed {
        self.replicas[slot.index()].feed.get_or_insert_default()
    }

    /// A store event of any shape; `contents` are those of its tokens if its blocks are whole blocks of the index.
    pub(crate) fn store_event(&mut self, slot: Slot, event: &StoreEvent<'_>, contents: &[u64], now: f64) -> Stored {
        self.set_fed(slot, true);
        let (role, wrong) = self.feed_mut(slot).groups.learn(event.group);
        if wrong {
            self.clear(slot);
        }
        let done = match role {
            Role::Counted => Stored { unindexed: event.names.len(), ..Stored::default() },
            Role::Window(tokens) => self.store_window(slot, event, tokens),
            Role::Indexed if event.tokens.is_empty() => self.store_placed(slot, event),
            // A group that an earlier event declared: this one was not known to be checked.
            Role::Indexed if event.tokens.len() != event.names.len() * event.block_size => {
                Stored { placeless: event.names.len(), ..Stored::default() }
            }
            Role::Indexed => match self.seam(slot, event) {
                Some(seam) => self.store_pages(slot, event, seam, now),
                None if event.block_size % self.config.block_size > 0 => {
                    Stored { placeless: event.names.len(), ..Stored::default() }
                }
                None => self.store_whole(slot, event, contents, now),
            },
        };
        let counters = &mut self.feed_mut(slot).counters;
        counters.unindexed += done.unindexed as u64;
        counters.placeless += done.placeless as u64;
        done
    }

    /// Where an event goes on if its blocks are not whole blocks of the index; none if they are, or if nobody knows.
    fn seam(&self, slot: Slot, event: &StoreEvent<'_>) -> Option<Seam> {
        let whole = event.block_size % self.config.block_size == 0;
        let pages = &self.feed(slot)?.pages;
        let Some(parent) = event.parent else {
            return (!whole).then(|| Seam { seed: event.seed, ..Seam::default() });
        };
        if pages.is_empty() && whole {
            return None;
        }
        let known = || Some(Seam { above: Some(parent), ..Seam::default() }).filter(|_| !whole);
        pages.seam(parent).or_else(|| self.place_of(slot, parent).and_then(|_| known()))
    }

    fn store_pages(&mut self, slot: Slot, event: &StoreEvent<'_>, seam: Seam, now: f64) -> Stored {
        if !event.keys.is_empty() {
            return Stored { unindexed: event.names.len(), ..Stored::default() };
        }
        let (parent, seed, medium) = (seam.above, seam.seed, event.residence.medium);
        let (size, block_size, hash_key) = (event.block_size, self.config.block_size, self.config.hash_key);
        let pages = &mut self.feed_mut(slot).pages;
        let done = pages.store(seam, event.names, event.tokens, size, block_size, hash_key, medium);
        let stored =
            self.store_blocks(slot, &done.names, parent, Contents::Blocks(&done.contents), seed, event.residence, now);
        self.place_in_windows(slot, &done.names);
        stored
    }

    fn store_whole(&mut self, slot: Slot, event: &StoreEvent<'_>, contents: &[u64], now: f64) -> Stored {
        let ratio = (event.block_size / self.config.block_size) as u32;
        if ratio == 1 {
            let done = self.store_blocks(
                slot,
                event.names,
                event.parent,
                Contents::Blocks(contents),
                event.seed,
                event.residence,
                now,
            );
            self.place_in_windows(slot, event.names);
            return done;
        }
        let feed = self.feed_mut(slot);
        feed.ratio = feed.ratio.max(ratio);
        let parts = |&name: &EngineHash| (0..ratio).map(move |at| part_name(name, at, ratio));
        let names: Vec<EngineHash> = event.names.iter().flat_map(parts).collect();
        let done =
            self.store_blocks(slot, &names, event.parent, Contents::Blocks(contents), event.seed, event.residence, now);
        self.place_in_windows(slot, event.names);
        done
    }

    /// Blocks of the index at a residence. Those that lie apart from the plain copies of their tier are counted by name too.
    #[expect(clippy::too_many_arguments, reason = "the parts of a store event")]
    pub(crate) fn store_blocks(
        &mut self,
        slot: Slot,
        names: &[EngineHash],
        parent: Option<EngineHash>,
        contents: Contents<'_>,
        seed: u64,
        residence: Residence,
        now: f64,
    ) -> Stored {
        let Residence { medium, tag } = residence;
        let event = StoredEvent { engine: names, parent, contents, seed, medium };
        let reuse_reports = self.replicas[slot.index()].reuse_reports;
        if tag == 0 && self.feed(slot).is_none_or(|feed| feed.tagged.is_empty()) {
            return self.stored(slot, &event, now, !reuse_reports);
        }
        if reuse_reports && names.iter().all(|&name| self.is_resident(slot, name, residence)) {
            return Stored { reused: names.len(), ..Stored::default() };
        }
        let done = self.stored(slot, &event, now, true);
        if tag != 0 {
            let feed = self.feed_mut(slot);
            for &name in names {
                *feed.tagged.entry((name, medium, tag)).or_default() += 1;
            }
        }
        done
    }

    /// Whether a copy of a block is known at that very residence.
    fn is_resident(&self, slot: Slot, name: EngineHash, residence: Residence) -> bool {
        let Residence { medium, tag } = residence;
        let Some(feed) = self.feed(slot) else { return false };
        if tag != 0 {
            return feed.tagged.contains_key(&(name, medium, tag));
        }
        let copies = self.place_of(slot, name).and_then(|place| self.copies_at(slot, place));
        copies.is_some_and(|copies| u32::from(copies[medium.index()]) > feed.tagged_copies(name, medium))
    }

    fn copies_at(&self, slot: Slot, place: Place) -> Option<[u16; 3]> {
        match self.hold(self.chunks.view(place)?, slot)? {
            Hold::Truth { copies } => Some(copies),
            Hold::Belief { .. } => None,
        }
    }

    /// A store without content: the blocks of these names are at that residence too.
    fn store_placed(&mut self, slot: Slot, event: &StoreEvent<'_>) -> Stored {
        let mut done = Stored::default();
        for &name in event.names {
            let page = self.feed_mut(slot).pages.copy(name, event.residence.medium);
            if page.is_none() && self.place_of(slot, name).is_none() {
                done.placeless += 1;
                continue;
            }
            for part in self.parts_of(slot, name, page) {
                self.copy_block(slot, part, event.residence, &mut done);
            }
        }
        self.counters.reused += done.reused as u64;
        done
    }

    /// One more copy of a block whose place is known.
    fn copy_block(&mut self, slot: Slot, name: EngineHash, residence: Residence, done: &mut Stored) {
        let Residence { medium, tag } = residence;
        let Some(place) = self.place_of(slot, name) else { return };
        let Some(run) = self.chunks.view(place) else { return };
        let counting = !self.replicas[slot.index()].reuse_reports;
        if !counting && self.is_resident(slot, name, residence) {
            done.reused += 1;
            return;
        }
        let from = place.at - self.tree.run(run).start;
        let piece = self.cut(run, from, from + 1);
        self.add_copy(piece, slot, medium, true, done);
        self.tidy(piece);
        if tag != 0 {
            *self.feed_mut(slot).tagged.entry((name, medium, tag)).or_default() += 1;
        }
    }

    /// Names that the blocks of the index have which an engine's block is made of, the last one first. `page`: the blocks
    /// that it completes as a page.
    fn parts_of(&self, slot: Slot, name: EngineHash, page: Option<u32>) -> Vec<EngineHash> {
        if let Some(completes) = page {
            return (0..completes).rev().map(|at| block_name(name, at)).collect();
        }
        // Some blocks of a group can be smaller than others: parts that such a block has not are not known.
        let ratio = self.feed(slot).map_or(1, |feed| feed.ratio);
        (0..ratio).rev().map(|at| part_name(name, at, ratio)).collect()
    }

    fn store_window(&mut self, slot: Slot, event: &StoreEvent<'_>, tokens: u32) -> Stored {
        let reuse_reports = self.replicas[slot.index()].reuse_reports;
        let blocks: Vec<_> = event.names.iter().map(|&name| self.block_of(slot, name)).collect();
        let windows = &mut self.feed_mut(slot).windows;
        let at = windows.iter().position(|window| window.group == event.group.index).unwrap_or_else(|| {
            windows.push(Window::new(event.group.index, tokens, 1));
            windows.len() - 1
        });
        let window = &mut windows[at];
        window.block_size = event.block_size.max(1);
        for (&name, block) in event.names.iter().zip(blocks) {
            window.store(name, block, reuse_reports);
        }
        if !self.windowed.contains(&slot) {
            self.windowed.push(slot);
        }
        Stored { unindexed: event.names.len(), ..Stored::default() }
    }

    /// The block of the index that ends where an engine's block ends.
    fn block_of(&self, slot: Slot, name: EngineHash) -> Option<BlockHash> {
        let feed = self.feed(slot)?;
        let name = match feed.pages.seam(name) {
            Some(seam) if seam.tail.is_empty() => seam.above?,
            Some(_) => return None,
            None => name,
        };
        self.place_of(slot, name).map(|place| self.chunks.block(place))
    }

    /// The indexed group has named these blocks: windows that wait for them find their place.
    fn place_in_windows(&mut self, slot: Slot, names: &[EngineHash]) {
        let waiting = |window: &Window| window.is_waiting();
        if !self.feed(slot).is_some_and(|feed| feed.windows.iter().any(waiting)) {
            return;
        }
        for &name in names {
            let Some(block) = self.block_of(slot, name) else { continue };
            for window in &mut self.feed_mut(slot).windows {
                window.place(name, block);
            }
        }
    }

    /// A removal event of any shape.
    pub(crate) fn remove_event(
        &mut self,
        slot: Slot,
        names: &[EngineHash],
        residence: Residence,
        group: u32,
    ) -> Removed {
        let Some(feed) = self.replicas[slot.index()].feed.as_deref_mut() else {
            return if group == 0 { self.removed(slot, names, residence.medium) } else { Removed::default() };
        };
        match feed.groups.role(group) {
            Role::Counted => return Removed::default(),
            Role::Window(_) => {
                let mut done = Removed::default();
                for window in feed.windows.iter_mut().filter(|window| window.group == group) {
                    let removed = names.iter().filter(|&&name| window.remove(name)).count();
                    done = Removed { removed, unknown: names.len() - removed };
                }
                return done;
            }
            Role::Indexed => {}
        }
        let plain = residence.tag == 0 && feed.tagged.is_empty();
        if plain && feed.ratio == 1 && feed.pages.is_empty() {
            return self.removed(slot, names, residence.medium);
        }
        let mut done = Removed::default();
        for &name in names {
            self.remove_one(slot, name, residence, &mut done);
        }
        done
    }

    /// Removes an engine's block that may be part of a block of the index, or several.
    fn remove_one(&mut self, slot: Slot, name: EngineHash, residence: Residence, done: &mut Removed) {
        let Residence { medium, tag } = residence;
        let unknown = self.counters.unknown_removals;
        let pages = &mut self.feed_mut(slot).pages;
        let page = pages.pages.contains_key(&name).then(|| pages.remove(name, medium));
        let parts = match page {
            Some(None) => Vec::new(),
            Some(completes) => self.parts_of(slot, name, completes),
            None => self.parts_of(slot, name, None),
        };
        let mut removed = usize::from(page.is_some_and(|completes| completes == Some(0)));
        for part in parts {
            let here = if tag == 0 {
                let tagged = self.feed(slot).is_some_and(|feed| feed.tagged_copies(part, medium) > 0);
                !tagged || self.is_resident(slot, part, residence)
            } else {
                self.feed_mut(slot).untag(part, medium, tag)
            };
            removed += if here { self.removed(slot, &[part], medium).removed } else { 0 };
        }
        done.removed += removed;
        done.unknown += usize::from(removed == 0);
        self.counters.unknown_removals = unknown + u64::from(removed == 0);
    }
}
