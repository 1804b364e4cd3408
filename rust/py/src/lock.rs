//! The lock of what a Python object changes.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// A mutex whose poison is ignored: a panic in the core is a defect, but what it leaves is still memory-safe, and must not make
/// every later call panic too.
#[derive(Default)]
pub struct Lock<T>(Mutex<T>);

impl<T> Lock<T> {
    pub fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }

    /// Never held while Python runs.
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
