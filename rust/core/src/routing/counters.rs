//! Counters: what a router has done since it was made.

/// Upper bounds of the histogram of decision times, in seconds.
pub const DURATIONS_S: [f64; 10] = [5e-6, 1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 5e-3, 2.5e-2];
/// Reasons that are told apart: what a policy of the host's own says is bounded.
pub const MAX_REASONS: usize = 64;
/// Characters of a reason that are kept.
pub const MAX_REASON_CHARS: usize = 64;
/// The label of all further reasons.
pub const OTHER_REASON: &str = "other";

/// What becomes of attempts, and calls that come too late or name nobody. The discriminant is the place of its count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Outcome {
    /// In flight.
    Committed,
    /// Complete.
    Finished,
    /// Given up by its host.
    Aborted,
    /// Given up for another attempt.
    Retried,
    /// Another attempt has answered first.
    HedgeLost,
    /// Another request took its key.
    Rebooked,
    /// Its ticket was dropped.
    Dropped,
    /// Without progress for too long.
    Expired,
    /// A first attempt without a session.
    Keyless,
    /// A first token of an attempt that had ended.
    FirstTokenLate,
    /// An end of an attempt that had ended.
    FinishLate,
    /// A failure of an attempt that had ended.
    AbortLate,
    /// A first token of a key that is not in flight.
    FirstTokenUnknown,
    /// An end of a key that is not in flight.
    FinishUnknown,
    /// A failure of a key that is not in flight.
    AbortUnknown,
    /// The half of a pair that computed the prompt is done: the other half has the request.
    HandedOver,
}

impl Outcome {
    /// All, with the words that count them.
    pub const ALL: [(Outcome, &'static str); 16] = [
        (Outcome::Committed, "committed"),
        (Outcome::Finished, "finished"),
        (Outcome::Aborted, "aborted"),
        (Outcome::Retried, "retried"),
        (Outcome::HedgeLost, "hedge_lost"),
        (Outcome::Rebooked, "rebooked"),
        (Outcome::Dropped, "dropped"),
        (Outcome::Expired, "expired"),
        (Outcome::Keyless, "keyless"),
        (Outcome::FirstTokenLate, "first_token_late"),
        (Outcome::FinishLate, "finish_late"),
        (Outcome::AbortLate, "abort_late"),
        (Outcome::FirstTokenUnknown, "first_token_unknown"),
        (Outcome::FinishUnknown, "finish_unknown"),
        (Outcome::AbortUnknown, "abort_unknown"),
        (Outcome::HandedOver, "handed_over"),
    ];

    /// The outcome that these words count.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(_, word)| *word == name).map(|(outcome, _)| *outcome)
    }

    /// The words that count it.
    pub fn name(self) -> &'static str {
        Self::ALL[self as usize].1
    }

    /// Whether this end of an attempt is no end of its request: what follows the request goes on.
    pub fn continues(self) -> bool {
        matches!(self, Outcome::Retried | Outcome::HedgeLost | Outcome::HandedOver)
    }
}

/// Totals.
#[derive(Debug, Default)]
pub struct Counters {
    /// By [`Outcome`].
    pub outcomes: [u64; Outcome::ALL.len()],
    /// Prompt tokens of requests.
    pub prompt_tokens: i64,
    /// The most that any candidate, or the replica that was taken, held of each request.
    pub best_hit_tokens: i64,
    /// Whether it is one for who decodes, and the word.
    reasons: Vec<(bool, Box<str>)>,
    /// Decisions by slot and reason.
    decisions: Vec<Vec<u64>>,
    /// Hit tokens by slot and medium, fastest first.
    hit_tokens: Vec<[i64; 3]>,
    /// The same of replicas that have left.
    left: (Vec<u64>, [i64; 3]),
    /// Decisions by the time that they took, see [`DURATIONS_S`].
    pub durations: [u64; DURATIONS_S.len() + 1],
    /// Seconds of all decisions.
    pub seconds: f64,
}

impl Counters {
    /// Have at least so many slots.
    pub fn grow(&mut self, slots: usize) {
        let slots = slots.max(self.decisions.len());
        self.decisions.resize(slots, Vec::new());
        self.hit_tokens.resize(slots, [0; 3]);
    }

    /// Count what has happened.
    pub fn count(&mut self, what: Outcome) {
        self.outcomes[what as usize] += 1;
    }

    /// Count a decision that is booked, with the reason for it. `decodes`: it was one on the decode half of a pair.
    pub fn decide(&mut self, slot: usize, decodes: bool, reason: &str) {
        let number = self.reason(decodes, reason);
        let counts = &mut self.decisions[slot];
        if counts.len() <= number {
            counts.resize(number + 1, 0);
        }
        counts[number] += 1;
    }

    /// The number of a reason, of which there are few.
    fn reason(&mut self, decodes: bool, reason: &str) -> usize {
        let kept = reason.char_indices().nth(MAX_REASON_CHARS).map_or(reason, |(end, _)| &reason[..end]);
        if let Some(number) = self.known_reason(decodes, kept) {
            return number;
        }
        let kept = if self.reasons.len() < MAX_REASONS { kept } else { OTHER_REASON };
        self.known_reason(decodes, kept).unwrap_or_else(|| {
            self.reasons.push((decodes, kept.into()));
            self.reasons.len() - 1
        })
    }

    fn known_reason(&self, decodes: bool, reason: &str) -> Option<usize> {
        self.reasons.iter().position(|known| known.0 == decodes && *known.1 == *reason)
    }

    /// Count hit tokens by medium.
    pub fn hit(&mut self, slot: usize, tokens: [i64; 3]) {
        add(&mut self.hit_tokens[slot], &tokens);
    }

    /// A replica has left a slot: its counts go to those of all that have left.
    pub fn retire(&mut self, slot: usize) {
        let decisions = std::mem::take(&mut self.decisions[slot]);
        if self.left.0.len() < decisions.len() {
            self.left.0.resize(decisions.len(), 0);
        }
        self.left.0.iter_mut().zip(decisions).for_each(|(total, count)| *total += count);
        let tokens = std::mem::take(&mut self.hit_tokens[slot]);
        add(&mut self.left.1, &tokens);
    }

    /// Count a decision's time.
    pub fn time(&mut self, seconds: f64) {
        self.seconds += seconds;
        self.durations[DURATIONS_S.partition_point(|bound| *bound < seconds)] += 1;
    }

    /// Decisions by slot and reason, with whether they were on who decodes; `None` for replicas that have left.
    pub fn decisions(&self) -> Vec<(Option<usize>, bool, &str, u64)> {
        let slots = self.decisions.iter().enumerate().map(|(slot, counts)| (Some(slot), counts));
        let all = slots.chain([(None, &self.left.0)]).flat_map(|(slot, counts)| {
            self.reasons.iter().zip(counts).map(move |((decodes, reason), &count)| (slot, *decodes, &**reason, count))
        });
        all.filter(|(_, _, _, count)| *count > 0).collect()
    }

    /// Hit tokens by slot and medium, and of replicas that have left.
    pub fn hit_tokens(&self) -> (&[[i64; 3]], [i64; 3]) {
        (&self.hit_tokens, self.left.1)
    }
}

fn add(totals: &mut [i64; 3], tokens: &[i64; 3]) {
    totals.iter_mut().zip(tokens).for_each(|(total, tokens)| *total += tokens);
}
