//! `Sight`: what a decision sees of the fleet.

use std::borrow::Cow;

use prefixroute_core::BlockHash;
use prefixroute_core::columns::UNKNOWN_RATE;
use prefixroute_core::replica_cache::SharedSequence;
use prefixroute_core::routing::{self as core, Kind, Signal};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyFloat, PyInt, PyList, PyTuple};

use crate::columns;
use crate::errors;
use crate::ints::hash_of;

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
    pub(super) hits: Vec<u32>,
    pub(super) loads: Vec<f64>,
    pub(crate) binding: Option<i64>,
    pub(super) branch: Option<u64>,
    pub(crate) shared: Option<f64>,
    /// Hash of the prompt's head, if it was asked for.
    pub(crate) head: Option<u64>,
    /// Slot of the replica that computes the prompt, in a decision on who decodes.
    pub(crate) kv_at: Option<usize>,
    /// The prompt's blocks, if the ledger counts active ones.
    pub(super) active: Option<SharedSequence>,
    pub(super) signals: Vec<(Signal, Vec<f64>)>,
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
        Ok(Self {
            hits,
            loads: columns::read(loads)?,
            binding,
            branch: None,
            shared,
            head: None,
            kv_at: None,
            active: None,
            signals: Vec::new(),
        })
    }

    /// A signal that was asked for, by its place in `Kernel.SIGNALS`.
    ///
    /// Args:
    ///     place: counted from 0.
    ///
    /// Raises:
    ///     ConfigError: it was not asked for.
    #[pyo3(signature = (place, /))]
    fn signal<'py>(&self, py: Python<'py>, place: usize) -> PyResult<Bound<'py, PyAny>> {
        let signal = Signal::ALL.get(place).map(|&(_, signal)| signal);
        match signal {
            Some(Signal::Shared) => return Ok(self.shared.into_pyobject(py)?.into_any()),
            Some(Signal::Head) => return Ok(self.head.into_pyobject(py)?.into_any()),
            Some(Signal::KvAt) => return Ok(self.kv_at.into_pyobject(py)?.into_any()),
            _ => {}
        }
        let found = signal.and_then(|signal| Some((signal, self.signal_of(signal)?)));
        let (signal, column) = found.ok_or_else(|| errors::config(format!("signal {place} was not asked for")))?;
        let list = match signal.kind() {
            Kind::Numbers => PyList::new(py, column),
            Kind::Rates => PyList::new(py, column.iter().map(|&rate| (rate != UNKNOWN_RATE).then_some(rate))),
            Kind::Counts => PyList::new(py, column.iter().map(|&count| count as i64)),
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
    /// Args:
    ///     slot: of the fleet.
    ///
    /// Raises:
    ///     ConfigError: there is no such slot.
    #[pyo3(signature = (slot, /))]
    fn hit(&self, slot: &Bound<'_, PyAny>) -> PyResult<u32> {
        self.slot(slot).map(|slot| self.hits[slot])
    }

    /// The most that one of these slots is believed to hold.
    ///
    /// Args:
    ///     slots: of the fleet.
    ///
    /// Raises:
    ///     ConfigError: there is no such slot.
    #[pyo3(signature = (slots, /))]
    fn best_hit(&self, slots: &Bound<'_, PyTuple>) -> PyResult<u32> {
        Ok(self.of_candidates(slots)?.hits.iter().copied().max().unwrap_or(0))
    }

    /// The same for a session that is bound elsewhere.
    ///
    /// Args:
    ///     binding: slot of the replica that it is bound to; `None` = it is not bound.
    #[pyo3(signature = (binding, /))]
    fn bound_to(&self, binding: Option<i64>) -> Self {
        Self { binding, ..self.clone() }
    }
}

fn tokens(hit: f64) -> PyResult<u32> {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is compared with what it was")]
    let tokens = hit as u32;
    if f64::from(tokens).to_bits() == hit.to_bits() {
        return Ok(tokens);
    }
    Err(errors::config(format!("a hit must be a count of tokens, got {hit}")))
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
