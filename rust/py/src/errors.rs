//! The Python-defined errors, raised from here.

use prefixroute_core::Error;
use prefixroute_core::replica_cache::Refused;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;

/// A setting outside of what is allowed.
#[cold]
pub fn config(message: impl Into<String>) -> PyErr {
    of_class("ConfigError", message.into())
}

/// A prompt that is not a sequence of token ids.
#[cold]
pub fn tokens(message: impl Into<String>) -> PyErr {
    of_class("TokensError", message.into())
}

/// A name that the index does not know.
#[cold]
pub fn unknown_replica(message: impl Into<String>) -> PyErr {
    of_class("UnknownReplicaError", message.into())
}

/// An event that cannot be applied.
#[cold]
pub fn event(message: impl Into<String>) -> PyErr {
    of_class("EventError", message.into())
}

/// Bytes that are no frame of a peer.
#[cold]
pub fn peer(message: impl Into<String>) -> PyErr {
    of_class("PeerError", message.into())
}

/// What a call into Python gave, or nothing if it raised an `Exception`. An interrupt or an exit goes on.
pub fn caught<T>(py: Python<'_>, result: PyResult<T>) -> PyResult<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.is_instance_of::<PyException>(py) => Ok(None),
        Err(error) => Err(error),
    }
}

fn of_class(name: &str, message: String) -> PyErr {
    Python::attach(|py| match py.import("prefixroute.errors").and_then(|module| module.getattr(name)) {
        Ok(class) => class.call1((message,)).map_or_else(|error| error, PyErr::from_value),
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
