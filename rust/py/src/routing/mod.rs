//! The router's ledger: the core's, with Python objects around it.

mod attempt;
mod booking;
mod counters;
mod ledger;
mod look;
mod sessions;
mod sight;

pub use attempt::{Attempt, Lease};
pub use ledger::Ledger;
pub use look::{Lens, LoadCounts};
pub(crate) use sight::Candidates;
pub use sight::Sight;
