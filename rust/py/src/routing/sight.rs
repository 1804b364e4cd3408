//! What decisions read of a ledger.

use numpy::PyArray1;
use prefixroute_core::BlockHash;
use prefixroute_core::routing as core;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyFloat, PyList, PyString};
use pyo3::{PyTraverseError, PyVisit, intern};

use super::ledger::Ledger;
use crate::hashes::BlockHashes;
use crate::out::capped_hits;

#[pymethods]
impl Ledger {
    /// What a decision sees of a match and of the ledger, in one pass.
    ///
    /// Args:
    ///     out: tokens that each slot holds of the prompt.
    ///     blocks: the prompt's hashes.
    ///     size: tokens of a block.
    ///     limit: tokens that a hit may have at most.
    ///     session: the request's session.
    ///     now: seconds.
    ///     busy: whether the load is asked for.
    ///
    /// Returns:
    ///     Hits by slot; the largest; the hash of its last block, if the prompt goes on behind it; the share of the last
    ///     beginnings that branched there; the slot that the session is bound to, -1 if its replica has left or drains; and
    ///     `busy` by slot.
    ///
    /// Raises:
    ///     ConfigError: `out` is not a contiguous uint32 array.
    #[pyo3(signature = (out, blocks, size, limit, session, now, busy, /))]
    #[expect(clippy::too_many_arguments, reason = "a decision, without an object in between")]
    fn sight<'py>(
        &self,
        out: &Bound<'py, PyArray1<u32>>,
        blocks: &Bound<'py, PyAny>,
        size: usize,
        limit: usize,
        session: Option<&Bound<'py, PyString>>,
        now: f64,
        busy: bool,
    ) -> PyResult<Sight<'py>> {
        let py = out.py();
        let (hits, most) = capped_hits(out, limit)?;
        let branch = match most as usize {
            most if 0 < most && most < limit => Some(hash_at(blocks, most / size - 1)?),
            _ => None,
        };
        let session = self.optional_name(session)?;
        let ledger = self.lock();
        let shared = branch.map(|branch| ledger.heads.share(BlockHash(branch)));
        let bound = session.and_then(|session| ledger.bound(session, now));
        let loads = busy.then(|| ledger.book.busy.clone());
        drop(ledger);
        let loads = loads.map(|loads| PyList::new(py, loads.into_iter().map(|load| halves(py, load)))).transpose()?;
        Ok((hits, most, branch, shared, bound, loads))
    }

    /// What is in flight, by slot; with `recent`, what the recent window holds.
    #[pyo3(signature = (*, recent=false))]
    fn loads(slf: Py<Self>, recent: bool) -> LoadCounts {
        LoadCounts { ledger: slf, recent }
    }

    #[getter]
    fn busy<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        self.column(py, |book| &book.busy)
    }

    #[getter]
    fn last_miss<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        self.column(py, |book| &book.last_miss)
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

    /// Prefill seconds given to each replica within the window.
    fn window_s<'py>(&self, py: Python<'py>, now: f64) -> PyResult<Bound<'py, PyList>> {
        let seconds = self.lock().book.window_s(now);
        PyList::new(py, seconds)
    }

    /// A replica has reported its load: what was booked before is in the report.
    fn reported(&self, slot: usize) {
        self.lock().book.reported(slot);
    }

    /// Whether some replica's belief counts for nothing.
    #[getter]
    fn distrusts(&self) -> bool {
        self.lock().trust.distrusted > 0
    }

    /// Slots of replicas whose belief counts for nothing.
    #[getter]
    fn distrusted(&self) -> Vec<usize> {
        let ledger = self.lock();
        let records = ledger.trust.records.iter().enumerate();
        records.filter(|(_, record)| record.is_some_and(|record| record.distrusted)).map(|(slot, _)| slot).collect()
    }
}

/// Requests and tokens by slot, as they are when they are read.
#[pyclass(frozen, module = "prefixroute._core")]
pub struct LoadCounts {
    ledger: Py<Ledger>,
    recent: bool,
}

impl LoadCounts {
    fn column<'py>(&self, py: Python<'py>, of: impl Fn(&core::Counts) -> &Vec<i64>) -> PyResult<Bound<'py, PyList>> {
        self.ledger.get().column(py, |book| of(if self.recent { &book.recent } else { &book.live }))
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

/// What a decision sees: hits, the largest, the branch, its share, the session's slot, loads.
type Sight<'py> = (Bound<'py, PyList>, u32, Option<u64>, Option<f64>, Option<i64>, Option<Bound<'py, PyList>>);

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
