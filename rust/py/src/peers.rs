//! What a commit feed rests on: `PeerChains`, the chains that it has carried, and `PeerTable`, what peers have in flight.

use std::sync::{Mutex, PoisonError};

use prefixroute_core::BlockHash;
use prefixroute_core::peers::{Booked, Chains, Load, Peers, Told};
use prefixroute_core::routing::{self, Process};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::errors;
use crate::hashes::BlockHashes;
use crate::routing::{Item, Ledger};

const HASH_BYTES: usize = size_of::<u64>();

/// The chains of blocks that a commit feed has carried, so that a message names only the blocks beyond the first unknown one.
///
/// Bounded: the chain that was used longest ago goes first. Safe to use from many threads.
///
/// Args:
///     block_size: tokens of a block.
///     capacity: blocks kept at most, about 11 bytes each.
#[pyclass(frozen, module = "prefixroute._core")]
pub struct PeerChains {
    chains: Mutex<Chains>,
    block_size: usize,
}

impl PeerChains {
    /// Works on the table alone. Poison is ignored: a panic in the core must not make every later call panic too.
    fn with<R>(&self, work: impl FnOnce(&mut Chains) -> R) -> R {
        work(&mut self.chains.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[pymethods]
impl PeerChains {
    #[new]
    fn py_new(block_size: usize, capacity: usize) -> Self {
        Self { chains: Mutex::new(Chains::new(capacity)), block_size }
    }

    /// Store a prompt's chain.
    ///
    /// Returns:
    ///     (blocks that need not be sent, hash of the last of them or 0, the hashes of the others as little-endian bytes).
    fn carry<'py>(&self, py: Python<'py>, blocks: &Bound<'py, BlockHashes>) -> (usize, u64, Bound<'py, PyBytes>) {
        let chain = blocks.get().blocks();
        let known = self.with(|chains| chains.store(chain));
        let parent = if known == 0 { 0 } else { chain[known - 1].0 };
        let bytes: Vec<u8> = chain[known..].iter().flat_map(|hash| hash.0.to_le_bytes()).collect();
        (known, parent, PyBytes::new(py, &bytes))
    }

    /// The chain that goes on behind a known one, stored; None if that one is not known.
    ///
    /// Args:
    ///     start: blocks of the known chain.
    ///     parent: hash of its last block; without blocks it is not looked at.
    ///     rest: the further hashes as little-endian bytes.
    ///
    /// Raises:
    ///     ConfigError: the bytes are no whole number of hashes.
    fn extend(&self, start: usize, parent: u64, rest: &[u8]) -> PyResult<Option<BlockHashes>> {
        if rest.len() % HASH_BYTES != 0 {
            return Err(errors::config(format!("hashes must have 8 bytes each, got {} bytes", rest.len())));
        }
        let words = rest.chunks_exact(HASH_BYTES).filter_map(<[u8]>::first_chunk);
        let rest: Vec<BlockHash> = words.map(|word| BlockHash(u64::from_le_bytes(*word))).collect();
        let chain = self.with(|chains| chains.extend(start, BlockHash(parent), &rest));
        Ok(chain.map(|chain| self.hashes(chain)))
    }

    /// The chain of so many blocks that ends with this hash; None if it is not known.
    fn chain(&self, last: u64, blocks: usize) -> Option<BlockHashes> {
        let chain = self.with(|chains| chains.chain(BlockHash(last), blocks))?;
        Some(self.hashes(chain))
    }

    /// The chains used last, newest first.
    fn newest(&self, most: usize) -> Vec<BlockHashes> {
        self.with(|chains| chains.newest(most)).into_iter().map(|chain| self.hashes(chain)).collect()
    }

    /// Blocks stored.
    fn __len__(&self) -> usize {
        self.with(|chains| chains.len())
    }
}

impl PeerChains {
    fn hashes(&self, chain: Vec<BlockHash>) -> BlockHashes {
        let tokens = chain.len() * self.block_size;
        BlockHashes::given(chain, tokens, self.block_size)
    }
}

/// What other routers have in flight, counted as load on a router's ledger. Each call is one step that no signal divides.
///
/// Args:
///     ledger: the router's.
///     counts: whether load is counted; else the transport knows it better.
#[pyclass(frozen, module = "prefixroute._core")]
pub struct PeerTable {
    peers: Mutex<Peers>,
    ledger: Py<Ledger>,
    counts: bool,
}

/// A ledger, on which load is counted or not.
struct Counted<'a, L> {
    ledger: &'a mut L,
    counts: bool,
}

impl<L: Load> Load for Counted<'_, L> {
    fn is_alive(&self, process: Process) -> bool {
        self.ledger.is_alive(process)
    }

    fn adjust(&mut self, process: Process, requests: i64, queued: i64, decoding: i64) {
        if self.counts {
            self.ledger.adjust(process, requests, queued, decoding);
        }
    }
}

/// An attempt as a beat lists it: number, slot, generation, uncached tokens, prompt tokens, whether it has started.
type Row = (u64, usize, i64, i64, i64, bool);

impl PeerTable {
    /// Works on the table with the ledger in hand. No Python runs meanwhile.
    fn with<R>(&self, work: impl FnOnce(&mut Peers, &mut Counted<'_, routing::Ledger<Item>>) -> R) -> R {
        let mut peers = self.peers.lock().unwrap_or_else(PoisonError::into_inner);
        self.ledger.get().with(|ledger| work(&mut peers, &mut Counted { ledger, counts: self.counts }))
    }
}

#[pymethods]
impl PeerTable {
    #[new]
    #[pyo3(signature = (ledger, *, counts=true))]
    fn py_new(ledger: Py<Ledger>, counts: bool) -> Self {
        Self { peers: Mutex::default(), ledger, counts }
    }

    /// Take in a booking; a generation of -1 is that of a process that is not known here.
    ///
    /// Returns:
    ///     0 = it is new and open now, 1 = it was open before, 2 = it has ended or is out of date.
    #[pyo3(signature = (peer, sequence, slot, generation, uncached, context, /))]
    fn book(&self, peer: u64, sequence: u64, slot: usize, generation: i64, uncached: i64, context: i64) -> u8 {
        let process = Process { slot, generation };
        let told = Told { process, uncached, context, started: false };
        let booked = self.with(|peers, load| peers.book(load, peer, sequence, told));
        if booked == Booked::New {
            self.ledger.get().with(|ledger| ledger.booked_elsewhere(process, uncached, 1));
        }
        booked as u8
    }

    /// Take in the first token of an attempt.
    #[pyo3(signature = (peer, sequence, number, /))]
    fn start(&self, peer: u64, sequence: u64, number: u64) {
        self.with(|peers, load| peers.start(load, peer, sequence, number));
    }

    /// Take in the end of an attempt. `retracted`: it never reached the engine.
    ///
    /// Returns:
    ///     Its slot and generation; None if it was not open.
    #[pyo3(signature = (peer, sequence, number, retracted, /))]
    fn end(&self, peer: u64, sequence: u64, number: u64, retracted: bool) -> Option<(usize, i64)> {
        let told = self.with(|peers, load| peers.end(load, peer, sequence, number))?;
        if retracted {
            self.ledger.get().with(|ledger| ledger.booked_elsewhere(told.process, told.uncached, -1));
        }
        Some((told.process.slot, told.process.generation))
    }

    /// Take in all open attempts of a peer: (number, slot, generation, uncached tokens, prompt tokens, started) of each.
    ///
    /// Returns:
    ///     Whether it is news.
    #[pyo3(signature = (peer, sequence, rows, /))]
    fn beat(&self, peer: u64, sequence: u64, rows: Vec<Row>) -> bool {
        let told = |(number, slot, generation, uncached, context, started): Row| {
            (number, Told { process: Process { slot, generation }, uncached, context, started })
        };
        let listed: Vec<(u64, Told)> = rows.into_iter().map(told).collect();
        self.with(|peers, load| peers.beat(load, peer, sequence, &listed))
    }

    /// Forget what a peer has in flight, and what it said up to the sequence `newest`.
    ///
    /// Returns:
    ///     How many attempts that were.
    #[pyo3(signature = (peer, newest, /))]
    fn give_up(&self, peer: u64, newest: u64) -> usize {
        self.with(|peers, load| peers.give_up(load, peer, newest))
    }

    /// Forget a peer altogether.
    #[pyo3(signature = (peer, /))]
    fn forget(&self, peer: u64) {
        self.with(|peers, load| peers.forget(load, peer));
    }

    /// How many attempts a peer has in flight.
    #[pyo3(signature = (peer, /))]
    fn open(&self, peer: u64) -> usize {
        self.peers.lock().unwrap_or_else(PoisonError::into_inner).open(peer)
    }
}
