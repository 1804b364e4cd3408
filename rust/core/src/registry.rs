//! Names, slots and capacities of the replicas.

use std::collections::HashMap;

use crate::error::{Error, MAX_NAME_BYTES, MAX_REPLICAS, Result};
use crate::ids::Slot;

/// The replicas of an index. The lowest free slot is given first; a name costs nothing once it is removed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Registry {
    names: Vec<Option<String>>,
    by_name: HashMap<String, Slot>,
}

impl Registry {
    /// The registry with these names in slot order; none if they are not valid or not distinct.
    pub(crate) fn restore(names: Vec<Option<String>>) -> Option<Self> {
        let mut by_name = HashMap::new();
        for (slot, name) in names.iter().enumerate() {
            let Some(name) = name else { continue };
            let valid = (1..=MAX_NAME_BYTES).contains(&name.len()) && slot < MAX_REPLICAS;
            if !valid || by_name.insert(name.clone(), Slot(slot as u16)).is_some() {
                return None;
            }
        }
        Some(Registry { names, by_name })
    }

    pub(crate) fn add(&mut self, name: &str) -> Result<Slot> {
        if name.is_empty() || name.len() > MAX_NAME_BYTES {
            return Err(Error::Name(name.len()));
        }
        if self.by_name.contains_key(name) {
            return Err(Error::ReplicaExists(name.to_owned()));
        }
        let index = self.names.iter().position(Option::is_none).unwrap_or(self.names.len());
        if index >= MAX_REPLICAS {
            return Err(Error::TooManyReplicas);
        }
        if index == self.names.len() {
            self.names.push(None);
        }
        self.names[index] = Some(name.to_owned());
        let slot = Slot(index as u16);
        self.by_name.insert(name.to_owned(), slot);
        Ok(slot)
    }

    pub(crate) fn remove(&mut self, slot: Slot) -> Result<()> {
        let name = self.names.get_mut(slot.index()).and_then(Option::take).ok_or(Error::UnknownSlot(slot))?;
        self.by_name.remove(&name);
        Ok(())
    }

    pub(crate) fn check(&self, slot: Slot) -> Result<()> {
        match self.names.get(slot.index()) {
            Some(Some(_)) => Ok(()),
            _ => Err(Error::UnknownSlot(slot)),
        }
    }

    pub(crate) fn slot(&self, name: &str) -> Option<Slot> {
        self.by_name.get(name).copied()
    }

    /// Names in slot order; a freed slot shows `None` until it is given again.
    pub(crate) fn names(&self) -> &[Option<String>] {
        &self.names
    }

    /// Slots ever used at once: the length of a result array.
    pub(crate) fn slots(&self) -> usize {
        self.names.len()
    }

    pub(crate) fn live(&self) -> usize {
        self.by_name.len()
    }
}
