//! What a step costs: the one function that prices steps, whoever asks.
//!
//! The simulated engine prices its steps with it, `CostModel` in Python its first-token times and dollars. Every kind of
//! price is a few numbers or a table of them; all of them price the same [`Work`].

mod formula;
mod grid;
mod roofline;

pub use formula::Formula;
pub use grid::{BadTable, Grid, Table};
pub use roofline::{Attention, Experts, Matmul, Roofline};

use super::engine::Chunk;

/// What one step does. Figures are tokens, 0 or more; fractions are allowed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Work<Chunks> {
    /// Prompt tokens that are computed and the tokens of that prompt before them, for each prompt of the step.
    pub chunks: Chunks,
    /// Requests that decode one token each.
    pub decodes: f64,
    /// Tokens that these requests attend to, all together.
    pub context: f64,
}

/// Prices of every step of one model on one replica.
#[derive(Clone, Debug)]
pub enum StepPrices {
    /// Operations over a share of the peak; memory binds steps that decode.
    Formula(Formula),
    /// What is computed, read and sent, each at the speed that is reached.
    Roofline(Roofline),
    /// Tables of step times.
    Grid(Grid),
}

impl StepPrices {
    /// Seconds of a step with these chunks, beside `decodes` requests with `context_tokens` all together.
    pub fn step_seconds(&self, chunks: &[Chunk], decodes: usize, context_tokens: i128) -> f64 {
        let chunks = chunks.iter().map(|&(tokens, before)| (tokens as f64, before as f64));
        self.price(&Work { chunks, decodes: decodes as f64, context: context_tokens as f64 })
    }

    /// Seconds to compute `tokens` of one prompt behind `before` others, in one step and alone.
    pub fn prefill_seconds(&self, tokens: f64, before: f64) -> f64 {
        self.price(&Work { chunks: std::iter::once((tokens, before)), decodes: 0.0, context: 0.0 })
    }

    /// Seconds of a step in which `decodes` requests with `context` tokens all together decode, and nothing else happens.
    pub fn decode_seconds(&self, decodes: f64, context: f64) -> f64 {
        self.price(&Work { chunks: std::iter::empty(), decodes, context })
    }

    /// Seconds of a step at each of some replicas in which one request more decodes than these, with `prompt` tokens more than
    /// these: in place of the requests.
    pub fn join(&self, prompt: f64, requests: &mut [f64], contexts: &[f64]) {
        let joined = requests.iter_mut().zip(contexts).map(|(requests, context)| {
            *requests += 1.0;
            (requests, context + prompt)
        });
        match self {
            Self::Roofline(roofline) => roofline.decode(joined),
            Self::Formula(_) | Self::Grid(_) => {
                joined.for_each(|(decodes, context)| *decodes = self.decode_seconds(*decodes, context));
            }
        }
    }

    /// What kind of prices these are.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Formula(_) => "formula",
            Self::Roofline(_) => "roofline",
            Self::Grid(_) => "grid",
        }
    }

    fn price<Chunks: Iterator<Item = (f64, f64)> + Clone>(&self, work: &Work<Chunks>) -> f64 {
        match self {
            Self::Formula(formula) => formula.price(work),
            Self::Roofline(roofline) => roofline.price(work),
            Self::Grid(grid) => grid.price(work),
        }
    }
}
