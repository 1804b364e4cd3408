//! Policies that place a key: by rendezvous hashing over the replicas' names, within bounds on their loads.

use std::borrow::Cow;

use super::{Case, Failure, Key, Pick};
use crate::draws;

/// What becomes of a key whose first choice is busy.
#[derive(Clone, Copy, Debug)]
pub enum Overflow {
    /// Nothing: it stays.
    Never,
    /// The first choice with room takes it: each has room for up to this factor of the mean load.
    Bounded {
        /// The factor.
        factor: f64,
        /// A starving replica comes before others with room.
        rescue: bool,
    },
    /// The least loaded replica takes it, if the load of the first choice is above this factor of the mean and this gap above it.
    Least {
        /// The factor.
        factor: f64,
        /// The gap.
        gap: f64,
    },
}

/// Draw that breaks ties of the least loaded.
const LEAST: u64 = 2;

/// The first choice of a key, unless that is too busy; none if the request has no key.
pub(super) fn hashed(case: &Case<'_>, key: Key, overflow: Overflow) -> Result<Pick<'static>, Failure> {
    let Some(key) = case.seen.key(key)? else { return Ok((None, "no_key")) };
    let ranking = Ranking::of(case, key)?;
    let (home, loads) = (ranking.first(|_| true)?, case.loads);
    let (count, total) = (loads.len() as f64, loads.iter().sum::<f64>());
    match overflow {
        Overflow::Least { factor, gap } => {
            let mean = total / count;
            if loads[home] > factor * mean && loads[home] > mean + gap {
                return Ok((Some(case.least(LEAST)?), "overflow"));
            }
        }
        Overflow::Bounded { factor, rescue } => {
            let bound = (factor * (total + 1.0) / count).ceil();
            if loads[home] + 1.0 > bound {
                let starving = whole_quotient(total, count * factor);
                if rescue && loads.iter().any(|&load| load < starving) {
                    return Ok((Some(ranking.first(|at| loads[at] < starving)?), "overflow_starving"));
                }
                if loads.iter().any(|&load| load <= bound - 1.0) {
                    return Ok((Some(ranking.first(|at| loads[at] <= bound - 1.0)?), "overflow"));
                }
                return Ok((Some(case.least(LEAST)?), "full"));
            }
        }
        Overflow::Never => {}
    }
    Ok((Some(home), "hashed"))
}

/// The less loaded of a session's two first choices; of two drawn candidates without a session.
pub(super) fn two_choices(case: &Case<'_>) -> Result<Pick<'static>, Failure> {
    let Some(key) = case.seen.key(Key::Session)? else {
        return Ok((Some(case.less_loaded_of_two(0)?), "power_of_two"));
    };
    let ranking = Ranking::of(case, key)?;
    let first = ranking.first(|_| true)?;
    if case.loads.len() == 1 {
        return Ok((Some(first), "two_choices"));
    }
    let second = ranking.first(|at| at != first)?;
    Ok((Some(if case.loads[second] < case.loads[first] { second } else { first }), "two_choices"))
}

/// Where a session stays or goes.
pub(super) fn session(case: &Case<'_>, by_key: bool) -> Result<Pick<'static>, Failure> {
    if !case.in_session {
        return Ok((None, "no_session"));
    }
    if let Some(home) = case.home() {
        return Ok((Some(home), "primary"));
    }
    let reason = match case.binding {
        None => "assigned",
        Some(slot) if slot < 0 => "rebound",
        Some(_) => "detour",
    };
    match case.seen.key(Key::Session)? {
        Some(key) if by_key => Ok((Some(Ranking::of(case, key)?.first(|_| true)?), reason)),
        _ => Ok((None, reason)),
    }
}

/// The order of the candidates for a key.
struct Ranking<'a> {
    key: u64,
    names: Cow<'a, [u64]>,
    weights: Option<Cow<'a, [f64]>>,
}

impl<'a> Ranking<'a> {
    fn of(case: &Case<'a>, key: u64) -> Result<Self, Failure> {
        Ok(Self { key, names: case.seen.names()?, weights: case.seen.weights()? })
    }

    /// The first of those that may be.
    fn first(&self, may_be: impl Fn(usize) -> bool) -> Result<usize, Failure> {
        let candidates = self.names.iter().copied().enumerate().filter(|&(at, _)| may_be(at)).map(Ok);
        let weights = self.weights.as_ref().map(|weights| |at: usize| Ok(weights[at]));
        draws::first_choice(self.key, candidates, weights)?.ok_or(Failure::Incomparable)
    }
}

/// The largest whole number that is at most a quotient of numbers above 0, exact where the quotient itself is rounded up to it.
fn whole_quotient(dividend: f64, divisor: f64) -> f64 {
    let quotient = (dividend - dividend % divisor) / divisor;
    let whole = quotient.floor();
    if quotient - whole > 0.5 { whole + 1.0 } else { whole }
}
