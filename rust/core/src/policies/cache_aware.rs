//! `cache-aware`: follow the longest match; leave it when its holder is much busier than another replica.

use super::{Case, Failure, Pick};
use crate::columns;

/// Requests that loads differ by at least without meaning anything, whatever their mean (SMG 1.13).
const LEAST_SWING: f64 = 4.0;
/// Draws of the two holders of which the less loaded stays, and of what is left to chance after that.
const DRAWN: [u64; 2] = [2, 3];
const SPILLED: u64 = 4;
/// Why a closed gate leaves the decision to another policy.
pub(super) const GATED: &str = "imbalanced";

/// What the load of a holder is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spill {
    /// The least of all.
    Least,
    /// That of a power-of-two pick among the others.
    Candidate,
    /// The mean.
    Mean,
    /// The mean, with a gap of at most two standard deviations of a count with that mean.
    Swing,
    /// The mean plus standard deviations.
    Spread,
    /// Nothing.
    Never,
}

impl Spill {
    /// All of them, by name.
    pub const ALL: [(&'static str, Self); 6] = [
        ("least", Self::Least),
        ("candidate", Self::Candidate),
        ("mean", Self::Mean),
        ("swing", Self::Swing),
        ("spread", Self::Spread),
        ("never", Self::Never),
    ];
}

/// Which of several holders of the longest match is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holders {
    /// The less loaded of two draws.
    Two,
    /// The least loaded.
    Least,
    /// One draw.
    One,
}

impl Holders {
    /// All of them, by name.
    pub const ALL: [(&'static str, Self); 3] = [("two", Self::Two), ("least", Self::Least), ("one", Self::One)];
}

/// The parameters, as Python's `CacheAware` describes them.
#[derive(Clone, Debug, PartialEq)]
pub struct CacheAware {
    /// A shorter match may be a common head.
    pub min_match_tokens: f64,
    /// Nor is one of at most this share of the prompt.
    pub min_match_ratio: f64,
    /// What the holder is compared with.
    pub spill: Spill,
    /// Multiple of the other load.
    pub spill_ratio: f64,
    /// Difference to the other load.
    pub spill_gap: f64,
    /// Before leaving, holders of shorter matches are tried.
    pub shorter: bool,
    /// Which of several holders is followed.
    pub holders: Holders,
    /// A gate on the whole fleet: the most loaded has more than so many times the least ...
    pub gate_ratio: f64,
    /// ... and more than it by so much.
    pub gate_gap: f64,
    /// Common heads are learned, and sessions stay at their replicas.
    pub adaptive: bool,
}

impl CacheAware {
    /// The holder to follow, or the candidate to spill to; none if there is no match and no home, or the gate is closed.
    pub(super) fn decide(&self, case: &Case<'_>) -> Result<Pick<'static>, Failure> {
        let (loads, low) = (case.loads, case.low()?);
        if self.gate_gap < f64::INFINITY {
            let high = loads.iter().copied().fold(low, f64::max);
            if high - low > self.gate_gap && high > self.gate_ratio * low {
                return Ok((None, GATED));
            }
        }
        let (Some(at), reason) = self.holder(case)? else { return Ok((None, "no_match")) };
        let bound = match self.spill {
            Spill::Never => return Ok((Some(at), reason)),
            _ if loads[at] <= low => return Ok((Some(at), reason)),
            Spill::Candidate => return self.beside_another(case, at, reason),
            Spill::Least => self.bound(low),
            Spill::Mean | Spill::Swing | Spill::Spread => self.limit(loads),
        };
        if loads[at] <= bound {
            return Ok((Some(at), reason));
        }
        match if reason == "match" { self.next(case, bound)? } else { None } {
            Some(at) => Ok((Some(at), "match")),
            None => Ok((Some(case.least(SPILLED)?), "spill")),
        }
    }

    /// The candidate to stay at, and why.
    fn holder(&self, case: &Case<'_>) -> Result<Pick<'static>, Failure> {
        let hits = case.hits;
        let (first, count) = longest(hits)?;
        let home = case.home().filter(|_| self.adaptive);
        if !self.is_match(case, hits[first], count) {
            return Ok((home, "bound"));
        }
        if let Some(at) = home.filter(|&at| hits[at] == hits[first]) {
            return Ok((Some(at), "match"));
        }
        if count == 1 {
            return Ok((Some(first), "match"));
        }
        Ok((Some(self.one_of(case, hits[first], count)?), "match"))
    }

    /// The holder that is followed, of `count` with a match of `best` tokens.
    fn one_of(&self, case: &Case<'_>, best: u32, count: usize) -> Result<usize, Failure> {
        let (hits, loads) = (case.hits, case.loads);
        if self.holders == Holders::Least {
            let holders: Vec<usize> = (0..hits.len()).filter(|&at| hits[at] == best).collect();
            return case.least_of(&holders, DRAWN[0]);
        }
        let [one, other] = DRAWN.map(|k| {
            let drawn = case.one_of(count, k);
            if count == hits.len() { Some(drawn) } else { nth_hit(hits, best, drawn) }
        });
        let (one, other) = (one.ok_or(Failure::Incomparable)?, other.ok_or(Failure::Incomparable)?);
        Ok(if self.holders == Holders::Two && loads[other] < loads[one] { other } else { one })
    }

    /// Whether a longest match of `best` tokens at `count` candidates is one to follow.
    fn is_match(&self, case: &Case<'_>, best: u32, count: usize) -> bool {
        let tokens = f64::from(best);
        if best == 0 || (self.min_match_ratio > 0.0 && tokens <= self.min_match_ratio * case.prompt_tokens) {
            return false;
        }
        if !self.adaptive {
            return tokens >= self.min_match_tokens;
        }
        let (shared, replicas) = (case.shared.unwrap_or(0.0), case.loads.len());
        if shared > 0.0 && (count as f64) < (shared * replicas as f64).round_ties_even() {
            return false;
        }
        let is_first = case.binding.is_none() && case.in_session;
        tokens >= self.min_match_tokens || !(shared > 0.0 || 2 * count > replicas || is_first)
    }

    /// The holder, or a power-of-two pick among the others if the holder is too busy beside that.
    fn beside_another(&self, case: &Case<'_>, at: usize, reason: &'static str) -> Result<Pick<'static>, Failure> {
        let (one, other) = case.two_of(case.loads.len() - 1, SPILLED)?;
        let beyond = |drawn: usize| drawn + usize::from(drawn >= at); // the holder is left out
        let (one, other) = (beyond(one), beyond(other));
        let other = if case.loads[other] < case.loads[one] { other } else { one };
        let busy = case.loads[at] > self.bound(case.loads[other]);
        Ok(if busy { (Some(other), "spill") } else { (Some(at), reason) })
    }

    /// The load up to which a holder is kept beside another load.
    fn bound(&self, other: f64) -> f64 {
        (self.spill_ratio * other).max(other + self.spill_gap)
    }

    /// The load up to which a holder is kept in a fleet with these loads.
    fn limit(&self, loads: &[f64]) -> f64 {
        let (count, total) = (loads.len() as f64, loads.iter().sum::<f64>());
        if self.spill == Spill::Spread {
            let squares: f64 = loads.iter().map(|load| load * load).sum();
            // count standard deviations; exact for whole loads
            let spread = (count * squares - total * total).max(0.0).sqrt();
            return (total + self.spill_ratio * spread) / count;
        }
        let mean = total / count;
        let swing = if self.spill == Spill::Mean { f64::INFINITY } else { (2.0 * mean.sqrt()).ceil().max(LEAST_SWING) };
        (self.spill_ratio * mean).max(mean + self.spill_gap.min(swing))
    }

    /// Another holder that is not over the bound, of the longest match first.
    fn next(&self, case: &Case<'_>, bound: f64) -> Result<Option<usize>, Failure> {
        let (first, count) = longest(case.hits)?;
        if !self.shorter && count == 1 {
            return Ok(None);
        }
        let floor = if self.shorter { self.min_match_tokens.max(1.0) } else { f64::from(case.hits[first]) };
        let (mut best, mut holders) = ((0, f64::INFINITY), Vec::new());
        for (at, (&hit, &load)) in case.hits.iter().zip(case.loads).enumerate() {
            if f64::from(hit) < floor || load > bound {
                continue;
            }
            if holders.is_empty() || hit > best.0 || (hit == best.0 && load < best.1) {
                (best, holders) = ((hit, load), vec![at]);
            } else if (hit, load) == best {
                holders.push(at);
            }
        }
        Ok((!holders.is_empty()).then(|| holders[case.one_of(holders.len(), SPILLED)]))
    }
}

/// Where the first of the longest matches is, and how many are equal to it.
fn longest(hits: &[u32]) -> Result<(usize, usize), Failure> {
    columns::best(hits.len(), |at| Some(hits[at]), |one, other| one > other).ok_or(Failure::Incomparable)
}

fn nth_hit(hits: &[u32], wanted: u32, earlier: usize) -> Option<usize> {
    columns::nth(hits.len(), |at| Some(hits[at]), &wanted, earlier)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PLAIN: CacheAware = CacheAware {
        min_match_tokens: 1_024.0,
        min_match_ratio: 0.0,
        spill: Spill::Spread,
        spill_ratio: 2.0,
        spill_gap: 10.0,
        shorter: false,
        holders: Holders::Two,
        gate_ratio: 0.0,
        gate_gap: f64::INFINITY,
        adaptive: true,
    };

    #[test]
    fn a_load_at_two_standard_deviations_is_kept() {
        for load in [1.0, 7.0, 100.0, 12_345.0] {
            assert_eq!(PLAIN.limit(&[0.0, 0.0, load, 0.0, 0.0]).to_bits(), f64::to_bits(load));
        }
    }

    proptest! {
        #[test]
        fn the_spread_is_the_standard_deviation(loads in proptest::collection::vec(0.0..1_000.0, 1..70), ratio in 0.0..4.0) {
            let count = loads.len() as f64;
            let mean = loads.iter().sum::<f64>() / count;
            let variance = loads.iter().map(|load| (load - mean).powi(2)).sum::<f64>() / count;
            let limit = CacheAware { spill_ratio: ratio, ..PLAIN }.limit(&loads);
            prop_assert!((limit - (mean + ratio * variance.sqrt())).abs() < 1e-4);
        }
    }
}
