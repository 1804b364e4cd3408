//! `Roster`: what rules that place keys read of a fleet.

use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::draws::fitting;

/// The names of a fleet's replicas as hashes, and their relative speeds, by slot. Immutable.
///
/// Args:
///     hashes: 64-bit hash of each replica's name.
///     weights: speed of each replica relative to the others; None: all are equal.
///
/// Raises:
///     ConfigError: a hash does not fit in 64 bits.
#[pyclass(frozen, module = "prefixroute._core")]
pub struct Roster {
    pub hashes: Vec<u64>,
    pub weights: Option<Vec<f64>>,
}

#[pymethods]
impl Roster {
    #[new]
    #[pyo3(signature = (hashes, weights=None))]
    fn new(hashes: &Bound<'_, PyTuple>, weights: Option<Vec<f64>>) -> PyResult<Self> {
        let hashes = hashes.iter_borrowed().map(|hash| fitting(&hash, "a hash")).collect::<PyResult<_>>()?;
        Ok(Self { hashes, weights })
    }
}
