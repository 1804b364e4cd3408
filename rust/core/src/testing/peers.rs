//! Random traffic between routers from bytes: legal frames, lost, doubled, reordered, altered and sealed again, at a router whose
//! replicas come and go. Property tests and the fuzz target share it.

use std::borrow::Cow;

use super::history::{Choices, pick};
use crate::ids::BlockHash;
use crate::peers::wire::{Binding, End, Frame, HEADER_BYTES, Message, Open, Part, Register, Seal};
use crate::peers::{Chains, Inbox, Outbox};
use crate::routing::{Ledger, Limits, Process, State, Windows};

const SLOTS: usize = 3;
const PEERS: usize = 2;
/// Blocks of a prompt at most.
const LONGEST: u16 = 40;

/// A router that tells.
struct Teller {
    outbox: Outbox,
    chains: Chains,
    open: Vec<Open>,
}

impl Teller {
    fn part<'a>(&mut self, chain: &'a [BlockHash]) -> Part<'a> {
        let known = self.chains.store(chain);
        let parent = if known == 0 { BlockHash(0) } else { chain[known - 1] };
        Part { known, parent, rest: Cow::Borrowed(&chain[known..]) }
    }

    fn act(&mut self, choices: &mut Choices<'_>) {
        let mark = u64::from(choices.below(SLOTS as u16 + 1)) + 1;
        let chain = pick(choices, LONGEST).chain;
        let part = self.part(&chain);
        let at = usize::from(choices.below(8));
        match choices.below(12) {
            0..=3 => {
                let context = 16 * chain.len() as u32;
                let uncached = context / 2;
                let message =
                    Message::Booked { process: mark, session: u128::from(choices.below(3)), uncached, context, part };
                let attempt = self.outbox.tell(&message);
                self.open.push(Open { attempt, process: mark, uncached, context, started: false });
            }
            4 if at < self.open.len() => {
                self.open[at].started = true;
                self.outbox.tell(&Message::Started(self.open[at].attempt));
            }
            5 | 6 if at < self.open.len() => {
                let attempt = self.open.swap_remove(at).attempt;
                let how = [End::Finished, End::Aborted, End::Retracted][usize::from(choices.below(3))];
                self.outbox.tell(&Message::Ended { attempt, how, part });
            }
            7 => {
                let session = u128::from(choices.below(3));
                let rows = [Binding { session, process: mark - 1, age: 1.0 }];
                self.outbox.tell(&Message::Bound(Cow::Borrowed(&rows)));
            }
            8 => _ = self.outbox.tell(&Message::Held(mark, part)),
            9 => _ = self.outbox.tell(&Message::Chain(part)),
            10 => {
                let incarnation = Cow::Borrowed(&b"7"[..]);
                let register = Register { replica: mark, version: 1, author: 1, state: 1, left: -1.0, incarnation };
                self.outbox.tell(&Message::Fleet(register));
                self.outbox.tell(&Message::Missing { peer: 1, known: 3, parent: BlockHash(mark) });
            }
            _ => _ = self.outbox.tell(&Message::Beat(Cow::Borrowed(&self.open))),
        }
    }
}

/// A router that listens: how much each slot has in flight follows from what it has heard alone.
struct Listener {
    inbox: Inbox,
    ledger: Ledger<u32>,
    chains: Chains,
    generations: [i64; SLOTS],
    next: i64,
    newest: [u64; PEERS],
}

impl Listener {
    fn new() -> Self {
        let limits = Limits { ticket_s: 10.0, session_idle_s: 10.0, sessions: 8 };
        let windows = Windows { bookings: None, prefill_s: 1.0, recent: true, balances_recent: false, served: true };
        let (inbox, ledger, chains) = (Inbox::default(), Ledger::new(limits, windows), Chains::new(200));
        let mut listener = Self { inbox, ledger, chains, generations: [-1; SLOTS], next: 0, newest: [0; PEERS] };
        (0..SLOTS).for_each(|slot| listener.replace(slot, true));
        listener
    }

    /// Another process takes a slot, or none.
    fn replace(&mut self, slot: usize, joins: bool) {
        self.generations[slot] = if joins { self.next } else { -1 };
        self.next += 1;
        let state = |generation: &i64| State {
            name: (*generation >= 0).then(|| "replica".into()),
            generation: *generation,
            draining: false,
        };
        self.ledger.see(self.generations.iter().map(state).collect());
        let process = |(slot, generation): (usize, &i64)| {
            (slot as u64 + 1, Process { slot, generation: *generation }) // a free slot too, which nobody should name
        };
        self.inbox.see(self.generations.iter().enumerate().map(process));
    }

    fn hear(&mut self, frame: Frame<'_>) {
        let Ok(messages) = frame.messages() else { return };
        let Some(newest) = self.newest.get_mut(frame.peer.wrapping_sub(1) as usize) else { return };
        if !self.inbox.take(frame.peer, frame.first) {
            return;
        }
        *newest = (*newest).max(frame.first + messages.len() as u64 - 1);
        for (sequence, message) in messages {
            let told = (frame.peer, sequence);
            self.inbox.apply(told, message, (&mut self.ledger, true), &mut self.chains, 0.0);
        }
    }

    /// Takes a peer for gone.
    fn give_up(&mut self, peer: usize) {
        self.inbox.give_up((&mut self.ledger, true), peer as u64 + 1, self.newest[peer]);
    }

    fn loads(&self) -> impl Iterator<Item = i64> {
        let counts = &self.ledger.book.live;
        counts.in_flight.iter().chain(&counts.queued).chain(&counts.decoding).copied()
    }

    fn check(&self, what: &str) -> Result<(), String> {
        if self.loads().any(|load| load < 0) || self.ledger.book.busy.iter().any(|busy| *busy < 0.0) {
            return Err(format!("load below zero {what}: {:?}", self.ledger.book.live));
        }
        Ok(())
    }
}

/// Routers that tell, one that listens, and the frames between them.
struct Traffic {
    seal: Seal,
    tellers: Vec<Teller>,
    listener: Listener,
    frames: Vec<Vec<u8>>,
}

impl Traffic {
    fn new() -> Self {
        let seal = Seal::new(7, 8);
        let teller = |peer| Teller { outbox: Outbox::new(seal, peer, 1), chains: Chains::new(1_000), open: Vec::new() };
        let tellers = (1..=PEERS as u64).map(teller).collect();
        Self { seal, tellers, listener: Listener::new(), frames: Vec::new() }
    }

    fn step(&mut self, choices: &mut Choices<'_>) -> Result<(), String> {
        match choices.below(8) {
            0..=3 => {
                let teller = &mut self.tellers[usize::from(choices.below(PEERS as u16))];
                teller.act(choices);
                if choices.below(3) > 0 {
                    self.frames.extend(teller.outbox.take());
                }
            }
            4 => {
                let (slot, joins) = (usize::from(choices.below(SLOTS as u16)), choices.below(2) > 0);
                self.listener.replace(slot, joins);
            }
            5 => self.listener.give_up(usize::from(choices.below(PEERS as u16))),
            6 if !self.frames.is_empty() => {
                let altered = self.altered(choices);
                self.hear(&altered)?;
            }
            _ if !self.frames.is_empty() => {
                let at = usize::from(choices.below(256)) % self.frames.len();
                let is_last = choices.below(4) > 0;
                let frame = if is_last { self.frames.swap_remove(at) } else { self.frames[at].clone() };
                self.hear(&frame)?;
            }
            _ => {}
        }
        self.listener.check("in the middle")
    }

    /// A frame whose bytes are others, sealed again.
    fn altered(&self, choices: &mut Choices<'_>) -> Vec<u8> {
        let mut altered = self.frames[usize::from(choices.below(256)) % self.frames.len()].clone();
        let place = HEADER_BYTES + usize::from(choices.below(256)) % (altered.len() - HEADER_BYTES);
        altered[place] ^= choices.below(256) as u8;
        altered.truncate(altered.len() - usize::from(choices.below(4)).min(altered.len() - HEADER_BYTES));
        self.seal.close(&mut altered);
        altered
    }

    fn hear(&mut self, data: &[u8]) -> Result<(), String> {
        self.listener.hear(self.seal.open(data).map_err(|error| error.to_string())?);
        Ok(())
    }
}

/// Plays what these bytes say.
///
/// # Errors
///
/// A load is below zero, or not zero once nobody has anything in flight.
pub fn run(bytes: &[u8]) -> Result<(), String> {
    let (mut choices, mut traffic) = (Choices::new(bytes), Traffic::new());
    while !choices.is_empty() {
        traffic.step(&mut choices)?;
    }
    let mut listener = traffic.listener;
    (0..PEERS).for_each(|peer| listener.give_up(peer));
    if listener.loads().any(|load| load != 0) {
        return Err(format!("load is left at the end: {:?}", listener.ledger.book.live));
    }
    Ok(())
}
