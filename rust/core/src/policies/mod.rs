//! Policies as functions of plain columns.
//!
//! A kernel is pure, as every policy is: chance is [`draws::draw`] of the seed and the number of the decision.

mod best;
mod cache_aware;
mod formula;
mod keyed;
mod seen;
mod spread;

pub use best::{Best, Stage, best_of, tied};
pub use cache_aware::{CacheAware, Holders, Spill};
pub use formula::{Formula, Plain, Price, Priced, Sum};
pub use keyed::Overflow;
pub use seen::{Failure, Figure, Key, Seen};
pub use spread::{ASSUMED_TOKENS_PER_S, Measure, start_seconds};

use std::sync::Arc;

use crate::columns;
use crate::draws;

/// What a kernel decides on: of each candidate, in the order of their slots, its hit and its load.
#[derive(Clone, Copy)]
pub struct Case<'a> {
    /// The router's seed.
    pub seed: u64,
    /// Number of the decision.
    pub decision_id: u64,
    /// Whose turn it is: the sum of both, modulo the number of candidates.
    pub turn: usize,
    /// Length of the prompt.
    pub prompt_tokens: f64,
    /// Whether the request has a session.
    pub in_session: bool,
    /// Slot that the session is bound to; negative = bound, but it has to move; `None` = not bound.
    pub binding: Option<i64>,
    /// Share of the last beginnings that branched where the prompt does; `None` = it ends there.
    pub shared: Option<f64>,
    /// The candidates' slots, ascending; `None` = every slot is one.
    pub slots: Option<&'a [usize]>,
    /// Leading prompt tokens that each candidate is believed to hold.
    pub hits: &'a [u32],
    /// Load of each candidate.
    pub loads: &'a [f64],
    /// The rest, for those that ask.
    pub seen: &'a dyn Seen,
}

/// A candidate's position, and why. `None`: there is nothing to go by, and why; another policy has to decide.
pub type Pick<'a> = (Option<usize>, &'a str);

impl Case<'_> {
    /// The slot at a position among the candidates.
    pub fn slot(&self, at: usize) -> usize {
        self.slots.map_or(at, |slots| slots[at])
    }

    /// The position of a slot among the candidates.
    fn position(&self, slot: usize) -> Option<usize> {
        match self.slots {
            None => (slot < self.loads.len()).then_some(slot),
            Some(slots) => slots.binary_search(&slot).ok(),
        }
    }

    /// The position of the session's slot among the candidates.
    fn home(&self) -> Option<usize> {
        self.position(usize::try_from(self.binding?).ok()?)
    }

    /// The longest of the hits.
    fn best_hit(&self) -> u32 {
        self.hits.iter().copied().max().unwrap_or(0)
    }

    /// One of `count` things by the `k`-th draw of the decision.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "below count, which is a length")]
    fn one_of(&self, count: usize, k: u64) -> usize {
        (draws::draw(self.seed, self.decision_id, k) * count as f64) as usize
    }

    /// The least of the loads.
    fn low(&self) -> Result<f64, Failure> {
        Ok(self.loads[self.lowest()?.0])
    }

    /// Where the first of the least loads is, and how many are equal to it.
    fn lowest(&self) -> Result<(usize, usize), Failure> {
        let load = |at: usize| Some(self.loads[at]);
        columns::best(self.loads.len(), load, |one, other| one < other).ok_or(Failure::Incomparable)
    }

    /// The least loaded candidate; draw `k` breaks a tie.
    fn least(&self, k: u64) -> Result<usize, Failure> {
        let (first, count) = self.lowest()?;
        if count == 1 {
            return Ok(first);
        }
        let load = |at: usize| Some(self.loads[at]);
        columns::nth(self.loads.len(), load, &self.loads[first], self.one_of(count, k)).ok_or(Failure::Incomparable)
    }

    /// The least loaded of some candidates; draw `k` breaks a tie.
    fn least_of(&self, some: &[usize], k: u64) -> Result<usize, Failure> {
        let load = |at: usize| Some(self.loads[some[at]]);
        let (first, equal) = columns::best(some.len(), load, |one, other| one < other).ok_or(Failure::Incomparable)?;
        let at = if equal == 1 {
            Some(first)
        } else {
            columns::nth(some.len(), load, &self.loads[some[first]], self.one_of(equal, k))
        };
        at.map(|at| some[at]).ok_or(Failure::Incomparable)
    }

    /// Two distinct ones of `count` things, drawn by `k` and `k + 1`; the same twice if there is one only.
    fn two_of(&self, count: usize, k: u64) -> Result<(usize, usize), Failure> {
        match count {
            0 => Err(Failure::Incomparable),
            1 => Ok((0, 0)),
            _ => {
                let (first, second) = (self.one_of(count, k), self.one_of(count - 1, k + 1));
                Ok((first, second + usize::from(second >= first)))
            }
        }
    }

    /// The less loaded of two distinct candidates drawn by `k` and `k + 1`; a tie keeps the first drawn.
    fn less_loaded_of_two(&self, k: u64) -> Result<usize, Failure> {
        let (first, second) = self.two_of(self.loads.len(), k)?;
        Ok(if self.loads[second] < self.loads[first] { second } else { first })
    }
}

/// A rule that decides, or leaves it to another policy.
#[derive(Clone, Debug)]
pub enum Rule {
    /// Draw one.
    Random,
    /// Take turns.
    RoundRobin,
    /// Take the one where a measure is least; ties are told apart by load, then drawn.
    Least(Measure),
    /// Draw two and take the less loaded.
    TwoDrawn,
    /// Draw two and take the one that ranks first by its report.
    TwoRanked,
    /// Take the less loaded of a session's two first choices.
    TwoChoices,
    /// Stay where the session is bound; a new one goes by its key, or as another policy says.
    Session {
        /// Whether it goes by its key.
        by_key: bool,
    },
    /// Take a key's first choice.
    Hashed(Key, Overflow),
    /// Follow the longest match, and spill when its holder is too busy.
    CacheAware(CacheAware),
    /// Take the highest score.
    Best(Best),
}

impl Rule {
    fn decide(&self, case: &Case<'_>) -> Result<Pick<'_>, Failure> {
        match self {
            Self::Random if case.loads.is_empty() => Err(Failure::Incomparable),
            Self::Random => Ok((Some(case.one_of(case.loads.len(), 0)), "drawn")),
            Self::RoundRobin => Ok((Some(case.turn), "turn")),
            Self::Least(by) => spread::least(case, *by),
            Self::TwoDrawn => Ok((Some(case.less_loaded_of_two(0)?), "power_of_two")),
            Self::TwoRanked => Ok((Some(spread::ranked_of_two(case)?), "power_of_two")),
            Self::TwoChoices => keyed::two_choices(case),
            Self::Session { by_key } => keyed::session(case, *by_key),
            Self::Hashed(key, overflow) => keyed::hashed(case, *key, *overflow),
            Self::CacheAware(policy) => policy.decide(case),
            Self::Best(best) => best.decide(case),
        }
    }
}

/// A policy: a rule, and what decides in its place.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// The rule.
    pub rule: Rule,
    /// Decides where the rule has nothing to go by.
    pub fallback: Option<Arc<Kernel>>,
    /// Decides where the loads of the fleet are too uneven for the rule.
    pub gated: Option<Arc<Kernel>>,
}

impl Kernel {
    /// The pick. None: what has to decide is no kernel.
    ///
    /// # Errors
    /// There is no candidate, a load is NaN, or what is asked about the request fails.
    pub fn decide(&self, case: &Case<'_>) -> Result<Pick<'_>, Failure> {
        let (at, why) = self.rule.decide(case)?;
        let other = if why == cache_aware::GATED { &self.gated } else { &self.fallback };
        match (at, other) {
            (None, Some(other)) => Ok((other.decide(case)?.0, why)),
            _ => Ok((at, why)),
        }
    }
}
