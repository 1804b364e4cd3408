//! The router's ledger: the core's, with Python objects around it.

mod attempt;
mod counters;
mod kernel;
mod ledger;
mod sessions;
mod sight;

pub use attempt::{Attempt, Lease};
pub use kernel::Kernel;
pub use ledger::Ledger;
pub use sight::{LoadCounts, Sight};
