//! The event map: engines' names of blocks to where the blocks lie, one for all replicas.
//!
//! An entry is just the place; the name it stands for is in the chunk. A place survives splits and joins of runs.

use hashbrown::HashTable;

use crate::arena::{ChunkId, Chunks, NO_NAME, Place};
use crate::ids::EngineHash;

/// Shared names.
#[derive(Debug)]
pub(crate) struct Names {
    places: HashTable<Place>,
    key: u64,
}

impl Names {
    /// No names; `key` only places entries.
    pub(crate) fn new(key: u64) -> Self {
        Names { places: HashTable::new(), key: key | 1 }
    }

    /// Where the block lies that has this name.
    #[inline]
    pub(crate) fn find(&self, name: EngineHash, chunks: &Chunks) -> Option<Place> {
        self.places.find(slot_of(self.key, name), |&place| chunks.name(place) == name).copied()
    }

    /// Adds the block at a place, whose name is set already.
    pub(crate) fn insert(&mut self, place: Place, chunks: &Chunks) {
        let hash = |&place: &Place| slot_of(self.key, chunks.name(place));
        self.places.insert_unique(hash(&place), place, hash);
    }

    /// Forgets the block at a place, if it has a name.
    pub(crate) fn remove(&mut self, place: Place, chunks: &Chunks) {
        let name = chunks.name(place);
        if name == NO_NAME {
            return;
        }
        if let Ok(entry) = self.places.find_entry(slot_of(self.key, name), |&other| other == place) {
            entry.remove();
        }
    }

    /// The blocks of a chunk lie behind those of another now, from position `base` on.
    pub(crate) fn moved(&mut self, from: ChunkId, to: ChunkId, base: u32, chunks: &Chunks) {
        for (at, &name) in chunks.names(to).iter().enumerate().skip(base as usize) {
            let old = Place { chunk: from, at: at as u32 - base };
            if name == NO_NAME {
                continue;
            }
            if let Some(place) = self.places.find_mut(slot_of(self.key, name), |&other| other == old) {
                *place = Place { chunk: to, at: at as u32 };
            }
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    pub(crate) fn live_bytes(&self) -> usize {
        self.places.len() * (size_of::<Place>() + 1 + size_of::<EngineHash>())
    }

    pub(crate) fn reserved_bytes(&self) -> usize {
        self.places.allocation_size()
    }
}

#[inline]
fn slot_of(key: u64, name: EngineHash) -> u64 {
    name.0.wrapping_mul(key).rotate_left(32)
}
