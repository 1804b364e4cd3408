//! Elements by id, and doubly linked lists through them: what runs of the index, runs of a replica's cache, chains that peers
//! have carried and entries of a [`RecencyMap`](crate::recency::RecencyMap) are kept in.
//!
//! Ids stay valid until the element is removed, whatever is added or removed meanwhile; then they are used again. A list
//! owns nothing: it knows its ends, and the links lie in the elements, wherever those are kept ([`Linked`]).

/// Id of an element. Each kind of element has a type of its own, made by [`ids!`].
pub(crate) trait Id: Copy + Default + PartialEq {
    /// No element.
    const NONE: Self;

    fn new(index: usize) -> Self;

    fn index(self) -> usize;

    /// The id, unless it is that of no element.
    #[inline]
    fn some(self) -> Option<Self> {
        (self != Self::NONE).then_some(self)
    }
}

/// Makes types of ids.
macro_rules! ids {
    ($($(#[$doc:meta])* $id:ident),* $(,)?) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub(crate) struct $id(pub u32);

        impl Default for $id {
            fn default() -> Self {
                <Self as $crate::linked_slab::Id>::NONE
            }
        }

        impl $crate::linked_slab::Id for $id {
            const NONE: Self = $id(u32::MAX);

            #[inline]
            fn new(index: usize) -> Self {
                $id(index as u32)
            }

            #[inline]
            fn index(self) -> usize {
                self.0 as usize
            }
        }
    )*};
}
pub(crate) use ids;

/// What a slab keeps. The default is what a removed element is replaced by.
pub(crate) trait Element: Default {
    type Id: Id;

    /// Where a removed element has the id of the next one that is free: any field will do, as its value is lost.
    fn next_free(&mut self) -> &mut Self::Id;
}

/// Elements by id.
#[derive(Debug)]
pub(crate) struct Slab<T: Element> {
    elements: Vec<T>,
    /// Removed elements are a stack through the slab itself, so that removing never allocates.
    free: T::Id,
    live: usize,
}

impl<T: Element> Default for Slab<T> {
    fn default() -> Self {
        Slab { elements: Vec::new(), free: T::Id::NONE, live: 0 }
    }
}

impl<T: Element> Slab<T> {
    pub(crate) fn insert(&mut self, element: T) -> T::Id {
        self.live += 1;
        let Some(id) = self.free.some() else {
            grow(&mut self.elements);
            self.elements.push(element);
            return T::Id::new(self.elements.len() - 1);
        };
        let place = &mut self.elements[id.index()];
        self.free = *place.next_free();
        *place = element;
        id
    }

    pub(crate) fn remove(&mut self, id: T::Id) -> T {
        self.live -= 1;
        let removed = std::mem::take(&mut self.elements[id.index()]);
        *self.elements[id.index()].next_free() = self.free;
        self.free = id;
        removed
    }

    #[inline]
    pub(crate) fn get(&self, id: T::Id) -> &T {
        &self.elements[id.index()]
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, id: T::Id) -> &mut T {
        &mut self.elements[id.index()]
    }

    /// Live elements and removed ones, by id.
    pub(crate) fn all(&self) -> &[T] {
        &self.elements
    }

    pub(crate) fn live(&self) -> usize {
        self.live
    }

    pub(crate) fn capacity(&self) -> usize {
        self.elements.capacity()
    }

    /// Elements by which the array will grow if so many more are inserted.
    pub(crate) fn growth(&self, more: usize) -> usize {
        growth(self.elements.capacity(), self.live + more)
    }
}

/// Makes room for one more element: an eighth more at a time, so that what is reserved stays near what is used.
#[inline]
pub(crate) fn grow<T>(elements: &mut Vec<T>) {
    if elements.len() == elements.capacity() {
        elements.reserve_exact(step(elements.len()));
    }
}

/// Elements by which an array of this length grows.
pub(crate) const fn step(len: usize) -> usize {
    len / 8 + 16
}

/// Elements that a vector of that capacity, which grows by [`step`], grows by to have room for so many.
pub(crate) fn growth(capacity: usize, elements: usize) -> usize {
    let mut grown = capacity;
    while grown < elements {
        grown += step(grown);
    }
    grown - capacity
}

/// The neighbours of an element in the list that it is in.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Links<I> {
    pub prev: I,
    pub next: I,
}

/// Where the links of elements lie. An element is in one list at most, or has links for each.
pub(crate) trait Linked {
    type Id: Id;

    fn links(&mut self, id: Self::Id) -> &mut Links<Self::Id>;
}

/// An element that has its links in itself.
pub(crate) trait Listed: Default {
    type Id: Id;

    fn links(&mut self) -> &mut Links<Self::Id>;
}

impl<T: Listed> Element for T {
    type Id = <T as Listed>::Id;

    fn next_free(&mut self) -> &mut Self::Id {
        &mut self.links().next
    }
}

impl<T: Listed> Linked for Slab<T> {
    type Id = <T as Listed>::Id;

    #[inline]
    fn links(&mut self, id: Self::Id) -> &mut Links<Self::Id> {
        self.get_mut(id).links()
    }
}

/// A list through elements, from the first to the last. Every step costs O(1).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct List<I> {
    pub first: I,
    pub last: I,
}

impl<I: Id> List<I> {
    /// Puts an element that is in no list at the end.
    #[inline]
    pub(crate) fn push_last(&mut self, elements: &mut impl Linked<Id = I>, id: I) {
        self.link(elements, self.last, id, I::NONE);
    }

    /// Puts an element that is in no list right behind another, or first if that is none.
    #[inline]
    pub(crate) fn insert_after(&mut self, elements: &mut impl Linked<Id = I>, prev: I, id: I) {
        let next = if prev == I::NONE { self.first } else { elements.links(prev).next };
        self.link(elements, prev, id, next);
    }

    /// Takes an element out.
    #[inline]
    pub(crate) fn unlink(&mut self, elements: &mut impl Linked<Id = I>, id: I) {
        let links = *elements.links(id);
        self.close(elements, links);
    }

    /// Takes out the element that has these links.
    #[inline]
    pub(crate) fn close(&mut self, elements: &mut impl Linked<Id = I>, Links { prev, next }: Links<I>) {
        self.join(elements, prev, next);
    }

    #[inline]
    fn link(&mut self, elements: &mut impl Linked<Id = I>, prev: I, id: I, next: I) {
        *elements.links(id) = Links { prev, next };
        self.join(elements, prev, id);
        self.join(elements, id, next);
    }

    /// Makes two elements neighbours; none stands for the list's end.
    #[inline]
    fn join(&mut self, elements: &mut impl Linked<Id = I>, prev: I, next: I) {
        match prev.some() {
            Some(prev) => elements.links(prev).next = next,
            None => self.first = next,
        }
        match next.some() {
            Some(next) => elements.links(next).prev = prev,
            None => self.last = prev,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    ids! {
        NodeId
    }

    #[derive(Default)]
    struct Node {
        value: u32,
        links: Links<NodeId>,
    }

    impl Listed for Node {
        type Id = NodeId;

        fn links(&mut self) -> &mut Links<NodeId> {
            &mut self.links
        }
    }

    fn values(list: List<NodeId>, slab: &Slab<Node>) -> Vec<u32> {
        let forth = std::iter::successors(list.first.some(), |&id| slab.get(id).links.next.some());
        let back = std::iter::successors(list.last.some(), |&id| slab.get(id).links.prev.some());
        let forth: Vec<NodeId> = forth.collect();
        let mut back: Vec<NodeId> = back.collect();
        back.reverse();
        assert_eq!(forth, back);
        forth.into_iter().map(|id| slab.get(id).value).collect()
    }

    /// Any mixture of calls leaves the slab and the list with what a vector has.
    #[test]
    fn equal_to_a_vector() {
        let (mut slab, mut list, mut twin) = (Slab::<Node>::default(), List::default(), Vec::<(NodeId, u32)>::new());
        for step in 0..4_000_u32 {
            let chance = step.wrapping_mul(0x9E37_79B9).rotate_left(11);
            let at = if twin.is_empty() { 0 } else { chance as usize / 8 % twin.len() };
            if chance % 8 < 3 && !twin.is_empty() {
                let (id, value) = twin.remove(at);
                list.unlink(&mut slab, id);
                assert_eq!(slab.remove(id).value, value);
            } else {
                let id = slab.insert(Node { value: step, ..Node::default() });
                if chance % 2 == 0 {
                    list.push_last(&mut slab, id);
                    twin.push((id, step));
                } else {
                    let prev = at.checked_sub(1).map_or(NodeId::NONE, |before| twin[before].0);
                    list.insert_after(&mut slab, prev, id);
                    twin.insert(at, (id, step));
                }
            }
            assert_eq!(values(list, &slab), twin.iter().map(|&(_, value)| value).collect::<Vec<_>>());
            assert_eq!(slab.live(), twin.len());
        }
        assert!(slab.all().len() < 3_000, "ids are used again");
    }
}
