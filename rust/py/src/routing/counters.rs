//! What is told of a ledger: statistics and metrics.

use prefixroute_core::routing as core;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::ledger::Ledger;

/// Tokens predicted and reported, requests, whether the replica is distrusted, tokens predicted and not reported.
type Record = (i64, i64, u64, bool, i64);

#[pymethods]
impl Ledger {
    /// How often each outcome was counted, those that were.
    #[getter]
    fn counts<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let counts = self.lock().counters.outcomes;
        named(py, core::Outcome::ALL.map(|(_, name)| name).into_iter().zip(counts))
    }

    /// This router's own requests in flight by slot.
    #[getter]
    fn own_in_flight(&self) -> Vec<i64> {
        self.lock().own_in_flight()
    }

    /// How often bindings changed, and why.
    #[getter]
    fn moves<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let moves = self.lock().sessions.moves;
        named(py, core::Move::ALL.map(|(_, name)| name).into_iter().zip(moves))
    }

    /// (on who decodes, reason, replica, count) of committed decisions; the replica is empty for those that have left.
    #[getter]
    fn decisions(&self) -> Vec<(bool, String, String, u64)> {
        let ledger = self.lock();
        let name =
            |slot: Option<usize>| slot.and_then(|slot| ledger.states()[slot].name.as_deref()).unwrap_or("").to_owned();
        let counted = ledger.counters.decisions().into_iter();
        counted.map(|(slot, decodes, reason, count)| (decodes, reason.to_owned(), name(slot), count)).collect()
    }

    /// Hit tokens by slot and medium, fastest first; the last is of replicas that have left.
    #[getter]
    fn hit_tokens(&self) -> Vec<[i64; 3]> {
        let ledger = self.lock();
        let (slots, left) = ledger.counters.hit_tokens();
        slots.iter().copied().chain([left]).collect()
    }

    /// Prompt tokens of all requests, and the most that any candidate, or the replica that was taken, held of each.
    #[getter]
    fn tokens(&self) -> (i64, i64) {
        let ledger = self.lock();
        (ledger.counters.prompt_tokens, ledger.counters.best_hit_tokens)
    }

    /// Decisions by the time that they took, and seconds of all.
    #[getter]
    fn durations(&self) -> (Vec<u64>, f64) {
        let ledger = self.lock();
        (ledger.counters.durations.to_vec(), ledger.counters.seconds)
    }

    /// (predicted, reported, requests, distrusted, lost) by slot, and of processes that are gone; None: nothing was reported.
    #[getter]
    fn records(&self) -> Vec<Option<Record>> {
        let ledger = self.lock();
        let slots = ledger.states().len();
        let record = |slot| ledger.trust.records.get(slot).copied().flatten();
        let told = |record: core::HitRecord| {
            (record.predicted, record.reported, record.requests, record.distrusted, record.lost)
        };
        (0..slots).map(record).chain([ledger.trust.left]).map(|record| record.map(told)).collect()
    }

    /// Requests that finished without a report.
    #[getter]
    fn unreported(&self) -> u64 {
        self.lock().trust.unreported
    }

    /// The head at which most of the last beginnings branched: (tokens, share, holders, replicas, beginnings).
    #[getter]
    fn head(&self) -> (i64, f64, usize, usize, usize) {
        let ledger = self.lock();
        let (head, share) = ledger.heads.commonest();
        (head.tokens, share, head.holders, head.replicas, ledger.heads.beginnings())
    }
}

fn named(py: Python<'_>, counts: impl Iterator<Item = (&'static str, u64)>) -> PyResult<Bound<'_, PyDict>> {
    let found = PyDict::new(py);
    for (name, count) in counts.filter(|(_, count)| *count > 0) {
        found.set_item(name, count)?;
    }
    Ok(found)
}
