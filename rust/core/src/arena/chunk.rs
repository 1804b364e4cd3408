//! Chunks: contiguous block hashes of a stretch of one chain, shared by the runs that are its pieces.
//!
//! The runs of a chunk partition it from position 0 to its end, each the child of the one before. Only the last can
//! leave, so a chunk never has gaps; a split costs no copy, and joining two pieces again neither.

use std::collections::BTreeMap;

use super::{grow, step_of};
use crate::ids::{BlockHash, EngineHash};
use crate::radix::RunId;

/// Id of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChunkId(pub u32);

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
    /// The run that starts at position 0; in a free chunk the next free one.
    head: RunId,
    named: Option<Box<Named>>,
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

/// All chunks.
#[derive(Debug)]
pub(crate) struct Chunks {
    slots: Vec<Chunk>,
    free: u32,
    live: usize,
    blocks: usize,
    bytes: usize,
}

impl Default for Chunks {
    fn default() -> Self {
        Chunks { slots: Vec::new(), free: RunId::NONE.0, live: 0, blocks: 0, bytes: 0 }
    }
}

impl Chunks {
    /// A new chunk with these blocks, all of them one run's.
    pub(crate) fn create(&mut self, blocks: &[BlockHash], head: RunId) -> ChunkId {
        let chunk = Chunk { blocks: blocks.to_vec(), head, named: None };
        self.live += 1;
        self.blocks += blocks.len();
        self.bytes += chunk.blocks.capacity() * size_of::<BlockHash>();
        if self.free == RunId::NONE.0 {
            grow(&mut self.slots);
            self.slots.push(chunk);
            return ChunkId(self.slots.len() as u32 - 1);
        }
        let id = ChunkId(self.free);
        self.free = self.slots[id.0 as usize].head.0;
        self.slots[id.0 as usize] = chunk;
        id
    }

    /// All blocks.
    #[inline]
    pub(crate) fn blocks(&self, id: ChunkId) -> &[BlockHash] {
        &self.slots[id.0 as usize].blocks
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
        let chunk = self.slots.get(place.chunk.0 as usize);
        chunk.and_then(|chunk| chunk.blocks.get(place.at as usize)) == Some(&block)
    }

    /// Appends blocks; room grows by an eighth.
    pub(crate) fn append(&mut self, id: ChunkId, blocks: &[BlockHash]) {
        let chunk = &mut self.slots[id.0 as usize];
        let (before, len) = (chunk.bytes(), chunk.blocks.len());
        if len + blocks.len() > chunk.blocks.capacity() {
            chunk.blocks.reserve_exact(blocks.len().max(len / 8).max(SMALLEST_GROWTH));
        }
        chunk.blocks.extend_from_slice(blocks);
        if let Some(named) = &mut chunk.named {
            named.names.reserve_exact(chunk.blocks.capacity() - len);
            named.names.resize(chunk.blocks.len(), NO_NAME);
        }
        self.blocks += blocks.len();
        self.bytes = self.bytes - before + chunk.bytes();
    }

    /// Cuts a chunk off; one that is empty is freed.
    pub(crate) fn truncate(&mut self, id: ChunkId, len: u32) {
        let chunk = &mut self.slots[id.0 as usize];
        let before = chunk.bytes();
        self.blocks -= chunk.blocks.len() - len as usize;
        if len == 0 {
            *chunk = Chunk { blocks: Vec::new(), head: RunId(self.free), named: None };
            self.free = id.0;
            self.live -= 1;
        } else {
            chunk.truncate(len as usize);
        }
        self.bytes = self.bytes - before + chunk.bytes();
    }

    /// Moves the blocks and names of a chunk behind those of another; gives the other's former length. The caller moves
    /// the runs.
    pub(crate) fn join(&mut self, front: ChunkId, back: ChunkId) -> u32 {
        let old = std::mem::take(&mut self.slots[back.0 as usize].blocks);
        let names = self.slots[back.0 as usize].named.take().map(|named| named.names);
        let base = self.len(front);
        self.bytes -= old.capacity() * size_of::<BlockHash>();
        self.blocks -= old.len();
        if let Some(names) = &names {
            self.bytes -= names.capacity() * size_of::<EngineHash>();
        }
        self.truncate_empty(back);
        self.append(front, &old);
        if let (Some(names), Some(named)) = (names, &mut self.slots[front.0 as usize].named) {
            named.names[base as usize..].copy_from_slice(&names);
        }
        base
    }

    fn truncate_empty(&mut self, id: ChunkId) {
        self.slots[id.0 as usize] = Chunk { blocks: Vec::new(), head: RunId(self.free), named: None };
        self.free = id.0;
        self.live -= 1;
    }

    /// Notes which run starts at a position.
    pub(crate) fn set_view(&mut self, place: Place, run: RunId) {
        let chunk = &mut self.slots[place.chunk.0 as usize];
        if place.at == 0 {
            chunk.head = run;
        } else if let Some(named) = &mut chunk.named {
            named.views.insert(place.at, run);
        }
    }

    /// No run starts there any more.
    pub(crate) fn drop_view(&mut self, place: Place) {
        if let Some(named) = &mut self.slots[place.chunk.0 as usize].named {
            named.views.remove(&place.at);
        }
    }

    /// The run that starts at position 0.
    pub(crate) fn head(&self, id: ChunkId) -> RunId {
        self.slots[id.0 as usize].head
    }

    /// The run that contains a place of a chunk with names.
    pub(crate) fn view(&self, place: Place) -> Option<RunId> {
        let chunk = &self.slots[place.chunk.0 as usize];
        let views = &chunk.named.as_ref()?.views;
        Some(views.range(..=place.at).next_back().map_or(chunk.head, |(_, &run)| run))
    }

    /// Whether blocks of this chunk have names.
    pub(crate) fn is_named(&self, id: ChunkId) -> bool {
        self.slots[id.0 as usize].named.is_some()
    }

    /// From now on blocks of this chunk can have names. `views` are the runs by their starts, but for
    /// the one at position 0.
    pub(crate) fn allow_names(&mut self, id: ChunkId, views: BTreeMap<u32, RunId>) {
        let chunk = &mut self.slots[id.0 as usize];
        let before = chunk.bytes();
        let mut names = Vec::with_capacity(chunk.blocks.capacity());
        names.resize(chunk.blocks.len(), NO_NAME);
        chunk.named = Some(Box::new(Named { names, views, fixed: false }));
        self.bytes = self.bytes - before + chunk.bytes();
    }

    /// The shared name of each block, if blocks of this chunk have names.
    pub(crate) fn names(&self, id: ChunkId) -> &[EngineHash] {
        self.slots[id.0 as usize].named.as_ref().map_or(&[], |named| &named.names)
    }

    /// The shared name of a block.
    #[inline]
    pub(crate) fn name(&self, place: Place) -> EngineHash {
        self.names(place.chunk).get(place.at as usize).copied().unwrap_or(NO_NAME)
    }

    pub(crate) fn set_name(&mut self, place: Place, name: EngineHash) {
        if let Some(named) = &mut self.slots[place.chunk.0 as usize].named {
            named.names[place.at as usize] = name;
        }
    }

    /// Names blocks from a place on.
    pub(crate) fn set_names(&mut self, place: Place, names: &[EngineHash]) {
        if let Some(named) = &mut self.slots[place.chunk.0 as usize].named {
            named.names[place.at as usize..][..names.len()].copy_from_slice(names);
        }
    }

    /// The blocks of this chunk must keep their places.
    pub(crate) fn fix(&mut self, id: ChunkId) {
        if let Some(named) = &mut self.slots[id.0 as usize].named {
            named.fixed = true;
        }
    }

    pub(crate) fn is_fixed(&self, id: ChunkId) -> bool {
        self.slots[id.0 as usize].named.as_ref().is_some_and(|named| named.fixed)
    }

    /// The shared names of each chunk that has any.
    pub(crate) fn all_names(&self) -> impl Iterator<Item = (ChunkId, &[EngineHash])> {
        let chunks = self.slots.iter().enumerate();
        chunks.filter_map(|(id, chunk)| Some((ChunkId(id as u32), &chunk.named.as_ref()?.names[..])))
    }

    /// Whether these many more blocks still have positions in a chunk.
    pub(crate) fn has_positions(&self, id: ChunkId, blocks: usize) -> bool {
        self.blocks(id).len() + blocks <= 1 << Place::AT_BITS
    }

    /// Ids given so far, of live and free chunks.
    pub(crate) fn slots(&self) -> usize {
        self.slots.len()
    }

    /// Blocks in all chunks.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn total_blocks(&self) -> usize {
        self.blocks
    }

    /// Bytes that the array of chunks will grow by for so many more.
    pub(crate) fn growth(&self, more: usize) -> usize {
        if self.live + more <= self.slots.capacity() { 0 } else { step_of(&self.slots) }
    }

    pub(crate) fn live_bytes(&self) -> usize {
        self.blocks * size_of::<BlockHash>() + self.live * size_of::<Chunk>()
    }

    pub(crate) fn reserved_bytes(&self) -> usize {
        self.bytes + self.slots.capacity() * size_of::<Chunk>()
    }
}

impl Chunk {
    fn bytes(&self) -> usize {
        let names = self.named.as_ref().map_or(0, |named| named.names.capacity() * size_of::<EngineHash>());
        self.blocks.capacity() * size_of::<BlockHash>() + names
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
