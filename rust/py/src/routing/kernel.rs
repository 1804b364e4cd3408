//! `Kernel`: policies that decide without Python.

use prefixroute_core::policies as core;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyInt, PyString, PyTuple};

use super::sight::Sight;
use crate::columns::incomparable;
use crate::draws::bits;
use crate::errors;
use crate::ints::hash_of;

/// A policy as a compiled function of plain columns: a pure one, as every policy is.
#[pyclass(frozen, module = "prefixroute._core")]
pub struct Kernel(core::Kernel);

#[pymethods]
impl Kernel {
    /// Draws one.
    #[staticmethod]
    fn random() -> Self {
        Self(core::Kernel::Random)
    }

    /// Stays where the session is bound; -1 where there is none, or it is bound to no candidate.
    #[staticmethod]
    fn session() -> Self {
        Self(core::Kernel::Session)
    }

    /// Takes turns.
    #[staticmethod]
    fn round_robin() -> Self {
        Self(core::Kernel::RoundRobin)
    }

    /// Takes the least loaded; ties are drawn.
    #[staticmethod]
    fn least_loaded() -> Self {
        Self(core::Kernel::LeastLoaded)
    }

    /// Follows the longest match; see `prefixroute.policies.CacheAware`, which has these parameters.
    #[staticmethod]
    #[pyo3(signature = (*, min_match_tokens, min_match_ratio, spill, spill_ratio, spill_gap, shorter, holders, gate_ratio,
        gate_gap, adaptive))]
    #[expect(clippy::too_many_arguments, reason = "each by name, from Python")]
    fn cache_aware(
        min_match_tokens: f64,
        min_match_ratio: f64,
        spill: &str,
        spill_ratio: f64,
        spill_gap: f64,
        shorter: bool,
        holders: &str,
        gate_ratio: f64,
        gate_gap: f64,
        adaptive: bool,
    ) -> PyResult<Self> {
        let spill = named("spill", &core::Spill::ALL, spill)?;
        let holders = named("holders", &core::Holders::ALL, holders)?;
        let policy = core::CacheAware {
            min_match_tokens,
            min_match_ratio,
            spill,
            spill_ratio,
            spill_gap,
            shorter,
            holders,
            gate_ratio,
            gate_gap,
            adaptive,
        };
        Ok(Self(core::Kernel::CacheAware(policy)))
    }

    /// What `cache_aware` may compare a holder with.
    #[classattr]
    #[pyo3(name = "SPILLS")]
    fn spills(py: Python<'_>) -> PyResult<Bound<'_, PyTuple>> {
        PyTuple::new(py, core::Spill::ALL.map(|(name, _)| name))
    }

    /// Which of several holders `cache_aware` may follow.
    #[classattr]
    #[pyo3(name = "HOLDERS")]
    fn holders(py: Python<'_>) -> PyResult<Bound<'_, PyTuple>> {
        PyTuple::new(py, core::Holders::ALL.map(|(name, _)| name))
    }

    /// The pick of a decision: a slot and why. -1: there is nothing to go by, and why; the policy's fallback has to decide.
    ///
    /// Args:
    ///     sight: what is known of each slot.
    ///     slots: the candidates, ascending.
    ///     seed: the router's seed.
    ///     decision_id: number of the decision.
    ///     prompt_tokens: length of the prompt.
    ///     in_session: whether the request has a session.
    ///
    /// Raises:
    ///     ConfigError: a slot is beyond the columns.
    ///     ValueError: there is no candidate, or a load is NaN.
    #[pyo3(signature = (sight, slots, seed, decision_id, prompt_tokens, in_session, /))]
    fn decide<'py>(
        &self,
        sight: &Bound<'py, Sight>,
        slots: &Bound<'py, PyTuple>,
        seed: &Bound<'py, PyInt>,
        decision_id: &Bound<'py, PyInt>,
        prompt_tokens: f64,
        in_session: bool,
    ) -> PyResult<(i64, Bound<'py, PyString>)> {
        let (py, sight) = (slots.py(), sight.get());
        let of = sight.of_candidates(slots)?;
        let case = core::Case {
            seed: bits(seed),
            decision_id: bits(decision_id),
            turn: turn(seed, decision_id, of.hits.len())?,
            prompt_tokens,
            in_session,
            binding: sight.binding,
            shared: sight.shared,
            slots: of.slots.as_deref(),
            hits: &of.hits,
            loads: &of.loads,
        };
        let (at, why) = self.0.decide(&case).map_err(|core::Incomparable| incomparable())?;
        let slot = at.and_then(|at| i64::try_from(case.slot(at)).ok());
        Ok((slot.unwrap_or(-1), reason(py, why)))
    }
}

/// What a parameter's word stands for.
fn named<T: Copy>(parameter: &str, all: &[(&str, T)], word: &str) -> PyResult<T> {
    let found = all.iter().find(|(name, _)| *name == word);
    found.map(|&(_, one)| one).ok_or_else(|| errors::config(format!("no {parameter} is called {word:?}")))
}

/// The sum of two ints of any size, modulo a count.
fn turn(seed: &Bound<'_, PyInt>, decision_id: &Bound<'_, PyInt>, count: usize) -> PyResult<usize> {
    if count == 0 {
        return Err(incomparable());
    }
    match (hash_of(seed), hash_of(decision_id)) {
        (Some(seed), Some(number)) if seed.checked_add(number).is_some() =>
        {
            #[expect(clippy::cast_possible_truncation, reason = "below a length")]
            Ok(((seed + number) % count as u64) as usize)
        }
        _ => decision_id.add(seed)?.rem(count)?.extract(),
    }
}

/// A kernel's word for why, the same object each time.
fn reason<'py>(py: Python<'py>, why: &'static str) -> Bound<'py, PyString> {
    match why {
        "match" => intern!(py, "match"),
        "bound" => intern!(py, "bound"),
        "spill" => intern!(py, "spill"),
        "least" => intern!(py, "least"),
        "turn" => intern!(py, "turn"),
        "primary" => intern!(py, "primary"),
        "drawn" => intern!(py, "drawn"),
        _ => return PyString::intern(py, why),
    }
    .clone()
}
