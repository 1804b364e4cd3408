//! Names, slots and capacities of the replicas.

use crate::error::{Error, MAX_NAME_BYTES, MAX_REPLICAS, Result};
use crate::ids::Slot;
use crate::memory::{Map, map_growth};

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::Slot {}
    impl Sealed for &str {}
}

/// What a call knows a replica by: its slot, or its name, which the call looks up under the lock that it works under, so that
/// the slot cannot go to another replica in between.
pub trait ReplicaKey: Copy + sealed::Sealed {
    #[doc(hidden)]
    fn slot_in(self, replicas: &Registry) -> Result<Slot>;
}

impl ReplicaKey for Slot {
    fn slot_in(self, replicas: &Registry) -> Result<Slot> {
        match replicas.names.get(self.index()) {
            Some(Some(_)) => Ok(self),
            _ => Err(Error::UnknownSlot(self)),
        }
    }
}

impl ReplicaKey for &str {
    fn slot_in(self, replicas: &Registry) -> Result<Slot> {
        replicas.by_name.get(self).copied().ok_or_else(|| Error::UnknownReplica(self.to_owned()))
    }
}

/// The replicas of an index. The lowest free slot is given first; a name costs nothing once it is removed.
#[derive(Clone, Debug, Default)]
pub struct Registry {
    names: Vec<Option<String>>,
    by_name: Map<String, Slot>,
}

impl Registry {
    /// The registry with these names in slot order; none if they are not valid or not distinct.
    pub(crate) fn restore(names: Vec<Option<String>>) -> Option<Self> {
        let mut by_name = Map::default();
        for (slot, name) in names.iter().enumerate() {
            let Some(name) = name else { continue };
            let valid = (1..=MAX_NAME_BYTES).contains(&name.len()) && slot < MAX_REPLICAS;
            if !valid || by_name.insert(name.clone(), Slot(slot as u16)).is_some() {
                return None;
            }
        }
        Some(Registry { names, by_name })
    }

    /// Typed error if a replica of that name cannot be added.
    pub(crate) fn check(&self, name: &str) -> Result<()> {
        if name.is_empty() || name.len() > MAX_NAME_BYTES {
            return Err(Error::Name(name.len()));
        }
        if self.by_name.contains_key(name) {
            return Err(Error::ReplicaExists(name.to_owned()));
        }
        if self.live() >= MAX_REPLICAS {
            return Err(Error::TooManyReplicas);
        }
        Ok(())
    }

    pub(crate) fn add(&mut self, name: &str) -> Result<Slot> {
        self.check(name)?;
        let index = self.names.iter().position(Option::is_none).unwrap_or(self.names.len());
        if index == self.names.len() {
            self.names.reserve_exact(1);
            self.names.push(None);
        }
        self.names[index] = Some(name.to_owned());
        let slot = Slot(index as u16);
        self.by_name.insert(name.to_owned(), slot);
        Ok(slot)
    }

    /// Frees a live slot.
    pub(crate) fn remove(&mut self, slot: Slot) {
        if let Some(name) = self.names[slot.index()].take() {
            self.by_name.remove(&name);
        }
    }

    /// Whether a replica lives in that slot.
    pub(crate) fn is_live(&self, slot: Slot) -> bool {
        slot.slot_in(self).is_ok()
    }

    /// Names in slot order; a freed slot shows `None` until it is given again.
    pub(crate) fn names(&self) -> &[Option<String>] {
        &self.names
    }

    /// Slots ever used at once: the length of a result array.
    pub(crate) fn slots(&self) -> usize {
        self.names.len()
    }

    /// Slots once so many replicas live: freed ones are used again.
    pub(crate) fn slots_with(&self, replicas: usize) -> usize {
        self.slots().max(replicas).min(MAX_REPLICAS)
    }

    /// What the names take.
    pub(crate) fn bytes(&self) -> usize {
        let names: usize = self.names.iter().flatten().map(|name| 2 * name.len()).sum();
        names + self.names.capacity() * size_of::<Option<String>>() + self.by_name.allocation_size()
    }

    /// What the names take at least once so many replicas live.
    pub(crate) fn bytes_with(&self, replicas: usize) -> usize {
        let added = replicas.saturating_sub(self.live());
        let slots = self.slots_with(replicas) - self.slots();
        self.bytes() + slots * size_of::<Option<String>>() + map_growth(&self.by_name, added)
    }

    /// What one more name takes at most.
    pub(crate) fn growth(&self, name: &str) -> usize {
        let slot = if self.live() < self.slots() { 0 } else { size_of::<Option<String>>() };
        2 * name.len() + slot + map_growth(&self.by_name, 1)
    }

    pub(crate) fn live(&self) -> usize {
        self.by_name.len()
    }
}
