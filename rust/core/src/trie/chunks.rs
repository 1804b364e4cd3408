//! Chunks: contiguous block hashes of a stretch of one chain, shared by the runs that are its pieces.
//!
//! The runs of a chunk partition it from position 0 to its end, each the child of the one before. Only the last can
//! leave, so a chunk never has gaps; a split costs no copy, and joining two pieces again neither.

use std::collections::BTreeMap;

use super::runs::RunId;
use crate::ids::{BlockHash, EngineHash};
use crate::linked_slab::{Element, Id, Slab, ids};
use crate::memory::btree_bytes;

ids! {
    /// Id of a chunk.
    ChunkId
}

/// Where a block lies. Splits and joins of runs do not move it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub chunk: ChunkId,
    pub at: u32,
}

impl Place {
    /// Bits of a position: 4 million blocks in a chunk, and in a prompt.
    pub(crate) const AT_BITS: u32 = 22;
    /// Bits of a chunk's id: 67 million chunks.
    pub(crate) const CHUNK_BITS: u32 = 26;
}

/// A chunk that grows by a block at a time (a replica that decodes) grows its memory by at least a cache line.
const SMALLEST_GROWTH: usize = 8;

/// Stands for "no engine named this block" in a chunk's names.
pub(crate) const NO_NAME: EngineHash = EngineHash(0xA5F1_52C8_6B3D_0E97);

#[derive(Debug)]
struct Chunk {
    blocks: Vec<BlockHash>,
    /// The run that starts at position 0.
    head: RunId,
    named: Option<Box<Named>>,
    next_free: ChunkId,
}

/// What only a chunk with blocks from events has.
#[derive(Debug, Default)]
struct Named {
    names: Vec<EngineHash>,
    /// The runs that start behind position 0, so that a chunk of one run has none.
    views: BTreeMap<u32, RunId>,
    /// Some replica has a name of its own for a block of this chunk, so its blocks must keep their places.
    fixed: bool,
}

impl Named {
    fn bytes(&self) -> usize {
        size_of::<Self>() + self.names.capacity() * size_of::<EngineHash>() + view_bytes(self.views.len())
    }
}

/// Bytes of so many starts of runs at most.
fn view_bytes(views: usize) -> usize {
    btree_bytes(views, size_of::<(u32, RunId)>())
}

/// Positions that a chunk of that length grows by for so many more blocks.
fn growth_of(len: usize, blocks: usize) -> usize {
    blocks.max(len / 8).max(SMALLEST_GROWTH)
}

impl Default for Chunk {
    fn default() -> Self {
        Chunk { blocks: Vec::new(), head: RunId::NONE, named: None, next_free: ChunkId::NONE }
    }
}

impl Element for Chunk {
    type Id = ChunkId;

    fn next_free(&mut self) -> &mut ChunkId {
        &mut self.next_free
    }
}

/// All chunks.
#[derive(Debug, Default)]
pub(crate) struct Chunks {
    slab: Slab<Chunk>,
    blocks: usize,
    /// Capacities of the blocks and names of all chunks.
    bytes: usize,
}

impl Chunks {
    /// A new chunk with these blocks, all of them one run's.
    pub(crate) fn create(&mut self, blocks: &[BlockHash], head: RunId) -> ChunkId {
        let chunk = Chunk { blocks: blocks.to_vec(), head, ..Chunk::default() };
        self.blocks += blocks.len();
        self.bytes += chunk.bytes();
        self.slab.insert(chunk)
    }

    /// All blocks.
    #[inline]
    pub(crate) fn blocks(&self, id: ChunkId) -> &[BlockHash] {
        &self.slab.get(id).blocks
    }

    pub(crate) fn len(&self, id: ChunkId) -> u32 {
        self.blocks(id).len() as u32
    }

    /// The block at a place.
    pub(crate) fn block(&self, place: Place) -> BlockHash {
        self.blocks(place.chunk)[place.at as usize]
    }

    /// Whether that block lies there.
    pub(crate) fn is_at(&self, place: Place, block: BlockHash) -> bool {
        let chunk = self.slab.all().get(place.chunk.index());
        chunk.and_then(|chunk| chunk.blocks.get(place.at as usize)) == Some(&block)
    }

    /// Appends blocks; room grows by an eighth.
    pub(crate) fn append(&mut self, id: ChunkId, blocks: &[BlockHash]) {
        let chunk = self.slab.get_mut(id);
        let (before, len) = (chunk.bytes(), chunk.blocks.len());
        if len + blocks.len() > chunk.blocks.capacity() {
            chunk.blocks.reserve_exact(growth_of(len, blocks.len()));
        }
        chunk.blocks.extend_from_slice(blocks);
        if let Some(named) = &mut chunk.named {
            named.names.reserve_exact(chunk.blocks.capacity() - len);
            named.names.resize(chunk.blocks.len(), NO_NAME);
        }
        self.blocks += blocks.len();
        self.bytes = self.bytes - before + chunk.bytes();
    }

    /// Cuts a chunk off; one that is empty is removed.
    pub(crate) fn truncate(&mut self, id: ChunkId, len: u32) {
        let chunk = self.slab.get_mut(id);
        let before = chunk.bytes();
        self.blocks -= chunk.blocks.len() - len as usize;
        chunk.truncate(len as usize);
        self.bytes = self.bytes - before + chunk.bytes();
        if len == 0 {
            self.slab.remove(id);
        }
    }

    /// Moves the blocks and names of a chunk behind those of another; gives the other's former length. The caller moves
    /// the runs.
    pub(crate) fn join(&mut self, front: ChunkId, back: ChunkId) -> u32 {
        let base = self.len(front);
        let old = self.slab.remove(back);
        self.bytes -= old.bytes();
        self.blocks -= old.blocks.len();
        self.append(front, &old.blocks);
        if let (Some(old), Some(named)) = (old.named, &mut self.slab.get_mut(front).named) {
            named.names[base as usize..].copy_from_slice(&old.names);
        }
        base
    }

    /// Notes which run starts at a position.
    pub(crate) fn set_view(&mut self, place: Place, run: RunId) {
        let chunk = self.slab.get_mut(place.chunk);
        if place.at == 0 {
            chunk.head = run;
        } else if let Some(named) = &mut chunk.named {
            let views = named.views.len();
            if named.views.insert(place.at, run).is_none() {
                self.bytes = self.bytes - view_bytes(views) + view_bytes(views + 1);
            }
        }
    }

    /// No run starts there any more.
    pub(crate) fn drop_view(&mut self, place: Place) {
        if let Some(named) = &mut self.slab.get_mut(place.chunk).named {
            let before = view_bytes(named.views.len());
            named.views.remove(&place.at);
            if named.views.is_empty() {
                named.views = BTreeMap::new(); // which an emptied one is not: it keeps a node
            }
            self.bytes = self.bytes - before + view_bytes(named.views.len());
        }
    }

    /// The run that starts at position 0.
    pub(crate) fn head(&self, id: ChunkId) -> RunId {
        self.slab.get(id).head
    }

    /// The run that contains a place of a chunk with names.
    pub(crate) fn view(&self, place: Place) -> Option<RunId> {
        let chunk = self.slab.get(place.chunk);
        let views = &chunk.named.as_ref()?.views;
        Some(views.range(..=place.at).next_back().map_or(chunk.head, |(_, &run)| run))
    }

    /// Whether blocks of this chunk have names.
    pub(crate) fn is_named(&self, id: ChunkId) -> bool {
        self.slab.get(id).named.is_some()
    }

    /// From now on blocks of this chunk can have names. `views` are the runs by their starts, but for
    /// the one at position 0.
    pub(crate) fn allow_names(&mut self, id: ChunkId, views: BTreeMap<u32, RunId>) {
        let chunk = self.slab.get_mut(id);
        let before = chunk.bytes();
        let mut names = Vec::with_capacity(chunk.blocks.capacity());
        names.resize(chunk.blocks.len(), NO_NAME);
        chunk.named = Some(Box::new(Named { names, views, fixed: false }));
        self.bytes = self.bytes - before + chunk.bytes();
    }

    /// The shared name of each block, if blocks of this chunk have names.
    pub(crate) fn names(&self, id: ChunkId) -> &[EngineHash] {
        self.slab.get(id).named.as_ref().map_or(&[], |named| &named.names)
    }

    /// The shared name of a block.
    #[inline]
    pub(crate) fn name(&self, place: Place) -> EngineHash {
        self.names(place.chunk).get(place.at as usize).copied().unwrap_or(NO_NAME)
    }

    pub(crate) fn set_name(&mut self, place: Place, name: EngineHash) {
        if let Some(named) = &mut self.slab.get_mut(place.chunk).named {
            named.names[place.at as usize] = name;
        }
    }

    /// Names blocks from a place on.
    pub(crate) fn set_names(&mut self, place: Place, names: &[EngineHash]) {
        if let Some(named) = &mut self.slab.get_mut(place.chunk).named {
            named.names[place.at as usize..][..names.len()].copy_from_slice(names);
        }
    }

    /// The blocks of this chunk must keep their places.
    pub(crate) fn fix(&mut self, id: ChunkId) {
        if let Some(named) = &mut self.slab.get_mut(id).named {
            named.fixed = true;
        }
    }

    pub(crate) fn is_fixed(&self, id: ChunkId) -> bool {
        self.slab.get(id).named.as_ref().is_some_and(|named| named.fixed)
    }

    /// The shared names of each chunk that has any.
    pub(crate) fn all_names(&self) -> impl Iterator<Item = (ChunkId, &[EngineHash])> {
        let chunks = self.slab.all().iter().enumerate();
        chunks.filter_map(|(index, chunk)| Some((ChunkId::new(index), &chunk.named.as_ref()?.names[..])))
    }

    /// Whether these many more blocks still have positions in a chunk.
    pub(crate) fn has_positions(&self, id: ChunkId, blocks: usize) -> bool {
        self.blocks(id).len() + blocks <= 1 << Place::AT_BITS
    }

    /// Ids given so far, of live and removed chunks.
    pub(crate) fn slots(&self) -> usize {
        self.slab.all().len()
    }

    /// Blocks in all chunks.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn total_blocks(&self) -> usize {
        self.blocks
    }

    /// Bytes that a chunk grows by for so many more blocks, and for names if it gets any.
    pub(crate) fn append_growth(&self, id: ChunkId, blocks: usize, gets_names: bool) -> usize {
        let chunk = self.slab.get(id);
        let (len, capacity) = (chunk.blocks.len(), chunk.blocks.capacity());
        let positions = if len + blocks > capacity { len + growth_of(len, blocks) } else { capacity };
        let names = match &chunk.named {
            Some(named) => {
                (positions * size_of::<EngineHash>()).saturating_sub(named.names.capacity() * size_of::<EngineHash>())
            }
            None if gets_names => size_of::<Named>() + positions * size_of::<EngineHash>(),
            None => 0,
        };
        (positions - capacity) * size_of::<BlockHash>() + names
    }

    /// Bytes that names take in a chunk with so many starts of runs.
    pub(crate) fn naming_bytes(&self, id: ChunkId, views: usize) -> usize {
        let names = self.slab.get(id).blocks.capacity() * size_of::<EngineHash>();
        size_of::<Named>() + names + view_bytes(views)
    }

    /// Bytes of a new chunk of so many blocks, without the array of chunks.
    pub(crate) fn new_bytes(blocks: usize, gets_names: bool) -> usize {
        let names = if gets_names { size_of::<Named>() + blocks * size_of::<EngineHash>() } else { 0 };
        blocks * size_of::<BlockHash>() + names
    }

    /// Bytes that so many more starts of runs take at most in a chunk.
    pub(crate) fn views_growth(&self, id: ChunkId, more: usize) -> usize {
        let views = self.slab.get(id).named.as_ref().map_or(0, |named| named.views.len());
        view_bytes(views + more) - view_bytes(views)
    }

    /// Bytes that the array of chunks will grow by for so many more.
    pub(crate) fn growth(&self, more: usize) -> usize {
        self.slab.growth(more) * size_of::<Chunk>()
    }

    pub(crate) fn live_bytes(&self) -> usize {
        self.blocks * size_of::<BlockHash>() + self.slab.live() * size_of::<Chunk>()
    }

    pub(crate) fn reserved_bytes(&self) -> usize {
        self.bytes + self.slab.capacity() * size_of::<Chunk>()
    }
}

impl Chunk {
    fn bytes(&self) -> usize {
        self.blocks.capacity() * size_of::<BlockHash>() + self.named.as_deref().map_or(0, Named::bytes)
    }

    fn truncate(&mut self, len: usize) {
        self.blocks.truncate(len);
        if self.blocks.capacity() > 2 * len {
            self.blocks.shrink_to(len + len / 8);
        }
        if let Some(named) = &mut self.named {
            named.names.truncate(len);
            if named.names.capacity() > 2 * len {
                named.names.shrink_to(len + len / 8);
            }
        }
    }
}
