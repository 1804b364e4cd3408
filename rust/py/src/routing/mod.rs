//! The router's ledger: the core's, with Python objects around it.

mod attempt;
mod ledger;

pub use attempt::{Attempt, Lease};
pub use ledger::{Ledger, LoadCounts};
