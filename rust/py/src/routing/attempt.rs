//! `Attempt`: one attempt of a request. `Lease`: what gives it up once nobody holds it any more.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use prefixroute_core::routing as core;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};
use pyo3::{PyTraverseError, PyVisit, intern};

/// Numbers of attempts whose leases were dropped. Whoever drops one may be the collector, in the middle of any call.
#[derive(Default)]
pub struct Dropped {
    numbers: Mutex<Vec<u64>>,
    any: AtomicBool,
}

impl Dropped {
    pub fn push(&self, number: u64) {
        self.numbers.lock().unwrap_or_else(PoisonError::into_inner).push(number);
        self.any.store(true, Ordering::Release);
    }

    pub fn any(&self) -> bool {
        self.any.load(Ordering::Acquire)
    }

    pub fn take(&self) -> Vec<u64> {
        self.any.store(false, Ordering::Release);
        std::mem::take(&mut self.numbers.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// One attempt of a request, drafted by a `Ledger`.
#[pyclass(frozen, module = "prefixroute._core")]
pub struct Attempt {
    pub number: u64,
    pub process: core::Process,
    pub hit: i64,
    pub prompt_tokens: i64,
    pub begun: f64,
    pub key: Option<core::Name>,
    pub parts: Parts,
    pub dropped: Arc<Dropped>,
    pub started: AtomicBool,
    /// Whether its request is over: shared by all attempts of the request.
    over: Arc<AtomicBool>,
    /// Whether a retry has taken its place.
    retried: AtomicBool,
    outcome: AtomicU8,
    insertion: Mutex<Option<Py<PyAny>>>,
    followers: Mutex<Option<Py<PyTuple>>>,
    prefill: Mutex<Option<Py<Attempt>>>,
}

/// The Python objects of an attempt.
pub struct Parts {
    pub decision: Py<PyAny>,
    pub member: Py<PyAny>,
    pub name: Py<PyString>,
    pub tried: Py<PyAny>,
    pub epoch: u64,
}

impl Attempt {
    #[expect(clippy::too_many_arguments, reason = "one for each field")]
    pub fn new(
        number: u64,
        process: core::Process,
        hit: i64,
        prompt_tokens: i64,
        begun: f64,
        key: Option<core::Name>,
        parts: Parts,
        dropped: Arc<Dropped>,
        earlier: Option<&Self>,
    ) -> Self {
        Self {
            over: earlier.map(|earlier| Arc::clone(&earlier.over)).unwrap_or_default(),
            retried: AtomicBool::new(false),
            number,
            process,
            hit,
            prompt_tokens,
            begun,
            key,
            parts,
            dropped,
            started: AtomicBool::new(false),
            outcome: AtomicU8::new(core::Outcome::Committed as u8),
            insertion: Mutex::new(None),
            followers: Mutex::new(None),
            prefill: Mutex::new(None),
        }
    }

    /// Note the half that computes the prompt of which this half decodes the answer.
    pub fn decode_behind(&self, prefill: Py<Self>) {
        let before = self.prefill.lock().unwrap_or_else(PoisonError::into_inner).replace(prefill);
        drop(before);
    }

    /// Whether another half computes its prompt.
    pub fn decodes_behind(&self) -> bool {
        self.prefill.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    fn state(&self) -> core::Outcome {
        core::Outcome::ALL[usize::from(self.outcome.load(Ordering::Relaxed))].0
    }

    pub fn is_open(&self) -> bool {
        self.state() == core::Outcome::Committed
    }

    pub fn set_insertion(&self, insertion: Py<PyAny>) {
        *self.insertion.lock().unwrap_or_else(PoisonError::into_inner) = Some(insertion);
    }

    /// What follows an earlier attempt of the same request follows this one too. `replaces`: this takes its place.
    pub fn follow_on(&self, py: Python<'_>, earlier: &Self, replaces: bool) {
        earlier.retried.fetch_or(replaces, Ordering::Relaxed);
        let theirs = earlier.followers.lock().unwrap_or_else(PoisonError::into_inner);
        let followers = theirs.as_ref().map(|followers| followers.clone_ref(py));
        drop(theirs);
        *self.followers.lock().unwrap_or_else(PoisonError::into_inner) = followers;
    }

    /// Note how it has ended. Its followers, unless the request goes on, are returned, to be dropped once nothing is borrowed.
    pub fn end(&self, outcome: core::Outcome) -> Option<Py<PyTuple>> {
        self.outcome.store(outcome as u8, Ordering::Relaxed);
        if matches!(outcome, core::Outcome::Finished | core::Outcome::Rebooked) {
            self.over.store(true, Ordering::Relaxed);
        }
        if outcome.continues() {
            return None;
        }
        self.followers.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

#[pymethods]
impl Attempt {
    #[getter]
    fn number(&self) -> u64 {
        self.number
    }

    #[getter]
    fn decision(&self, py: Python<'_>) -> Py<PyAny> {
        self.parts.decision.clone_ref(py)
    }

    #[getter]
    fn member(&self, py: Python<'_>) -> Py<PyAny> {
        self.parts.member.clone_ref(py)
    }

    #[getter]
    fn name(&self, py: Python<'_>) -> Py<PyString> {
        self.parts.name.clone_ref(py)
    }

    #[getter]
    fn tried(&self, py: Python<'_>) -> Py<PyAny> {
        self.parts.tried.clone_ref(py)
    }

    #[getter]
    fn epoch(&self) -> u64 {
        self.parts.epoch
    }

    #[getter]
    fn slot(&self) -> usize {
        self.process.slot
    }

    #[getter]
    fn generation(&self) -> i64 {
        self.process.generation
    }

    #[getter]
    fn hit(&self) -> i64 {
        self.hit
    }

    #[getter]
    fn prompt_tokens(&self) -> i64 {
        self.prompt_tokens
    }

    #[getter]
    fn begun(&self) -> f64 {
        self.begun
    }

    #[getter]
    fn keyed(&self) -> bool {
        self.key.is_some()
    }

    #[getter]
    fn open(&self) -> bool {
        self.is_open()
    }

    #[getter]
    fn over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    #[getter]
    fn retried(&self) -> bool {
        self.retried.load(Ordering::Relaxed)
    }

    #[getter]
    fn started(&self) -> bool {
        self.started.load(Ordering::Relaxed)
    }

    #[getter]
    fn outcome<'py>(&self, py: Python<'py>) -> Bound<'py, PyString> {
        match self.state() {
            core::Outcome::Committed => intern!(py, "in flight").clone(),
            ended => PyString::new(py, &ended.name().replace('_', " ")),
        }
    }

    #[getter]
    fn insertion(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        let insertion = self.insertion.lock().unwrap_or_else(PoisonError::into_inner);
        insertion.as_ref().map(|insertion| insertion.clone_ref(py))
    }

    #[getter]
    fn prefill(&self, py: Python<'_>) -> Option<Py<Self>> {
        let prefill = self.prefill.lock().unwrap_or_else(PoisonError::into_inner);
        prefill.as_ref().map(|prefill| prefill.clone_ref(py))
    }

    #[getter]
    fn followers<'py>(&self, py: Python<'py>) -> Bound<'py, PyTuple> {
        let followers = self.followers.lock().unwrap_or_else(PoisonError::into_inner);
        followers.as_ref().map_or_else(|| PyTuple::empty(py), |followers| followers.bind(py).clone())
    }

    #[setter]
    fn set_followers(&self, followers: Py<PyTuple>) {
        let before = self.followers.lock().unwrap_or_else(PoisonError::into_inner).replace(followers);
        drop(before);
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.parts.decision)?;
        visit.call(&self.parts.member)?;
        visit.call(&self.parts.tried)?;
        // Both locks are free: no Python runs while one is held.
        if let Ok(insertion) = self.insertion.try_lock() {
            visit.call(&*insertion)?;
        }
        if let Ok(followers) = self.followers.try_lock() {
            visit.call(&*followers)?;
        }
        if let Ok(prefill) = self.prefill.try_lock() {
            visit.call(&*prefill)?;
        }
        Ok(())
    }

    fn __repr__(&self) -> String {
        format!("<Attempt {} slot={} {}>", self.number, self.process.slot, self.state().name())
    }
}

/// Holds an attempt: once it is collected, the attempt, if it is open and has no key, is given up by the ledger's next sweep.
#[pyclass(frozen, subclass, module = "prefixroute._core")]
pub struct Lease {
    host: Py<PyAny>,
    attempt: Py<Attempt>,
}

#[pymethods]
impl Lease {
    #[new]
    #[pyo3(signature = (host, attempt, /))]
    fn new(host: Py<PyAny>, attempt: Py<Attempt>) -> Self {
        Self { host, attempt }
    }

    #[getter]
    fn host(&self, py: Python<'_>) -> Py<PyAny> {
        self.host.clone_ref(py)
    }

    #[getter]
    fn attempt(&self, py: Python<'_>) -> Py<Attempt> {
        self.attempt.clone_ref(py)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.host)?;
        visit.call(&self.attempt)
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let attempt = self.attempt.get();
        if attempt.key.is_none() && attempt.is_open() {
            attempt.dropped.push(attempt.number);
        }
    }
}
