//! The simulator's replicas and prices: the core's, with Python objects around them.

mod cluster;
mod link;
mod prices;
mod store;

pub use cluster::Cluster;
pub use link::TransferPrices;
pub use prices::StepPrices;
pub use store::{ReplicaStore, duplicated_tokens};
