//! Memory for tables that are larger than the processor's caches. It changes times and nothing else.
//!
//! Stores of events at 256 replicas, whose names take 37 MB, took 73 ns a block with plain loads a batch ahead and small
//! pages, 48 with `prefetch`, and 40 with large pages as well: a load that waits holds up the work behind it, and each
//! look into another small page is a walk through the page table.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::hash::{Hash, RandomState};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// A hash map whose allocation is known.
pub(crate) type Map<K, V> = hashbrown::HashMap<K, V, RandomState>;

/// Places of a hash map that are looked at together at most.
const GROUP: usize = 16;

/// Bytes that a map will grow by at most for so many more entries.
pub(crate) fn map_growth<K: Eq + Hash, V>(map: &Map<K, V>, more: usize) -> usize {
    let (entries, now) = (map.len() + more, map.allocation_size());
    if entries <= map.capacity() {
        return 0;
    }
    let buckets = match entries {
        0..=3 => 4,
        4..=7 => 8,
        _ => (entries * 8 / 7).next_power_of_two(),
    };
    let bytes = (buckets * size_of::<(K, V)>()).next_multiple_of(GROUP) + buckets + GROUP;
    // Places of removed entries count as used: a map can double though it has room.
    bytes.max(2 * now) - now
}

/// Makes the places of removed entries free, where that gives room for so many more without a larger map.
pub(crate) fn tidy_map<K: Eq + Hash, V>(map: &mut Map<K, V>, more: usize) {
    let entries = map.len() + more;
    let room = map.allocation_size() / (size_of::<(K, V)>() + 1);
    if entries > map.capacity() && entries <= room / 2 {
        let mut tidy = Map::with_capacity_and_hasher(entries, RandomState::new());
        tidy.extend(map.drain());
        *map = tidy;
    }
}

/// Bytes that a B-tree of so many entries of so many bytes takes at most: nodes of 11 are nearly half full at least.
pub(crate) fn btree_bytes(entries: usize, entry: usize) -> usize {
    const ROOM: usize = 11;
    const LEAST: usize = 5;
    let leaf = ROOM * entry + 3 * size_of::<usize>();
    if entries <= ROOM {
        return leaf * entries.min(1);
    }
    let leaves = entries.div_ceil(LEAST);
    leaves * leaf + leaves.div_ceil(LEAST) * (leaf + (ROOM + 1) * size_of::<usize>())
}

/// Size of a large page.
const LARGE_PAGE: usize = 1 << 21;
/// Addresses that a table with pages of its own takes, in its bytes at first: so far it grows in place.
const ROOM: usize = 16;

/// Asks for the cache line of a value.
#[inline]
pub(crate) fn prefetch<T>(value: &T) {
    let line = std::ptr::from_ref(value);
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the instruction changes nothing that a program can see, whatever the address; SSE is part of x86-64.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(line.cast());
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: the instruction changes nothing that a program can see, whatever the address.
    unsafe {
        std::arch::asm!("prfm pldl1keep, [{}]", in(reg) line, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = line;
}

/// Plain data that may be all zeros.
///
/// # Safety
///
/// Zero bytes must be a value of the type, and dropping a value must do nothing.
pub(crate) unsafe trait Zero: Copy {}

/// A table of values that are zero at first. One of 2 MiB and more gets pages of its own from the system, large ones where it
/// has them: an allocator may hand out memory that lies on small pages already, since it was used before, and would have to
/// be cleared. And as only addresses are taken for what it can grow to, it grows without a copy and without new pages for
/// what it has: a page that is touched for the first time costs more than all that a table does with it, above all in a
/// virtual machine, whose host may have to find it first.
#[derive(Debug)]
pub(crate) struct Table<T: Zero> {
    start: NonNull<T>,
    len: usize,
    /// Values that there is memory for; those from `len` on are zero.
    room: usize,
    mapping: Option<Mapping>,
}

// SAFETY: the table owns its values, as a vector does.
unsafe impl<T: Zero + Send> Send for Table<T> {}
// SAFETY: a shared table gives shared values only.
unsafe impl<T: Zero + Sync> Sync for Table<T> {}

impl<T: Zero> Table<T> {
    pub(crate) const fn empty() -> Self {
        Table { start: NonNull::dangling(), len: 0, room: 0, mapping: None }
    }

    pub(crate) fn new(len: usize) -> Self {
        let layout = Self::layout(len);
        if layout.size() == 0 {
            return Self::empty();
        }
        if let Some((mapping, start, bytes)) = Mapping::new(layout.size()) {
            return Table { start: start.cast(), len, room: bytes / size_of::<T>(), mapping: Some(mapping) };
        }
        // SAFETY: the layout is not empty.
        let Some(start) = NonNull::new(unsafe { alloc_zeroed(layout) }) else { handle_alloc_error(layout) };
        Table { start: start.cast(), len, room: len, mapping: None }
    }

    /// Appends zeros up to this length.
    pub(crate) fn grow(&mut self, len: usize) {
        if len > self.room {
            let mut bigger = Self::new(len);
            bigger[..self.len].copy_from_slice(self);
            *self = bigger;
        }
        self.len = len;
    }

    /// Bytes that come from the system and not from the allocator.
    #[cfg(feature = "testing")]
    pub(crate) fn mapped_bytes(&self) -> usize {
        if self.mapping.is_some() { size_of_val(&**self) } else { 0 }
    }

    #[expect(clippy::expect_used, reason = "more than half of all addresses: what a vector panics for, too")]
    fn layout(len: usize) -> Layout {
        Layout::array::<T>(len).expect("a table that fits into memory")
    }
}

impl<T: Zero> Drop for Table<T> {
    fn drop(&mut self) {
        let layout = Self::layout(self.room);
        if self.mapping.is_none() && layout.size() > 0 {
            // SAFETY: `new` allocated it with this layout.
            unsafe { dealloc(self.start.as_ptr().cast(), layout) }
        }
    }
}

impl<T: Zero> Deref for Table<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        // SAFETY: `len` values lie there, aligned, zero or written since, and borrowed as long as the table.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl<T: Zero> DerefMut for Table<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as above, and nobody else has them.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

/// Pages from the system. Those that nobody touches take no memory.
#[derive(Debug)]
struct Mapping {
    #[cfg(target_os = "linux")]
    start: NonNull<libc::c_void>,
    #[cfg(target_os = "linux")]
    bytes: usize,
}

impl Mapping {
    /// A mapping, and the start and number of zero bytes in it that begin with a large page: these many, and if possible
    /// room to grow. None if they would not fill a page, or the system refuses.
    #[cfg(target_os = "linux")]
    fn new(bytes: usize) -> Option<(Self, NonNull<u8>, usize)> {
        if bytes < LARGE_PAGE {
            return None;
        }
        bytes.checked_mul(ROOM).and_then(Self::aligned).or_else(|| Self::aligned(bytes))
    }

    #[cfg(target_os = "linux")]
    fn aligned(bytes: usize) -> Option<(Self, NonNull<u8>, usize)> {
        let all = bytes.checked_add(LARGE_PAGE)?;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping at an address that the system chooses overlaps nothing.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), all, access, kind, -1, 0) };
        if start == libc::MAP_FAILED {
            return None;
        }
        let mapping = Mapping { start: NonNull::new(start)?, bytes: all };
        // SAFETY: less than a large page is skipped, and so much more than `bytes` was mapped.
        let first = unsafe { mapping.start.byte_add(start.align_offset(LARGE_PAGE)) };
        // SAFETY: the range is within the mapping. Advice changes none of its bytes; if it is refused, all stays as it was.
        unsafe { libc::madvise(first.as_ptr(), bytes, libc::MADV_HUGEPAGE) };
        Some((mapping, first.cast(), bytes))
    }

    #[cfg(not(target_os = "linux"))]
    fn new(_: usize) -> Option<(Self, NonNull<u8>, usize)> {
        None
    }
}

#[cfg(target_os = "linux")]
impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: it was mapped with these bounds, and its only user goes with it.
        unsafe { libc::munmap(self.start.as_ptr(), self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::{LARGE_PAGE, Table, Zero};

    // SAFETY: an integer.
    unsafe impl Zero for u64 {}

    /// A table that grows within its memory, past it, and onto pages of its own keeps its values, and has zeros behind them.
    #[test]
    fn a_growing_table_keeps_its_values() {
        let mut table = Table::<u64>::empty();
        let mut before = 0;
        for len in [0, 1, 1_000, LARGE_PAGE / 8, LARGE_PAGE, 2 * LARGE_PAGE, 4 * LARGE_PAGE + 3] {
            table.grow(len);
            assert_eq!(table.len(), len);
            assert!(table[..before].iter().copied().eq(1..=before as u64), "values of {before} in {len}");
            assert!(table[before..].iter().all(|&value| value == 0), "zeros behind {before} in {len}");
            table.iter_mut().zip(1..).for_each(|(value, at)| *value = at);
            before = len;
        }
    }

    /// Tables of no value, of some, and of large pages are zero at first, keep what is written, and move.
    #[test]
    fn a_table_keeps_what_is_written() {
        for len in [0, 1, 1_000, LARGE_PAGE / 8 - 1, LARGE_PAGE / 8, LARGE_PAGE / 2 + 3] {
            let mut table = Table::<u64>::new(len);
            assert_eq!(table.len(), len);
            assert!(table.iter().all(|&value| value == 0));
            table.iter_mut().zip(0..).for_each(|(value, at)| *value = at);
            let moved = std::thread::spawn(move || table).join();
            assert!(moved.is_ok_and(|moved| moved.iter().copied().eq(0..len as u64)));
        }
    }
}
