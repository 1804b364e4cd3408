//! Truth: what engines say in their events, in whatever order these come.

use std::collections::VecDeque;
use std::ops::Range;

use super::feed::Feed;
use super::orphans::{Orphan, Orphans};
use super::residence::Residence;
use crate::budget::{admit, admit_apart};
use crate::config::Config;
use crate::event_map::{are_named, stored_form};
use crate::growth::Growth;
use crate::holders::{Hold, take_copy};
use crate::holdings::Holdings;
use crate::ids::{BlockHash, EngineHash, Medium, Slot};
use crate::outcome::{Removed, Stored, StoredEvent};
use crate::trie::{Place, RunId};
use crate::unmatched::Unmatched;

/// Blocks of a chain whose memory is kept for the next: most events of a replica that decodes have one.
const KEPT_BLOCKS: usize = 1024;

/// What is known of a replica as a sender of events.
#[derive(Debug, Default)]
pub(crate) struct Sender {
    /// It has sent events, or is expected to.
    pub(crate) fed: bool,
    /// Its engine reports reuse in the shape of a store: a block stored again is no further copy.
    pub(crate) reuse_reports: bool,
    /// What its events have said beyond the blocks themselves; none of a replica that has sent none.
    pub(super) feed: Option<Box<Feed>>,
}

/// The state of all event feeds: everything that events say but for what is held.
#[derive(Debug)]
pub(crate) struct Truth {
    pub(super) senders: Vec<Sender>,
    pub(crate) orphans: Orphans,
    /// Events that no query has met, by replica.
    pub(crate) unmatched: Unmatched,
    /// Replicas with sliding-window groups, which bound what is usable.
    pub(super) windowed: Vec<Slot>,
    pub(super) block_size: usize,
    pub(super) hash_key: u64,
    orphan_blocks: usize,
    /// Runs of the path and blocks of the chain being worked on, kept for their memory.
    path: Vec<RunId>,
    chain: Vec<BlockHash>,
}

/// A copy to be added: whose, and where.
#[derive(Clone, Copy, Debug)]
pub(super) struct Adding {
    pub slot: Slot,
    pub residence: Residence,
}

impl Truth {
    pub(crate) fn new(config: &Config) -> Self {
        Truth {
            senders: Vec::new(),
            orphans: Orphans::default(),
            unmatched: Unmatched::default(),
            windowed: Vec::new(),
            block_size: config.block_size,
            hash_key: config.hash_key,
            orphan_blocks: config.orphan_blocks,
            path: Vec::new(),
            chain: Vec::new(),
        }
    }

    /// Makes room for a replica.
    pub(crate) fn open(&mut self, slot: Slot) {
        slot.extend(&mut self.senders);
        self.windowed.reserve_exact(self.senders.len() - self.windowed.len());
    }

    /// A replica of which nothing is known, and nothing waits, begins in this slot.
    pub(crate) fn begin(&mut self, slot: Slot, reuse_reports: bool) {
        self.senders[slot.index()] = Sender { reuse_reports, ..Sender::default() };
        self.windowed.retain(|&windowed| windowed != slot);
        self.unmatched.open(slot);
    }

    pub(crate) fn sender(&self, slot: Slot) -> &Sender {
        &self.senders[slot.index()]
    }

    pub(crate) fn set_fed(&mut self, slot: Slot, fed: bool) {
        self.senders[slot.index()].fed = fed;
    }

    pub(crate) fn feed(&self, slot: Slot) -> Option<&Feed> {
        self.senders[slot.index()].feed.as_deref()
    }

    pub(crate) fn feed_mut(&mut self, slot: Slot) -> &mut Feed {
        self.senders[slot.index()].feed.get_or_insert_default()
    }

    /// A feed as it was saved.
    pub(crate) fn restore_feed(&mut self, slot: Slot, feed: Feed) {
        if !feed.windows.is_empty() {
            self.windowed.push(slot);
        }
        *self.feed_mut(slot) = feed;
    }

    /// Forgets what the replica holds, and what waits to be held.
    pub(crate) fn clear(&mut self, held: &mut Holdings, slot: Slot) {
        held.clear(slot);
        self.orphans.clear(slot);
        if let Some(feed) = &mut self.senders[slot.index()].feed {
            feed.forget();
        }
    }

    /// Forgets the blocks of the group that was indexed, and what waits for them.
    pub(super) fn forget_indexed(&mut self, held: &mut Holdings, slot: Slot) {
        held.clear_reported(slot);
        self.orphans.clear(slot);
        self.feed_mut(slot).forget_indexed();
    }

    /// Forgets what waits to be held.
    pub(crate) fn reset(&mut self) {
        self.orphans = Orphans::default();
        self.senders.iter_mut().filter_map(|sender| sender.feed.as_mut()).for_each(|feed| feed.forget());
    }

    /// A store event; see `Index::stored`.
    pub(super) fn stored(&mut self, held: &mut Holdings, event: &StoredEvent<'_>, adding: Adding) -> Stored {
        let mut done = Stored::default();
        let named = self.store_all(held, event, adding, &mut done);
        if !self.orphans.is_empty() {
            let named = named.unwrap_or_else(|| event.engine.iter().copied().collect());
            self.adopt_orphans(held, named, &mut done);
        }
        held.counters.reused += done.reused as u64;
        held.counters.dropped += done.dropped as u64;
        self.unmatched.add(adding.slot, (done.stored + done.confirmed) as u64);
        done
    }

    /// Stores an event's blocks, or lets them wait. Gives the names that are stored now, if not all are.
    fn store_all(
        &mut self,
        held: &mut Holdings,
        event: &StoredEvent<'_>,
        adding: Adding,
        done: &mut Stored,
    ) -> Option<VecDeque<EngineHash>> {
        let slot = adding.slot;
        if held.limit.is_some() && !has_room(held, slot, event) {
            done.dropped += event.engine.len();
            return Some(VecDeque::new());
        }
        let place = event.parent.map(|name| held.place_of(slot, name));
        if place == Some(None) || held.names.has_own(slot) {
            return Some(self.store_named(held, event, adding, done));
        }
        let parent = place.flatten();
        let seed = parent.map_or(event.seed, |place| held.trie.chunks.block(place).0);
        let mut chain = std::mem::take(&mut self.chain);
        chain.clear();
        event.contents.chain(seed, &mut chain);
        let above = parent.map_or(RunId::ROOT, |place| held.run_ending_at(place));
        let matched = held.descend(above, &chain, &mut self.path);
        let (rest, new) = (&chain[matched..], &event.engine[matched..]);
        let plain = match self.names_of_path(held, event.engine) {
            Some(true) => self.add_new(held, above, rest, new, adding, done),
            Some(false) if !held.names.knows_any(new, &held.trie) => {
                self.add_chain(held, above, &chain, matched, event.engine, adding, done);
                true
            }
            _ => false,
        };
        held.merge_path(&self.path);
        held.merge_down(above);
        if chain.capacity() <= KEPT_BLOCKS {
            self.chain = chain;
        }
        (!plain).then(|| self.store_named(held, event, adding, done))
    }

    /// Whether the blocks of the path all have these names; none if a name can mean another block.
    fn names_of_path(&self, held: &Holdings, names: &[EngineHash]) -> Option<bool> {
        let (mut at, mut all) = (0, true);
        for &run in &self.path {
            let found = held.trie.run(run);
            let names = &names[at..at + found.len as usize];
            if !are_named(found.place(0), names, &held.trie) {
                all = false;
                if held.names.knows_any(names, &held.trie) {
                    return None;
                }
            }
            at += names.len();
        }
        Some(all)
    }

    /// Adds a copy of the path, which has its names, and blocks behind it, or behind `above` without one, that no run has.
    /// False, and nothing has changed, if one of their names is known: that shows when they get them.
    fn add_new(
        &self,
        held: &mut Holdings,
        above: RunId,
        blocks: &[BlockHash],
        names: &[EngineHash],
        adding: Adding,
        done: &mut Stored,
    ) -> bool {
        let copy = Hold::one_copy(adding.residence.medium);
        let added = match self.path.last() {
            _ if blocks.is_empty() => None,
            // Not in place: the path will be held in another way, and is joined with what follows after that.
            Some(&last) => Some(held.graft(last, blocks, adding.slot, copy)),
            None => Some(held.extend(above, blocks, adding.slot, copy)),
        };
        if let Some((run, place)) = added.filter(|&(_, place)| !held.names.name(place, names, &mut held.trie)) {
            let from = place.at - held.trie.run(run).start;
            held.drop_range(run, from, from + blocks.len() as u32, adding.slot);
            return false;
        }
        self.path.iter().for_each(|&run| add_copy(held, run, adding, done));
        done.stored += blocks.len();
        true
    }

    /// Puts blocks of an event in the orphan buffer: each waits for the one before.
    pub(super) fn wait(
        &mut self,
        held: &mut Holdings,
        event: &StoredEvent<'_>,
        blocks: Range<usize>,
        mut parent: EngineHash,
        adding: Adding,
        done: &mut Stored,
    ) {
        let Adding { slot, residence } = adding;
        for (&name, content) in event.engine.iter().zip(event.contents.iter()).skip(blocks.start).take(blocks.len()) {
            self.wait_for_parent(held, Orphan { slot, parent, name, content, residence }, done);
            parent = name;
        }
    }

    /// Counts a copy by name, if it lies apart from the plain ones of its tier.
    pub(super) fn tag(&mut self, slot: Slot, name: EngineHash, residence: Residence) {
        if residence.tag != 0 {
            self.feed_mut(slot).tagged.add(name, residence);
        }
    }

    /// Puts a block in the orphan buffer, unless that is a report of one that is there.
    pub(super) fn wait_for_parent(&mut self, held: &mut Holdings, orphan: Orphan, done: &mut Stored) {
        if self.sender(orphan.slot).reuse_reports && self.orphans.waits(orphan.slot, orphan.name, orphan.residence) {
            done.reused += 1;
            return;
        }
        let fits = admit_apart(held, || self.orphans.growth());
        let gone = if fits { self.orphans.push(orphan, self.orphan_blocks) } else { None };
        if fits {
            self.tag(orphan.slot, orphan.name, orphan.residence);
        }
        if let Some(gone) = gone.filter(|gone| gone.residence.tag != 0) {
            self.feed_mut(gone.slot).tagged.take(gone.name, gone.residence, 0);
        }
        held.counters.orphans_dropped += u64::from(!fits || gone.is_some());
        done.orphaned += 1;
        held.counters.orphaned += 1;
    }

    /// Adds a copy of each block of a chain below `parent`.
    pub(super) fn store_chain(
        &mut self,
        held: &mut Holdings,
        parent: Option<Place>,
        chain: &[BlockHash],
        names: &[EngineHash],
        adding: Adding,
        done: &mut Stored,
    ) {
        let above = parent.map_or(RunId::ROOT, |place| held.run_ending_at(place));
        let matched = held.descend(above, chain, &mut self.path);
        self.add_chain(held, above, chain, matched, names, adding, done);
        held.merge_path(&self.path);
        held.merge_down(above);
    }

    /// Adds a copy of each block of a chain below `above`, of which the path is the first part.
    #[expect(clippy::too_many_arguments, reason = "what the descent has found")]
    fn add_chain(
        &mut self,
        held: &mut Holdings,
        above: RunId,
        chain: &[BlockHash],
        matched: usize,
        names: &[EngineHash],
        adding: Adding,
        done: &mut Stored,
    ) {
        let slot = adding.slot;
        let mut at = 0;
        for &run in &self.path {
            add_copy(held, run, adding, done);
            let found = held.trie.run(run);
            let (place, end) = (found.place(0), at + found.len as usize);
            held.names.set(slot, place, &names[at..end], &mut held.trie);
            at = end;
        }
        let last = self.path.last().copied().unwrap_or(above);
        let rest = &chain[matched..];
        if !rest.is_empty() {
            let (_, place) = held.extend(last, rest, slot, Hold::one_copy(adding.residence.medium));
            done.stored += rest.len();
            held.names.set(slot, place, &names[matched..], &mut held.trie);
        }
    }

    /// Stores the blocks that waited for these names, and those that waited for them in turn.
    fn adopt_orphans(&mut self, held: &mut Holdings, mut named: VecDeque<EngineHash>, done: &mut Stored) {
        while let Some(name) = named.pop_front() {
            for orphan in self.orphans.take_children(name, |slot| held.place_of(slot, name).is_some()) {
                let mut adopted = self.adopt(held, &orphan, done);
                done.adopted += adopted.len();
                self.place_in_windows(held, orphan.slot, adopted.make_contiguous());
                named.extend(adopted);
            }
        }
    }

    /// Stores a block that waited. Gives its name, if it is stored now.
    fn adopt(&mut self, held: &mut Holdings, orphan: &Orphan, done: &mut Stored) -> VecDeque<EngineHash> {
        let &Orphan { slot, parent, name, content, residence } = orphan;
        // Copies that lie apart have been told from reports when they began to wait.
        let plain = self.sender(slot).reuse_reports && residence.tag == 0;
        if plain && self.is_report(held, slot, name, content, residence) {
            done.reused += 1;
            return VecDeque::from([name]);
        }
        content.as_contents(|contents| {
            let medium = residence.medium;
            let event = StoredEvent { engine: &[name], parent: Some(parent), contents, seed: 0, medium };
            self.store_named(held, &event, Adding { slot, residence }, done)
        })
    }

    /// A removal event: one copy less of each of these blocks there.
    pub(super) fn removed(
        &mut self,
        held: &mut Holdings,
        slot: Slot,
        names: &[EngineHash],
        residence: Residence,
    ) -> Removed {
        let medium = residence.medium;
        let mut done = Removed::default();
        let mut rest = names;
        while let Some((&name, later)) = rest.split_first() {
            let place = held.place_of(slot, name);
            let Some((place, run)) = place.and_then(|place| Some((place, run_with_copy(held, slot, place, medium)?)))
            else {
                let waited = self.orphans.remove(slot, name, residence);
                done.removed += usize::from(waited);
                done.unknown += usize::from(!waited);
                rest = later;
                continue;
            };
            let (from, to) = stretch(held, slot, place, run, later);
            rest = &rest[(to - from) as usize..];
            done.removed += (to - from) as usize;
            if take_copies(held, slot, run, from, to, medium) {
                held.names.drop_own(slot, name);
            }
        }
        held.counters.unknown_removals += done.unknown as u64;
        done
    }

    /// What the feeds and what waits take. Each replica is to have a feed one day.
    pub(crate) fn bytes(&self) -> usize {
        let feeds: usize = self.senders.iter().filter_map(|sender| sender.feed.as_deref()).map(Feed::bytes).sum();
        let senders = self.senders.len() * size_of::<Feed>() + self.senders.capacity() * size_of::<Sender>();
        let slots = self.windowed.capacity() * size_of::<Slot>() + self.unmatched.bytes();
        feeds + senders + slots + self.orphans.bytes()
    }

    /// What of that stays once nobody holds anything, beyond what an empty feed takes.
    pub(crate) fn kept_bytes(&self) -> usize {
        self.senders.iter().filter_map(|sender| sender.feed.as_deref()).map(Feed::kept_bytes).sum()
    }

    pub(crate) fn release_scratch(&mut self) {
        (self.path, self.chain) = (Vec::new(), Vec::new());
    }

    pub(crate) fn scratch_bytes(&self) -> usize {
        self.path.capacity() * size_of::<RunId>() + self.chain.capacity() * size_of::<BlockHash>()
    }
}

/// Whether the bound leaves room for what a store adds at most; belief goes for it.
fn has_room(held: &mut Holdings, slot: Slot, event: &StoredEvent<'_>) -> bool {
    let mut chain = Vec::with_capacity(event.engine.len());
    admit(held, |held| {
        let parent = event.parent.map(|name| held.place_of(slot, name));
        if parent == Some(None) {
            return Growth::default();
        }
        let parent = parent.flatten();
        let seed = parent.map_or(event.seed, |place| held.trie.chunks.block(place).0);
        chain.clear();
        event.contents.chain(seed, &mut chain);
        let names = held.names.growth(slot, chain.len(), chain.len());
        held.chain_growth(slot, parent, &chain, Some(names))
    })
}

/// One more copy of a run that the trie has.
pub(super) fn add_copy(held: &mut Holdings, run: RunId, adding: Adding, done: &mut Stored) {
    let Adding { slot, residence: Residence { medium, .. } } = adding;
    let len = held.trie.run(run).len as usize;
    match held.hold(run, slot) {
        None => {
            held.add(run, slot, Hold::one_copy(medium));
            done.stored += len;
        }
        Some(Hold::Truth { mut copies }) => {
            copies[medium.index()] = copies[medium.index()].saturating_add(1);
            *held.hold_mut(run, slot) = Hold::Truth { copies };
            done.copies += len;
        }
        Some(Hold::Belief { .. }) => {
            held.renew(run, slot, Hold::one_copy(medium));
            done.confirmed += len;
        }
    }
}

/// Positions of a run, around the block at `place`, that the names after its own go through in order, up or down: engines
/// remove a chain's blocks in a row, and a row costs one change of the run.
fn stretch(held: &Holdings, slot: Slot, place: Place, run: RunId, later: &[EngineHash]) -> (u32, u32) {
    let found = held.trie.run(run);
    let from = place.at - found.start;
    if held.names.has_own(slot) {
        return (from, from + 1);
    }
    let names = &held.trie.chunks.names(found.chunk)[found.start as usize..found.end() as usize];
    let (before, behind) = (&names[..from as usize], &names[from as usize + 1..]);
    let same = |(name, present): &(&EngineHash, &EngineHash)| stored_form(**name) == **present;
    let up = later.iter().zip(behind).take_while(same).count() as u32;
    let down = if up > 0 { 0 } else { later.iter().zip(before.iter().rev()).take_while(same).count() as u32 };
    (from - down, from + 1 + up)
}

/// Takes one copy of blocks `from..to` of a run; whether that was the last.
fn take_copies(held: &mut Holdings, slot: Slot, run: RunId, from: u32, to: u32, medium: Medium) -> bool {
    let Some(Hold::Truth { mut copies }) = held.hold(run, slot) else { return false };
    take_copy(&mut copies[medium.index()]);
    if copies == [0; 3] {
        held.drop_range(run, from, to, slot);
        return true;
    }
    // Where there is no room to cut it, all of the run has a copy less.
    let piece = held.try_cut(run, from, to).unwrap_or(run);
    *held.hold_mut(piece, slot) = Hold::Truth { copies };
    held.tidy(piece);
    false
}

/// The run at a place, if the replica has a copy of it on that medium.
fn run_with_copy(held: &Holdings, slot: Slot, place: Place, medium: Medium) -> Option<RunId> {
    let run = held.trie.chunks.view(place)?;
    match held.hold(run, slot)? {
        Hold::Truth { copies } => (copies[medium.index()] > 0).then_some(run),
        Hold::Belief { .. } => None,
    }
}
