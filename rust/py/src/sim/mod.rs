//! The simulator's clock and engine: the core's, with Python objects around them.

mod clock;
mod engine;
mod prices;

pub use clock::EventQueue;
pub use engine::ReplicaEngine;
pub use prices::StepPrices;
