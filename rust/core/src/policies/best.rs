//! The best of scores: formulas that are compared, ties that are drawn.

use super::{Case, Failure, Formula, Pick};
use crate::columns;
use crate::draws;

/// Number of the draw that breaks ties of scores, and of the point of a softmax. Other draws have small numbers.
const TIE: u64 = 1 << 20;

/// A formula that decides if its condition holds and it leaves a candidate. The last of several decides in any case.
#[derive(Clone, Debug)]
pub struct Stage {
    /// The longest match is more than this share of the prompt.
    pub above: Option<f64>,
    /// Scores: the highest is the best, and minus infinity is out.
    pub scores: Formula,
    /// Why.
    pub reason: String,
}

/// The candidate with the highest score.
#[derive(Clone, Debug)]
pub struct Best {
    /// What is tried, in this order.
    pub stages: Vec<Stage>,
    /// Above 0, the candidate is drawn by softmax of `score / temperature`.
    pub temperature: f64,
    /// No candidate is taken whose score, negated, is above the seconds within which the first token is wanted.
    pub rejects: bool,
}

impl Best {
    /// The scores of the candidates, and why.
    ///
    /// # Errors
    ///
    /// [`Failure::Incomparable`] where no stage decides; what a score asks for and does not get.
    pub fn scores(&self, case: &Case<'_>) -> Result<(Vec<f64>, &str), Failure> {
        let mut found = None;
        for (at, stage) in self.stages.iter().enumerate() {
            if stage.above.is_some_and(|share| f64::from(case.best_hit()) <= share * case.prompt_tokens) {
                continue;
            }
            let scores = stage.scores.column(case)?.into_owned();
            let is_last = at + 1 == self.stages.len();
            if is_last || highest(&scores).is_some_and(|(first, _)| scores[first] > f64::NEG_INFINITY) {
                found = Some((scores, &*stage.reason));
                break;
            }
        }
        found.ok_or(Failure::Incomparable)
    }

    /// The best; none if a score is not a number, or if the best one is not good enough.
    pub(super) fn decide(&self, case: &Case<'_>) -> Result<Pick<'_>, Failure> {
        let (scores, reason) = self.scores(case)?;
        let Some((first, _)) = highest(&scores) else { return Ok((None, reason)) };
        if self.rejects && case.seen.slo_ttft_s()?.is_some_and(|most| -scores[first] > most) {
            return Ok((None, reason));
        }
        Ok((best_of(&scores, self.temperature, case.seed, case.decision_id), reason))
    }
}

fn highest(scores: &[f64]) -> Option<(usize, usize)> {
    columns::best(scores.len(), |at| Some(scores[at]), |one, other| one > other)
}

/// The position of the highest score, of equal ones by draw; with a temperature above 0 one drawn by softmax. None if there is
/// none, or if one is not a number.
pub fn best_of(scores: &[f64], temperature: f64, seed: u64, decision_id: u64) -> Option<usize> {
    let (first, count) = highest(scores)?;
    if temperature > 0.0 {
        let shares: Vec<f64> = scores.iter().map(|score| ((score - scores[first]) / temperature).exp()).collect();
        let mut rest = draws::draw(seed, decision_id, TIE) * shares.iter().sum::<f64>();
        let drawn = shares.iter().position(|share| {
            rest -= share;
            rest < 0.0
        });
        return Some(drawn.unwrap_or(first));
    }
    if count == 1 {
        return Some(first);
    }
    columns::nth(scores.len(), |at| Some(scores[at]), &scores[first], tied(count, seed, decision_id))
}

/// Which of equal scores is taken.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "below count, which is a length")]
pub fn tied(count: usize, seed: u64, decision_id: u64) -> usize {
    (draws::draw(seed, decision_id, TIE) * count as f64) as usize
}
