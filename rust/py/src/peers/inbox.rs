//! `PeerInbox`: what a router makes of its peers' frames.

use std::vec::IntoIter;

use prefixroute_core::peers::wire::{Message, Register};
use prefixroute_core::peers::{Holds, Inbox, Work};
use prefixroute_core::routing::Process;
use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};

use super::chains::PeerChains;
use super::seal::PeerSeal;
use crate::errors;
use crate::lock::Lock;
use crate::routing::Ledger;

/// A frame of a peer whose messages wait to be applied.
#[pyclass(frozen, module = "prefixroute._core")]
pub struct PeerFrame {
    peer: u64,
    newest: u64,
    count: usize,
    messages: Lock<IntoIter<(u64, Message<'static>)>>,
}

#[pymethods]
impl PeerFrame {
    #[getter]
    fn peer(&self) -> u64 {
        self.peer
    }

    #[getter]
    fn newest(&self) -> u64 {
        self.newest
    }

    fn __len__(&self) -> usize {
        self.count
    }
}

/// Peers' attempts in flight, counted as load on a router's ledger. Each call is one step that no signal divides.
///
/// Args:
///     ledger: the router's.
///     chains: the chains that the feed has carried.
///     seal: what the router and its peers have in common.
///     counts: whether load is counted; else the transport knows it better.
#[pyclass(frozen, module = "prefixroute._core")]
pub struct PeerInbox {
    inbox: Lock<Inbox>,
    ledger: Py<Ledger>,
    chains: Py<PeerChains>,
    seal: Py<PeerSeal>,
    counts: bool,
}

impl PeerInbox {
    /// Applies messages up to the first that leaves something to do.
    fn advance(&self, frame: &PeerFrame, now: f64) -> Option<Work> {
        let mut messages = frame.messages.lock();
        let mut inbox = self.inbox.lock();
        self.ledger.get().with(|ledger| {
            self.chains.get().with(|chains| {
                messages.find_map(|(sequence, message)| {
                    inbox.apply((frame.peer, sequence), message, (&mut *ledger, self.counts), chains, now)
                })
            })
        })
    }

    /// What is held, as Python has it: slot, generation, blocks, known blocks, the last of them, the other hashes as bytes.
    fn held<'py>(&self, py: Python<'py>, holds: Holds) -> PyResult<Bound<'py, PyTuple>> {
        let Holds { process, chain, part } = holds;
        let blocks = chain.map(|chain| self.chains.get().hashes(chain));
        let rest = if blocks.is_some() {
            PyBytes::new(py, &[])
        } else {
            PyBytes::new(py, &part.rest.iter().flat_map(|hash| hash.0.to_le_bytes()).collect::<Vec<_>>())
        };
        (process.slot, process.generation, blocks, part.known, part.parent.0, rest).into_pyobject(py)
    }
}

fn text<'py>(py: Python<'py>, bytes: &[u8]) -> PyResult<Bound<'py, PyAny>> {
    PyBytes::new(py, bytes).call_method1("decode", ("utf-8", "surrogatepass"))
}

#[pymethods]
impl PeerInbox {
    #[new]
    #[pyo3(signature = (ledger, chains, seal, *, counts=true))]
    fn py_new(ledger: Py<Ledger>, chains: Py<PeerChains>, seal: Py<PeerSeal>, counts: bool) -> Self {
        Self { inbox: Lock::default(), ledger, chains, seal, counts }
    }

    /// Know these processes, and no others: (mark, slot, generation) of each.
    #[pyo3(signature = (processes, /))]
    fn see(&self, processes: Vec<(u64, usize, i64)>) {
        let process = |(mark, slot, generation)| (mark, Process { slot, generation });
        self.inbox.lock().see(processes.into_iter().map(process));
    }

    /// Read a frame, which is to be applied then. None: it is of the router `own`, was read before, or is too old to tell.
    ///
    /// Raises:
    ///     PeerError: it is no frame, or none of a peer.
    #[pyo3(signature = (data, own, /))]
    fn read(&self, py: Python<'_>, data: &[u8], own: u64) -> PyResult<Option<PeerFrame>> {
        let refused = |error: prefixroute_core::peers::wire::WireError| errors::peer(error.to_string());
        let frame = self.seal.get().seal.open(data).map_err(refused)?;
        if frame.peer == own {
            return Ok(None);
        }
        let messages = frame.messages().map_err(refused)?;
        for (_, message) in &messages {
            if let Message::Fleet(register) = message {
                text(py, &register.incarnation)
                    .map_err(|error| errors::peer(format!("an incarnation must be UTF-8: {error}")))?;
            }
        }
        let count = messages.len();
        let newest = frame.first + count as u64 - 1;
        if !self.inbox.lock().take(frame.peer, frame.first) {
            return Ok(None);
        }
        Ok(Some(PeerFrame { peer: frame.peer, newest, count, messages: Lock::new(messages.into_iter()) }))
    }

    /// Apply messages of a frame up to the first that leaves something to do.
    ///
    /// Returns:
    ///     What that is, its kind first; None: all are applied.
    #[pyo3(signature = (frame, now, /))]
    fn apply<'py>(&self, py: Python<'py>, frame: &PeerFrame, now: f64) -> PyResult<Option<Bound<'py, PyAny>>> {
        let Some(work) = self.advance(frame, now) else { return Ok(None) };
        let work = match work {
            Work::Booked(attempt, holds) => ("booked", attempt, self.held(py, holds)?).into_bound_py_any(py)?,
            Work::Retracted(attempt, process) => ("retracted", attempt, process.slot).into_bound_py_any(py)?,
            Work::Ended(attempt, None) => ("ended", attempt, py.None()).into_bound_py_any(py)?,
            Work::Ended(attempt, Some(holds)) => ("ended", attempt, self.held(py, holds)?).into_bound_py_any(py)?,
            Work::Beat(sequence) => ("beat", sequence).into_bound_py_any(py)?,
            Work::Held(holds) => ("held", self.held(py, holds)?).into_bound_py_any(py)?,
            Work::Chain(blocks, last) => ("chain", blocks, last.0).into_bound_py_any(py)?,
            Work::Missing(peer, known, parent) => ("missing", peer, known, parent.0).into_bound_py_any(py)?,
            Work::Fleet(Register { replica, version, author, state, left, incarnation }) => {
                ("fleet", replica, version, author, state, left, text(py, &incarnation)?).into_bound_py_any(py)?
            }
            Work::Cleared(sequence, replica) => ("cleared", sequence, replica).into_bound_py_any(py)?,
            Work::Hello => ("hello",).into_bound_py_any(py)?,
            Work::Welcome => ("welcome",).into_bound_py_any(py)?,
            Work::Left(sequence) => ("left", sequence).into_bound_py_any(py)?,
        };
        Ok(Some(work))
    }

    /// Forget what a peer has in flight, and what it said up to the sequence `newest`.
    ///
    /// Returns:
    ///     How many attempts that were.
    #[pyo3(signature = (peer, newest, /))]
    fn give_up(&self, peer: u64, newest: u64) -> usize {
        let mut inbox = self.inbox.lock();
        self.ledger.get().with(|ledger| inbox.give_up((ledger, self.counts), peer, newest))
    }

    /// Forget a peer altogether.
    #[pyo3(signature = (peer, /))]
    fn forget(&self, peer: u64) {
        let mut inbox = self.inbox.lock();
        self.ledger.get().with(|ledger| inbox.forget((ledger, self.counts), peer));
    }

    /// How many attempts a peer has in flight.
    #[pyo3(signature = (peer, /))]
    fn open(&self, peer: u64) -> usize {
        self.inbox.lock().peers.open(peer)
    }

    /// Whether an attempt of a peer is in flight.
    #[pyo3(signature = (peer, attempt, /))]
    fn is_open(&self, peer: u64, attempt: u64) -> bool {
        self.inbox.lock().peers.is_open(peer, attempt)
    }

    /// Frames that were read before, or are too old to tell: what comes twice changes nothing.
    #[getter]
    fn repeated(&self) -> u64 {
        self.inbox.lock().repeated
    }

    /// Messages about a process that is not known here.
    #[getter]
    fn strangers(&self) -> u64 {
        self.inbox.lock().strangers
    }
}
