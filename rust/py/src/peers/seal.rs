//! `PeerSeal`: what routers must have in common to understand and to believe each other.

use prefixroute_core::peers::wire::Seal;
use pyo3::prelude::*;

/// What routers of a fleet have in common. Frames of others are refused.
///
/// Args:
///     fingerprint: tells strangers, in 32 bits.
///     key: of the frames' tags, 16 bytes.
#[pyclass(frozen, module = "prefixroute._core")]
pub struct PeerSeal {
    pub seal: Seal,
    fingerprint: u32,
}

#[pymethods]
impl PeerSeal {
    #[new]
    #[pyo3(signature = (fingerprint, key, /))]
    fn py_new(fingerprint: u32, key: [u8; 16]) -> Self {
        Self { seal: Seal::new(fingerprint, u128::from_le_bytes(key)), fingerprint }
    }

    #[getter]
    fn fingerprint(&self) -> u32 {
        self.fingerprint
    }
}
