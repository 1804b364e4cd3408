//! Copies that lie apart from the plain ones of their tier: each is removed by its own medium and owner.

use std::collections::BTreeMap;

use super::residence::Residence;
use crate::ids::{EngineHash, Medium};
use crate::memory::btree_bytes;

fn bytes_of(copies: usize) -> usize {
    btree_bytes(copies, size_of::<((EngineHash, Medium, u64), u32)>())
}

/// Copies by name, tier and tag.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tagged {
    copies: BTreeMap<(EngineHash, Medium, u64), u32>,
}

impl Tagged {
    pub(crate) fn is_empty(&self) -> bool {
        self.copies.is_empty()
    }

    /// One more copy, if it lies apart.
    pub(crate) fn add(&mut self, name: EngineHash, residence: Residence) {
        let Residence { medium, tag } = residence;
        if tag != 0 {
            *self.copies.entry((name, medium, tag)).or_default() += 1;
        }
    }

    /// Whether any of so many copies on the tier lies at that very residence.
    pub(crate) fn is_at(&self, name: EngineHash, residence: Residence, on_tier: u16) -> bool {
        let Residence { medium, tag } = residence;
        if tag != 0 {
            return self.copies.contains_key(&(name, medium, tag));
        }
        on_tier > 0 && (self.is_empty() || u32::from(on_tier) > self.on_tier(name, medium))
    }

    /// One copy less at that residence; false if none of so many on the tier lies there.
    pub(crate) fn take(&mut self, name: EngineHash, residence: Residence, on_tier: u16) -> bool {
        let Residence { medium, tag } = residence;
        if tag == 0 {
            return self.is_at(name, residence, on_tier);
        }
        let key = (name, medium, tag);
        let Some(copies) = self.copies.get_mut(&key) else { return false };
        *copies -= 1;
        if *copies == 0 {
            self.copies.remove(&key);
            if self.copies.is_empty() {
                self.copies = BTreeMap::new(); // which an emptied one is not: it keeps a node
            }
        }
        true
    }

    /// Copies of a block on a tier that lie apart.
    pub(crate) fn on_tier(&self, name: EngineHash, medium: Medium) -> u32 {
        self.copies.range((name, medium, 0)..=(name, medium, u64::MAX)).map(|(_, copies)| copies).sum()
    }

    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = (EngineHash, Residence, u32)> + '_ {
        self.copies.iter().map(|(&(name, medium, tag), &copies)| (name, Residence { medium, tag }, copies))
    }

    /// Copies as they were saved; false if there are some already.
    pub(crate) fn restore(&mut self, name: EngineHash, residence: Residence, copies: u32) -> bool {
        let Residence { medium, tag } = residence;
        tag != 0 && copies > 0 && self.copies.insert((name, medium, tag), copies).is_none()
    }

    /// What it takes at most.
    pub(crate) fn bytes(&self) -> usize {
        bytes_of(self.copies.len())
    }

    /// What so many more copies at a residence take at most.
    pub(crate) fn growth(&self, residence: Residence, copies: usize) -> usize {
        if residence.tag == 0 { 0 } else { bytes_of(self.copies.len() + copies) - self.bytes() }
    }
}
