//! The formula of the seed article: operations over the share of the GPU's peak that is reached.

use super::Work;

/// Six figures that price a step by its operations, and by memory where it decodes.
#[derive(Clone, Copy, Debug)]
pub struct Formula {
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

impl Formula {
    /// Seconds of a step: of computing; where requests decode, of reading weights and context from memory if that is longer.
    pub(crate) fn price<Chunks: Iterator<Item = (f64, f64)> + Clone>(&self, work: &Work<Chunks>) -> f64 {
        let (mut new, mut pairs) = (work.decodes, 2.0 * work.context);
        for (tokens, before) in work.chunks.clone() {
            new += tokens;
            pairs += tokens * (tokens + 2.0 * before);
        }
        let compute = self.linear_s * new + self.attention_s * pairs;
        if work.decodes <= 0.0 {
            return compute;
        }
        let weights = self.weight_bytes.min(self.active_weight_bytes * new);
        compute.max(self.byte_s * (weights + work.context * self.kv_bytes))
    }
}
