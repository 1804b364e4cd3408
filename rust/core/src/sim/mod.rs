//! What moves a simulated replica through time: a clock of events, and the engine that spends it.

mod clock;
mod engine;
mod prices;

pub use clock::{EventQueue, NotInOrder};
pub use engine::{Chunk, Ended, Engine, Host, Limits, MAX_TOKENS, RequestId, Started, Wake};
pub use prices::{Attention, BadTable, Experts, Formula, Grid, Matmul, Roofline, StepPrices, Table};
