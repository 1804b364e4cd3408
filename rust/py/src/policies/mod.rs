//! Policies as compiled functions of what a decision sees.

mod asked;
mod formula;
mod kernel;
mod roster;

pub use formula::{Formula, best_of};
pub use kernel::{Kernel, start_seconds};
pub use roster::Roster;
