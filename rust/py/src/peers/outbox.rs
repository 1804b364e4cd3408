//! `PeerOutbox`: what a router tells its peers. It hears each step of the ledger.

use std::borrow::Cow;
use std::sync::atomic::Ordering;

use prefixroute_core::BlockHash;
use prefixroute_core::peers::wire::{
    Binding, End, Kind, MAX_BINDINGS, MAX_HASHES, MAX_SECONDS, MAX_TEXT_BYTES, Message, Open, Part, Register,
};
use prefixroute_core::peers::{ANCHOR_EVERY, Chains, MAX_OPEN, Outbox};
use prefixroute_core::routing::Name;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyString};

use super::chains::PeerChains;
use super::ring::PeerRing;
use super::seal::PeerSeal;
use crate::errors;
use crate::hashes::BlockHashes;
use crate::lock::Lock;
use crate::routing::{Attempt, Ledger};

use std::collections::{HashMap, HashSet};

/// A process of a replica as messages name it, and whether the engine's own events tell every router what it holds.
#[derive(Clone, Copy)]
struct Place {
    generation: i64,
    mark: u64,
    events: bool,
}

/// An open attempt that was told of.
struct Announced {
    sequence: u64,
    mark: u64,
    session: u128,
}

struct State {
    outbox: Outbox,
    open: HashMap<u64, Announced>,
    /// Attempts of hedged requests: the one that wins binds the session only then.
    hedged: HashSet<u64>,
    places: Vec<Option<Place>>,
    counts: [u64; Kind::ALL.len()],
    unsent: u64,
    ring: Option<Py<PeerRing>>,
}

impl State {
    fn tell(&mut self, message: &Message<'_>) -> u64 {
        self.counts[message.kind() as usize - 1] += 1;
        let sequence = self.outbox.tell(message);
        if let Some(ring) = &self.ring {
            ring.get().show(sequence, message);
        }
        sequence
    }

    /// Tells what of a chain the messages before have not carried, but for its last piece, which is returned.
    fn told<'a>(&mut self, carried: &mut Chains, chain: &'a [BlockHash]) -> Part<'a> {
        let mut known = carried.store(chain);
        loop {
            let parent = if known == 0 { BlockHash(0) } else { chain[known - 1] };
            // Pieces end where a later message may go on.
            let end = if chain.len() - known > MAX_HASHES {
                (known + MAX_HASHES) / ANCHOR_EVERY * ANCHOR_EVERY
            } else {
                chain.len()
            };
            let part = Part { known, parent, rest: Cow::Borrowed(&chain[known..end]) };
            if end == chain.len() {
                return part;
            }
            self.tell(&Message::Chain(part));
            known = end;
        }
    }
}

/// What a router tells its peers, as frames that wait to be taken, or are sent at once. Called with the router's lock held.
///
/// Args:
///     ledger: the router's.
///     chains: the chains that the feed has carried.
///     seal: what the router and its peers have in common.
///     describe: returns the mark of a member's process, and whether its engine sends events.
///     ident: number of the router.
///     first_sequence: number of the first message.
///     send: takes each frame at once; None: frames wait for `take`.
///     failed: hears of the first exception that `send` raises.
#[pyclass(frozen, module = "prefixroute._core")]
pub struct PeerOutbox {
    state: Lock<State>,
    ledger: Py<Ledger>,
    chains: Py<PeerChains>,
    describe: Py<PyAny>,
    send: Option<Py<PyAny>>,
    failed: Py<PyAny>,
}

impl PeerOutbox {
    /// Tells a message that rests on nothing.
    fn say(&self, py: Python<'_>, message: &Message<'_>) -> PyResult<()> {
        self.state.lock().tell(message);
        self.flush(py)
    }

    /// Hands frames to `send`, if there is one.
    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        let Some(send) = &self.send else { return Ok(()) };
        loop {
            let Some(frame) = self.state.lock().outbox.take() else { return Ok(()) };
            if let Err(error) = send.bind(py).call1((PyBytes::new(py, &frame),)) {
                let is_first = {
                    let mut state = self.state.lock();
                    state.unsent += 1;
                    state.unsent == 1
                };
                let told = error.clone_ref(py);
                if errors::caught(py, Err::<(), _>(error))?.is_none() && is_first {
                    self.failed.bind(py).call1((told,))?;
                }
            }
        }
    }

    fn place(&self, attempt: &Bound<'_, Attempt>) -> PyResult<Place> {
        let process = attempt.get().process;
        let known = self.state.lock().places.get(process.slot).copied().flatten();
        if let Some(place) = known.filter(|place| place.generation == process.generation) {
            return Ok(place);
        }
        let (mark, events) = self.describe.bind(attempt.py()).call1((&attempt.get().parts.member,))?.extract()?;
        let place = Place { generation: process.generation, mark, events };
        let mut state = self.state.lock();
        if state.places.len() <= process.slot {
            state.places.resize(process.slot + 1, None);
        }
        state.places[process.slot] = Some(place);
        Ok(place)
    }

    /// Tells of a booking.
    fn book(&self, attempt: &Bound<'_, Attempt>, session: Option<Name>, bound: bool) -> PyResult<()> {
        let (one, place) = (attempt.get(), self.place(attempt)?);
        let decision = one.parts.decision.bind(attempt.py());
        let blocks = if place.events { None } else { Some(decision.getattr(intern!(attempt.py(), "blocks"))?) };
        let blocks = blocks.as_ref().and_then(|blocks| blocks.cast::<BlockHashes>().ok());
        let session = session.map_or(0, |name| name.0);
        let mut state = self.state.lock();
        self.chains.get().with(|chains| {
            let part = blocks.map_or(Part::NONE, |blocks| state.told(chains, blocks.get().blocks()));
            let message = Message::Booked {
                process: place.mark,
                session: if bound { session } else { 0 },
                uncached: tokens(one.prompt_tokens - one.hit),
                context: tokens(one.prompt_tokens),
                part,
            };
            let sequence = state.tell(&message);
            state.open.insert(one.number, Announced { sequence, mark: place.mark, session });
            if one.decodes_behind() {
                state.tell(&Message::Started(sequence)); // it decodes from its beginning
            }
        });
        Ok(())
    }

    /// Tells that the session of an attempt is bound to its replica only now, if it has won a hedge.
    fn rebind(&self, one: &Attempt, now: f64) {
        let mut state = self.state.lock();
        if state.hedged.is_empty() || !state.hedged.remove(&one.number) {
            return;
        }
        let Some((session, mark)) = state.open.get(&one.number).map(|told| (told.session, told.mark)) else { return };
        drop(state);
        if session != 0 && self.is_bound(Name(session), one, now) {
            let binding = Binding { session, process: mark, age: 0.0 };
            self.state.lock().tell(&Message::Bound(Cow::Borrowed(&[binding])));
        }
    }

    fn is_bound(&self, session: Name, one: &Attempt, now: f64) -> bool {
        self.ledger
            .get()
            .with(|ledger| ledger.bound(session, now))
            .is_some_and(|slot| usize::try_from(slot) == Ok(one.process.slot))
    }

    fn end(&self, py: Python<'_>, one: &Attempt, how: End, held: Option<&Bound<'_, BlockHashes>>) -> PyResult<()> {
        let mut state = self.state.lock();
        if let Some(told) = state.open.remove(&one.number) {
            self.chains.get().with(|chains| {
                let part = held.map_or(Part::NONE, |blocks| state.told(chains, blocks.get().blocks()));
                state.tell(&Message::Ended { attempt: told.sequence, how, part });
            });
        }
        drop(state);
        self.flush(py)
    }
}

/// Tokens as a message has them.
fn tokens(count: i64) -> u32 {
    u32::try_from(count.max(0)).unwrap_or(u32::MAX)
}

#[pymethods]
impl PeerOutbox {
    #[new]
    #[pyo3(signature = (ledger, chains, seal, describe, *, ident, first_sequence, send, failed))]
    #[expect(clippy::too_many_arguments, reason = "each by name, from Python")]
    fn py_new(
        ledger: Py<Ledger>,
        chains: Py<PeerChains>,
        seal: Py<PeerSeal>,
        describe: Py<PyAny>,
        ident: u64,
        first_sequence: u64,
        send: Option<Py<PyAny>>,
        failed: Py<PyAny>,
    ) -> Self {
        let state = State {
            outbox: Outbox::new(seal.get().seal, ident, first_sequence.max(1)),
            open: HashMap::new(),
            hedged: HashSet::new(),
            places: Vec::new(),
            counts: Default::default(),
            unsent: 0,
            ring: None,
        };
        Self { state: Lock::new(state), ledger, chains, describe, send, failed }
    }

    // -- steps of the ledger

    /// Tell of an attempt that is booked. `earlier`: an attempt of the same request; `hedge`: that one goes on.
    #[pyo3(signature = (attempt, session, now, earlier=None, hedge=false, /))]
    fn booked(
        &self,
        attempt: &Bound<'_, Attempt>,
        session: Option<&Bound<'_, PyString>>,
        now: f64,
        earlier: Option<&Bound<'_, Attempt>>,
        hedge: bool,
    ) -> PyResult<()> {
        let session = self.ledger.get().optional_name(session)?;
        let bound = session.is_some_and(|session| self.is_bound(session, attempt.get(), now));
        if let Some(earlier) = earlier {
            let (number, before) = (attempt.get().number, earlier.get().number);
            let mut state = self.state.lock();
            if hedge || state.hedged.contains(&before) {
                state.hedged.extend([number, before]);
            }
        }
        self.book(attempt, session, bound)?;
        self.flush(attempt.py())
    }

    /// Tell of a first token, which may have decided a hedge.
    #[pyo3(signature = (attempt, now, /))]
    fn started(&self, attempt: &Bound<'_, Attempt>, now: f64) -> PyResult<()> {
        let mut state = self.state.lock();
        if let Some(sequence) = state.open.get(&attempt.get().number).map(|told| told.sequence) {
            state.tell(&Message::Started(sequence));
        }
        drop(state);
        self.rebind(attempt.get(), now);
        self.flush(attempt.py())
    }

    /// Tell of an answer that is complete, and of the blocks that the replica then holds; None: nothing is known of them.
    #[pyo3(signature = (attempt, held, now, /))]
    fn finished(&self, attempt: &Bound<'_, Attempt>, held: &Bound<'_, PyAny>, now: f64) -> PyResult<()> {
        self.rebind(attempt.get(), now);
        self.end(attempt.py(), attempt.get(), End::Finished, held.cast::<BlockHashes>().ok())
    }

    /// Tell of an end without an answer.
    #[pyo3(signature = (attempt, /))]
    fn given_up(&self, attempt: &Bound<'_, Attempt>) -> PyResult<()> {
        let how = if attempt.get().started.load(Ordering::Relaxed) { End::Aborted } else { End::Retracted };
        self.end(attempt.py(), attempt.get(), how, None)
    }

    /// Tell of all that is in flight at processes that live, that which an exception has kept from being told included.
    fn beat(&self, py: Python<'_>) -> PyResult<()> {
        let attempts = self.ledger.get().open_attempts(py);
        let lives: Vec<bool> = self
            .ledger
            .get()
            .with(|ledger| attempts.iter().map(|attempt| ledger.alive(attempt.get().process)).collect());
        for (attempt, _) in attempts.iter().zip(&lives).filter(|(_, lives)| **lives) {
            let attempt = attempt.bind(py);
            if !self.state.lock().open.contains_key(&attempt.get().number) {
                self.book(attempt, None, false)?;
            }
        }
        let mut state = self.state.lock();
        let row = |attempt: &Py<Attempt>| {
            let one = attempt.get();
            let Announced { sequence, mark, .. } = *state.open.get(&one.number)?;
            let (uncached, context) = (tokens(one.prompt_tokens - one.hit), tokens(one.prompt_tokens));
            let started = one.started.load(Ordering::Relaxed) || one.decodes_behind();
            Some(Open { attempt: sequence, process: mark, uncached, context, started })
        };
        // What is in flight at a process that is gone is no load, though the one that follows may have its mark.
        let mut rows: Vec<Open> =
            attempts.iter().zip(&lives).filter_map(|(attempt, lives)| lives.then(|| row(attempt))?).collect();
        rows.sort_unstable_by_key(|row| row.attempt);
        let rows = &rows[rows.len().saturating_sub(MAX_OPEN)..];
        let numbers: HashSet<u64> = attempts.iter().map(|attempt| attempt.get().number).collect();
        state.open.retain(|number, _| numbers.contains(number));
        state.hedged.retain(|number| numbers.contains(number));
        state.tell(&Message::Beat(Cow::Borrowed(rows)));
        drop(state);
        self.flush(py)
    }

    // -- the rest

    /// Tell of bindings: (the session's name in bytes, zeros = all; mark of its process, 0 = no longer any; seconds since it
    /// was used) of each.
    #[pyo3(signature = (bindings, /))]
    fn bound(&self, py: Python<'_>, bindings: Vec<([u8; 16], u64, f32)>) -> PyResult<()> {
        let binding = |(session, process, age)| Binding { session: u128::from_le_bytes(session), process, age };
        let rows: Vec<Binding> = bindings.into_iter().map(binding).collect();
        for rows in rows.chunks(MAX_BINDINGS) {
            self.say(py, &Message::Bound(Cow::Borrowed(rows)))?;
        }
        Ok(())
    }

    /// Tell that a process is believed to hold a chain.
    #[pyo3(signature = (mark, blocks, /))]
    fn held(&self, py: Python<'_>, mark: u64, blocks: &BlockHashes) -> PyResult<()> {
        let mut state = self.state.lock();
        self.chains.get().with(|chains| {
            let part = state.told(chains, blocks.blocks());
            if !part.is_empty() {
                state.tell(&Message::Held(mark, part));
            }
        });
        drop(state);
        self.flush(py)
    }

    /// Send a chain, without what `carried` has, which then has it; None: as a whole.
    #[pyo3(signature = (blocks, carried=None, /))]
    fn chain(&self, py: Python<'_>, blocks: &BlockHashes, carried: Option<&PeerChains>) -> PyResult<()> {
        let mut state = self.state.lock();
        let mut tell = |chains: &mut Chains| {
            let part = state.told(chains, blocks.blocks());
            if !part.rest.is_empty() {
                state.tell(&Message::Chain(part));
            }
        };
        match carried {
            Some(carried) => carried.with(tell),
            None => tell(&mut Chains::new(1)),
        }
        drop(state);
        self.flush(py)
    }

    /// Ask a peer for the chain of so many blocks that ends with a hash.
    #[pyo3(signature = (peer, known, parent, /))]
    fn missing(&self, py: Python<'_>, peer: u64, known: usize, parent: u64) -> PyResult<()> {
        self.say(py, &Message::Missing { peer, known, parent: BlockHash(parent) })
    }

    /// Tell that the cache of a replica, by the mark of its name, was cleared; 0: the weights have changed everywhere.
    #[pyo3(signature = (replica, /))]
    fn cleared(&self, py: Python<'_>, replica: u64) -> PyResult<()> {
        self.say(py, &Message::Cleared(replica))
    }

    /// Tell a register of the fleet.
    #[pyo3(signature = (replica, version, author, state, left, incarnation, /))]
    #[expect(clippy::too_many_arguments, reason = "one for each field")]
    fn register(
        &self,
        py: Python<'_>,
        replica: u64,
        version: u64,
        author: u64,
        state: u8,
        left: f64,
        incarnation: &[u8],
    ) -> PyResult<()> {
        if incarnation.len() > MAX_TEXT_BYTES {
            return Ok(()); // nobody would take it: such an incarnation is each router's own
        }
        let (incarnation, left) = (Cow::Borrowed(incarnation), left.min(MAX_SECONDS));
        self.say(py, &Message::Fleet(Register { replica, version, author, state, left, incarnation }))
    }

    /// Begin.
    fn hello(&self, py: Python<'_>) -> PyResult<()> {
        self.say(py, &Message::Hello)
    }

    /// Begin a snapshot.
    fn welcome(&self, py: Python<'_>) -> PyResult<()> {
        self.say(py, &Message::Welcome)
    }

    /// Leave.
    fn left(&self, py: Python<'_>) -> PyResult<()> {
        self.say(py, &Message::Left)
    }

    /// Take the frames that wait.
    fn take<'py>(&self, py: Python<'py>) -> Vec<Bound<'py, PyBytes>> {
        let mut frames = Vec::new();
        while let Some(frame) = self.state.lock().outbox.take() {
            frames.push(PyBytes::new(py, &frame));
        }
        frames
    }

    /// Show loads in a ring, too.
    #[pyo3(signature = (ring, /))]
    fn show_in(&self, ring: Py<PeerRing>) {
        let before = self.state.lock().ring.replace(ring);
        drop(before);
    }

    /// Ask anew what members are: the fleet has changed.
    fn forget_places(&self) {
        self.state.lock().places.clear();
    }

    /// Messages by kind, and frames that could not be sent.
    fn counts<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let state = self.state.lock();
        let counts = PyDict::new(py);
        for (kind, name) in Kind::ALL {
            let count = state.counts[kind as usize - 1];
            if count > 0 {
                counts.set_item(name, count)?;
            }
        }
        let unsent = state.unsent + state.outbox.lost();
        if unsent > 0 {
            counts.set_item("unsent", unsent)?;
        }
        Ok(counts)
    }
}
