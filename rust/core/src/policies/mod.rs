//! Policies as functions of plain columns: those that decide most requests.
//!
//! A kernel is pure, as every policy is: chance is [`draws::draw`] of the seed and the number of the decision.

mod cache_aware;

pub use cache_aware::{CacheAware, Holders, Spill};

use crate::columns;
use crate::draws;

/// What a kernel decides on: of each candidate, in the order of their slots, its hit and its load.
#[derive(Clone, Copy, Debug)]
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
}

/// A candidate's position, and why. `None`: there is nothing to go by, and why; another policy has to decide.
pub type Pick = (Option<usize>, &'static str);

/// There is no best of nothing, nor of what is not a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Incomparable;

impl Case<'_> {
    /// The slot at a position among the candidates.
    pub fn slot(&self, at: usize) -> usize {
        self.slots.map_or(at, |slots| slots[at])
    }

    /// The position of the session's slot among the candidates.
    fn home(&self) -> Option<usize> {
        let slot = usize::try_from(self.binding?).ok()?;
        match self.slots {
            None => (slot < self.loads.len()).then_some(slot),
            Some(slots) => slots.binary_search(&slot).ok(),
        }
    }

    /// One of `count` things by the `k`-th draw of the decision.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "below count, which is a length")]
    fn one_of(&self, count: usize, k: u64) -> usize {
        (draws::draw(self.seed, self.decision_id, k) * count as f64) as usize
    }

    /// The least of the loads.
    fn low(&self) -> Result<f64, Incomparable> {
        Ok(self.loads[self.lowest()?.0])
    }

    /// Where the first of the least loads is, and how many are equal to it.
    fn lowest(&self) -> Result<(usize, usize), Incomparable> {
        let load = |at: usize| Some(self.loads[at]);
        columns::best(self.loads.len(), load, |one, other| one < other).ok_or(Incomparable)
    }

    /// The least loaded candidate; draw `k` breaks a tie.
    fn least(&self, k: u64) -> Result<usize, Incomparable> {
        let (first, count) = self.lowest()?;
        if count == 1 {
            return Ok(first);
        }
        let load = |at: usize| Some(self.loads[at]);
        columns::nth(self.loads.len(), load, &self.loads[first], self.one_of(count, k)).ok_or(Incomparable)
    }

    /// The less loaded of two distinct candidates drawn by `k` and `k + 1`; a tie keeps the first drawn.
    fn less_loaded_of_two(&self, candidates: &[usize], k: u64) -> usize {
        let count = candidates.len();
        if count == 1 {
            return candidates[0];
        }
        let first = self.one_of(count, k);
        let second = self.one_of(count - 1, k + 1);
        let (first, second) = (candidates[first], candidates[second + usize::from(second >= first)]);
        if self.loads[second] < self.loads[first] { second } else { first }
    }
}

/// A policy.
#[derive(Clone, Debug, PartialEq)]
pub enum Kernel {
    /// Draw one.
    Random,
    /// Take turns.
    RoundRobin,
    /// Take the least loaded; ties are drawn.
    LeastLoaded,
    /// Stay where the session is bound.
    Session,
    /// Follow the longest match, and spill when its holder is too busy.
    CacheAware(CacheAware),
}

impl Kernel {
    /// The pick.
    ///
    /// # Errors
    /// There is no candidate, or a load is NaN.
    pub fn decide(&self, case: &Case<'_>) -> Result<Pick, Incomparable> {
        match self {
            Self::Random if case.loads.is_empty() => Err(Incomparable),
            Self::Random => Ok((Some(case.one_of(case.loads.len(), 0)), "drawn")),
            Self::RoundRobin => Ok((Some(case.turn), "turn")),
            Self::LeastLoaded => Ok((Some(case.least(0)?), "least")),
            Self::Session => Ok((case.home().filter(|_| case.in_session), "primary")),
            Self::CacheAware(policy) => policy.decide(case),
        }
    }
}
