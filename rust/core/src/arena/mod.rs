//! Memory of the index: chunks of block hashes, arrays of holder records. Ids instead of references, free lists inside.

mod chunk;
mod pool;

pub(crate) use chunk::{ChunkId, Chunks, NO_NAME, Place};
pub(crate) use pool::{Hold, Pool, Record};

use crate::radix::RunId;

/// Makes room for one more element: an eighth more at a time, so that what is reserved stays near what is used.
pub(crate) fn grow<T>(elements: &mut Vec<T>) {
    if elements.len() == elements.capacity() {
        elements.reserve_exact(step(elements.len()));
    }
}

/// Bytes of the next step of growth.
pub(crate) fn step_of<T>(elements: &Vec<T>) -> usize {
    step(elements.capacity()) * size_of::<T>()
}

const fn step(len: usize) -> usize {
    len / 8 + 16
}

const _: () = assert!(size_of::<Record>() == 32 && size_of::<RunId>() == 4);
