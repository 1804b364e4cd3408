//! The commit feed: what a router tells its peers, what it makes of what they tell, and the memory that carries it on one host.

mod chains;
mod inbox;
mod outbox;
mod ring;
mod seal;

pub use chains::PeerChains;
pub use inbox::{PeerFrame, PeerInbox};
pub use outbox::PeerOutbox;
pub use ring::{PeerRing, PeerRings};
pub use seal::PeerSeal;
