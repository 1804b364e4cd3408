//! What moves simulated replicas through time: a clock of events, the engines that spend it, and what each holds.

mod clock;
mod cluster;
mod engine;
mod gaps;
mod growth;
mod link;
mod prices;
mod request;
mod store;

pub use clock::{EventQueue, NotInOrder};
pub use cluster::{BATCH, Cluster, Outcome, Stopped};
pub use engine::{Chunk, Ended, Engine, Failure, Limits, MAX_TOKENS, Prices, Wake};
pub use gaps::Gaps;
pub use link::{Entries, Link};
pub use prices::{Attention, BadTable, Experts, Formula, Grid, Matmul, Roofline, StepPrices, Table};
pub use request::{Request, Served};
pub use store::{Admitted, Store, Tier};
