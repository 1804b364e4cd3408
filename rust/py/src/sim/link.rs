//! `TransferPrices`: what moving a prompt's keys and values between replicas takes, as numbers.

use prefixroute_core::sim as core;
use pyo3::prelude::*;

/// Prices of every transfer of one model over one link: tokens in, seconds out.
#[pyclass(module = "prefixroute._core", frozen, name = "TransferPrices")]
pub struct TransferPrices {
    pub link: core::Link,
}

#[pymethods]
impl TransferPrices {
    #[new]
    #[pyo3(signature = (latency_s, request_s, layers))]
    fn new(latency_s: f64, request_s: f64, layers: Vec<(f64, f64)>) -> Self {
        let layers = layers.into_iter().map(|(token_s, window)| core::Entries { token_s, window }).collect();
        Self { link: core::Link { latency_s, request_s, layers } }
    }

    /// Seconds to move a prompt over the link.
    ///
    /// Args:
    ///     tokens: of the prompt, that move.
    fn seconds(&self, tokens: f64) -> f64 {
        self.link.seconds(tokens)
    }

    fn __getnewargs__(&self) -> (f64, f64, Vec<(f64, f64)>) {
        let layers = self.link.layers.iter().map(|layer| (layer.token_s, layer.window)).collect();
        (self.link.latency_s, self.link.request_s, layers)
    }

    fn __repr__(&self) -> String {
        format!("<TransferPrices latency_s={}>", self.link.latency_s)
    }
}
