//! The inbox: what a router makes of its peers' messages. Load and bindings go to its ledger at once, chains to its table of
//! chains; what is left, belief and fleet, is returned as work.

use hashbrown::HashMap;
use rustc_hash::FxBuildHasher;

use super::chains::Chains;
use super::table::{Booked, PeerAttempt, Peers};
use super::window::Window;
use super::wire::{Binding, End, Message, Open, Part, Register};
use crate::ids::BlockHash;
use crate::peers::Load;
use crate::routing::{Ledger, Name, Process};

/// Where a chain is believed to be, as far as it is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holds {
    /// Where.
    pub process: Process,
    /// Its blocks; `None` = the chain that it goes on behind is not known here.
    pub chain: Option<Vec<BlockHash>>,
    /// What was told of it.
    pub part: Part<'static>,
}

/// What a message leaves to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Work {
    /// Believe the blocks of an attempt, by the sequence of its booking.
    Booked(u64, Holds),
    /// Take back what was believed of an attempt, at a process that still has its slot.
    Retracted(u64, Process),
    /// An attempt is over: what it holds, if it is known where.
    Ended(u64, Option<Holds>),
    /// What is not open and was booked before this sequence is over.
    Beat(u64),
    /// Believe that a process holds a chain.
    Held(Holds),
    /// A chain has come: its blocks, and the last of them.
    Chain(usize, BlockHash),
    /// A router is asked for a chain: its blocks, and the last of them.
    Missing(u64, usize, BlockHash),
    /// A register of the fleet.
    Fleet(Register<'static>),
    /// A cache was cleared, or all of them.
    Cleared(u64, u64),
    /// A router begins.
    Hello,
    /// A snapshot begins.
    Welcome,
    /// A router leaves, by a message of this sequence.
    Left(u64),
}

/// Peers' attempts in flight, and the chains that the feed has carried.
#[derive(Debug, Default)]
pub struct Inbox {
    /// What is in flight.
    pub peers: Peers,
    /// Messages about a process that is not known here.
    pub strangers: u64,
    /// Frames that were taken before, or are too old to tell.
    pub repeated: u64,
    windows: HashMap<u64, Window, FxBuildHasher>,
    processes: HashMap<u64, Process, FxBuildHasher>,
}

/// A ledger, on which load is counted or not.
struct Counted<'a, T> {
    ledger: &'a mut Ledger<T>,
    counts: bool,
}

impl<T: Clone> Load for Counted<'_, T> {
    fn is_alive(&self, process: Process) -> bool {
        self.ledger.is_alive(process)
    }

    fn adjust(&mut self, process: Process, requests: i64, queued: i64, decoding: i64) {
        if self.counts {
            self.ledger.adjust(process, requests, queued, decoding);
        }
    }
}

const NOWHERE: Process = Process { slot: 0, generation: -1 };

impl Inbox {
    /// Knows these processes by their marks, and no others.
    pub fn see(&mut self, processes: impl IntoIterator<Item = (u64, Process)>) {
        self.processes = processes.into_iter().collect();
    }

    fn process(&mut self, mark: u64) -> Process {
        self.processes.get(&mark).copied().unwrap_or_else(|| {
            self.strangers += 1;
            NOWHERE
        })
    }

    /// Takes a frame of a peer, by the sequence of its first message; false if nothing of it is to be applied, because it was
    /// taken before, or is too old to tell.
    pub fn take(&mut self, peer: u64, first: u64) -> bool {
        let is_new = self.windows.entry(peer).or_default().take(first);
        self.repeated += u64::from(!is_new);
        is_new
    }

    /// Forgets what a peer has in flight, and what it said up to `newest`; how many attempts that were.
    pub fn give_up<T: Clone>(&mut self, (ledger, counts): (&mut Ledger<T>, bool), peer: u64, newest: u64) -> usize {
        self.peers.give_up(&mut Counted { ledger, counts }, peer, newest)
    }

    /// Forgets a peer altogether.
    pub fn forget<T: Clone>(&mut self, (ledger, counts): (&mut Ledger<T>, bool), peer: u64) {
        self.peers.forget(&mut Counted { ledger, counts }, peer);
        self.windows.remove(&peer);
    }

    /// Applies a message of a peer. `counts`: whether its load is counted.
    pub fn apply<T: Clone>(
        &mut self,
        (peer, sequence): (u64, u64),
        message: Message<'static>,
        (ledger, counts): (&mut Ledger<T>, bool),
        chains: &mut Chains,
        now: f64,
    ) -> Option<Work> {
        let load = &mut Counted { ledger, counts };
        match message {
            Message::Booked { process, session, uncached, context, part } => {
                let process = self.process(process);
                let attempt = PeerAttempt::new(process, uncached, context, false);
                let is_past = self.book(load, (peer, sequence), attempt, session, now) == Booked::Past;
                let holds = holds(process, part, chains)?;
                (!is_past).then_some(Work::Booked(sequence, holds))
            }
            Message::Started(attempt) => {
                self.peers.start(load, peer, sequence, attempt);
                None
            }
            Message::Ended { attempt, how, part } => {
                let ended = self.peers.end(load, peer, sequence, attempt);
                let process = ended.map_or(NOWHERE, |ended| ended.process);
                let holds = holds(process, part, chains); // a later message may go on behind it
                if how == End::Retracted { retracted(load, attempt, ended) } else { Some(Work::Ended(attempt, holds)) }
            }
            Message::Beat(rows) => self.beat(load, (peer, sequence), &rows).then_some(Work::Beat(sequence)),
            Message::Bound(rows) => {
                rows.iter().for_each(|row| self.bind(load, row, now));
                None
            }
            Message::Held(process, part) => holds(self.process(process), part, chains).map(Work::Held),
            Message::Chain(part) => {
                let chain = chains.extend(part.known, part.parent, &part.rest);
                chain.and_then(|chain| Some(Work::Chain(chain.len(), *chain.last()?)))
            }
            Message::Missing { peer, known, parent } => Some(Work::Missing(peer, known, parent)),
            Message::Fleet(register) => Some(Work::Fleet(register)),
            Message::Cleared(replica) => Some(Work::Cleared(sequence, replica)),
            Message::Hello => Some(Work::Hello),
            Message::Welcome => Some(Work::Welcome),
            Message::Left => {
                self.beat(load, (peer, sequence), &[]);
                Some(Work::Left(sequence))
            }
        }
    }

    fn book<T: Clone>(
        &mut self,
        load: &mut Counted<'_, T>,
        (peer, sequence): (u64, u64),
        attempt: PeerAttempt,
        session: u128,
        now: f64,
    ) -> Booked {
        let PeerAttempt { process, uncached, .. } = attempt;
        let booked = self.peers.book(load, peer, sequence, attempt);
        if booked == Booked::New {
            load.ledger.booked_elsewhere(process, uncached, 1);
        }
        if booked != Booked::Past && load.is_alive(process) && session != 0 {
            load.ledger.sessions.learn(Name(session), process, now);
        }
        booked
    }

    /// Takes in all that a peer has in flight; whether it is news.
    fn beat<T: Clone>(&mut self, load: &mut Counted<'_, T>, (peer, sequence): (u64, u64), rows: &[Open]) -> bool {
        let earlier = rows.iter().filter(|row| row.attempt < sequence);
        let listed = earlier.map(|row| {
            (row.attempt, PeerAttempt::new(self.process(row.process), row.uncached, row.context, row.started))
        });
        let listed: Vec<_> = listed.collect();
        self.peers.beat(load, peer, sequence, &listed)
    }

    fn bind<T: Clone>(&mut self, load: &mut Counted<'_, T>, row: &Binding, now: f64) {
        let sessions = &mut load.ledger.sessions;
        match (row.process, row.session) {
            (0, 0) => _ = sessions.clear(),
            (0, session) => _ = sessions.forget(Name(session)),
            (mark, session) => {
                let process = self.process(mark);
                if load.is_alive(process) {
                    load.ledger.sessions.learn(Name(session), process, now - f64::from(row.age));
                }
            }
        }
    }
}

/// Takes back the booking of an attempt that has ended, at a process that still has its slot.
fn retracted<T: Clone>(load: &mut Counted<'_, T>, number: u64, ended: Option<PeerAttempt>) -> Option<Work> {
    let PeerAttempt { process, uncached, .. } = ended.filter(|ended| load.is_alive(ended.process))?;
    load.ledger.booked_elsewhere(process, uncached, -1);
    Some(Work::Retracted(number, process))
}

/// What a part says of a process; nothing if it is empty or the process is not known.
fn holds(process: Process, part: Part<'static>, chains: &mut Chains) -> Option<Holds> {
    if part.is_empty() {
        return None;
    }
    let chain = chains.extend(part.known, part.parent, &part.rest);
    (process != NOWHERE).then_some(Holds { process, chain, part })
}
