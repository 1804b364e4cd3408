//! `StepPrices`: what a step costs, as numbers.

use std::sync::Arc;

use numpy::{PyArray1, PyReadonlyArray1};
use prefixroute_core::sim as core;
use pyo3::prelude::*;

use crate::errors;

/// Prices of every step of one model on one replica: tokens in, seconds out.
#[pyclass(module = "prefixroute._core", frozen, name = "StepPrices")]
pub struct StepPrices {
    pub prices: Arc<core::StepPrices>,
}

impl StepPrices {
    fn of(prices: core::StepPrices) -> Self {
        Self { prices: Arc::new(prices) }
    }
}

#[pymethods]
impl StepPrices {
    #[staticmethod]
    fn formula(
        linear_s: f64,
        attention_s: f64,
        byte_s: f64,
        weight_bytes: f64,
        active_weight_bytes: f64,
        kv_bytes: f64,
    ) -> Self {
        let formula = core::Formula { linear_s, attention_s, byte_s, weight_bytes, active_weight_bytes, kv_bytes };
        Self::of(core::StepPrices::Formula(formula))
    }

    #[staticmethod]
    #[pyo3(signature = (*, step_s, prefill_s, token_s, logits_s, state_s, matmul, experts, attention))]
    #[expect(clippy::too_many_arguments, reason = "each by name, from Python")]
    fn roofline(
        step_s: f64,
        prefill_s: f64,
        token_s: f64,
        logits_s: f64,
        state_s: f64,
        matmul: (f64, f64),
        experts: Option<(f64, f64, f64, f64, f64)>,
        attention: Vec<(f64, f64, f64)>,
    ) -> Self {
        let roofline = core::Roofline {
            step_s,
            prefill_s,
            token_s,
            logits_s,
            state_s,
            matmul: core::Matmul { token_s: matmul.0, read_s: matmul.1 },
            experts: experts.map(|(token_s, read_s, count, picked, padding)| core::Experts {
                token_s,
                read_s,
                count,
                picked,
                padding,
            }),
            attention: attention
                .into_iter()
                .map(|(pair_s, context_s, window)| core::Attention { pair_s, context_s, window })
                .collect(),
        };
        Self::of(core::StepPrices::Roofline(roofline))
    }

    #[staticmethod]
    fn grid(prefill: Points, decode: Points, beside: Points, step_s: f64) -> PyResult<Self> {
        let grid = core::Grid { prefill: table(prefill)?, decode: table(decode)?, beside: table(beside)?, step_s };
        Ok(Self::of(core::StepPrices::Grid(grid)))
    }

    #[pyo3(signature = (chunks, decodes = 0, decode_context_tokens = 0))]
    fn step_seconds(&self, chunks: Vec<core::Chunk>, decodes: usize, decode_context_tokens: i128) -> f64 {
        self.prices.step_seconds(&chunks, decodes, decode_context_tokens)
    }

    #[pyo3(signature = (new_tokens, cached_tokens = 0.0))]
    fn prefill_seconds(&self, new_tokens: f64, cached_tokens: f64) -> f64 {
        self.prices.prefill_seconds(new_tokens, cached_tokens)
    }

    fn prefill_seconds_of<'py>(
        &self,
        py: Python<'py>,
        new_tokens: PyReadonlyArray1<'py, f64>,
        cached_tokens: PyReadonlyArray1<'py, f64>,
    ) -> PyResult<Bound<'py, PyArray1<f64>>> {
        let (new, cached) = (new_tokens.as_array(), cached_tokens.as_array());
        if new.len() != cached.len() {
            return Err(errors::config(format!(
                "new_tokens and cached_tokens must be of one length, got {} and {}",
                new.len(),
                cached.len()
            )));
        }
        let seconds = new.iter().zip(cached).map(|(&new, &cached)| self.prices.prefill_seconds(new, cached));
        Ok(PyArray1::from_iter(py, seconds))
    }

    fn __repr__(&self) -> String {
        format!("<StepPrices {}>", self.prices.kind())
    }
}

/// The points of two axes and the values at each pair of them, row by row.
type Points = (Vec<f64>, Vec<f64>, Vec<f64>);

fn table((rows, columns, values): Points) -> PyResult<core::Table> {
    core::Table::new(rows, columns, values).map_err(|error| errors::config(error.to_string()))
}
