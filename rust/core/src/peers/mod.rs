//! What several routers share: the chains of blocks that their commit feed has carried, and the ring that carries it.

mod chains;
mod ring;
mod table;

pub use chains::{ANCHOR_EVERY, Chains};
pub use ring::{CELLS, Cell, Found, Ring, Word, ring_bytes};
pub use table::{Booked, Load, MAX_OPEN, Peers, Told};
