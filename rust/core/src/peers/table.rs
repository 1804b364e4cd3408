//! What each peer has in flight, from messages that may be lost, doubled and out of order.
//!
//! The load of a peer is a function of the messages that arrived, whatever their order: its latest beat, which lists every
//! open attempt, and the messages with a later sequence. A lost message is therefore wrong until the next beat, not longer.

use hashbrown::HashMap;
use rustc_hash::FxBuildHasher;

use crate::routing::Process;

/// Attempts of one peer at most: what a hostile one may say is bounded.
pub const MAX_OPEN: usize = 1 << 15;
/// Ends and first tokens that a peer's table remembers between two beats, so that a late booking opens nothing that has ended.
const MAX_REMEMBERED: usize = 1 << 16;

/// Where the load of peers is counted.
pub trait Load {
    /// Whether a process still has its slot.
    fn is_alive(&self, process: Process) -> bool;
    /// Count so many more requests, waiting tokens and decoding tokens there, if it is alive.
    fn adjust(&mut self, process: Process, requests: i64, queued: i64, decoding: i64);
}

/// One attempt of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerAttempt {
    /// Where it is; the generation is -1 if that process is not known here.
    pub process: Process,
    /// Tokens that it waits for.
    pub uncached: i64,
    /// Tokens of its prompt.
    pub context: i64,
    /// Whether it has had its first token.
    pub started: bool,
}

impl PeerAttempt {
    /// An attempt of so many uncached tokens of a prompt.
    pub fn new(process: Process, uncached: u32, context: u32, started: bool) -> Self {
        Self { process, uncached: uncached.into(), context: context.into(), started }
    }

    fn count(&self, load: &mut impl Load, sign: i64) {
        let (queued, decoding) = if self.started { (0, self.context) } else { (self.uncached, 0) };
        load.adjust(self.process, sign, sign * queued, sign * decoding);
    }

    fn start(&mut self, load: &mut impl Load) {
        if !std::mem::replace(&mut self.started, true) {
            load.adjust(self.process, 0, -self.uncached, self.context);
        }
    }
}

/// What a booking is to a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Booked {
    /// It is new, and open now.
    New,
    /// It is open already.
    Open,
    /// It has ended, or is older than the peer's latest beat, or there are too many.
    Past,
}

type Table<V> = HashMap<u64, V, FxBuildHasher>;

#[derive(Debug, Default)]
struct Peer {
    open: Table<PeerAttempt>,
    /// Sequence of the end of attempts that have ended since the latest beat.
    ended: Table<u64>,
    /// Sequence of the first token of attempts whose booking has not come yet.
    early: Table<u64>,
    /// Sequence of the latest beat, or of the latest message when the peer was given up: older ones say nothing more.
    floor: u64,
}

/// The open attempts of all peers, by the sequence of their booking.
#[derive(Debug, Default)]
pub struct Peers {
    peers: Table<Peer>,
}

impl Peers {
    /// Takes in a booking.
    pub fn book(&mut self, load: &mut impl Load, peer: u64, sequence: u64, mut told: PeerAttempt) -> Booked {
        let peer = self.peers.entry(peer).or_default();
        if peer.open.contains_key(&sequence) {
            return Booked::Open;
        }
        if sequence <= peer.floor || peer.ended.contains_key(&sequence) || peer.open.len() >= MAX_OPEN {
            return Booked::Past;
        }
        told.started = peer.early.remove(&sequence).is_some();
        told.count(load, 1);
        peer.open.insert(sequence, told);
        Booked::New
    }

    /// Takes in a first token of the attempt `number`.
    pub fn start(&mut self, load: &mut impl Load, peer: u64, sequence: u64, number: u64) {
        let peer = self.peers.entry(peer).or_default();
        if sequence <= peer.floor {
            return;
        }
        if let Some(told) = peer.open.get_mut(&number) {
            told.start(load);
        } else if number > peer.floor && !peer.ended.contains_key(&number) {
            remember(&mut peer.early, number, sequence);
        }
    }

    /// Takes in the end of the attempt `number`; the attempt, if it was open.
    pub fn end(&mut self, load: &mut impl Load, peer: u64, sequence: u64, number: u64) -> Option<PeerAttempt> {
        let peer = self.peers.entry(peer).or_default();
        if sequence <= peer.floor {
            return None;
        }
        remember(&mut peer.ended, number, sequence);
        peer.early.remove(&number);
        let told = peer.open.remove(&number)?;
        told.count(load, -1);
        Some(told)
    }

    /// Takes in the list of all open attempts; whether it is news.
    pub fn beat(&mut self, load: &mut impl Load, peer: u64, sequence: u64, listed: &[(u64, PeerAttempt)]) -> bool {
        let peer = self.peers.entry(peer).or_default();
        if sequence <= peer.floor {
            return false;
        }
        let listed: Table<PeerAttempt> = listed.iter().copied().collect();
        peer.open.retain(|&number, told| {
            let stays = number > sequence || listed.contains_key(&number);
            if !stays {
                told.count(load, -1);
            }
            stays
        });
        for (number, told) in listed {
            if peer.ended.get(&number).is_none_or(|&ended| ended <= sequence) {
                peer.keep(load, number, told);
            }
        }
        peer.ended.retain(|_, at| *at > sequence);
        peer.early.retain(|_, at| *at > sequence);
        peer.floor = sequence;
        true
    }

    /// Forgets all that a peer has in flight, and what it said up to `newest`; how many attempts that were. It may come back
    /// with a later beat.
    pub fn give_up(&mut self, load: &mut impl Load, peer: u64, newest: u64) -> usize {
        let peer = self.peers.entry(peer).or_default();
        peer.floor = peer.floor.max(newest);
        (peer.ended, peer.early) = (Table::default(), Table::default());
        let open = std::mem::take(&mut peer.open);
        open.values().for_each(|told| told.count(load, -1));
        open.len()
    }

    /// Forgets a peer altogether.
    pub fn forget(&mut self, load: &mut impl Load, peer: u64) {
        self.give_up(load, peer, 0);
        self.peers.remove(&peer);
    }

    /// Whether an attempt of a peer is in flight.
    pub fn is_open(&self, peer: u64, attempt: u64) -> bool {
        self.peers.get(&peer).is_some_and(|peer| peer.open.contains_key(&attempt))
    }

    /// How many attempts a peer has in flight.
    pub fn open(&self, peer: u64) -> usize {
        self.peers.get(&peer).map_or(0, |peer| peer.open.len())
    }
}

impl Peer {
    /// Makes what is known of an open attempt what a beat says of it.
    fn keep(&mut self, load: &mut impl Load, number: u64, mut told: PeerAttempt) {
        let known = self.open.get_mut(&number);
        let was_started = known.as_ref().is_some_and(|known| known.started);
        if let Some(known) = known {
            if load.is_alive(known.process) || !load.is_alive(told.process) {
                if told.started {
                    known.start(load);
                }
                return;
            }
        } else if self.open.len() >= MAX_OPEN {
            return;
        }
        told.started = told.started || was_started || self.early.remove(&number).is_some();
        told.count(load, 1);
        self.open.insert(number, told);
    }
}

/// Notes a sequence; of too many, the earlier half is forgotten.
fn remember(table: &mut Table<u64>, number: u64, sequence: u64) {
    table.insert(number, sequence);
    if table.len() > MAX_REMEMBERED {
        let mut sequences: Vec<u64> = table.values().copied().collect();
        let (_, &mut middle, _) = sequences.select_nth_unstable(MAX_REMEMBERED / 2);
        table.retain(|_, at| *at > middle);
    }
}
