//! Formulas: one number per candidate, worked out from the columns of a view. Costs and scores of policies are formulas.

use std::borrow::Cow;
use std::fmt::Debug;
use std::sync::Arc;

use super::{Case, Failure, Figure};
use crate::columns;
use crate::routing::Signal;
use crate::sim::Link;

/// Tokens of which a match counts a half in [`Plain::Saved`].
const HALF_SAVED: f64 = 1_024.0;
/// Tokens from which on a match counts in full in [`Plain::Length`].
const LONG_MATCH: f64 = 8_192.0;

type Column<'a> = Result<Cow<'a, [f64]>, Failure>;

/// Seconds that some work takes at a replica.
pub trait Price: Debug + Send + Sync {
    /// Seconds to compute new tokens of a prompt behind cached ones.
    ///
    /// # Errors
    ///
    /// The model of the engine has failed.
    fn prefill_seconds(&self, new: f64, cached: f64) -> Result<f64, Failure>;
    /// Seconds of a decode step once a prompt has joined these requests, which hold so many tokens all together: one number
    /// for each replica, in place of its requests.
    ///
    /// # Errors
    ///
    /// As [`Self::prefill_seconds`].
    fn join(&self, prompt: f64, requests: &mut [f64], contexts: &[f64]) -> Result<(), Failure>;
}

/// A column that takes no parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plain {
    /// Leading prompt tokens that each candidate is believed to hold.
    Hits,
    /// The balanced loads.
    Loads,
    /// A signal.
    Of(Signal),
    /// Relative speeds.
    Weights,
    /// Tokens held, as held / (held + 1,024).
    Saved,
    /// Share of the prompt held.
    Prefix,
    /// Square of the tokens held over 8,192, at most 1.
    Length,
    /// Free share of the KV cache; where it is not reported, the mean of where it is, or a half.
    KvFree,
    /// 1 where the session is bound, else 0.
    Session,
    /// 0 at the holders of the longest match, elsewhere minus infinity.
    Longest,
}

impl Plain {
    const ALL: [(&'static str, Self); 9] = [
        ("hits", Self::Hits),
        ("loads", Self::Loads),
        ("weights", Self::Weights),
        ("saved", Self::Saved),
        ("prefix", Self::Prefix),
        ("length", Self::Length),
        ("kv_free", Self::KvFree),
        ("session", Self::Session),
        ("longest", Self::Longest),
    ];

    /// One by its name, which may be that of a signal.
    pub fn named(name: &str) -> Option<Self> {
        let signals = Signal::ALL.iter().map(|&(name, signal)| (name, Self::Of(signal)));
        Self::ALL.into_iter().chain(signals).find(|(known, _)| *known == name).map(|(_, plain)| plain)
    }

    fn column<'a>(self, case: &Case<'a>) -> Column<'a> {
        let hit =
            |of: &dyn Fn(f64) -> f64| -> Column<'a> { Ok(case.hits.iter().map(|&hit| of(f64::from(hit))).collect()) };
        match self {
            Self::Hits => hit(&|hit| hit),
            Self::Loads => Ok(Cow::Borrowed(case.loads)),
            Self::Of(signal) => case.seen.column(signal),
            Self::Weights => Ok(case.seen.weights()?.unwrap_or_else(|| constant(case, 1.0))),
            Self::Saved => hit(&|hit| hit / (hit + HALF_SAVED)),
            Self::Prefix => {
                let share = 1.0 / if case.prompt_tokens == 0.0 { 1.0 } else { case.prompt_tokens };
                hit(&|hit| share * hit)
            }
            Self::Length => hit(&|hit| (hit / LONG_MATCH).min(1.0).powi(2)),
            Self::KvFree => kv_free(case),
            Self::Session => {
                let home = case.home();
                Ok((0..case.hits.len()).map(|at| f64::from(u8::from(Some(at) == home))).collect())
            }
            Self::Longest => {
                let best = case.best_hit();
                Ok(case.hits.iter().map(|&hit| if hit == best { 0.0 } else { f64::NEG_INFINITY }).collect())
            }
        }
    }
}

/// A constant and products of columns, summed at each candidate: `prompt * tokens of the prompt + weight * column * ... + ...`.
#[derive(Clone, Debug)]
pub struct Sum {
    /// What the length of the prompt counts.
    pub prompt: f64,
    /// A weight and columns each.
    pub terms: Vec<(f64, Vec<Formula>)>,
    /// What divides the sums.
    pub over: Option<Formula>,
}

impl Sum {
    fn column(&self, case: &Case<'_>) -> Result<Vec<f64>, Failure> {
        let mut sums = vec![self.prompt * case.prompt_tokens; case.hits.len()];
        for (weight, factors) in &self.terms {
            if let [factor] = &factors[..] {
                combine(&mut sums, &factor.column(case)?, |sum, value| sum + weight * value)?;
                continue;
            }
            let mut product = vec![*weight; sums.len()];
            for factor in factors {
                combine(&mut product, &factor.column(case)?, |product, value| product * value)?;
            }
            combine(&mut sums, &product, |sum, value| sum + value)?;
        }
        if let Some(divisors) = &self.over {
            combine(&mut sums, &divisors.column(case)?, |sum, divisor| sum / divisor)?;
        }
        Ok(sums)
    }
}

/// One number per candidate.
#[derive(Clone, Debug)]
pub enum Formula {
    /// A column without parameters.
    Plain(Plain),
    /// The same everywhere.
    Constant(f64),
    /// A column that comes with the question.
    Given(usize),
    /// A sum of products.
    Sum(Arc<Sum>),
    /// The same, and 0 where it is less.
    AtLeastZero(Arc<Formula>),
    /// The same, rounded to whole numbers, halves to even ones.
    Rounded(Arc<Formula>),
    /// From 1 at the lowest to 0 at the highest, in proportion.
    Falling(Arc<Formula>),
    /// A half where some candidate holds something of the prompt, else the same.
    Cold(Arc<Formula>),
    /// The learned prefill rates; where none is known the mean of the others, or this if there are none.
    Rates(f64),
    /// 0 where the load is at most this multiple of the least, or within this gap of it; elsewhere minus infinity.
    Within(f64, f64),
    /// 0 where this share of the prompt is held, elsewhere minus infinity; 0 everywhere if nobody holds so much.
    Holding(f64),
    /// Hits, and the longest one where that is longer by more than this factor.
    Fetched(f64),
    /// Seconds that something takes at each candidate.
    Priced(Arc<Priced>),
    /// Tokens of the answer: what the request allows, at most this.
    Answer(f64),
}

impl Formula {
    /// The numbers, in the order of the candidates.
    ///
    /// # Errors
    ///
    /// A signal, a price or a report that the formula asks for cannot be had: the [`Failure`] of who was asked.
    pub fn column<'a>(&self, case: &Case<'a>) -> Column<'a> {
        let of = |formula: &Self| formula.column(case).map(Cow::into_owned);
        Ok(Cow::Owned(match self {
            Self::Plain(plain) => return plain.column(case),
            Self::Constant(value) => return Ok(constant(case, *value)),
            Self::Given(number) => return case.seen.given(*number),
            Self::Sum(sum) => sum.column(case)?,
            Self::AtLeastZero(inner) => mapped(of(inner)?, |value| if value < 0.0 { 0.0 } else { value }),
            Self::Rounded(inner) => mapped(of(inner)?, f64::round_ties_even),
            Self::Falling(inner) => {
                let mut values = of(inner)?;
                columns::fall(&mut values);
                values
            }
            Self::Cold(_) if case.best_hit() > 0 => return Ok(constant(case, 0.5)),
            Self::Cold(inner) => return inner.column(case),
            Self::Rates(otherwise) => {
                let mut rates = case.seen.column(Signal::Rates)?.into_owned();
                columns::fill(&mut rates, *otherwise);
                rates
            }
            &Self::Within(ratio, gap) => {
                let low = case.low()?;
                let bound = (ratio * low).max(low + gap);
                mapped(case.loads.to_vec(), |load| if load <= bound { 0.0 } else { f64::NEG_INFINITY })
            }
            Self::Holding(share) => {
                let floor = share * case.prompt_tokens;
                if f64::from(case.best_hit()) < floor {
                    return Ok(constant(case, 0.0));
                }
                hits(case, |hit| if hit >= floor { 0.0 } else { f64::NEG_INFINITY })
            }
            Self::Fetched(threshold) => {
                let best = f64::from(case.best_hit());
                hits(case, |hit| if best > threshold * hit { best } else { hit })
            }
            Self::Answer(limit) => {
                let tokens = case.seen.max_tokens()?.map_or(*limit, |most| most.min(*limit));
                return Ok(constant(case, tokens));
            }
            Self::Priced(priced) => priced.column(case)?,
        }))
    }
}

/// Something that takes time at a replica.
#[derive(Clone, Debug)]
pub enum Priced {
    /// To compute what is left of the prompt behind so many cached tokens.
    Prefill(Arc<dyn Price>, Formula),
    /// A decode step once the prompt has joined so many requests with so many tokens.
    Decode(Arc<dyn Price>, Formula, Formula),
    /// To move what is not held of the prompt from the replica that computes it; nothing there.
    Transfer(Link),
}

impl Priced {
    /// Seconds at each candidate.
    fn column(&self, case: &Case<'_>) -> Result<Vec<f64>, Failure> {
        let of = |formula: &Formula| formula.column(case).map(Cow::into_owned);
        let prompt = case.prompt_tokens;
        match self {
            Self::Prefill(price, cached) => {
                priced(of(cached)?, |cached| price.prefill_seconds(prompt - cached, cached))
            }
            Self::Decode(price, requests, contexts) => {
                let mut seconds = of(requests)?;
                price.join(prompt, &mut seconds, &contexts.column(case)?)?;
                Ok(seconds)
            }
            Self::Transfer(link) => {
                let mut seconds = priced(hits(case, |hit| hit), |hit| Ok(link.seconds(prompt - hit)))?;
                if let Some(at) = case.seen.kv_at()?.and_then(|slot| case.position(slot)) {
                    seconds[at] = 0.0;
                }
                Ok(seconds)
            }
        }
    }
}

fn constant(case: &Case<'_>, value: f64) -> Cow<'static, [f64]> {
    Cow::Owned(vec![value; case.hits.len()])
}

fn hits(case: &Case<'_>, of: impl Fn(f64) -> f64) -> Vec<f64> {
    case.hits.iter().map(|&hit| of(f64::from(hit))).collect()
}

fn mapped(mut values: Vec<f64>, of: impl Fn(f64) -> f64) -> Vec<f64> {
    for value in &mut values {
        *value = of(*value);
    }
    values
}

fn combine(column: &mut [f64], other: &[f64], operation: impl Fn(f64, f64) -> f64) -> Result<(), Failure> {
    columns::combine(column, other, operation).map_err(|_| Failure::Incomparable)
}

/// A price at each of some numbers. Equal ones are asked for once: few hits of a prompt are distinct.
fn priced(mut values: Vec<f64>, price: impl Fn(f64) -> Result<f64, Failure>) -> Result<Vec<f64>, Failure> {
    let mut known: Vec<(u64, f64)> = Vec::new();
    for value in &mut values {
        let asked = *value;
        let found = known.iter().find(|&&(bits, _)| bits == asked.to_bits()).map(|&(_, priced)| priced);
        *value = match found {
            Some(priced) => priced,
            None => price(asked)?,
        };
        if found.is_none() {
            known.push((asked.to_bits(), *value));
        }
    }
    Ok(values)
}

fn kv_free<'a>(case: &Case<'a>) -> Column<'a> {
    if case.seen.reporting()? == 0 {
        return Ok(constant(case, 0.5));
    }
    let uses = (0..case.hits.len()).map(|at| case.seen.reported(at, Figure::KvUse)).collect::<Result<Vec<_>, _>>()?;
    let known = uses.iter().flatten().map(|used| 1.0 - used);
    let count = known.clone().count();
    let mean = if count == 0 { 0.5 } else { known.sum::<f64>() / count as f64 };
    Ok(uses.into_iter().map(|used| used.map_or(mean, |used| 1.0 - used)).collect())
}
