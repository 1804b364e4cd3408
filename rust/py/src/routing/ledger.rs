//! `Ledger`: what a router keeps between decisions.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use prefixroute_core::routing::{self as core, Name};
use pyo3::prelude::*;
use pyo3::types::{PyList, PyString, PyTuple};
use pyo3::{PyTraverseError, PyVisit};

use super::attempt::{Attempt, Dropped, Parts};
use crate::errors;
use crate::index::PrefixIndex;

/// An attempt in the core's tables.
pub(crate) struct Item(pub(super) Py<Attempt>);

impl Clone for Item {
    fn clone(&self) -> Self {
        Self(Python::attach(|py| self.0.clone_ref(py)))
    }
}

/// What the end of another attempt asks of the router: the attempt, whether its predicted blocks have to be taken back, and
/// what follows its request, if that is over.
pub type Effects<'py> = Option<Bound<'py, PyList>>;

/// Load, requests in flight, sessions, shared heads and counters of one router. Each call is one step that no signal divides.
///
/// Args:
///     window: length of the recent window in bookings; None: by the number of replicas.
///     window_s: length of the window of prefill seconds.
///     ticket_s: seconds without progress after which an attempt is given up.
///     session_idle_s: seconds after which an unused session is forgotten.
///     session_capacity: sessions remembered at most.
///     recent: whether the recent window is kept.
///     balances_recent: whether policies weigh what the recent window holds in place of what is in flight.
///     served: whether served requests count in `busy`.
///     active_block_size: tokens of a block, if the blocks of requests in flight are counted; None: they are not.
///     hash_key: key of the hashes that names of sessions and requests are kept as.
#[pyclass(frozen, module = "prefixroute._core")]
pub struct Ledger {
    books: Mutex<core::Ledger<Item>>,
    dropped: Arc<Dropped>,
    numbers: AtomicU64,
    hash_key: u64,
    pub(super) counts_active: bool,
}

impl Ledger {
    pub(super) fn lock(&self) -> MutexGuard<'_, core::Ledger<Item>> {
        // Never waited for with the interpreter held by somebody who waits for it: no Python runs while it is held.
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does the work, and drops what is gone when nothing is borrowed any more: what is dropped may call.
    #[inline]
    pub(crate) fn with<T>(&self, work: impl FnOnce(&mut core::Ledger<Item>) -> T) -> T {
        let mut ledger = self.lock();
        let done = work(&mut ledger);
        let gone = ledger.take_gone();
        drop(ledger);
        drop(gone);
        done
    }

    pub(super) fn name(&self, text: &Bound<'_, PyString>) -> PyResult<Name> {
        if let Ok(text) = text.to_str() {
            return Ok(Name::of(text.as_bytes(), self.hash_key));
        }
        // Half an emoji, which no UTF-8 can say.
        let bytes = text.call_method1("encode", ("utf-8", "surrogatepass"))?;
        Ok(Name::of(bytes.extract::<&[u8]>()?, self.hash_key))
    }

    pub(crate) fn optional_name(&self, text: Option<&Bound<'_, PyString>>) -> PyResult<Option<Name>> {
        text.map(|text| self.name(text)).transpose()
    }

    /// The attempts in flight, in no order.
    pub(crate) fn open_attempts(&self, py: Python<'_>) -> Vec<Py<Attempt>> {
        self.lock().open_items().map(|item| item.0.clone_ref(py)).collect()
    }

    pub(super) fn column<'py, T: IntoPyObject<'py> + Clone>(
        &self,
        py: Python<'py>,
        column: impl Fn(&core::Book) -> &Vec<T>,
    ) -> PyResult<Bound<'py, PyList>> {
        let values = column(&self.lock().book).clone();
        PyList::new(py, values)
    }
}

/// Marks attempts as ended; what the router has to do about it, nothing most of the time.
pub(super) fn carry_out(py: Python<'_>, effects: Vec<core::Effect<Item>>) -> PyResult<Effects<'_>> {
    if effects.is_empty() {
        return Ok(None);
    }
    let list = PyList::empty(py);
    for core::Effect { item, outcome, retract, abandon } in effects {
        let followers = item.0.get().end(outcome);
        let followers = if abandon { followers } else { None };
        list.append((item.0, retract, followers.unwrap_or_else(|| PyTuple::empty(py).unbind())))?;
    }
    Ok(Some(list))
}

fn outcome(name: &str) -> PyResult<core::Outcome> {
    core::Outcome::named(name).ok_or_else(|| errors::config(format!("no outcome is called {name:?}")))
}

#[pymethods]
impl Ledger {
    #[new]
    #[pyo3(signature = (*, window, window_s, ticket_s, session_idle_s, session_capacity, recent, balances_recent, served,
        active_block_size=None, hash_key))]
    #[expect(clippy::too_many_arguments, reason = "each by name, from Python")]
    fn new(
        window: Option<&Bound<'_, PyAny>>,
        window_s: f64,
        ticket_s: f64,
        session_idle_s: f64,
        session_capacity: &Bound<'_, PyAny>,
        recent: bool,
        balances_recent: bool,
        served: bool,
        active_block_size: Option<usize>,
        hash_key: u64,
    ) -> Self {
        // What is too large for the machine is no limit.
        let limit = |limit: &Bound<'_, PyAny>| limit.extract().unwrap_or(usize::MAX);
        let limits = core::Limits { ticket_s, session_idle_s, sessions: limit(session_capacity) };
        let kept = core::Windows { bookings: window.map(limit), prefill_s: window_s, recent, balances_recent, served };
        let books = Mutex::new(core::Ledger::new(limits, kept).with_active(active_block_size));
        let (dropped, counts_active) = (Arc::default(), active_block_size.is_some());
        Self { books, dropped, numbers: AtomicU64::new(1), hash_key, counts_active }
    }

    /// Take in what the slots are: (name, generation, draining) of each; a free one has no name and generation -1.
    fn see(&self, states: Vec<(Option<String>, i64, bool)>) {
        let state = |(name, generation, draining): (Option<String>, _, _)| core::State {
            name: name.map(String::into_boxed_str),
            generation,
            draining,
        };
        self.with(|ledger| ledger.see(states.into_iter().map(state).collect()));
    }

    // -- requests

    /// An attempt that is going to be booked.
    #[pyo3(signature = (decision, member, name, slot, generation, hit, prompt_tokens, key, tried, epoch, now, earlier=None, /))]
    #[expect(clippy::too_many_arguments, reason = "an attempt, without an object in between")]
    fn draft(
        &self,
        decision: Py<PyAny>,
        member: Py<PyAny>,
        name: Py<PyString>,
        slot: usize,
        generation: i64,
        hit: i64,
        prompt_tokens: i64,
        key: Option<&Bound<'_, PyString>>,
        tried: Py<PyAny>,
        epoch: u64,
        now: f64,
        earlier: Option<&Bound<'_, Attempt>>,
    ) -> PyResult<Attempt> {
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        let process = core::Process { slot, generation };
        let (key, dropped) = (self.optional_name(key)?, Arc::clone(&self.dropped));
        let parts = Parts { decision, member, name, tried, epoch };
        Ok(Attempt::new(number, process, hit, prompt_tokens, now, key, parts, dropped, earlier.map(Bound::get)))
    }

    /// Note that an engine answers, or goes on answering.
    #[pyo3(signature = (attempt, now, /))]
    pub fn first_token<'py>(&self, attempt: &Bound<'py, Attempt>, now: f64) -> PyResult<Effects<'py>> {
        let one = attempt.get();
        match self.with(|ledger| ledger.first_token(one.number, now)) {
            None => Ok(None),
            Some(effects) => {
                one.started.store(true, Ordering::Relaxed);
                carry_out(attempt.py(), effects)
            }
        }
    }

    /// End an attempt normally; the belief has what its replica then holds, unless that is None. None if it had ended; else
    /// what it asks for, and whether its replica is believed from now on, if that has changed.
    #[pyo3(signature = (attempt, now, reported_hit_tokens, belief, held, namespace, /))]
    pub fn finish<'py>(
        &self,
        attempt: &Bound<'py, Attempt>,
        now: f64,
        reported_hit_tokens: Option<i64>,
        belief: &Bound<'py, PyAny>,
        held: Option<&Bound<'py, PyAny>>,
        namespace: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Option<(Effects<'py>, Option<bool>)>> {
        let one = attempt.get();
        if let Some(blocks) = held {
            PrefixIndex::hold(belief, one.parts.name.bind(attempt.py()), blocks, namespace, now)?;
        }
        let Some(finished) = self.with(|ledger| ledger.finish(one.number, reported_hit_tokens, now)) else {
            return Ok(None);
        };
        drop(one.end(core::Outcome::Finished));
        let believed = finished.verdict.map(|verdict| verdict == core::Verdict::Trusted);
        Ok(Some((carry_out(attempt.py(), finished.effects)?, believed)))
    }

    /// Give an attempt up; `why` is a word of `counts`. None if it had ended.
    #[pyo3(signature = (attempt, why, /))]
    fn abort<'py>(&self, attempt: &Bound<'py, Attempt>, why: &str) -> PyResult<Effects<'py>> {
        let (number, outcome) = (attempt.get().number, outcome(why)?);
        let effects = self.with(|ledger| ledger.abort(number, outcome));
        carry_out(attempt.py(), effects)
    }

    /// Whether another attempt of the same request is in flight.
    fn goes_on(&self, attempt: &Bound<'_, Attempt>) -> bool {
        self.lock().goes_on(attempt.get().number)
    }

    /// Leave an attempt to be given up by the next sweep. May be called at any time.
    fn drop(&self, attempt: &Bound<'_, Attempt>) {
        self.dropped.push(attempt.get().number);
    }

    /// Whether an attempt waits to be given up.
    #[getter]
    fn dropped(&self) -> bool {
        self.dropped.any()
    }

    /// Give up what was dropped, and what has made no progress for too long.
    fn expire<'py>(&self, py: Python<'py>, now: f64) -> PyResult<Effects<'py>> {
        let numbers = self.dropped.take();
        carry_out(py, self.with(|ledger| ledger.sweep(&numbers, now)))
    }

    /// Forget idle sessions, and prefill seconds that have left the window.
    fn sweep(&self, now: f64) {
        self.with(|ledger| {
            ledger.sessions.sweep(now);
            ledger.book.sweep(now);
        });
    }

    /// The attempt in flight with this key.
    fn find<'py>(&self, key: &Bound<'py, PyString>) -> PyResult<Option<Bound<'py, Attempt>>> {
        let name = self.name(key)?;
        Ok(self.with(|ledger| ledger.open(name).cloned()).map(|item| item.0.into_bound(key.py())))
    }

    /// The attempt with this key that is in flight or ended lately.
    fn known<'py>(&self, key: &Bound<'py, PyString>) -> PyResult<Option<Bound<'py, Attempt>>> {
        let name = self.name(key)?;
        Ok(self.with(|ledger| ledger.known(name).cloned()).map(|item| item.0.into_bound(key.py())))
    }

    /// The attempts in flight, in no order.
    #[getter]
    fn attempts(&self, py: Python<'_>) -> Vec<Py<Attempt>> {
        self.open_attempts(py)
    }

    /// Count what has happened; `what` is a word of `counts`.
    fn count(&self, what: &str) -> PyResult<()> {
        let what = outcome(what)?;
        self.lock().counters.count(what);
        Ok(())
    }

    /// Count a decision's time.
    #[pyo3(signature = (seconds, /))]
    fn time(&self, seconds: f64) {
        self.lock().counters.time(seconds);
    }

    fn __len__(&self) -> usize {
        self.lock().len()
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        let ledger = match self.books.try_lock() {
            Ok(ledger) => ledger,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Ok(()),
        };
        ledger.items().try_for_each(|item| visit.call(&item.0))
    }
}
