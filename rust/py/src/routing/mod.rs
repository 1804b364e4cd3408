//! The router's ledger: the core's, with Python objects around it.

mod attempt;
mod counters;
mod ledger;
mod sessions;
mod sight;

pub use attempt::{Attempt, Lease};
pub use ledger::Ledger;
pub(crate) use sight::Candidates;
pub use sight::{LoadCounts, Sight};
