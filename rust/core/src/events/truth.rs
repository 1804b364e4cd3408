//! Store, removal and clear events, in whatever order they come.

use std::collections::VecDeque;

use super::names::{BATCH, Home};
use super::orphans::Orphan;
use crate::arena::{ChunkId, Hold, NO_NAME, Place};
use crate::engine::Engine;
use crate::ids::{BlockHash, EngineHash, Medium, Slot};
use crate::outcome::{Removed, Stored, StoredEvent};
use crate::radix::RunId;

impl Engine {
    /// A store event; see `Index::stored`. `counting`: what is there already is a further copy, and no report of reuse.
    pub(crate) fn stored(&mut self, slot: Slot, event: &StoredEvent<'_>, now: f64, counting: bool) -> Stored {
        self.clock = self.clock.max(now);
        self.set_fed(slot, true);
        let mut done = Stored::default();
        let parent = match event.parent {
            None => None,
            Some(name) => match self.place_of(slot, name) {
                None => {
                    self.wait(slot, name, event, &mut done);
                    return done;
                }
                known => known,
            },
        };
        let seed = parent.map_or(event.seed, |place| self.chunks.block(place).0);
        let chain = event.contents.chain(seed);
        if self.is_over_budget() {
            done.dropped = chain.len();
            self.counters.dropped += chain.len() as u64;
            return done;
        }
        self.store_chain(slot, parent, &chain, event.engine, event.medium, counting, &mut done);
        if !self.orphans.is_empty() {
            self.adopt_orphans(event.engine.iter().copied().collect(), &mut done);
        }
        self.enforce_budget();
        self.counters.reused += done.reused as u64;
        self.unmatched.add(slot, (done.stored + done.confirmed) as u64);
        done
    }

    /// A removal event: one copy less of each of these blocks on that medium.
    pub(crate) fn removed(&mut self, slot: Slot, names: &[EngineHash], medium: Medium) -> Removed {
        let mut done = Removed::default();
        let mut rest = names;
        while let Some((&name, later)) = rest.split_first() {
            let own = self.own_place(slot, name);
            let place = own.or_else(|| self.names.find(stored_form(name), &self.chunks));
            let run = place.and_then(|place| self.run_with_copy(slot, place, medium));
            let Some((place, run)) = place.zip(run) else {
                let waited = self.orphans.remove(slot, name, medium);
                done.removed += usize::from(waited);
                done.unknown += usize::from(!waited);
                rest = later;
                continue;
            };
            let (from, to) = self.stretch(slot, place, run, later);
            rest = &rest[(to - from) as usize..];
            done.removed += (to - from) as usize;
            let ended = self.take_copies(slot, run, from, to, medium);
            if ended && !self.replicas[slot.index()].own_names.is_empty() {
                self.replicas[slot.index()].own_names.remove(&name);
            }
        }
        self.counters.unknown_removals += done.unknown as u64;
        done
    }

    /// Positions of a run, around the block at `place`, that the names after its own go through in order, up or down.
    fn stretch(&self, slot: Slot, place: Place, run: RunId, later: &[EngineHash]) -> (u32, u32) {
        let found = self.tree.run(run);
        let names = self.chunks.names(found.chunk);
        let (first, end) = (found.start, found.end());
        let (mut from, mut to) = (place.at, place.at + 1);
        if self.replicas[slot.index()].own_names.is_empty() {
            for &name in later {
                let name = stored_form(name);
                if to < end && names[to as usize] == name && (from == place.at) {
                    to += 1;
                } else if from > first && names[from as usize - 1] == name && (to == place.at + 1) {
                    from -= 1;
                } else {
                    break;
                }
            }
        }
        (from - first, to - first)
    }

    /// Takes one copy of blocks `from..to` of a run; whether that was the last.
    fn take_copies(&mut self, slot: Slot, run: RunId, from: u32, to: u32, medium: Medium) -> bool {
        let Some(Hold::Truth { mut copies }) = self.hold(run, slot) else { return false };
        copies[medium.index()] -= 1;
        if copies == [0; 3] {
            self.drop_range(run, from, to, slot);
            return true;
        }
        let piece = self.cut(run, from, to);
        self.record_mut(piece, slot).hold = Hold::Truth { copies };
        self.tidy(piece);
        false
    }

    /// The run at a place, if the replica has a copy of it on that medium.
    fn run_with_copy(&self, slot: Slot, place: Place, medium: Medium) -> Option<RunId> {
        let run = self.chunks.view(place)?;
        match self.hold(run, slot)? {
            Hold::Truth { copies } => (copies[medium.index()] > 0).then_some(run),
            Hold::Belief { .. } => None,
        }
    }

    /// Where the block lies that a replica calls so.
    pub(super) fn place_of(&self, slot: Slot, name: EngineHash) -> Option<Place> {
        self.own_place(slot, name).or_else(|| self.names.find(stored_form(name), &self.chunks))
    }

    /// The same by the replica's own names, while it knows the block.
    fn own_place(&self, slot: Slot, name: EngineHash) -> Option<Place> {
        let &(place, block) = self.replicas[slot.index()].own_names.get(&name)?;
        let run = if self.chunks.is_at(place, block) { self.chunks.view(place)? } else { return None };
        self.hold(run, slot).filter(|hold| !hold.is_belief()).map(|_| place)
    }

    /// Puts an event's blocks in the orphan buffer: each waits for the one before.
    fn wait(&mut self, slot: Slot, mut parent: EngineHash, event: &StoredEvent<'_>, done: &mut Stored) {
        for (&name, content) in event.engine.iter().zip(event.contents.iter()) {
            let orphan = Orphan { slot, parent, name, content, medium: event.medium };
            let full = self.orphans.push(orphan, self.config.orphan_blocks);
            self.counters.orphans_dropped += u64::from(full);
            self.counters.orphaned += 1;
            done.orphaned += 1;
            parent = name;
        }
    }

    /// Adds a copy of each block of a chain below `parent`.
    #[expect(clippy::too_many_arguments, reason = "the parts of a store event")]
    fn store_chain(
        &mut self,
        slot: Slot,
        parent: Option<Place>,
        chain: &[BlockHash],
        names: &[EngineHash],
        medium: Medium,
        counting: bool,
        done: &mut Stored,
    ) {
        let above = parent.map_or(RunId::ROOT, |place| self.run_ending_at(place));
        let matched = self.descend_split(above, chain);
        let mut path = std::mem::take(&mut self.path);
        let mut at = 0;
        for &run in &path {
            self.add_copy(run, slot, medium, counting, done);
            let found = self.tree.run(run);
            let (place, len) = (found.place(0), found.len as usize);
            self.set_names(slot, place, &names[at..at + len]);
            at += len;
        }
        path.insert(0, above);
        let last = path[path.len() - 1];
        let rest = &chain[matched..];
        if !rest.is_empty() {
            let (_, place) = self.extend(last, rest, slot, Hold::one_copy(medium));
            done.stored += rest.len();
            self.set_names(slot, place, &names[matched..]);
        }
        for &run in path.iter().rev() {
            self.merge_down(run);
        }
        path.clear();
        self.path = path;
    }

    /// The run whose last block lies at a place.
    fn run_ending_at(&mut self, place: Place) -> RunId {
        let Some(run) = self.chunks.view(place) else { return RunId::ROOT };
        let found = self.tree.run(run);
        let inside = place.at + 1 - found.start;
        if inside < found.len { self.split(run, inside) } else { run }
    }

    /// One more copy of a run that the tree has.
    pub(super) fn add_copy(&mut self, run: RunId, slot: Slot, medium: Medium, counting: bool, done: &mut Stored) {
        let len = self.tree.run(run).len;
        match self.hold(run, slot) {
            None => {
                self.add_holder(run, slot, Hold::one_copy(medium));
                self.link_last(run, slot);
                done.stored += len as usize;
            }
            // The wire shows a second copy and a report of reuse alike: only the replica's owner can say which it is.
            Some(Hold::Truth { copies }) if copies[medium.index()] > 0 && !counting => {
                done.reused += len as usize;
            }
            Some(Hold::Truth { mut copies }) => {
                copies[medium.index()] = copies[medium.index()].saturating_add(1);
                self.record_mut(run, slot).hold = Hold::Truth { copies };
                done.copies += len as usize;
            }
            Some(belief) => {
                self.unlink(run, slot);
                *self.count(slot, &belief) -= u64::from(len);
                let hold = Hold::one_copy(medium);
                self.record_mut(run, slot).hold = hold;
                *self.count(slot, &hold) += u64::from(len);
                self.link_last(run, slot);
                done.confirmed += len as usize;
            }
        }
    }

    /// The replica calls the blocks from this place on so.
    fn set_names(&mut self, slot: Slot, place: Place, names: &[EngineHash]) {
        self.allow_names(place.chunk);
        let present = &self.chunks.names(place.chunk)[place.at as usize..][..names.len()];
        let plain = self.replicas[slot.index()].own_names.is_empty() && !names.contains(&NO_NAME);
        if plain && present == names {
            return;
        }
        let fresh = plain && present.iter().all(|&name| name == NO_NAME);
        self.names.reserve(names.len(), &self.chunks);
        if fresh {
            self.chunks.set_names(place, names);
        }
        let mut at = place;
        let mut ahead = self.names.homes(names.iter().map(|&name| stored_form(name)));
        for (batch, later) in names.chunks(BATCH).zip(1..) {
            let homes = ahead;
            ahead = self.names.homes(names.iter().skip(later * BATCH).map(|&name| stored_form(name)));
            for (&name, home) in batch.iter().zip(homes) {
                if fresh {
                    self.add_name(slot, at, name, home);
                } else {
                    self.set_name(slot, at, name, home);
                }
                at.at += 1;
            }
        }
    }

    /// Puts a name that the chunk has already in the map; if it means another block, the replica keeps it for itself.
    #[inline]
    fn add_name(&mut self, slot: Slot, place: Place, name: EngineHash, home: Home) {
        if let Err(free) = self.names.probe_from(home, name, &self.chunks) {
            self.names.insert(free, home, place);
        } else {
            self.chunks.set_name(place, NO_NAME);
            self.keep_own(slot, place, name);
        }
    }

    fn keep_own(&mut self, slot: Slot, place: Place, name: EngineHash) {
        let block = self.chunks.block(place);
        self.replicas[slot.index()].own_names.insert(name, (place, block));
        self.chunks.fix(place.chunk);
    }

    fn allow_names(&mut self, chunk: ChunkId) {
        if !self.chunks.is_named(chunk) {
            let views = self.views(chunk);
            self.chunks.allow_names(chunk, views);
        }
    }

    /// Gives a block its shared name again; false if another has it.
    pub(crate) fn restore_name(&mut self, run: RunId, offset: u32, name: EngineHash) -> bool {
        let place = self.tree.run(run).place(offset);
        self.allow_names(place.chunk);
        self.names.reserve(1, &self.chunks);
        let [home, ..] = self.names.homes(std::iter::once(name));
        let Err(free) = self.names.probe_from(home, name, &self.chunks) else { return false };
        self.chunks.set_name(place, name);
        self.names.insert(free, home, place);
        true
    }

    /// Gives a block a replica's own name again.
    pub(crate) fn restore_own_name(&mut self, slot: Slot, name: EngineHash, run: RunId, offset: u32) {
        let place = self.tree.run(run).place(offset);
        self.allow_names(place.chunk);
        self.keep_own(slot, place, name);
    }

    fn set_name(&mut self, slot: Slot, place: Place, name: EngineHash, home: Home) {
        let form = stored_form(name);
        let present = self.chunks.name(place);
        let replica = &mut self.replicas[slot.index()];
        if !replica.own_names.is_empty() {
            replica.own_names.remove(&name);
        }
        if present == form {
            return;
        }
        match self.names.probe_from(home, form, &self.chunks) {
            Err(free) if present == NO_NAME => {
                self.chunks.set_name(place, form);
                self.names.insert(free, home, place);
            }
            _ => self.keep_own(slot, place, name),
        }
    }

    /// Stores the blocks that waited for these names, and those that waited for them in turn.
    fn adopt_orphans(&mut self, mut named: VecDeque<EngineHash>, done: &mut Stored) {
        while let Some(name) = named.pop_front() {
            let mut orphans = std::mem::take(&mut self.orphans);
            let children = orphans.take_children(name, |slot| self.place_of(slot, name).is_some());
            self.orphans = orphans;
            for orphan in children {
                let Some(place) = self.place_of(orphan.slot, name) else { continue };
                let block = orphan.content.chained(self.chunks.block(place).0);
                let counting = !self.replicas[orphan.slot.index()].reuse_reports;
                self.store_chain(orphan.slot, Some(place), &[block], &[orphan.name], orphan.medium, counting, done);
                done.adopted += 1;
                named.push_back(orphan.name);
            }
        }
    }
}

/// The one value that stands for "no name" is stored as its neighbour.
#[inline]
fn stored_form(name: EngineHash) -> EngineHash {
    if name == NO_NAME { EngineHash(name.0 ^ 1) } else { name }
}
