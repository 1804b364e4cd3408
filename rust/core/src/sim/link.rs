//! What it takes to move the keys and values of a prompt from one replica to another.

/// Like layers of a model, as a link sees them.
#[derive(Clone, Copy, Debug)]
pub struct Entries {
    /// Seconds to send what these layers keep of a token.
    pub token_s: f64,
    /// Tokens that they keep at most; infinite = all.
    pub window: f64,
}

/// Prices of every transfer of one model over one link.
#[derive(Clone, Debug, Default)]
pub struct Link {
    /// Seconds between the end of sending and the arrival. It keeps nobody else from sending.
    pub latency_s: f64,
    /// Seconds to send what a request keeps whatever its length, such as states.
    pub request_s: f64,
    /// Layers, those that are alike together.
    pub layers: Vec<Entries>,
}

impl Link {
    /// Seconds for which a transfer of so many tokens keeps the link busy; nothing is sent of none.
    pub fn sending_s(&self, tokens: f64) -> f64 {
        if tokens <= 0.0 {
            return 0.0;
        }
        let growing: f64 = self.layers.iter().map(|layer| layer.token_s * tokens.min(layer.window)).sum();
        self.request_s + growing
    }

    /// Seconds from the beginning of a transfer of so many tokens to its arrival; 0 for none.
    pub fn seconds(&self, tokens: f64) -> f64 {
        if tokens <= 0.0 { 0.0 } else { self.latency_s + self.sending_s(tokens) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transfer_costs_its_latency_its_states_and_what_each_layer_keeps() {
        let layers = vec![Entries { token_s: 2.0, window: f64::INFINITY }, Entries { token_s: 1.0, window: 10.0 }];
        let link = Link { latency_s: 0.5, request_s: 4.0, layers };
        for (tokens, sending) in [(0.0, 0.0), (3.0, 13.0), (10.0, 34.0), (100.0, 214.0)] {
            assert!((link.sending_s(tokens) - sending).abs() < 1e-12);
            let seconds = if tokens > 0.0 { sending + 0.5 } else { 0.0 };
            assert!((link.seconds(tokens) - seconds).abs() < 1e-12);
        }
    }
}
