//! A map whose entries stand in the order of their last use.

use std::borrow::Borrow;
use std::hash::Hash;

use hashbrown::HashMap;
use rustc_hash::FxBuildHasher;

use crate::linked_slab::{Id, Links, List, Listed, Slab, ids};

ids! {
    /// Id of a node.
    NodeId
}

#[derive(Debug)]
struct Node<K, V> {
    /// `None` in a node that is free.
    entry: Option<(K, V)>,
    links: Links<NodeId>,
}

impl<K, V> Default for Node<K, V> {
    fn default() -> Self {
        Self { entry: None, links: Links::default() }
    }
}

impl<K, V> Listed for Node<K, V> {
    type Id = NodeId;

    #[inline]
    fn links(&mut self) -> &mut Links<NodeId> {
        &mut self.links
    }
}

/// A map that knows which entry was used the longest ago: a table of positions in a slab of linked nodes.
#[derive(Debug)]
pub(crate) struct RecencyMap<K, V> {
    positions: HashMap<K, NodeId, FxBuildHasher>,
    nodes: Slab<Node<K, V>>,
    /// The entries, the one used last at the end.
    order: List<NodeId>,
}

impl<K, V> Default for RecencyMap<K, V> {
    fn default() -> Self {
        Self { positions: HashMap::default(), nodes: Slab::default(), order: List::default() }
    }
}

impl<K: Clone + Eq + Hash, V> RecencyMap<K, V> {
    /// Entries.
    pub fn len(&self) -> usize {
        self.positions.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.positions.is_empty()
    }

    /// The value of a key. Not a use.
    pub fn get<Q: Eq + Hash + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        self.entry(*self.positions.get(key)?).map(|(_, value)| value)
    }

    /// The same, to be changed.
    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        value_of(self.nodes.get_mut(*self.positions.get(key)?))
    }

    /// The value of a key, which has been used now.
    pub fn touch<Q: Eq + Hash + ?Sized>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
    {
        let id = *self.positions.get(key)?;
        if self.order.last != id {
            self.order.unlink(&mut self.nodes, id);
            self.order.push_last(&mut self.nodes, id);
        }
        value_of(self.nodes.get_mut(id))
    }

    /// Set the value of a key, which has been used now; the value before.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        if let Some(held) = self.touch(&key) {
            return Some(std::mem::replace(held, value));
        }
        let id = self.nodes.insert(Node { entry: Some((key.clone(), value)), ..Node::default() });
        self.positions.insert(key, id);
        self.order.push_last(&mut self.nodes, id);
        None
    }

    /// Take an entry out.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        let id = self.positions.remove(key)?;
        self.order.unlink(&mut self.nodes, id);
        self.nodes.remove(id).entry.map(|(_, value)| value)
    }

    /// The entry that was used the longest ago.
    pub fn first(&self) -> Option<(K, &V)> {
        let (key, value) = self.entry(self.order.first.some()?)?;
        Some((key.clone(), value))
    }

    /// Take out the entry that was used the longest ago.
    pub fn pop_first(&mut self) -> Option<(K, V)> {
        let (key, _) = self.first()?;
        self.remove(&key).map(|value| (key, value))
    }

    /// Take out everything.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// The entries, the one used last first.
    pub fn newest(&self) -> impl Iterator<Item = (&K, &V)> {
        let latest = std::iter::successors(self.order.last.some(), |&id| self.nodes.get(id).links.prev.some());
        latest.filter_map(|id| self.entry(id).map(|(key, value)| (key, value)))
    }

    /// All values, in no order.
    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.nodes.all().iter().filter_map(|node| node.entry.as_ref().map(|(_, value)| value))
    }

    #[inline]
    fn entry(&self, id: NodeId) -> Option<&(K, V)> {
        self.nodes.get(id).entry.as_ref()
    }
}

#[inline]
fn value_of<K, V>(node: &mut Node<K, V>) -> Option<&mut V> {
    node.entry.as_mut().map(|(_, value)| value)
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
