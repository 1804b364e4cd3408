//! Truth: what engines say in their events.

mod names;
mod orphans;
mod truth;

pub(crate) use names::Names;
pub(crate) use orphans::{Orphan, Orphans};
