//! What decisions read of a ledger.

use std::borrow::Cow;

use numpy::{PyArray1, PyArrayMethods};
use prefixroute_core::BlockHash;
use prefixroute_core::columns::UNKNOWN_RATE;
use prefixroute_core::policies::Signal;
use prefixroute_core::routing as core;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyFloat, PyInt, PyList, PyString, PyTuple};
use pyo3::{PyTraverseError, PyVisit, intern};

use super::ledger::Ledger;
use crate::columns;
use crate::errors;
use crate::hashes::BlockHashes;
use crate::ints::hash_of;
use crate::out::not_an_out_array;

/// What a decision sees of the fleet: what each replica holds of the prompt, its load, and the session's place. Immutable.
///
/// Args:
///     hits: leading prompt tokens that each slot is believed to hold.
///     loads: load of each slot; longer where slots are free.
///     binding: slot that the session is bound to; negative: bound, but it has to move; None: not bound.
///     shared: share of the last beginnings that branched where the prompt leaves what is known.
///
/// Raises:
///     ConfigError: a hit is no token count, or a load is no number.
#[pyclass(frozen, module = "prefixroute._core")]
#[derive(Clone)]
pub struct Sight {
    hits: Vec<u32>,
    loads: Vec<f64>,
    pub(crate) binding: Option<i64>,
    branch: Option<u64>,
    pub(crate) shared: Option<f64>,
    signals: Vec<(Signal, Vec<f64>)>,
}

/// The candidates' part of a sight.
pub(crate) struct Candidates<'a> {
    /// Their slots; `None` = all are candidates.
    pub slots: Option<Vec<usize>>,
    pub hits: Cow<'a, [u32]>,
    pub loads: Cow<'a, [f64]>,
}

impl Sight {
    /// A signal of each slot, if it was asked for.
    pub(crate) fn signal_of(&self, signal: Signal) -> Option<&[f64]> {
        self.signals.iter().find(|(known, _)| *known == signal).map(|(_, column)| &**column)
    }

    /// What is known of some slots.
    pub(crate) fn of_candidates(&self, slots: &Bound<'_, PyTuple>) -> PyResult<Candidates<'_>> {
        let count = slots.len();
        if count == self.hits.len() && count <= self.loads.len() {
            let (hits, loads) = (Cow::Borrowed(&*self.hits), Cow::Borrowed(&self.loads[..count]));
            return Ok(Candidates { slots: None, hits, loads });
        }
        let slots = slots.iter_borrowed().map(|slot| self.slot(&slot)).collect::<PyResult<Vec<_>>>()?;
        let hits = slots.iter().map(|&slot| self.hits[slot]).collect();
        let loads = slots.iter().map(|&slot| self.loads[slot]).collect();
        Ok(Candidates { slots: Some(slots), hits: Cow::Owned(hits), loads: Cow::Owned(loads) })
    }

    fn slot(&self, slot: &Bound<'_, PyAny>) -> PyResult<usize> {
        let count = self.hits.len().min(self.loads.len());
        let known = hash_of(slot).and_then(|slot| usize::try_from(slot).ok()).filter(|&slot| slot < count);
        known.ok_or_else(|| errors::config(format!("a slot must be 0..{count}, got {slot}")))
    }

    /// Where the prompt leaves what is known, with what is known of the head that ends there.
    pub(super) fn branched(&self, slots: &Bound<'_, PyTuple>) -> PyResult<(i64, Option<(BlockHash, core::Head)>)> {
        let of = self.of_candidates(slots)?;
        let most = of.hits.iter().copied().max().unwrap_or(0);
        let head = |branch| {
            let holders = of.hits.iter().filter(|&&hit| hit == most).count();
            (BlockHash(branch), core::Head { tokens: i64::from(most), holders, replicas: slots.len() })
        };
        Ok((i64::from(most), self.branch.map(head)))
    }

    /// Whether the session's replica is no candidate, though the session stays bound to it.
    pub(super) fn is_detour(&self, slots: &Bound<'_, PyTuple>) -> bool {
        let Some(bound) = self.binding.and_then(|slot| u64::try_from(slot).ok()) else { return false };
        // If all replicas are candidates, slot i is at position i.
        let at = |place: usize| slots.get_borrowed_item(place).is_ok_and(|slot| hash_of(&slot) == Some(bound));
        !usize::try_from(bound).is_ok_and(at) && !(0..slots.len()).any(at)
    }
}

#[pymethods]
impl Sight {
    #[new]
    #[pyo3(signature = (hits, loads, *, binding=None, shared=None))]
    fn new(
        hits: &Bound<'_, PyAny>,
        loads: &Bound<'_, PyAny>,
        binding: Option<i64>,
        shared: Option<f64>,
    ) -> PyResult<Self> {
        let hits = columns::read(hits)?.into_iter().map(tokens).collect::<PyResult<_>>()?;
        Ok(Self { hits, loads: columns::read(loads)?, binding, branch: None, shared, signals: Vec::new() })
    }

    /// A signal that was asked for, by its place in `Kernel.SIGNALS`.
    ///
    /// Raises:
    ///     ConfigError: it was not asked for.
    #[pyo3(signature = (place, /))]
    fn signal<'py>(&self, py: Python<'py>, place: usize) -> PyResult<Bound<'py, PyAny>> {
        let signal = Signal::ALL.get(place).map(|&(_, signal)| signal);
        if signal == Some(Signal::Shared) {
            return Ok(self.shared.into_pyobject(py)?.into_any());
        }
        let found = signal.and_then(|signal| Some((signal, self.signal_of(signal)?)));
        let (signal, column) = found.ok_or_else(|| errors::config(format!("signal {place} was not asked for")))?;
        let list = match signal {
            Signal::WindowS => PyList::new(py, column),
            Signal::Rates => PyList::new(py, column.iter().map(|&rate| (rate != UNKNOWN_RATE).then_some(rate))),
            _ => PyList::new(py, column.iter().map(|&count| count as i64)),
        };
        list.map(Bound::into_any)
    }

    /// Hits, loads and binding, as they follow each other in a view.
    fn columns<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyList>, Bound<'py, PyList>, Option<i64>)> {
        Ok((self.hits(py)?, self.loads(py)?, self.binding))
    }

    /// Leading prompt tokens that each slot is believed to hold.
    #[getter]
    fn hits<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let mut last = (0, PyInt::new(py, 0)); // one int for neighbours that hold the same
        let ints = self.hits.iter().map(|&hit| {
            if hit != last.0 {
                last = (hit, PyInt::new(py, hit));
            }
            last.1.clone()
        });
        PyList::new(py, ints)
    }

    /// Load of each slot.
    #[getter]
    fn loads<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        PyList::new(py, self.loads.iter().map(|&load| halves(py, load)))
    }

    /// Slot that the session is bound to; -1 if its replica has left or drains; None: not bound.
    #[getter]
    fn binding(&self) -> Option<i64> {
        self.binding
    }

    /// Leading prompt tokens that one slot is believed to hold.
    ///
    /// Raises:
    ///     ConfigError: there is no such slot.
    #[pyo3(signature = (slot, /))]
    fn hit(&self, slot: &Bound<'_, PyAny>) -> PyResult<u32> {
        self.slot(slot).map(|slot| self.hits[slot])
    }

    /// The most that one of these slots is believed to hold.
    ///
    /// Raises:
    ///     ConfigError: there is no such slot.
    #[pyo3(signature = (slots, /))]
    fn best_hit(&self, slots: &Bound<'_, PyTuple>) -> PyResult<u32> {
        Ok(self.of_candidates(slots)?.hits.iter().copied().max().unwrap_or(0))
    }

    /// The same for a session that is bound elsewhere.
    #[pyo3(signature = (binding, /))]
    fn bound_to(&self, binding: Option<i64>) -> Self {
        Self { binding, ..self.clone() }
    }
}

#[pymethods]
impl Ledger {
    /// What a decision sees of a match and of the ledger, in one pass.
    ///
    /// Args:
    ///     out: tokens that each slot holds of the prompt.
    ///     blocks: the prompt's hashes.
    ///     prompt_tokens: length of the prompt.
    ///     block_size: tokens of a block. A hit is at most the full blocks before the last token, which engines recompute.
    ///     session: the request's session.
    ///     now: seconds.
    ///     load: which of `LOADS` is balanced, by its place; or the loads.
    ///     wanted: places in `SIGNALS` of what is kept for the policy.
    ///     scale: of the hits, from the router's tokens to the engine's.
    ///     worth: what counts as the hits, in tokens, where that is not what is held.
    ///
    /// Raises:
    ///     ConfigError: `out` is not a contiguous uint32 array, or a load is no number.
    #[pyo3(signature = (out, blocks, prompt_tokens, block_size, session, now, load, wanted, scale=1.0, worth=None, /))]
    #[expect(clippy::too_many_arguments, reason = "a decision, without an object in between")]
    fn sight(
        &self,
        out: &Bound<'_, PyArray1<u32>>,
        blocks: &Bound<'_, PyAny>,
        prompt_tokens: usize,
        block_size: usize,
        session: Option<&Bound<'_, PyString>>,
        now: f64,
        load: &Bound<'_, PyAny>,
        wanted: &Bound<'_, PyTuple>,
        scale: f64,
        worth: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Sight> {
        let limit = prompt_tokens.saturating_sub(1) / block_size * block_size;
        let held = out.try_readonly().map_err(|_| not_an_out_array())?;
        let held = held.as_slice().map_err(|_| not_an_out_array())?;
        let most_told = u32::try_from(limit).unwrap_or(u32::MAX);
        let mut hits: Vec<u32> = held.iter().map(|&tokens| tokens.min(most_told)).collect();
        let branch = match hits.iter().copied().max().unwrap_or(0) as usize {
            most if 0 < most && most < limit => Some(hash_at(blocks, most / block_size - 1)?),
            _ => None,
        };
        if let Some(worth) = worth {
            hits = columns::read(worth)?.into_iter().map(|tokens| whole(tokens.min(f64::from(most_told)))).collect();
        }
        let (booked, given) = match hash_of(load) {
            Some(place) => (core::Balanced::ALL.get(place as usize), Vec::new()),
            None => (None, columns::read(load)?),
        };
        let signals =
            wanted.iter_borrowed().filter_map(|place| Signal::ALL.get(hash_of(&place)? as usize)).collect::<Vec<_>>();
        let session = self.optional_name(session)?;
        let ledger = self.lock();
        for slot in ledger.trust.distrusted_slots() {
            hits.get_mut(slot).into_iter().for_each(|hit| *hit = 0);
        }
        for hit in &mut hits {
            *hit = whole(f64::from(*hit) * scale);
        }
        let signal =
            |&(_, signal): &(_, Signal)| Some((signal, ledger.book.signal(signal, self.balances_recent, now)?));
        Ok(Sight {
            hits,
            loads: booked.map_or(given, |(_, load)| ledger.book.balanced(*load)),
            binding: session.and_then(|session| ledger.bound(session, now)),
            branch,
            shared: branch.map(|branch| ledger.heads.share(BlockHash(branch))),
            signals: signals.into_iter().filter_map(signal).collect(),
        })
    }

    /// Names of the loads that a ledger knows.
    #[classattr]
    #[pyo3(name = "LOADS")]
    fn load_names(py: Python<'_>) -> PyResult<Bound<'_, PyTuple>> {
        PyTuple::new(py, core::Balanced::ALL.map(|(name, _)| name))
    }

    /// A load by slot, by its place in `LOADS`.
    #[pyo3(signature = (load, /))]
    fn balanced<'py>(&self, py: Python<'py>, load: usize) -> PyResult<Bound<'py, PyList>> {
        let (_, what) = core::Balanced::ALL[load];
        let loads = self.lock().book.balanced(what);
        PyList::new(py, loads)
    }

    /// What is in flight, by slot.
    fn loads(slf: Py<Self>) -> LoadCounts {
        LoadCounts { ledger: slf }
    }

    #[getter]
    fn since_requests<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        self.column(py, |book| &book.since_requests)
    }

    #[getter]
    fn since_tokens<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        self.column(py, |book| &book.since_tokens)
    }

    #[getter]
    fn rates<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        self.column(py, |book| &book.rates)
    }

    /// A replica has reported its load: what was booked before is in the report.
    fn reported(&self, slot: usize) {
        self.lock().book.reported(slot);
    }
}

/// Requests and tokens by slot, as they are when they are read.
#[pyclass(frozen, module = "prefixroute._core")]
pub struct LoadCounts {
    ledger: Py<Ledger>,
}

impl LoadCounts {
    fn column<'py>(&self, py: Python<'py>, of: impl Fn(&core::Counts) -> &Vec<i64>) -> PyResult<Bound<'py, PyList>> {
        self.ledger.get().column(py, |book| of(&book.live))
    }
}

#[pymethods]
impl LoadCounts {
    #[getter]
    fn in_flight<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        self.column(py, |counts| &counts.in_flight)
    }

    #[getter]
    fn queued<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        self.column(py, |counts| &counts.queued)
    }

    #[getter]
    fn decoding<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        self.column(py, |counts| &counts.decoding)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.ledger)
    }
}

/// The whole tokens of a count that is 0 or more.
#[expect(clippy::cast_sign_loss, reason = "none is below 0")]
fn whole(tokens: f64) -> u32 {
    tokens as u32
}

fn tokens(hit: f64) -> PyResult<u32> {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is compared with what it was")]
    let tokens = hit as u32;
    if f64::from(tokens).to_bits() == hit.to_bits() {
        return Ok(tokens);
    }
    Err(errors::config(format!("a hit must be a count of tokens, got {hit}")))
}

/// The hash of a block of a prompt, of whatever class a belief has for prompts.
fn hash_at(blocks: &Bound<'_, PyAny>, block: usize) -> PyResult<u64> {
    if let Ok(hashes) = blocks.cast::<BlockHashes>() {
        return hashes.get().hash_at(block);
    }
    blocks.call_method1(intern!(blocks.py(), "hash_at"), (block,))?.extract()
}

/// A load as a float. Most are halves below 128, of which there is one object each: 64 new ones a decision take a microsecond,
/// and all decisions in flight keep theirs.
fn halves(py: Python<'_>, load: f64) -> Bound<'_, PyFloat> {
    static HALVES: PyOnceLock<Vec<Py<PyFloat>>> = PyOnceLock::new();
    let known =
        HALVES.get_or_init(py, || (0..256).map(|half| PyFloat::new(py, f64::from(half) / 2.0).unbind()).collect());
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "what it is not is compared")]
    let half = (load * 2.0) as usize;
    match known.get(half) {
        Some(float) if (half as f64).to_bits() == (load * 2.0).to_bits() => float.bind(py).clone(),
        _ => PyFloat::new(py, load),
    }
}
