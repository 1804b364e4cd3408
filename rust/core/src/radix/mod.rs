//! The radix tree of runs and its head table.

mod tree;
mod walk;

pub(crate) use tree::{Run, RunId, Tree};
pub(crate) use walk::{Walk, common_prefix};
