//! A calibrated roofline: what a step computes, reads and sends, each at the speed that is reached.

use super::Work;

/// Products of all tokens of a step with one set of weights: bound by computing, by reading the weights, or by both.
#[derive(Clone, Copy, Debug, Default)]
pub struct Matmul {
    /// Seconds to compute one token.
    pub token_s: f64,
    /// Seconds to read the weights once.
    pub read_s: f64,
}

impl Matmul {
    /// The cubic mean-like sum of both times: their maximum far from the ridge, up to 1.26 times it at the ridge, as measured
    /// kernels are (they overlap the two there only in part).
    fn seconds(self, tokens: f64) -> f64 {
        let compute = self.token_s * tokens;
        (compute * compute * compute + self.read_s * self.read_s * self.read_s).cbrt()
    }
}

/// Layers of experts, of which each token passes through a few.
#[derive(Clone, Copy, Debug)]
pub struct Experts {
    /// Seconds to compute one token's experts.
    pub token_s: f64,
    /// Seconds to read all experts once.
    pub read_s: f64,
    /// Experts of a layer.
    pub count: f64,
    /// Experts of a layer that one token passes through.
    pub picked: f64,
    /// Rows that an expert's tokens are filled up by, at most: kernels compute them in tiles.
    pub padding: f64,
}

/// Rows that a small tile is filled up by, for each that it has: kernels take smaller tiles for fewer tokens.
const PADDED: f64 = 3.0;

impl Experts {
    /// Seconds for so many tokens, each of which picks its experts at random. Computing does not hide reading: a batch reads
    /// an expert for the few tokens that picked it.
    fn seconds(self, tokens: f64) -> f64 {
        let touched = 1.0 - (1.0 - self.picked / self.count).powf(tokens);
        let filled = (PADDED * tokens).min(self.padding * touched * self.count / self.picked);
        self.read_s * touched + self.token_s * (tokens + filled)
    }
}

/// Layers of attention that are alike.
#[derive(Clone, Copy, Debug)]
pub struct Attention {
    /// Seconds for each pair of a prompt token and one that it attends to, in units of the article: a token at position p
    /// counts 2 p of them.
    pub pair_s: f64,
    /// Seconds to read one token of the context of a request that decodes.
    pub context_s: f64,
    /// Tokens that a token attends to at most; infinite where there is no limit.
    pub window: f64,
}

impl Attention {
    fn seconds<Chunks: Iterator<Item = (f64, f64)> + Clone>(&self, work: &Work<Chunks>) -> f64 {
        let pairs: f64 = work.chunks.clone().map(|(tokens, before)| self.pairs(tokens, before)).sum();
        // Of the contexts only the sum is known: at most a window for each request.
        self.pair_s * pairs + self.context_s * work.context.min(self.window * work.decodes)
    }

    fn pairs(&self, tokens: f64, before: f64) -> f64 {
        if before + tokens <= self.window {
            return tokens * (tokens + 2.0 * before);
        }
        let growing = (self.window - before).max(0.0);
        growing * (growing + 2.0 * before) + 2.0 * (tokens - growing) * self.window
    }
}

/// The figures that price a step of one model on one replica; tensor parallelism is in them.
#[derive(Clone, Debug)]
pub struct Roofline {
    /// Seconds of any step, however small: kernel launches, latency of all-reduces, reading the output head.
    pub step_s: f64,
    /// Further seconds of a step with prompt tokens.
    pub prefill_s: f64,
    /// Seconds for each token beside its products: activations, all-reduces.
    pub token_s: f64,
    /// Seconds for each request of the step: the logits of its last token.
    pub logits_s: f64,
    /// Seconds for each request that decodes: reading and writing a state of fixed size.
    pub state_s: f64,
    /// Products with the weights that every token passes through.
    pub matmul: Matmul,
    /// The layers of experts, if there are any.
    pub experts: Option<Experts>,
    /// The layers of attention.
    pub attention: Vec<Attention>,
}

impl Roofline {
    /// Seconds of a step.
    pub(crate) fn price<Chunks: Iterator<Item = (f64, f64)> + Clone>(&self, work: &Work<Chunks>) -> f64 {
        let (mut prompts, mut prompt_tokens) = (0.0, 0.0);
        for (tokens, _) in work.chunks.clone() {
            prompts += 1.0;
            prompt_tokens += tokens;
        }
        if prompt_tokens + work.decodes <= 0.0 {
            return 0.0;
        }
        self.products(prompts, prompt_tokens, work.decodes) + self.attend(work)
    }

    /// Seconds of steps in which so many requests decode, with so many tokens of context: in place of the requests. All but
    /// attention is worked out once for each number of them: few of a fleet's are distinct.
    pub(crate) fn decode<'a>(&self, steps: impl Iterator<Item = (&'a mut f64, f64)>) {
        let mut known: Vec<(u64, f64)> = Vec::new();
        for (seconds, context) in steps {
            let decodes = *seconds;
            let found = known.iter().find(|&&(bits, _)| bits == decodes.to_bits()).map(|&(_, products)| products);
            let products = found.unwrap_or_else(|| {
                let products = self.products(0.0, 0.0, decodes);
                known.push((decodes.to_bits(), products));
                products
            });
            let work = Work { chunks: std::iter::empty(), decodes, context };
            *seconds = if decodes <= 0.0 { 0.0 } else { products + self.attend(&work) };
        }
    }

    /// Seconds of all that does not depend on how long contexts are.
    fn products(&self, prompts: f64, prompt_tokens: f64, decodes: f64) -> f64 {
        let tokens = prompt_tokens + decodes;
        let launched = self.step_s + if prompt_tokens > 0.0 { self.prefill_s } else { 0.0 };
        launched
            + self.token_s * tokens
            + self.logits_s * (prompts + decodes)
            + self.state_s * decodes
            + self.matmul.seconds(tokens)
            + self.experts.map_or(0.0, |experts| experts.seconds(tokens))
    }

    fn attend<Chunks: Iterator<Item = (f64, f64)> + Clone>(&self, work: &Work<Chunks>) -> f64 {
        self.attention.iter().map(|layers| layers.seconds(work)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAYERS: Attention = Attention { pair_s: 1.0, context_s: 1.0, window: 100.0 };

    #[test]
    fn steps_of_many_replicas_cost_what_each_costs() {
        let matmul = Matmul { token_s: 0.3, read_s: 7.0 };
        let experts = Some(Experts { token_s: 0.1, read_s: 3.0, count: 8.0, picked: 2.0, padding: 4.0 });
        let attention = vec![Attention { pair_s: 0.1, context_s: 0.01, window: 100.0 }, LAYERS];
        let (step_s, prefill_s, token_s, logits_s, state_s) = (1.0, 2.0, 0.5, 0.25, 0.125);
        let prices = Roofline { step_s, prefill_s, token_s, logits_s, state_s, matmul, experts, attention };
        let prices = crate::sim::StepPrices::Roofline(prices);
        let (mut requests, contexts) = (vec![3.0, 0.0, 3.0, -1.0, 0.5, f64::NAN], [70.0, 0.0, 900.0, 5.0, 33.0, 1.0]);
        let alone: Vec<f64> =
            requests.iter().zip(&contexts).map(|(n, context)| prices.decode_seconds(n + 1.0, context + 40.0)).collect();
        prices.join(40.0, &mut requests, &contexts);
        assert_eq!(
            requests.iter().map(|s| s.to_bits()).collect::<Vec<_>>(),
            alone.iter().map(|s| s.to_bits()).collect::<Vec<_>>()
        );
    }

    #[test]
    fn a_window_limits_the_pairs_of_each_token() {
        let pairs = |tokens: f64, before: f64| LAYERS.pairs(tokens, before);
        let equal = |one: f64, other: f64| (one - other).abs() < 1e-9;
        assert!(equal(pairs(60.0, 40.0), 60.0 * 140.0), "all within the window");
        assert!(equal(pairs(50.0, 100.0), 2.0 * 50.0 * 100.0), "all beyond it");
        assert!(equal(pairs(80.0, 40.0) + pairs(30.0, 120.0), pairs(110.0, 40.0)), "chunks sum up to the whole");
        assert!(equal(pairs(80.0, 0.0) + pairs(70.0, 80.0), pairs(150.0, 0.0)), "across the edge too");
    }

    #[test]
    fn a_batch_reads_the_experts_that_its_tokens_pick() {
        let experts = Experts { token_s: 0.0, read_s: 128.0, count: 128.0, picked: 4.0, padding: 0.0 };
        assert!((experts.seconds(1.0) - 4.0).abs() < 1e-9);
        assert!((experts.seconds(2.0) - (8.0 - 4.0 * 4.0 / 128.0)).abs() < 1e-9);
        assert!((experts.seconds(1e6) - 128.0).abs() < 1e-9);
    }

    #[test]
    fn tokens_of_an_expert_are_filled_up_to_a_tile() {
        let experts = Experts { token_s: 1.0, read_s: 0.0, count: 128.0, picked: 4.0, padding: 16.0 };
        assert!((experts.seconds(8.0) - 32.0).abs() < 1e-9, "a few rows: up to four times as many");
        assert!((experts.seconds(1e5) - (1e5 + 16.0 * 128.0 / 4.0)).abs() < 1e-6, "many rows: so many an expert");
    }

    #[test]
    fn a_product_takes_as_long_as_its_bound_far_from_the_ridge() {
        let product = Matmul { token_s: 1.0, read_s: 100.0 };
        assert!((product.seconds(1.0) - 100.0).abs() < 1e-4);
        assert!((product.seconds(1e4) - 1e4).abs() < 1e-2);
        assert!((product.seconds(100.0) - 126.0).abs() < 0.1);
    }
}
