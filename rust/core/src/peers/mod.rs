//! What several routers share: the commit feed, from a router's steps to its peers' ledgers, and the ring that carries it.

mod chains;
mod inbox;
mod outbox;
mod ring;
mod table;
mod window;
pub mod wire;

pub use chains::{ANCHOR_EVERY, Chains};
pub use inbox::{Holds, Inbox, Work};
pub use outbox::Outbox;
pub use ring::{CELLS, Cell, Found, Ring, Word, ring_bytes};
pub use table::{Booked, Load, MAX_OPEN, PeerAttempt, Peers};
pub use window::{REACH, Window};
