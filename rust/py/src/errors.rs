//! The Python-defined errors, looked up once and raised from here.

use prefixroute_core::Error;
use prefixroute_core::replica_cache::Refused;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;

macro_rules! raisers {
    ($($(#[$doc:meta])* $function:ident => $class:literal),* $(,)?) => {$(
        $(#[$doc])*
        #[cold]
        pub fn $function(message: impl Into<String>) -> PyErr {
            static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();
            raise(&CLASS, $class, message.into())
        }
    )*};
}

raisers! {
    /// A setting outside of what is allowed.
    config => "ConfigError",
    /// A prompt that is not a sequence of token ids.
    tokens => "TokensError",
    /// A name that the index does not know.
    unknown_replica => "UnknownReplicaError",
    /// An event that cannot be applied.
    event => "EventError",
    /// Bytes that are no frame of a peer.
    peer => "PeerError",
}

/// What a call into Python gave, or nothing if it raised an `Exception`. An interrupt or an exit goes on.
pub fn caught<T>(py: Python<'_>, result: PyResult<T>) -> PyResult<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.is_instance_of::<PyException>(py) => Ok(None),
        Err(error) => Err(error),
    }
}

fn raise(class: &'static PyOnceLock<Py<PyType>>, name: &str, message: String) -> PyErr {
    Python::attach(|py| match class.import(py, "prefixroute.errors", name) {
        Ok(class) => PyErr::from_type(class.clone(), (message,)),
        Err(error) => error,
    })
}

/// The error of the core as the Python error that fits.
#[cold]
pub fn of_core(error: Error) -> PyErr {
    match error {
        Error::UnknownSlot(_) | Error::UnknownReplica(_) => unknown_replica(error.to_string()),
        Error::EventLengths { .. } | Error::EventTokens { .. } | Error::Payload(_) | Error::PayloadBytes(_) => {
            event(error.to_string())
        }
        _ => config(error.to_string()),
    }
}

/// A refusal that is the caller's mistake (a lack of room is not, and has a value of its own).
#[cold]
pub fn of_refused(refused: Refused) -> PyErr {
    config(refused.to_string())
}
