//! `EventQueue`: callbacks in virtual time.

use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use prefixroute_core::sim as core;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use pyo3::{PyTraverseError, PyVisit};

use super::engine::ReplicaEngine;

/// What an event does.
pub enum Action {
    /// The step of an engine ends.
    Step(Py<ReplicaEngine>, u64),
    /// A function is called.
    Call(Py<PyAny>, Py<PyTuple>),
}

/// Callbacks in virtual time, ordered by time and then by the order of scheduling: the simulator's clock.
///
/// Two events at one instant run in the order in which they were scheduled, whatever they carry, so a run depends on
/// nothing but its inputs. Times are seconds from the start of the run. There is no cancel: an owner that changes its
/// mind schedules again, and ignores the stale call by a version of its own.
#[pyclass(frozen, module = "prefixroute._core")]
pub struct EventQueue {
    queue: Mutex<core::EventQueue<Action>>,
}

impl EventQueue {
    // Never held while Python runs: an event may schedule others.
    fn lock(&self) -> MutexGuard<'_, core::EventQueue<Action>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn put(&self, at: f64, action: Action) -> PyResult<()> {
        self.lock().schedule(at, action).map_err(|error| PyValueError::new_err(error.to_string()))
    }

    pub fn time(&self) -> f64 {
        self.lock().now()
    }

    fn run_while<F>(&self, py: Python<'_>, mut next: F) -> PyResult<()>
    where
        F: FnMut(&mut core::EventQueue<Action>) -> Option<Action>,
    {
        loop {
            let Some(action) = next(&mut self.lock()) else { return Ok(()) };
            match action {
                Action::Step(engine, version) => ReplicaEngine::end(engine.bind(py), version)?,
                Action::Call(function, arguments) => {
                    function.call1(py, arguments)?;
                }
            }
        }
    }
}

#[pymethods]
impl EventQueue {
    #[new]
    fn new() -> Self {
        Self { queue: Mutex::default() }
    }

    /// Seconds from the start.
    #[getter]
    fn now(&self) -> f64 {
        self.time()
    }

    /// The same as a function, which serves as a Router's `clock=`.
    #[pyo3(name = "time")]
    fn clock(&self) -> f64 {
        self.time()
    }

    /// Pending events.
    fn __len__(&self) -> usize {
        self.lock().len()
    }

    #[expect(clippy::unused_self, reason = "the signature of a method")]
    fn __bool__(&self) -> bool {
        true
    }

    /// Run `action(*arguments)` at second `at`.
    ///
    /// Raises:
    ///     ValueError: `at` lies before the present or is not a finite number: a bug of the caller.
    #[pyo3(signature = (at, action, *arguments))]
    fn schedule(&self, at: f64, action: Py<PyAny>, arguments: Py<PyTuple>) -> PyResult<()> {
        self.put(at, Action::Call(action, arguments))
    }

    /// Second at which the next event falls due; None if none is pending.
    #[getter]
    fn next_at(&self) -> Option<f64> {
        self.lock().next_at()
    }

    /// Run events until none is left. An event may schedule others; one that raises ends the run.
    fn run(&self, py: Python<'_>) -> PyResult<()> {
        self.run_while(py, core::EventQueue::pop)
    }

    /// Run the events that fall due by second `at`, and those that they schedule by then; `at` is then the present.
    ///
    /// Raises:
    ///     ValueError: `at` is not a finite number.
    fn run_until(&self, py: Python<'_>, at: f64) -> PyResult<()> {
        if !at.is_finite() {
            return Err(PyValueError::new_err(format!("a time must be a finite number of seconds, got {at}")));
        }
        self.run_while(py, |queue| queue.pop_until(at))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        let queue = match self.queue.try_lock() {
            Ok(queue) => queue,
            Err(TryLockError::Poisoned(error)) => error.into_inner(),
            Err(TryLockError::WouldBlock) => return Ok(()),
        };
        for action in queue.pending() {
            match action {
                Action::Step(engine, _) => visit.call(engine)?,
                Action::Call(function, arguments) => {
                    visit.call(function)?;
                    visit.call(arguments)?;
                }
            }
        }
        Ok(())
    }

    fn __clear__(&self) {
        let dropped = std::mem::take(&mut *self.lock()); // what it held is let go of after the lock is
        drop(dropped);
    }

    fn __repr__(&self) -> String {
        let queue = self.lock();
        format!("<EventQueue now={} pending={}>", queue.now(), queue.len())
    }
}
