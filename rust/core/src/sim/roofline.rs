//! What a step costs: the longer of computing and of reading memory.

use super::engine::Chunk;

/// Six figures that price every step of one model on one replica; `CostModel.step_seconds` in Python is the same formula.
#[derive(Clone, Copy, Debug)]
pub struct Roofline {
    /// Seconds for each token computed.
    pub linear_s: f64,
    /// Seconds for each pair of a token and one that it attends to.
    pub attention_s: f64,
    /// Seconds for each byte read.
    pub byte_s: f64,
    /// Bytes of all weights.
    pub weight_bytes: f64,
    /// Bytes of the weights that one token passes through.
    pub active_weight_bytes: f64,
    /// Bytes of one token's keys and values.
    pub kv_bytes: f64,
}

impl Roofline {
    /// Seconds of a step with these chunks, beside `decodes` requests with `context_tokens` all together.
    pub fn step_seconds(&self, chunks: &[Chunk], decodes: usize, context_tokens: i128) -> f64 {
        let (mut new, mut pairs, mut read) = (decodes as i128, 2 * context_tokens, context_tokens);
        for &(tokens, before) in chunks {
            let (tokens, before) = (i128::from(tokens), i128::from(before));
            new += tokens;
            pairs += tokens * (tokens + 2 * before);
            read += tokens + before;
        }
        if new == 0 {
            return 0.0;
        }
        let compute = self.linear_s * new as f64 + self.attention_s * pairs as f64;
        let weights = self.weight_bytes.min(self.active_weight_bytes * new as f64);
        compute.max(self.byte_s * (weights + read as f64 * self.kv_bytes))
    }
}
