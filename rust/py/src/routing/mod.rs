//! The router's ledger: the core's, with Python objects around it.

mod attempt;
mod ledger;

pub use attempt::{Attempt, Lease};
pub(crate) use ledger::Item;
pub use ledger::{Ledger, LoadCounts};
