//! Events of any shape: by attention group, on any medium, in blocks of any size.

use std::borrow::Cow;
use std::ops::Range;

use super::groups::{Group, Role};
use super::orphans::Orphan;
use super::pages::{Seam, block_name};
use super::residence::Residence;
use super::truth::{Adding, Truth, add_copy};
use crate::budget::admit_apart;
use crate::hash::{ExtraKey, content_hash_keyed, content_hash_with};
use crate::holders::Hold;
use crate::holdings::Holdings;
use crate::ids::{EngineHash, Medium, Slot};
use crate::outcome::{Content, Contents, Removed, Stored, StoredEvent};

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

impl StoreEvent<'_> {
    /// The same of some of its blocks, whose tokens are whole blocks.
    fn part(&self, blocks: Range<usize>) -> Self {
        let tokens = &self.tokens[blocks.start * self.block_size..blocks.end * self.block_size];
        StoreEvent { names: &self.names[blocks], tokens, ..*self }
    }
}

/// Copies of a block on each tier that a replica holds by events and calls so.
fn held_copies(held: &Holdings, slot: Slot, name: EngineHash) -> [u16; 3] {
    let run = held.place_of(slot, name).and_then(|place| held.trie.chunks.view(place));
    match run.and_then(|run| held.hold(run, slot)) {
        Some(Hold::Truth { copies }) => copies,
        _ => [0; 3],
    }
}

/// Blocks for which the bound leaves no room.
pub(super) fn dropped(held: &mut Holdings, blocks: usize) -> Stored {
    held.counters.dropped += blocks as u64;
    Stored { dropped: blocks, ..Stored::default() }
}

impl Truth {
    /// A store event of any shape; `contents` are those of its tokens if its blocks are whole blocks of the index.
    pub(crate) fn store(
        &mut self,
        held: &mut Holdings,
        slot: Slot,
        event: &StoreEvent<'_>,
        contents: &[u64],
    ) -> Stored {
        self.set_fed(slot, true);
        if !admit_apart(held, || self.feed_mut(slot).groups.growth()) {
            return dropped(held, event.names.len());
        }
        let (role, wrong) = self.feed_mut(slot).groups.learn(event.group);
        if wrong {
            self.forget_indexed(held, slot);
        }
        let placeless = Stored { placeless: event.names.len(), ..Stored::default() };
        let done = match role {
            Role::Counted => Stored { unindexed: event.names.len(), ..Stored::default() },
            Role::Window(tokens) => self.store_window(held, slot, event, tokens),
            Role::Indexed if event.tokens.is_empty() => self.store_placed(held, slot, event),
            // A group that an earlier event declared: this one was not known to be checked.
            Role::Indexed if event.tokens.len() != event.names.len() * event.block_size => placeless,
            Role::Indexed => match self.seam(held, slot, event) {
                Some(seam) => self.store_pages(held, slot, event, seam),
                None if event.block_size % self.block_size > 0 => placeless,
                None => self.store_whole(held, slot, event, contents),
            },
        };
        let counters = &mut self.feed_mut(slot).counters;
        counters.unindexed += done.unindexed as u64;
        counters.placeless += done.placeless as u64;
        done
    }

    /// Where an event goes on if its blocks are not whole blocks of the index; none if they are, or if nobody knows.
    fn seam(&self, held: &Holdings, slot: Slot, event: &StoreEvent<'_>) -> Option<Seam> {
        let whole = event.block_size % self.block_size == 0;
        let pages = &self.feed(slot)?.pages;
        let Some(parent) = event.parent else {
            return (!whole).then(|| Seam { seed: event.seed, ..Seam::default() });
        };
        if pages.is_empty() && whole {
            return None;
        }
        let known = || Some(Seam { above: Some(parent), ..Seam::default() }).filter(|_| !whole);
        pages.seam(parent).or_else(|| held.place_of(slot, parent).and_then(|_| known()))
    }

    fn store_pages(&mut self, held: &mut Holdings, slot: Slot, event: &StoreEvent<'_>, seam: Seam) -> Stored {
        if !event.keys.is_empty() {
            return Stored { unindexed: event.names.len(), ..Stored::default() };
        }
        let (mut done, mut seam, mut at) = (Stored::default(), seam, 0);
        while let Some(&name) = event.names.get(at) {
            if self.knows_page(slot, name, event.residence.medium) {
                self.place_page(held, slot, name, event.residence, &mut done);
                at += 1;
            } else {
                let rest = event.names[at..].iter();
                let fresh = rest.take_while(|&&name| !self.knows_page(slot, name, event.residence.medium)).count();
                done += self.store_fresh_pages(held, slot, &event.part(at..at + fresh), seam);
                at += fresh;
            }
            let last = self.feed(slot).and_then(|feed| feed.pages.seam(event.names[at - 1]));
            seam = last.unwrap_or_default();
        }
        self.place_in_windows(held, slot, event.names);
        done
    }

    /// Whether a page stays what it is, whatever an event on a medium says of it.
    fn knows_page(&self, slot: Slot, name: EngineHash, medium: Medium) -> bool {
        let copies = self.feed(slot).and_then(|feed| feed.pages.copies(name));
        copies.is_some_and(|copies| medium != Medium::Gpu || copies[Medium::Gpu.index()] > 0)
    }

    fn store_fresh_pages(&mut self, held: &mut Holdings, slot: Slot, event: &StoreEvent<'_>, seam: Seam) -> Stored {
        let (parent, seed) = (seam.above, seam.seed);
        let (block_size, hash_key, pages) = (self.block_size, self.hash_key, event.names.len());
        let feed = self.feed_mut(slot);
        let growth = || feed.pages.growth(pages, block_size) + feed.tagged.growth(event.residence, pages);
        if !admit_apart(held, growth) {
            return dropped(held, pages);
        }
        let done = feed.pages.store(seam, event, block_size, hash_key);
        for &name in event.names {
            feed.tagged.add(name, event.residence);
        }
        let blocks = StoredEvent {
            engine: &done.names,
            parent,
            contents: Contents::Blocks(&done.contents),
            seed,
            medium: event.residence.medium,
        };
        // Another page that ends in a known block is another block of the engine, never a report of the first.
        let mut stored = self.store_copies(held, slot, &blocks, event.residence);
        stored.unfilled = done.unfilled;
        stored
    }

    fn store_whole(&mut self, held: &mut Holdings, slot: Slot, event: &StoreEvent<'_>, contents: &[u64]) -> Stored {
        let ratio = (event.block_size / self.block_size) as u32;
        let feed = self.feed_mut(slot);
        feed.ratio = feed.ratio.max(ratio);
        let parts = |&name: &EngineHash| (0..ratio).map(move |at| part_name(name, at, ratio));
        let names: Cow<'_, [EngineHash]> = match ratio {
            1 => Cow::Borrowed(event.names),
            _ => event.names.iter().flat_map(parts).collect(),
        };
        let blocks = StoredEvent {
            engine: &names,
            parent: event.parent,
            contents: Contents::Blocks(contents),
            seed: event.seed,
            medium: event.residence.medium,
        };
        let done = self.store_unreported(held, slot, &blocks, event.residence, ratio as usize);
        self.place_in_windows(held, slot, event.names);
        done
    }

    /// Blocks of the index at a residence.
    pub(crate) fn store_blocks(
        &mut self,
        held: &mut Holdings,
        slot: Slot,
        event: &StoredEvent<'_>,
        tag: u64,
    ) -> Stored {
        self.set_fed(slot, true);
        self.store_unreported(held, slot, event, Residence { medium: event.medium, tag }, 1)
    }

    /// Blocks at a residence, of which so many make up one of the engine's, the last one under its name. Where reuse is
    /// reported, one that is there already is no further copy: the wire shows both alike.
    fn store_unreported(
        &mut self,
        held: &mut Holdings,
        slot: Slot,
        event: &StoredEvent<'_>,
        residence: Residence,
        ratio: usize,
    ) -> Stored {
        if !self.sender(slot).reuse_reports {
            return self.store_copies(held, slot, event, residence);
        }
        let (mut done, mut reported, mut at) = (Stored::default(), 0, 0);
        while at < event.engine.len() {
            let is_report = |&end: &usize| {
                self.is_report(held, slot, event.engine[end - 1], event.contents.get(end - 1), residence)
            };
            let ends = |from: usize| (from + ratio..=event.engine.len()).step_by(ratio);
            let from = at + ratio * ends(at).take_while(is_report).count();
            reported += from - at;
            at = from + ratio * ends(from).take_while(|end| !is_report(end)).count();
            if from < at {
                done += self.store_copies(held, slot, &event.part(from..at), residence);
            }
        }
        held.counters.reused += reported as u64;
        done.reused += reported;
        done
    }

    /// A further copy of each of these blocks at a residence. Those that lie apart from the plain copies of their tier are
    /// counted by name too.
    fn store_copies(
        &mut self,
        held: &mut Holdings,
        slot: Slot,
        event: &StoredEvent<'_>,
        residence: Residence,
    ) -> Stored {
        let adding = Adding { slot, residence };
        if residence.tag == 0 {
            return self.stored(held, event, adding);
        }
        let blocks = event.engine.len();
        if !admit_apart(held, || self.feed_mut(slot).tagged.growth(residence, blocks)) {
            return dropped(held, blocks);
        }
        let done = self.stored(held, event, adding);
        for &name in event.engine {
            if held.place_of(slot, name).is_some() && !self.orphans.waits(slot, name, residence) {
                self.tag(slot, name, residence);
            }
        }
        done
    }

    /// Whether a store of a block says what is known of it already.
    pub(super) fn is_report(
        &self,
        held: &Holdings,
        slot: Slot,
        name: EngineHash,
        content: Content,
        residence: Residence,
    ) -> bool {
        let is_same = || match content {
            Content::Block(_) => true, // as its name says: it commits to all that a block holds
            Content::Prefix(told) => {
                held.place_of(slot, name).is_some_and(|place| held.trie.chunks.block(place) == told)
            }
        };
        self.is_resident(held, slot, name, residence) && is_same()
    }

    /// Whether a copy of a block is known at that very residence.
    fn is_resident(&self, held: &Holdings, slot: Slot, name: EngineHash, residence: Residence) -> bool {
        let copies = held_copies(held, slot, name)[residence.medium.index()];
        self.feed(slot).map_or(copies > 0, |feed| feed.tagged.is_at(name, residence, copies))
    }

    /// A store without content: the blocks of these names are at that residence too.
    fn store_placed(&mut self, held: &mut Holdings, slot: Slot, event: &StoreEvent<'_>) -> Stored {
        let mut done = Stored::default();
        for &name in event.names {
            if self.feed(slot).is_some_and(|feed| feed.pages.copies(name).is_some()) {
                self.place_page(held, slot, name, event.residence, &mut done);
            } else if held.place_of(slot, name).is_some() {
                let mut parts = self.parts_of(slot, name, None);
                parts.retain(|&part| held.place_of(slot, part).is_some());
                // By the block's own name: another one of the engine can share a block of the index with it.
                if self.sender(slot).reuse_reports && self.is_resident(held, slot, name, event.residence) {
                    done.reused += parts.len();
                    continue;
                }
                for part in parts {
                    self.copy_block(held, slot, part, event.residence, &mut done);
                }
            } else {
                let parts = self.parts_of(slot, name, None).into_iter();
                let waiting = parts.filter(|&part| self.place_waiting(held, slot, part, event.residence, &mut done));
                done.placeless += usize::from(waiting.count() == 0);
            }
        }
        held.counters.reused += done.reused as u64;
        done
    }

    /// One more copy of a block that waits for its parent; false if it does not.
    fn place_waiting(
        &mut self,
        held: &mut Holdings,
        slot: Slot,
        name: EngineHash,
        residence: Residence,
        done: &mut Stored,
    ) -> bool {
        let Some(&orphan) = self.orphans.find(slot, name) else { return false };
        if !admit_apart(held, || self.feed_mut(slot).tagged.growth(residence, 1)) {
            *done += dropped(held, 1);
            return true;
        }
        self.wait_for_parent(held, Orphan { residence, ..orphan }, done);
        true
    }

    /// One more copy of a page that is known, and of the blocks that it completes.
    fn place_page(
        &mut self,
        held: &mut Holdings,
        slot: Slot,
        name: EngineHash,
        residence: Residence,
        done: &mut Stored,
    ) {
        let reuse_reports = self.sender(slot).reuse_reports;
        let feed = self.feed_mut(slot);
        let copies = feed.pages.copies(name).unwrap_or_default();
        if reuse_reports && feed.tagged.is_at(name, residence, copies[residence.medium.index()]) {
            done.reused += 1;
            return;
        }
        if !admit_apart(held, || feed.tagged.growth(residence, 1)) {
            done.dropped += 1;
            held.counters.dropped += 1;
            return;
        }
        let completes = feed.pages.copy(name, residence.medium);
        feed.tagged.add(name, residence);
        for part in self.parts_of(slot, name, completes) {
            self.copy_block(held, slot, part, residence, done);
        }
    }

    /// One more copy of a block whose place is known.
    fn copy_block(
        &mut self,
        held: &mut Holdings,
        slot: Slot,
        name: EngineHash,
        residence: Residence,
        done: &mut Stored,
    ) {
        let Some(place) = held.place_of(slot, name) else { return };
        let Some(run) = held.trie.chunks.view(place) else { return };
        let from = place.at - held.trie.run(run).start;
        let room = admit_apart(held, || self.feed_mut(slot).tagged.growth(residence, 1));
        let piece = if room { held.try_cut_for(run, from, slot) } else { None };
        let Some(piece) = piece else {
            done.dropped += 1;
            held.counters.dropped += 1;
            return;
        };
        add_copy(held, piece, Adding { slot, residence }, done);
        held.tidy(piece);
        self.feed_mut(slot).tagged.add(name, residence);
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

    /// A removal event of any shape.
    pub(crate) fn remove(
        &mut self,
        held: &mut Holdings,
        slot: Slot,
        names: &[EngineHash],
        residence: Residence,
        group: u32,
    ) -> Removed {
        let Some(feed) = self.senders[slot.index()].feed.as_deref_mut() else {
            return if group == 0 { self.removed(held, slot, names, residence) } else { Removed::default() };
        };
        match feed.groups.role(group) {
            Role::Counted => return Removed::default(),
            Role::Window(_) => return feed.remove_from_window(group, names, residence),
            Role::Indexed => {}
        }
        let plain = residence.tag == 0 && feed.tagged.is_empty();
        if plain && feed.ratio == 1 && feed.pages.is_empty() {
            return self.removed(held, slot, names, residence);
        }
        let mut done = Removed::default();
        for &name in names {
            self.remove_one(held, slot, name, residence, &mut done);
        }
        done
    }

    /// Forgets the replica's own names of what made up a block of the engine, if that has gone: another of its blocks can
    /// share a block of the index with it, which keeps its other names.
    fn forget_parts(&self, held: &mut Holdings, slot: Slot, name: EngineHash, parts: &[EngineHash]) {
        let is_page = self.feed(slot).is_some_and(|feed| feed.pages.copies(name).is_some());
        if !is_page && held_copies(held, slot, name) == [0; 3] {
            for &part in parts {
                held.names.drop_own(slot, part);
            }
        }
    }

    /// Removes an engine's block that may be part of a block of the index, or several.
    fn remove_one(
        &mut self,
        held: &mut Holdings,
        slot: Slot,
        name: EngineHash,
        residence: Residence,
        done: &mut Removed,
    ) {
        let medium = residence.medium;
        let unknown = held.counters.unknown_removals;
        let feed = self.feed_mut(slot);
        let page = feed.pages.copies(name).map(|copies| {
            let here = feed.tagged.take(name, residence, copies[medium.index()]);
            if here { feed.pages.remove(name, medium) } else { None }
        });
        let parts = match page {
            Some(None) => Vec::new(),
            Some(completes) => self.parts_of(slot, name, completes),
            None => self.parts_of(slot, name, None),
        };
        let mut removed = usize::from(page.is_some_and(|completes| completes == Some(0)));
        for &part in &parts {
            let copies = held_copies(held, slot, part)[medium.index()];
            let tagged = &mut self.feed_mut(slot).tagged;
            // A block can still wait for its parent.
            let here = tagged.take(part, residence, copies) || self.orphans.waits(slot, part, residence);
            removed += if here { self.removed(held, slot, &[part], residence).removed } else { 0 };
        }
        self.forget_parts(held, slot, name, &parts);
        done.removed += removed;
        done.unknown += usize::from(removed == 0);
        held.counters.unknown_removals = unknown + u64::from(removed == 0);
    }
}
