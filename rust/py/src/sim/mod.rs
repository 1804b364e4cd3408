//! The simulator's clock and engine: the core's, with Python objects around them.

mod clock;
mod engine;

pub use clock::EventQueue;
pub use engine::ReplicaEngine;
