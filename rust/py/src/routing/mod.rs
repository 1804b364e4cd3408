//! The router's ledger: the core's, with Python objects around it.

mod attempt;
mod counters;
mod ledger;
mod sessions;
mod sight;

pub use attempt::{Attempt, Lease};
pub(crate) use ledger::Item;
pub use ledger::Ledger;
pub use sight::LoadCounts;
