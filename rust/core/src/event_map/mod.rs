//! The event map: engines' names of blocks to where the blocks lie.
//!
//! One table for all replicas, as engines of one kind give a block the same name. A replica whose name for a block disagrees
//! with the shared one has it in a map of its own. A name lives as long as its block stands in the trie.

mod bucket;
mod table;

use table::{Home, Homes, Table};

use crate::ids::{BlockHash, EngineHash, Slot};
use crate::memory::{Map, map_growth};
use crate::trie::{Moved, NO_NAME, Place, Trie};

/// Where a replica's own names lead.
type OwnNames = Map<EngineHash, (Place, BlockHash)>;

/// Names of blocks.
#[derive(Debug)]
pub(crate) struct EventMap {
    shared: Table,
    /// By slot: names that disagree with the shared ones, each valid while the replica knows the block at that place.
    own: Vec<OwnNames>,
}

impl EventMap {
    /// No names; `key` only places entries.
    pub(crate) fn new(key: u64) -> Self {
        EventMap { shared: Table::new(key), own: Vec::new() }
    }

    /// Makes room for a replica.
    pub(crate) fn open(&mut self, slot: Slot) {
        slot.extend(&mut self.own);
    }

    /// Forgets a replica's own names.
    pub(crate) fn clear(&mut self, slot: Slot) {
        self.own[slot.index()] = Map::default();
    }

    /// Where the block lies that all replicas call so.
    #[inline]
    pub(crate) fn shared(&self, name: EngineHash, trie: &Trie) -> Option<Place> {
        self.shared.find(stored_form(name), &trie.chunks)
    }

    /// Where the block lies that a replica called so, if it still does.
    #[inline]
    pub(crate) fn own(&self, slot: Slot, name: EngineHash, trie: &Trie) -> Option<Place> {
        let own = &self.own[slot.index()];
        if own.is_empty() {
            return None; // as nearly always: not even a hash of the name
        }
        let &(place, block) = own.get(&name)?;
        trie.chunks.is_at(place, block).then_some(place)
    }

    /// Whether a replica has names of its own.
    #[inline]
    pub(crate) fn has_own(&self, slot: Slot) -> bool {
        !self.own[slot.index()].is_empty()
    }

    /// Whether any of these is the shared name of a block.
    pub(crate) fn knows_any(&self, names: &[EngineHash], trie: &Trie) -> bool {
        if self.shared.len() == 0 {
            return false;
        }
        if let &[name] = names {
            return self.shared(name, trie).is_some();
        }
        let mut homes = Homes::new(&self.shared, names);
        while let Some((name, home)) = homes.next(&self.shared) {
            if self.shared.probe_from(home, stored_form(name), &trie.chunks).is_ok() {
                return true;
            }
        }
        false
    }

    /// A replica's own names with their places, right or not.
    pub(crate) fn all_own(&self, slot: Slot) -> impl Iterator<Item = (EngineHash, Place, BlockHash)> + '_ {
        self.own[slot.index()].iter().map(|(&name, &(place, block))| (name, place, block))
    }

    /// The replica does not call a block so any more.
    #[inline]
    pub(crate) fn drop_own(&mut self, slot: Slot, name: EngineHash) {
        if self.has_own(slot) {
            self.own[slot.index()].remove(&name);
        }
    }

    /// Names new blocks from a place on, for all replicas; false, with some of them named, if a name is known already.
    pub(crate) fn name(&mut self, place: Place, names: &[EngineHash], trie: &mut Trie) -> bool {
        if names.contains(&NO_NAME) {
            return false;
        }
        if let &[name] = names {
            return self.name_one(place, name, trie); // a replica that decodes: there is nothing to fetch ahead
        }
        trie.allow_names(place.chunk);
        self.shared.reserve(names.len(), &trie.chunks);
        trie.chunks.set_names(place, names);
        let mut at = place;
        let mut homes = Homes::new(&self.shared, names);
        while let Some((name, home)) = homes.next(&self.shared) {
            let Err(free) = self.shared.probe_from(home, name, &trie.chunks) else { return false };
            self.shared.insert(free, home, at);
            at.at += 1;
        }
        true
    }

    /// The replica calls the blocks from this place on so.
    pub(crate) fn set(&mut self, slot: Slot, place: Place, names: &[EngineHash], trie: &mut Trie) {
        trie.allow_names(place.chunk);
        self.shared.reserve(names.len(), &trie.chunks);
        let mut at = place;
        for &name in names {
            self.set_one(slot, at, name, self.shared.home(stored_form(name)), trie);
            at.at += 1;
        }
    }

    fn set_one(&mut self, slot: Slot, place: Place, name: EngineHash, home: Home, trie: &mut Trie) {
        let (form, present) = (stored_form(name), trie.chunks.name(place));
        self.drop_own(slot, name);
        if present == form {
            return;
        }
        match self.shared.probe_from(home, form, &trie.chunks) {
            Err(free) if present == NO_NAME => {
                trie.chunks.set_name(place, form);
                self.shared.insert(free, home, place);
            }
            _ => self.keep_own(slot, place, name, trie),
        }
    }

    fn keep_own(&mut self, slot: Slot, place: Place, name: EngineHash, trie: &mut Trie) {
        self.own[slot.index()].insert(name, (place, trie.chunks.block(place)));
        trie.chunks.fix(place.chunk);
    }

    /// Gives a block a name for all replicas; false if another has it.
    pub(crate) fn name_one(&mut self, place: Place, name: EngineHash, trie: &mut Trie) -> bool {
        trie.allow_names(place.chunk);
        self.shared.reserve(1, &trie.chunks);
        let home = self.shared.home(name);
        let Err(free) = self.shared.probe_from(home, name, &trie.chunks) else { return false };
        trie.chunks.set_name(place, name);
        self.shared.insert(free, home, place);
        true
    }

    /// Gives a block a replica's own name again.
    pub(crate) fn restore_own(&mut self, slot: Slot, place: Place, name: EngineHash, trie: &mut Trie) {
        trie.allow_names(place.chunk);
        self.keep_own(slot, place, name, trie);
    }

    /// Forgets the shared names of a chunk from a place to its end, which will be cut off.
    pub(crate) fn cut(&mut self, place: Place, trie: &Trie) {
        self.shared.remove_from(place, &trie.chunks);
    }

    /// Blocks have moved to another chunk.
    pub(crate) fn moved(&mut self, moved: Moved, trie: &Trie) {
        self.shared.moved(moved, &trie.chunks);
    }

    /// Takes no more for the shared names than they need.
    pub(crate) fn shrink(&mut self, trie: &Trie) {
        self.shared.shrink(&trie.chunks);
    }

    /// Names that all replicas share.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn shared_names(&self) -> usize {
        self.shared.len()
    }

    pub(crate) fn len(&self) -> usize {
        self.shared.len() + self.own.iter().map(Map::len).sum::<usize>()
    }

    fn own_bytes(&self) -> usize {
        self.own.iter().map(Map::allocation_size).sum::<usize>() + self.own.capacity() * size_of::<OwnNames>()
    }

    /// Bytes that the maps grow by at most for so many more names, of which some can be the replica's own.
    pub(crate) fn growth(&self, slot: Slot, names: usize, own: usize) -> usize {
        self.shared.growth(names) + map_growth(&self.own[slot.index()], own)
    }

    #[cfg(feature = "testing")]
    pub(crate) fn mapped_bytes(&self) -> usize {
        self.shared.mapped_bytes()
    }

    pub(crate) fn live_bytes(&self) -> usize {
        self.shared.live_bytes() + self.own_bytes()
    }

    pub(crate) fn reserved_bytes(&self) -> usize {
        self.shared.reserved_bytes() + self.own_bytes()
    }
}

/// Whether the blocks from this place on have these shared names.
#[inline]
pub(crate) fn are_named(place: Place, names: &[EngineHash], trie: &Trie) -> bool {
    let present = trie.chunks.names(place.chunk).get(place.at as usize..);
    present.is_some_and(|present| present.starts_with(names)) && !names.contains(&NO_NAME)
}

/// The one value that stands for "no name" is stored as its neighbour.
#[inline]
pub(crate) fn stored_form(name: EngineHash) -> EngineHash {
    if name == NO_NAME { EngineHash(name.0 ^ 1) } else { name }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::EventMap;
    use crate::first_blocks::FirstBlocks;
    use crate::ids::{BlockHash, EngineHash, Slot};
    use crate::trie::{Place, RunId, Trie};

    /// Names from 1 on in chunks of 500: the table grows from 8 buckets to more than 16,384, in order of hashes and, where
    /// hashes gain bits, from the names.
    #[test]
    fn a_growing_table_finds_every_name() {
        (0..4).for_each(|key| grow(key, 200, 500));
        // Small ones, so that among them are some whose last buckets overflow into the first, before and after they grow.
        (0..1000).for_each(|key| grow(key, 40, 5));
    }

    fn grow(key: u64, chunks: u64, length: u64) {
        let (mut trie, mut map) = (Trie::new(1, FirstBlocks::new(1)), EventMap::new(key));
        map.open(Slot(0));
        let name = |at: u64| EngineHash(at + 1);
        let mut places = Vec::new();
        for chunk in 0..chunks {
            let from = chunk * length;
            let blocks: Vec<_> = (from..from + length).map(BlockHash).collect();
            let id = trie.chunks.create(&blocks, RunId::ROOT);
            trie.chunks.allow_names(id, BTreeMap::new());
            let names: Vec<_> = (from..from + length).map(name).collect();
            map.set(Slot(0), Place { chunk: id, at: 0 }, &names, &mut trie);
            places.extend((0..length as u32).map(|at| Place { chunk: id, at }));
            let some = (0..places.len()).step_by(977).chain(from as usize..places.len());
            for at in some {
                assert_eq!(map.shared(name(at as u64), &trie), Some(places[at]), "name {at} of {}", places.len());
            }
            assert_eq!(map.shared(name(places.len() as u64), &trie), None);
        }
        assert_eq!(map.shared_names(), places.len());
        for chunk in (0..chunks).filter(|chunk| chunk % 2 == 0) {
            map.cut(places[(chunk * length) as usize], &trie);
        }
        for (at, &place) in places.iter().enumerate() {
            let gone = at as u64 / length % 2 == 0;
            assert_eq!(map.shared(name(at as u64), &trie), (!gone).then_some(place), "name {at}");
        }
    }
}
