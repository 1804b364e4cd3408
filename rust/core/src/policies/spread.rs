//! Policies that look at loads only: the least loaded, and the less loaded of two.

use super::{Case, Failure, Figure, Pick};
use crate::columns;
use crate::routing::Signal;

/// Weight of k/(1-k), k the share of the KV cache in use, in the seconds estimate (SMG's `least_load`).
const KV_WEIGHT: f64 = 0.15;
/// Prefill throughput of a replica that reports none (SMG's `least_load`).
pub const ASSUMED_TOKENS_PER_S: f64 = 2_000.0;
/// Tokens that a waiting request stands for when no token count is reported (SMG's `least_load`).
const MEAN_PREFILL_TOKENS: f64 = 1_024.0;
/// The largest share in use that the estimate tells from others.
const MOST_KV_USE: f64 = 0.999;

/// What the least loaded replica is found by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// The balanced load.
    Load,
    /// A signal.
    Of(Signal),
    /// The reported share of the KV cache in use.
    KvUse,
    /// Seconds until a new request would start.
    Seconds,
}

impl Measure {
    /// All of them, by name.
    pub const ALL: [(&'static str, Self); 6] = [
        ("load", Self::Load),
        ("requests", Self::Of(Signal::InFlight)),
        ("uncached-tokens", Self::Of(Signal::Queued)),
        ("kv-use", Self::KvUse),
        ("held-tokens", Self::Of(Signal::Held)),
        ("seconds", Self::Seconds),
    ];

    /// The measure at each candidate; none if it is not known of every one.
    fn column(self, case: &Case<'_>) -> Result<Option<Vec<f64>>, Failure> {
        let each = 0..case.loads.len();
        match self {
            Self::Load => Ok(None),
            Self::Of(signal) => Ok(Some(case.seen.column(signal)?.into_owned())),
            Self::KvUse => each.map(|at| case.seen.reported(at, Figure::KvUse)).collect(),
            Self::Seconds => {
                let queued = case.seen.column(Signal::Queued)?;
                each.map(|at| {
                    let figure = |figure| case.seen.reported(at, figure);
                    Ok(start_seconds(
                        [figure(Figure::WaitingTokens)?, figure(Figure::Waiting)?],
                        figure(Figure::KvUse)?,
                        figure(Figure::TokensPerS)?,
                        queued[at],
                    ))
                })
                .collect()
            }
        }
    }
}

/// Seconds until a new request would start at a replica that reports waiting tokens or requests, its cache's use and its speed:
/// SMG's `least_load` estimate. None if too little is reported. `queued`: what this router has waiting there.
pub fn start_seconds(
    [tokens, requests]: [Option<f64>; 2],
    kv_use: Option<f64>,
    tokens_per_s: Option<f64>,
    queued: f64,
) -> Option<f64> {
    let waiting = tokens.or_else(|| requests.map(|requests| requests * MEAN_PREFILL_TOKENS))?;
    let used = kv_use?.min(MOST_KV_USE);
    let speed = tokens_per_s.filter(|&speed| speed != 0.0).unwrap_or(ASSUMED_TOKENS_PER_S);
    Some(waiting.max(queued) / speed + KV_WEIGHT * used / (1.0 - used))
}

/// The candidate where a measure is smallest; those that it cannot tell apart are told apart by load, then drawn.
pub(super) fn least(case: &Case<'_>, by: Measure) -> Result<Pick<'static>, Failure> {
    if by == Measure::Load {
        return Ok((Some(case.least(0)?), "least"));
    }
    let Some(values) = by.column(case)? else { return Ok((Some(case.least(0)?), "unreported")) };
    let value = |at: usize| Some(values[at]);
    let (first, count) = columns::best(values.len(), value, |one, other| one < other).ok_or(Failure::Incomparable)?;
    if count == 1 {
        return Ok((Some(first), "least"));
    }
    let equal: Vec<usize> = (0..values.len()).filter(|&at| values[at] <= values[first]).collect();
    Ok((Some(case.least_of(&equal, 0)?), "least"))
}

/// The better of two drawn candidates, as `SGLang`'s router ranks them: by waiting tokens, waiting and running requests as
/// reported and own requests in flight, in this order. Reports count only if every candidate has one.
pub(super) fn ranked_of_two(case: &Case<'_>) -> Result<usize, Failure> {
    let (one, other) = case.two_of(case.loads.len(), 0)?;
    let in_flight = case.seen.column(Signal::InFlight)?;
    let reported = case.seen.reporting()? == case.loads.len();
    let rank = |at: usize| {
        let mut rank = [f64::INFINITY, f64::INFINITY, f64::INFINITY, in_flight[at]];
        if reported {
            let figures = [Figure::WaitingTokens, Figure::Waiting, Figure::Running];
            for (place, figure) in figures.into_iter().enumerate() {
                rank[place] = case.seen.reported(at, figure)?.unwrap_or(f64::INFINITY);
            }
        }
        Ok(rank)
    };
    Ok(if rank(other)? < rank(one)? { other } else { one })
}
