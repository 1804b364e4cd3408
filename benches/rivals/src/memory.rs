//! Live bytes as asked of the allocator, counted the same way for every index.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::Relaxed};

/// The system allocator with a counter that costs one load while it is off.
pub struct Counting;

static ON: AtomicBool = AtomicBool::new(false);
static LIVE: AtomicI64 = AtomicI64::new(0);

fn add(bytes: i64) {
    if ON.load(Relaxed) {
        LIVE.fetch_add(bytes, Relaxed);
    }
}

// SAFETY: every call is passed on to `System` unchanged; the counter has no part in what is returned.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add(layout.size() as i64);
        // SAFETY: the caller's contract is `System`'s.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        add(layout.size() as i64);
        // SAFETY: the caller's contract is `System`'s.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        add(-(layout.size() as i64));
        // SAFETY: the caller's contract is `System`'s.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        add(size as i64 - layout.size() as i64);
        // SAFETY: the caller's contract is `System`'s.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

/// Bytes that `build` leaves allocated in its result.
pub fn live_bytes<T>(build: impl FnOnce() -> T) -> (T, f64) {
    LIVE.store(0, Relaxed);
    ON.store(true, Relaxed);
    let built = build();
    ON.store(false, Relaxed);
    (built, LIVE.load(Relaxed) as f64)
}
