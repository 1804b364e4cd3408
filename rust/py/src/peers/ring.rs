//! `PeerRing` and `PeerRings`: messages and loads of processes in memory that they share.

use std::collections::HashMap;
use std::sync::atomic::AtomicU64;

use prefixroute_core::peers::wire::{Message, Open};
use prefixroute_core::peers::{CELLS, Cell, Found, Load, PeerAttempt, Peers, Ring, ring_bytes};
use prefixroute_core::routing::Process;
use pyo3::buffer::PyBuffer;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::errors;
use crate::lock::Lock;
use crate::routing::Ledger;

/// Memory that other processes may change, as atomic words.
struct Shared(PyBuffer<u8>);

impl Shared {
    fn of(buffer: PyBuffer<u8>, writable: bool) -> PyResult<Self> {
        let aligned = buffer.buf_ptr() as usize % align_of::<AtomicU64>() == 0;
        if !aligned || !buffer.is_c_contiguous() || (writable && buffer.readonly()) {
            return Err(errors::config(
                "a ring needs contiguous memory, aligned to 8 bytes, and writable for its writer",
            ));
        }
        Ok(Self(buffer))
    }

    fn words(&self) -> &[AtomicU64] {
        // SAFETY: the buffer is held, so the memory stays mapped; it is aligned and long enough; atomics may be changed by
        // others at any time, and only loads are done where it is not writable.
        unsafe {
            std::slice::from_raw_parts(self.0.buf_ptr() as *const AtomicU64, self.0.len_bytes() / size_of::<u64>())
        }
    }
}

/// The loads of one process, as they stand in its ring.
struct Cells {
    shown: Vec<Cell>,
    places: HashMap<u64, usize>,
}

impl Cells {
    /// The cell of a mark; a new one, or one whose replica has nothing in flight. `None`: all are taken.
    fn place(&mut self, mark: u64) -> Option<usize> {
        if let Some(place) = self.places.get(&mark) {
            return Some(*place);
        }
        let place = if self.shown.len() < CELLS {
            self.shown.push(Cell::default());
            self.shown.len() - 1
        } else {
            let place = self.shown.iter().position(|cell| cell.requests == 0)?;
            self.places.remove(&self.shown[place].mark);
            place
        };
        self.shown[place] = Cell { mark, ..Cell::default() };
        self.places.insert(mark, place);
        Some(place)
    }
}

/// Cells that are changed, and shown.
struct Showing<'a> {
    cells: &'a mut Cells,
    ring: Ring<'a, AtomicU64>,
}

impl Load for Showing<'_> {
    fn is_alive(&self, process: Process) -> bool {
        process.generation >= 0
    }

    fn adjust(&mut self, process: Process, requests: i64, queued: i64, decoding: i64) {
        if let Some(cell) = self.cells.shown.get_mut(process.slot).filter(|_| process.generation >= 0) {
            cell.requests += requests;
            cell.queued += queued;
            cell.decoding += decoding;
            self.ring.show(process.slot, *cell);
        }
    }
}

struct Writer {
    cells: Cells,
    open: Peers,
}

/// The ring that this process writes.
///
/// Args:
///     memory: writable and all zero, `PeerRing.size(capacity)` long.
///
/// Raises:
///     ConfigError: the memory is no such memory.
#[pyclass(frozen, module = "prefixroute._core")]
pub struct PeerRing {
    memory: Shared,
    writer: Lock<Writer>,
}

#[pymethods]
impl PeerRing {
    #[new]
    fn py_new(memory: PyBuffer<u8>) -> PyResult<Self> {
        let memory = Shared::of(memory, true)?;
        if Ring::create(memory.words()).is_none() {
            return Err(errors::config(format!("a ring needs at least {} bytes", ring_bytes(64))));
        }
        let cells = Cells { shown: Vec::new(), places: HashMap::new() };
        Ok(Self { memory, writer: Lock::new(Writer { cells, open: Peers::default() }) })
    }

    /// Bytes of memory for a ring that holds so many bytes of messages.
    #[staticmethod]
    fn size(capacity: usize) -> usize {
        ring_bytes(capacity.next_multiple_of(size_of::<u64>()))
    }

    /// Write a frame. False: it is too long for the ring.
    #[pyo3(signature = (frame, /))]
    fn publish(&self, frame: &[u8]) -> bool {
        let _writer = self.writer.lock();
        Ring::open(self.memory.words()).is_some_and(|ring| ring.push(frame))
    }
}

impl PeerRing {
    /// Shows what a message of this process changes of its loads; one that says nothing of them changes nothing.
    pub fn show(&self, sequence: u64, message: &Message<'_>) {
        let mut writer = self.writer.lock();
        let Some(ring) = Ring::open(self.memory.words()) else { return };
        let Writer { cells, open } = &mut *writer;
        let told = |cells: &mut Cells, mark: u64, uncached: u32, context: u32, started: bool| {
            let place = cells.place(mark);
            let process = Process { slot: place.unwrap_or(0), generation: if place.is_some() { 0 } else { -1 } };
            PeerAttempt::new(process, uncached, context, started)
        };
        match message {
            Message::Booked { process, uncached, context, .. } => {
                let told = told(cells, *process, *uncached, *context, false);
                open.book(&mut Showing { cells, ring }, 0, sequence, told);
            }
            Message::Started(attempt) => open.start(&mut Showing { cells, ring }, 0, sequence, *attempt),
            Message::Ended { attempt, .. } => {
                open.end(&mut Showing { cells, ring }, 0, sequence, *attempt);
            }
            Message::Beat(rows) => {
                let row = |row: &Open| (row.attempt, told(cells, row.process, row.uncached, row.context, row.started));
                let listed: Vec<_> = rows.iter().map(row).collect();
                open.beat(&mut Showing { cells, ring }, 0, sequence, &listed);
            }
            _ => {}
        }
    }
}

/// A ring of another process.
struct Attached {
    memory: Shared,
    cursor: u64,
    version: u64,
    counted: Vec<Cell>,
}

impl Attached {
    /// Takes in loads that have changed. `count` is told of each change: mark, requests, queued, decoding.
    fn refresh(&mut self, mut count: impl FnMut(u64, [i64; 3])) {
        let Some(ring) = Ring::open(self.memory.words()) else { return };
        let version = ring.loads_version();
        if version == self.version {
            return;
        }
        self.version = version;
        for index in 0..CELLS {
            let cell = ring.shown(index);
            if cell.mark == 0 {
                break;
            }
            if self.counted.len() <= index {
                self.counted.push(Cell::default());
            }
            let known = std::mem::replace(&mut self.counted[index], cell);
            if known == cell {
                continue;
            }
            if known.mark != cell.mark && known.mark != 0 {
                count(known.mark, [-known.requests, -known.queued, -known.decoding]);
            }
            let before = if known.mark == cell.mark { known } else { Cell::default() };
            let change =
                [cell.requests - before.requests, cell.queued - before.queued, cell.decoding - before.decoding];
            count(cell.mark, change);
        }
    }

    /// Takes back all loads.
    fn void(&mut self, mut count: impl FnMut(u64, [i64; 3])) {
        for cell in self.counted.drain(..) {
            count(cell.mark, [-cell.requests, -cell.queued, -cell.decoding]);
        }
        self.version = 0;
    }
}

#[derive(Default)]
struct Readers {
    attached: Vec<(u64, Attached)>,
    known: HashMap<u64, Process>,
}

/// The rings of other processes: their messages, and their loads on this process's ledger.
///
/// Args:
///     ledger: the router's.
#[pyclass(frozen, module = "prefixroute._core")]
pub struct PeerRings {
    readers: Lock<Readers>,
    ledger: Py<Ledger>,
}

impl PeerRings {
    /// Works on the rings, with a function that counts a change of load of a marked replica.
    fn counting(&self, work: impl FnOnce(&mut Vec<(u64, Attached)>, &mut dyn FnMut(u64, [i64; 3]))) {
        let mut readers = self.readers.lock();
        let Readers { attached, known } = &mut *readers;
        self.ledger.get().with(|ledger| {
            work(attached, &mut |mark, [requests, queued, decoding]| {
                if let Some(process) = known.get(&mark) {
                    ledger.adjust(*process, requests, queued, decoding);
                }
            });
        });
    }
}

#[pymethods]
impl PeerRings {
    #[new]
    fn py_new(ledger: Py<Ledger>) -> Self {
        Self { readers: Lock::default(), ledger }
    }

    /// Read the ring in this memory from its oldest message on. False: it is no ring of this layout.
    #[pyo3(signature = (ident, memory, /))]
    fn attach(&self, ident: u64, memory: PyBuffer<u8>) -> PyResult<bool> {
        let memory = Shared::of(memory, false)?;
        let Some(cursor) = Ring::open(memory.words()).map(|ring| ring.head()) else { return Ok(false) };
        self.readers.lock().attached.push((ident, Attached { memory, cursor, version: 0, counted: Vec::new() }));
        Ok(true)
    }

    /// Let a ring go, and take back its loads.
    #[pyo3(signature = (ident, /))]
    fn detach(&self, ident: u64) {
        let mut gone = Vec::new();
        self.counting(|attached, count| {
            while let Some(at) = attached.iter().position(|(each, _)| *each == ident) {
                let (_, mut ring) = attached.swap_remove(at);
                ring.void(&mut *count);
                gone.push(ring);
            }
        });
        // Unmapping lets other threads run, which may wait for the lock: it must be free by now.
        drop(gone);
    }

    /// Know these processes: (mark, slot, generation) of each. Loads are counted anew.
    #[pyo3(signature = (processes, /))]
    fn see(&self, processes: Vec<(u64, usize, i64)>) {
        self.counting(|attached, count| attached.iter_mut().for_each(|(_, ring)| ring.void(&mut *count)));
        let process = |(mark, slot, generation)| (mark, Process { slot, generation });
        self.readers.lock().known = processes.into_iter().map(process).collect();
        self.refresh();
    }

    /// Take in the loads that have changed: under a microsecond if none has.
    fn refresh(&self) {
        let changed = self.readers.lock().attached.iter().any(|(_, ring)| {
            Ring::open(ring.memory.words()).is_some_and(|words| words.loads_version() != ring.version)
        });
        if changed {
            self.counting(|attached, count| attached.iter_mut().for_each(|(_, ring)| ring.refresh(&mut *count)));
        }
    }

    /// Messages that have come, at most so many, and how often a ring was overwritten before it was read.
    #[pyo3(signature = (most, /))]
    fn take<'py>(&self, py: Python<'py>, most: usize) -> (Vec<Bound<'py, PyBytes>>, usize) {
        let (mut found, mut lapped, mut message) = (Vec::new(), 0, Vec::new());
        for (_, ring) in &mut self.readers.lock().attached {
            let Some(words) = Ring::open(ring.memory.words()) else { continue };
            while found.len() < most {
                match words.read(&mut ring.cursor, &mut message) {
                    Found::Nothing => break,
                    Found::Message => found.push(PyBytes::new(py, &message)),
                    Found::Lapped => lapped += 1,
                }
            }
        }
        (found, lapped)
    }
}
