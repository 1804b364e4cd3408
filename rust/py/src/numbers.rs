//! Numbers of an engine's batches, for who follows a feed himself.

use std::sync::{Mutex, MutexGuard, PoisonError};

use prefixroute_core as core;
use prefixroute_core::Back;
use pyo3::prelude::*;

/// The last batches that were applied of an engine's process, by number and content: tells a batch that comes again from one
/// of another process, whose numbers begin anew.
#[pyclass(frozen, module = "prefixroute._core")]
pub struct BatchNumbers {
    numbers: Mutex<core::Numbers>,
}

impl BatchNumbers {
    fn lock(&self) -> MutexGuard<'_, core::Numbers> {
        self.numbers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl BatchNumbers {
    #[new]
    fn new() -> Self {
        Self { numbers: Mutex::default() }
    }

    /// Hash of a batch's bytes.
    ///
    /// Args:
    ///     payload: the batch as it came.
    #[staticmethod]
    #[pyo3(signature = (payload, /))]
    fn content(payload: &[u8]) -> u64 {
        core::Numbers::content(payload)
    }

    /// Hash of an applied batch's bytes; None: it is not remembered.
    ///
    /// Args:
    ///     number: of the batch.
    #[pyo3(signature = (number, /))]
    fn content_of(&self, number: u64) -> Option<u64> {
        self.lock().content_of(number)
    }

    /// Note that a batch was applied.
    ///
    /// Args:
    ///     number: above all numbers that were applied.
    ///     payload: its bytes.
    ///     burnt: no number between the last one and this was ever published.
    #[pyo3(signature = (number, payload, /, *, burnt=false))]
    fn applied(&self, number: u64, payload: &[u8], burnt: bool) {
        self.lock().applied(number, core::Numbers::content(payload), burnt);
    }

    /// Tell what a number means that is not above the last one.
    ///
    /// Args:
    ///     number: the batch's.
    ///     payload: its bytes.
    ///     published: the highest number published since numbers can only have risen; None: unknown.
    ///
    /// Returns:
    ///     "repeated" = it was applied; "late" = it was missing, and is too late to be applied in order; "restarted" = it is of
    ///     another process.
    #[pyo3(signature = (number, payload, /, published))]
    fn back(&self, number: u64, payload: &[u8], published: Option<u64>) -> &'static str {
        match self.lock().back(number, core::Numbers::content(payload), published) {
            Back::Repeated => "repeated",
            Back::Late => "late",
            Back::Restarted => "restarted",
        }
    }

    /// Forget all: the next batch can have any number.
    fn clear(&self) {
        self.lock().clear();
    }
}
