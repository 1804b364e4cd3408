//! The session bindings of a ledger.

use prefixroute_core::routing::{self as core, Name};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};

use super::ledger::Ledger;

#[pymethods]
impl Ledger {
    /// The slot that a session is bound to; -1: its replica has left or drains; None: it is not bound.
    #[pyo3(signature = (session, now, /))]
    fn bound(&self, session: &Bound<'_, PyString>, now: f64) -> PyResult<Option<i64>> {
        let name = self.name(session)?;
        Ok(self.lock().bound(name, now))
    }

    /// Bind a session to a process.
    #[pyo3(signature = (session, slot, generation, now, /))]
    fn bind(&self, session: &Bound<'_, PyString>, slot: usize, generation: i64, now: f64) -> PyResult<()> {
        let name = self.name(session)?;
        self.lock().sessions.bind(name, core::Process { slot, generation }, now);
        Ok(())
    }

    /// Bind another name of a session to its process; whether the session was bound.
    #[pyo3(signature = (session, alias, now, /))]
    fn alias(&self, session: &Bound<'_, PyString>, alias: &Bound<'_, PyString>, now: f64) -> PyResult<bool> {
        let (session, alias) = (self.name(session)?, self.name(alias)?);
        let mut ledger = self.lock();
        let bound = ledger.sessions.get(session, now);
        if let Some(binding) = bound {
            ledger.sessions.bind(alias, binding.process, now);
        }
        Ok(bound.is_some())
    }

    /// Drop a session's binding; whether there was one.
    fn forget(&self, session: &Bound<'_, PyString>) -> PyResult<bool> {
        let name = self.name(session)?;
        Ok(self.lock().sessions.forget(name))
    }

    /// Drop every session's binding; how many there were.
    fn forget_sessions(&self) -> usize {
        self.lock().sessions.clear()
    }

    /// What a session is called in 16 bytes, the same under one hash key everywhere.
    fn session_name<'py>(&self, session: &Bound<'py, PyString>) -> PyResult<Bound<'py, PyBytes>> {
        Ok(PyBytes::new(session.py(), &self.name(session)?.0.to_le_bytes()))
    }

    /// Take in where another router has bound a session, unless it was used later than that here.
    #[pyo3(signature = (name, slot, generation, seen, /))]
    fn learn_session(&self, name: [u8; 16], slot: usize, generation: i64, seen: f64) {
        let process = core::Process { slot, generation };
        self.lock().sessions.learn(Name(u128::from_le_bytes(name)), process, seen);
    }

    /// Drop the binding of a session by its name in bytes.
    fn forget_name(&self, name: [u8; 16]) {
        self.lock().sessions.forget(Name(u128::from_le_bytes(name)));
    }

    /// (name in bytes, slot, generation, when it was used) of the sessions used last, newest first.
    fn newest_sessions<'py>(&self, py: Python<'py>, most: usize) -> Vec<(Bound<'py, PyBytes>, usize, i64, f64)> {
        let newest = self.lock().sessions.newest(most);
        let told = |(name, binding): (Name, core::Binding)| {
            let core::Process { slot, generation } = binding.process;
            (PyBytes::new(py, &name.0.to_le_bytes()), slot, generation, binding.seen)
        };
        newest.into_iter().map(told).collect()
    }

    /// Sessions remembered.
    #[getter]
    fn sessions(&self) -> usize {
        self.lock().sessions.len()
    }
}
