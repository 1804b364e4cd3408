//! Truth: what engines say in their events.

mod apply;
mod batch;
mod bounds;
mod feed;
mod groups;
mod identity;
mod msgpack;
mod numbers;
mod orphans;
mod pages;
mod payload;
mod residence;
mod tagged;
mod truth;
mod windows;

pub use apply::StoreEvent;
pub(crate) use apply::contents;
pub(crate) use batch::{Prepared, apply};
pub(crate) use feed::{Feed, MOST};
pub(crate) use groups::Role;
pub use groups::{Group, GroupKind};
pub(crate) use numbers::Batch as NumberedBatch;
pub use numbers::{Back, Numbers, REMEMBERED_BATCHES};
pub(crate) use orphans::Orphan;
pub(crate) use pages::Page;
pub(crate) use payload::{Action, read};
pub use residence::Residence;
pub(crate) use tagged::Tagged;
pub(crate) use truth::Truth;
pub(crate) use windows::{Held, Window};
