//! Chains: the prompts that a commit feed has carried, so that a commit names only the blocks beyond the first unknown one.
//!
//! A tree of *segments*. A segment is what one message added: the hashes behind a block of an earlier segment. An *anchor*
//! is a block that a later message may go on behind: the last of a segment, and every [`ANCHOR_EVERY`]th. Since a block
//! hash covers all blocks before it, one hash names a whole chain. The table is bounded: the leaf that was used longest ago
//! goes first, so a segment never outlives what it rests on.

use hashbrown::HashMap;
use rustc_hash::FxBuildHasher;

use crate::ids::BlockHash;
use crate::linked_slab::{Id, Links, List, Listed, Slab, ids};

/// Blocks between two anchors inside of a segment. A prompt that leaves a known one elsewhere repeats fewer blocks than this.
pub const ANCHOR_EVERY: usize = 16;
/// Segments that a chain may consist of; a longer one is stored as a whole, so that resolving it stays short.
const DEEPEST: u32 = 32;

ids! {
    /// Id of a segment.
    SegmentId
}

/// Never empty while it lives.
#[derive(Debug, Default)]
struct Segment {
    hashes: Box<[BlockHash]>,
    /// The segment that it goes on behind, none at the start of a prompt.
    parent: SegmentId,
    /// Blocks of the chain before its first hash.
    start: u32,
    children: u32,
    depth: u32,
    /// Neighbours in the list of leaves.
    links: Links<SegmentId>,
}

impl Listed for Segment {
    type Id = SegmentId;

    fn links(&mut self) -> &mut Links<SegmentId> {
        &mut self.links
    }
}

#[derive(Clone, Copy, Debug)]
struct Anchor {
    segment: SegmentId,
    /// Blocks of the chain that ends here.
    blocks: u32,
}

/// The chains that a feed has carried: at most `capacity` blocks, or what the newest chain rests on, if that is more.
#[derive(Debug)]
pub struct Chains {
    segments: Slab<Segment>,
    anchors: HashMap<BlockHash, Anchor, FxBuildHasher>,
    /// Segments that nothing goes on behind, the one used longest ago first.
    leaves: List<SegmentId>,
    blocks: usize,
    capacity: usize,
}

impl Chains {
    /// An empty table of at most so many blocks, 8 bytes each and about 3 more for anchors.
    pub fn new(capacity: usize) -> Self {
        let (segments, anchors, leaves) = (Slab::default(), HashMap::default(), List::default());
        Self { segments, anchors, leaves, blocks: 0, capacity: capacity.max(1) }
    }

    /// Blocks stored.
    pub fn len(&self) -> usize {
        self.blocks
    }

    /// Whether nothing is stored.
    pub fn is_empty(&self) -> bool {
        self.blocks == 0
    }

    /// How many leading blocks of a prompt end at an anchor: what a message about it need not repeat.
    pub fn known(&self, chain: &[BlockHash]) -> usize {
        if chain.is_empty() || self.anchor(chain, chain.len()).is_some() {
            return chain.len();
        }
        // Most prompts are known up to near their end: look there first, in growing steps.
        let (mut high, mut step) = (chain.len() / ANCHOR_EVERY, 1);
        let mut low = high;
        while low > 0 && self.anchor(chain, low * ANCHOR_EVERY).is_none() {
            (high, low, step) = (low - 1, low.saturating_sub(step), 2 * step);
        }
        while low < high {
            let middle = (low + high).div_ceil(2);
            if self.anchor(chain, middle * ANCHOR_EVERY).is_some() { low = middle } else { high = middle - 1 }
        }
        let from = low * ANCHOR_EVERY;
        if let Some(end) = self.leaf_end(chain, from) {
            return end; // the next turn of a conversation: no need to look at each block
        }
        let last = chain.len().min(from + ANCHOR_EVERY - 1);
        (from + 1..=last).rev().find(|&blocks| self.anchor(chain, blocks).is_some()).unwrap_or(from)
    }

    /// Where the segment of an anchor ends, if the chain goes on to there and nothing is known behind it.
    fn leaf_end(&self, chain: &[BlockHash], blocks: usize) -> Option<usize> {
        let segment = self.segments.get(self.anchor(chain, blocks)?.segment);
        let end = segment.start as usize + segment.hashes.len();
        let is_end = segment.children == 0 && chain.get(end - 1) == segment.hashes.last();
        is_end.then_some(end)
    }

    fn anchor(&self, chain: &[BlockHash], blocks: usize) -> Option<Anchor> {
        let last = chain[blocks.checked_sub(1)?];
        self.anchors.get(&last).copied().filter(|anchor| anchor.blocks as usize == blocks)
    }

    /// The chain of so many blocks that ends with this hash, if it ends at an anchor.
    pub fn chain(&self, last: BlockHash, blocks: usize) -> Option<Vec<BlockHash>> {
        let anchor = self.anchors.get(&last).filter(|anchor| anchor.blocks as usize == blocks)?;
        Some(self.resolved(*anchor, 0))
    }

    /// The chain up to an anchor, with room for so many further blocks.
    fn resolved(&self, anchor: Anchor, room: usize) -> Vec<BlockHash> {
        let mut end = anchor.blocks as usize;
        let mut chain = Vec::with_capacity(end + room);
        chain.resize(end, BlockHash(0));
        let mut at = anchor.segment;
        while let Some(id) = at.some() {
            let segment = self.segments.get(id);
            let start = segment.start as usize;
            chain[start..end].copy_from_slice(&segment.hashes[..end - start]);
            (end, at) = (start, segment.parent);
        }
        chain
    }

    /// Stores a whole chain; how many of its leading blocks were known before.
    pub fn store(&mut self, chain: &[BlockHash]) -> usize {
        let known = self.known(chain);
        let above = self.anchor(chain, known);
        if known == chain.len() {
            if let Some(anchor) = above {
                self.touch(anchor.segment);
            }
            return known;
        }
        self.append(above, chain, known);
        self.evict();
        known
    }

    /// Stores `rest` behind the chain of `start` blocks that ends with `parent`; the whole chain, if that one is known.
    pub fn extend(&mut self, start: usize, parent: BlockHash, rest: &[BlockHash]) -> Option<Vec<BlockHash>> {
        let mut chain = Vec::new();
        if start > 0 {
            let anchor = self.anchors.get(&parent).copied().filter(|anchor| anchor.blocks as usize == start)?;
            chain = self.resolved(anchor, rest.len());
        }
        chain.extend_from_slice(rest);
        self.store(&chain);
        Some(chain)
    }

    /// The chains of the leaves, newest first, at most so many, of so many blocks in all.
    pub fn newest(&self, most: usize, mut most_blocks: usize) -> Vec<Vec<BlockHash>> {
        let mut found = Vec::new();
        let mut next = self.leaves.last.some();
        while let Some(at) = next.filter(|_| found.len() < most) {
            let segment = self.segments.get(at);
            let blocks = segment.start + segment.hashes.len() as u32;
            let Some(left) = most_blocks.checked_sub(blocks as usize) else { break };
            most_blocks = left;
            found.push(self.resolved(Anchor { segment: at, blocks }, 0));
            next = segment.links.prev.some();
        }
        found
    }

    /// Adds the blocks of a chain beyond `known` as a segment of its own.
    fn append(&mut self, above: Option<Anchor>, chain: &[BlockHash], known: usize) {
        let (mut parent, mut start, mut depth) = (SegmentId::NONE, 0, 0);
        if let Some(Anchor { segment, .. }) = above.filter(|above| self.segments.get(above.segment).depth < DEEPEST) {
            let above = self.segments.get_mut(segment);
            (parent, start, depth) = (segment, known, above.depth + 1);
            above.children += 1;
            if above.children == 1 {
                self.leaves.unlink(&mut self.segments, segment);
            }
        }
        let hashes: Box<[BlockHash]> = chain[start..].into();
        self.blocks += hashes.len();
        let segment = Segment { hashes, parent, start: start as u32, depth, ..Segment::default() };
        let at = self.segments.insert(segment);
        for blocks in anchors(start, chain.len()) {
            self.anchors.insert(chain[blocks - 1], Anchor { segment: at, blocks: blocks as u32 });
        }
        self.leaves.push_last(&mut self.segments, at);
    }

    /// Makes a leaf the one used last.
    fn touch(&mut self, at: SegmentId) {
        if self.leaves.last != at && self.segments.get(at).children == 0 {
            self.leaves.unlink(&mut self.segments, at);
            self.leaves.push_last(&mut self.segments, at);
        }
    }

    /// Lets the oldest leaves go until the rest fits; the newest stays, however long it is.
    fn evict(&mut self) {
        while self.blocks > self.capacity && self.leaves.first != self.leaves.last {
            let at = self.leaves.first;
            self.leaves.unlink(&mut self.segments, at);
            let segment = self.segments.remove(at);
            self.blocks -= segment.hashes.len();
            let start = segment.start as usize;
            for blocks in anchors(start, start + segment.hashes.len()) {
                let last = segment.hashes[blocks - start - 1];
                if self.anchors.get(&last).is_some_and(|anchor| anchor.segment == at) {
                    self.anchors.remove(&last);
                }
            }
            if let Some(parent) = segment.parent.some() {
                let above = self.segments.get_mut(parent);
                above.children -= 1;
                if above.children == 0 {
                    self.leaves.insert_after(&mut self.segments, SegmentId::NONE, parent);
                }
            }
        }
    }
}

/// The anchors of a segment of the blocks `start` to `end` of a chain, as lengths of chains.
fn anchors(start: usize, end: usize) -> impl Iterator<Item = usize> {
    let first = (start / ANCHOR_EVERY + 1) * ANCHOR_EVERY;
    (first..end).step_by(ANCHOR_EVERY).chain(std::iter::once(end))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;
    use crate::draws::link;

    impl Chains {
        /// Panics unless the parts agree.
        fn validate(&self) {
            let all = || self.segments.all().iter().enumerate().map(|(at, segment)| (SegmentId::new(at), segment));
            let living = || all().filter(|(_, segment)| !segment.hashes.is_empty());
            assert_eq!(self.blocks, living().map(|(_, segment)| segment.hashes.len()).sum::<usize>());
            assert_eq!(self.segments.live(), living().count());
            for (at, segment) in living() {
                let children = living().filter(|(_, other)| other.parent == at).count();
                assert_eq!(segment.children as usize, children);
                let is_there = |parent| living().any(|(other, _)| other == parent);
                assert!(segment.parent.some().is_none_or(is_there), "a segment outlives its parent");
                assert!(segment.depth <= DEEPEST);
            }
            let leaves = std::iter::successors(self.leaves.first.some(), |&at| self.segments.get(at).links.next.some());
            assert!(leaves.clone().all(|at| self.segments.get(at).children == 0));
            assert_eq!(leaves.count(), living().filter(|(_, segment)| segment.children == 0).count());
            for (last, anchor) in &self.anchors {
                let segment = self.segments.get(anchor.segment);
                assert_eq!(segment.hashes[(anchor.blocks - segment.start) as usize - 1], *last);
            }
        }
    }

    /// A prompt: a path of choices, each worth a few blocks, hashed as a chain.
    fn chain(path: &[(u8, u8)]) -> Vec<BlockHash> {
        let (mut hashes, mut last) = (Vec::new(), 1);
        for &(choice, blocks) in path {
            for _ in 0..blocks {
                last = link(last, u64::from(choice));
                hashes.push(BlockHash(last));
            }
        }
        hashes
    }

    #[test]
    fn a_message_repeats_nothing_of_a_conversation_and_little_of_a_shared_head() {
        let mut chains = Chains::new(10_000);
        let first = chain(&[(1, 40), (2, 5)]);
        assert_eq!(chains.store(&first), 0);
        let next = chain(&[(1, 40), (2, 5), (3, 25)]);
        assert_eq!(chains.known(&next), 45, "the next turn goes on at the end of the last");
        assert_eq!(chains.store(&next), 45);
        let other = chain(&[(1, 40), (9, 5)]);
        assert_eq!(chains.known(&other), 32, "another beginning leaves the head between two anchors");
        assert_eq!(chains.extend(32, first[31], &other[32..]), Some(other.clone()));
        assert_eq!(chains.extend(40, first[39], &other[40..]), None, "no anchor is there");
        assert_eq!(chains.chain(other[44], 45), Some(other));
        assert_eq!(chains.chain(first[44], 44), None, "the length must agree");
        chains.validate();
    }

    #[test]
    fn long_conversations_resolve_in_few_steps() {
        let mut chains = Chains::new(100_000);
        let mut path = Vec::new();
        for turn in 0..200 {
            path.push((turn, 3));
            let whole = chain(&path);
            let known = whole.len() - 3;
            assert_eq!(chains.store(&whole), known);
        }
        chains.validate();
    }

    /// The dull twin: every chain stored, newest last; known is what some chain of it begins with, at an anchor.
    fn twin_knows(stored: &[Vec<BlockHash>], wanted: &[BlockHash]) -> usize {
        let ends: HashSet<&[BlockHash]> = stored.iter().map(Vec::as_slice).collect();
        let begins = |blocks: usize| stored.iter().any(|chain| chain.starts_with(&wanted[..blocks]));
        let anchored = |blocks: usize| blocks % ANCHOR_EVERY == 0 || ends.contains(&wanted[..blocks]);
        (0..=wanted.len()).rev().find(|&blocks| begins(blocks) && anchored(blocks)).unwrap_or(0)
    }

    proptest! {
        #[test]
        fn nothing_is_lost_while_there_is_room(paths in prop::collection::vec(prop::collection::vec((0u8..3, 1u8..30), 1..6), 1..40)) {
            let (mut chains, mut stored) = (Chains::new(1 << 20), Vec::new());
            for path in paths {
                let whole = chain(&path);
                prop_assert_eq!(chains.known(&whole), twin_knows(&stored, &whole));
                chains.store(&whole);
                stored.push(whole);
                chains.validate();
            }
            for whole in &stored {
                let last = whole[whole.len() - 1];
                prop_assert_eq!(chains.chain(last, whole.len()), Some(whole.clone()));
            }
        }

        #[test]
        fn a_small_table_stays_small_and_right(
            capacity in 1usize..200, paths in prop::collection::vec(prop::collection::vec((0u8..3, 1u8..30), 1..6), 1..60)
        ) {
            let (mut chains, mut longest) = (Chains::new(capacity), 0);
            for path in paths {
                let whole = chain(&path);
                let known = chains.known(&whole);
                if known > 0 {
                    prop_assert_eq!(chains.chain(whole[known - 1], known), Some(whole[..known].to_vec()));
                }
                let parent = if known > 0 { whole[known - 1] } else { BlockHash(0) };
                prop_assert_eq!(chains.extend(known, parent, &whole[known..]), Some(whole.clone()));
                longest = longest.max(whole.len());
                prop_assert!(chains.len() <= capacity.max(longest * (DEEPEST as usize + 1)));
                prop_assert_eq!(chains.chain(whole[whole.len() - 1], whole.len()), Some(whole));
                prop_assert_eq!(chains.newest(1, usize::MAX).len(), 1);
                chains.validate();
            }
        }
    }
}
