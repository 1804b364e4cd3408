//! A map whose entries stand in the order of their last use.

use std::hash::Hash;

use hashbrown::HashMap;
use rustc_hash::FxBuildHasher;

/// No node.
const NONE: u32 = u32::MAX;

#[derive(Debug)]
struct Node<K, V> {
    key: K,
    /// `None` in a free node, whose `next` is the next free one.
    value: Option<V>,
    prev: u32,
    next: u32,
}

/// A map that knows which entry was used the longest ago: a table of positions in a slab of linked nodes.
#[derive(Debug)]
pub struct RecencyMap<K, V> {
    positions: HashMap<K, u32, FxBuildHasher>,
    nodes: Vec<Node<K, V>>,
    free: u32,
    first: u32,
    last: u32,
}

impl<K, V> Default for RecencyMap<K, V> {
    fn default() -> Self {
        Self { positions: HashMap::default(), nodes: Vec::new(), free: NONE, first: NONE, last: NONE }
    }
}

impl<K: Copy + Eq + Hash, V> RecencyMap<K, V> {
    /// Entries.
    pub fn len(&self) -> usize {
        self.positions.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.positions.is_empty()
    }

    /// The value of a key. Not a use.
    pub fn get(&self, key: &K) -> Option<&V> {
        self.nodes[*self.positions.get(key)? as usize].value.as_ref()
    }

    /// The same, to be changed.
    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.nodes[*self.positions.get(key)? as usize].value.as_mut()
    }

    /// The value of a key, which has been used now.
    pub fn touch(&mut self, key: &K) -> Option<&mut V> {
        let at = *self.positions.get(key)?;
        if self.last != at {
            self.unlink(at);
            self.link_last(at);
        }
        self.nodes[at as usize].value.as_mut()
    }

    /// Set the value of a key, which has been used now; the value before.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        if let Some(held) = self.touch(&key) {
            return Some(std::mem::replace(held, value));
        }
        let node = Node { key, value: Some(value), prev: NONE, next: NONE };
        let at = if self.free == NONE {
            self.nodes.push(node);
            (self.nodes.len() - 1) as u32
        } else {
            let at = self.free;
            self.free = self.nodes[at as usize].next;
            self.nodes[at as usize] = node;
            at
        };
        self.positions.insert(key, at);
        self.link_last(at);
        None
    }

    /// Take an entry out.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        let at = self.positions.remove(key)?;
        self.unlink(at);
        let free = self.free;
        let node = &mut self.nodes[at as usize];
        (node.next, self.free) = (free, at);
        node.value.take()
    }

    /// The entry that was used the longest ago.
    pub fn first(&self) -> Option<(K, &V)> {
        let node = self.nodes.get(self.first as usize)?;
        Some((node.key, node.value.as_ref()?))
    }

    /// Take out the entry that was used the longest ago.
    pub fn pop_first(&mut self) -> Option<(K, V)> {
        let key = self.nodes.get(self.first as usize)?.key;
        self.remove(&key).map(|value| (key, value))
    }

    /// Take out everything.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// The entries, the one used last first.
    pub fn newest(&self) -> impl Iterator<Item = (&K, &V)> {
        let node = |at: u32| self.nodes.get(at as usize);
        let latest = std::iter::successors(node(self.last), move |last| node(last.prev));
        latest.filter_map(|node| Some((&node.key, node.value.as_ref()?)))
    }

    /// All values, in no order.
    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.nodes.iter().filter_map(|node| node.value.as_ref())
    }

    fn unlink(&mut self, at: u32) {
        let (prev, next) = (self.nodes[at as usize].prev, self.nodes[at as usize].next);
        match self.nodes.get_mut(prev as usize) {
            Some(node) => node.next = next,
            None => self.first = next,
        }
        match self.nodes.get_mut(next as usize) {
            Some(node) => node.prev = prev,
            None => self.last = prev,
        }
    }

    fn link_last(&mut self, at: u32) {
        let last = std::mem::replace(&mut self.last, at);
        let node = &mut self.nodes[at as usize];
        (node.prev, node.next) = (last, NONE);
        match self.nodes.get_mut(last as usize) {
            Some(node) => node.next = at,
            None => self.first = at,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// The same history on a plain vector of entries, oldest use first.
        #[test]
        fn entries_stand_in_the_order_of_their_last_use(steps in proptest::collection::vec((0_u8..5, 0_u8..6), 0..200)) {
            let (mut map, mut model) = (RecencyMap::default(), Vec::<(u8, usize)>::new());
            for (number, (step, key)) in steps.into_iter().enumerate() {
                let known = model.iter().position(|(other, _)| *other == key);
                match step {
                    0 | 1 => {
                        let before = known.map(|at| model.remove(at).1);
                        prop_assert_eq!(map.insert(key, number), before);
                        model.push((key, number));
                    }
                    2 => {
                        prop_assert_eq!(map.touch(&key).copied(), known.map(|at| model[at].1));
                        if let Some(at) = known {
                            let entry = model.remove(at);
                            model.push(entry);
                        }
                    }
                    3 => prop_assert_eq!(map.remove(&key), known.map(|at| model.remove(at).1)),
                    _ => {
                        let first = (!model.is_empty()).then(|| model.remove(0));
                        prop_assert_eq!(map.pop_first(), first);
                    }
                }
                prop_assert_eq!(map.first().map(|(key, value)| (key, *value)), model.first().copied());
                prop_assert_eq!(map.len(), model.len());
                prop_assert_eq!(map.get(&key).copied(), model.iter().find(|(other, _)| *other == key).map(|entry| entry.1));
            }
        }
    }
}
