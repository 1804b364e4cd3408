//! Types that carry meaning across a border: a raw integer never crosses two files.

/// Chained hash of a block: it covers the block and every block before it, under a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(transparent)]
pub struct BlockHash(pub u64);

/// An engine's own name of a block, an opaque handle that its events use for parents and removals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(transparent)]
pub struct EngineHash(pub u64);

/// Hash of one block's own content (tokens and extra keys), without the blocks before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(transparent)]
pub struct ContentHash(pub u64);

/// Place of a replica in every result array. A slot that its replica left is given to the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(transparent)]
pub struct Slot(pub u16);

impl Slot {
    /// The slot as an array index.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// Makes a table by slot long enough to have this one. It grows to exactly that length, so that what an empty index
    /// reserves follows from its number of slots.
    pub(crate) fn extend<T: Default>(self, table: &mut Vec<T>) {
        if let Some(lacking) = (self.index() + 1).checked_sub(table.len()) {
            table.reserve_exact(lacking);
            table.resize_with(self.index() + 1, T::default);
        }
    }
}

/// Where an engine keeps a copy of a block; the order is from the best to the worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Medium {
    /// GPU memory.
    Gpu = 0,
    /// Host memory.
    Cpu = 1,
    /// Disk or another store behind the host.
    Disk = 2,
}

impl Medium {
    /// All media, best first.
    pub const ALL: [Medium; 3] = [Medium::Gpu, Medium::Cpu, Medium::Disk];

    /// The medium as an array index.
    #[inline]
    pub const fn index(self) -> usize {
        self as usize
    }
}
