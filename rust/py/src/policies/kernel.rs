//! `Kernel`: policies that decide without Python.

use std::sync::Arc;

use numpy::PyArray1;
use prefixroute_core::policies as core;
use prefixroute_core::routing::Signal;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyInt, PyList, PyString, PyTuple};

use super::asked::{self, Asked};
use super::formula::{Formula, raised};
use super::roster::Roster;
use crate::columns::incomparable;
use crate::draws::bits;
use crate::errors;
use crate::ints::hash_of;
use crate::routing::Sight;

/// A policy as a compiled function of what a decision sees: a pure one, as every policy is.
#[pyclass(frozen, module = "prefixroute._core")]
pub struct Kernel {
    kernel: Arc<core::Kernel>,
    text_hash: Option<Py<PyAny>>,
}

type Other<'a, 'py> = Option<&'a Bound<'py, Kernel>>;

impl Kernel {
    fn of(rule: core::Rule) -> Self {
        Self { kernel: Arc::new(core::Kernel { rule, fallback: None, gated: None }), text_hash: None }
    }

    /// A rule that leaves some decisions to others.
    fn with(rule: core::Rule, fallback: Other<'_, '_>, gated: Other<'_, '_>, text_hash: Option<Py<PyAny>>) -> Self {
        let kernel = |other: Other<'_, '_>| other.map(|other| Arc::clone(&other.get().kernel));
        let hash = |other: Other<'_, '_>| {
            other.and_then(|other| other.get().text_hash.as_ref().map(|hash| hash.clone_ref(other.py())))
        };
        let text_hash = text_hash.or_else(|| hash(fallback)).or_else(|| hash(gated));
        Self { kernel: Arc::new(core::Kernel { rule, fallback: kernel(fallback), gated: kernel(gated) }), text_hash }
    }
}

#[pymethods]
impl Kernel {
    /// Draws one.
    #[staticmethod]
    fn random() -> Self {
        Self::of(core::Rule::Random)
    }

    /// Takes turns.
    #[staticmethod]
    fn round_robin() -> Self {
        Self::of(core::Rule::RoundRobin)
    }

    /// Takes the least loaded by one of `MEASURES`; those that it cannot tell apart are told apart by load, then drawn.
    ///
    /// Args:
    ///     by: of `MEASURES`.
    ///
    /// Raises:
    ///     ConfigError: there is no such measure.
    #[staticmethod]
    fn least(by: &str) -> PyResult<Self> {
        Ok(Self::of(core::Rule::Least(named("measure", &core::Measure::ALL, by)?)))
    }

    /// Draws two and takes the less loaded, or the one that ranks first by its report.
    ///
    /// Args:
    ///     ranked: by reports, and not by load.
    #[staticmethod]
    fn of_two(ranked: bool) -> Self {
        Self::of(if ranked { core::Rule::TwoRanked } else { core::Rule::TwoDrawn })
    }

    /// Takes the less loaded of a session's two first choices. `text_hash`: hashes a session.
    ///
    /// Args:
    ///     text_hash: a function that hashes a text to 64 bits.
    #[staticmethod]
    fn two_choices(text_hash: Py<PyAny>) -> Self {
        Self::with(core::Rule::TwoChoices, None, None, Some(text_hash))
    }

    /// Stays where the session is bound; a new one goes by its key, or as the fallback says.
    ///
    /// Args:
    ///     by_key: whether a new session goes by its key.
    ///     text_hash: a function that hashes a text to 64 bits.
    ///     fallback: decides what this rule leaves open; `None` = the policy's own `decide` does.
    #[staticmethod]
    fn session(by_key: bool, text_hash: Py<PyAny>, fallback: Other<'_, '_>) -> Self {
        Self::with(core::Rule::Session { by_key }, fallback, None, Some(text_hash))
    }

    /// Takes the first choice of one of `KEYS`, however busy it is.
    ///
    /// Args:
    ///     key: of `KEYS`.
    ///     text_hash: a function that hashes a text to 64 bits.
    ///     fallback: decides what this rule leaves open; `None` = the policy's own `decide` does.
    ///
    /// Raises:
    ///     ConfigError: there is no such key.
    #[staticmethod]
    fn hashed(key: &str, text_hash: Py<PyAny>, fallback: Other<'_, '_>) -> PyResult<Self> {
        Self::placed(key, core::Overflow::Never, text_hash, fallback)
    }

    /// Takes the first choice of a key that has room; see `prefixroute.policies.Bounded`.
    ///
    /// Args:
    ///     key: of `KEYS`.
    ///     factor: the load that is allowed, as a multiple of the mean.
    ///     rescue: what overflows goes to a starving replica first.
    ///     text_hash: a function that hashes a text to 64 bits.
    ///     fallback: decides what this rule leaves open; `None` = the policy's own `decide` does.
    ///
    /// Raises:
    ///     ConfigError: there is no such key.
    #[staticmethod]
    fn bounded(key: &str, factor: f64, rescue: bool, text_hash: Py<PyAny>, fallback: Other<'_, '_>) -> PyResult<Self> {
        Self::placed(key, core::Overflow::Bounded { factor, rescue }, text_hash, fallback)
    }

    /// Takes the first choice of the prompt's head unless that is overloaded; see `prefixroute.policies.PrefixHash`.
    ///
    /// Args:
    ///     factor: a multiple of the mean load.
    ///     gap: a difference from the mean load. Above both, a replica is overloaded.
    ///     fallback: decides what this rule leaves open; `None` = the policy's own `decide` does.
    #[staticmethod]
    fn prefix_hash(factor: f64, gap: f64, fallback: Other<'_, '_>) -> Self {
        let overflow = core::Overflow::Least { factor, gap };
        Self::with(core::Rule::Hashed(core::Key::Head, overflow), fallback, None, None)
    }

    /// Takes the highest of scores.
    ///
    /// Args:
    ///     stages: (scores, why, share) each. Scores decide if the longest match is more than that share of the prompt, or the
    ///         share is `None`, and if they leave a candidate, which minus infinity is not; the last decide in any case.
    ///     temperature: above 0, one is drawn by softmax of `score / temperature`.
    ///     rejects: nothing is taken whose score, negated, is above the request's `slo_ttft_s`.
    #[staticmethod]
    #[pyo3(signature = (*stages, temperature = 0.0, rejects = false))]
    fn best(stages: &Bound<'_, PyTuple>, temperature: f64, rejects: bool) -> PyResult<Self> {
        let stage = |stage: Bound<'_, PyAny>| {
            let (scores, reason, above): (Bound<'_, Formula>, String, Option<f64>) = stage.extract()?;
            Ok(core::Stage { above, scores: scores.get().0.clone(), reason })
        };
        let stages = stages.iter().map(stage).collect::<PyResult<_>>()?;
        Ok(Self::of(core::Rule::Best(core::Best { stages, temperature, rejects })))
    }

    /// Follows the longest match; see `prefixroute.policies.CacheAware`, which has these parameters.
    ///
    /// Args:
    ///     min_match_tokens, min_match_ratio, spill, spill_ratio, spill_gap, shorter, holders, adaptive: of `CacheAware`.
    ///     gate_ratio, gate_gap, gated: of `CacheAware`.
    ///     fallback: as there; `None` = the policy's own `decide` does.
    ///
    /// Raises:
    ///     ConfigError: `spill` is none of `SPILLS`, or `holders` none of `HOLDERS`.
    #[staticmethod]
    #[pyo3(signature = (*, min_match_tokens, min_match_ratio, spill, spill_ratio, spill_gap, shorter, holders, gate_ratio,
        gate_gap, gated, fallback, adaptive))]
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
        gated: Other<'_, '_>,
        fallback: Other<'_, '_>,
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
        Ok(Self::with(core::Rule::CacheAware(policy), fallback, gated, None))
    }

    /// What `cache_aware` may compare a holder with.
    #[classattr]
    #[pyo3(name = "SPILLS")]
    fn spills(py: Python<'_>) -> PyResult<Bound<'_, PyTuple>> {
        names(py, &core::Spill::ALL)
    }

    /// Which of several holders `cache_aware` may follow.
    #[classattr]
    #[pyo3(name = "HOLDERS")]
    fn holders(py: Python<'_>) -> PyResult<Bound<'_, PyTuple>> {
        names(py, &core::Holders::ALL)
    }

    /// What `least` may go by.
    #[classattr]
    #[pyo3(name = "MEASURES")]
    fn measures(py: Python<'_>) -> PyResult<Bound<'_, PyTuple>> {
        names(py, &core::Measure::ALL)
    }

    /// What `hashed` and `bounded` may place.
    #[classattr]
    #[pyo3(name = "KEYS")]
    fn keys(py: Python<'_>) -> PyResult<Bound<'_, PyTuple>> {
        names(py, &core::Key::ALL)
    }

    /// The signals of a view, in the order of its last fields.
    #[classattr]
    #[pyo3(name = "SIGNALS")]
    fn signals(py: Python<'_>) -> PyResult<Bound<'_, PyTuple>> {
        names(py, Signal::ALL)
    }

    /// The pick of a decision: a slot and why. -1: there is nothing to go by, and why; the policy's own `decide` has to answer.
    ///
    /// Args:
    ///     sight: what is known of each slot.
    ///     slots: the candidates, ascending.
    ///     seed: the router's seed.
    ///     decision_id: number of the decision.
    ///     prompt_tokens: length of the prompt.
    ///     request: what the caller said of it.
    ///     roster: names and speeds of the replicas.
    ///     signals: the last fields of a view, from the first signal on; those that the sight has may be `None`.
    ///
    /// Raises:
    ///     ConfigError: a slot is beyond the columns, or a signal is missing.
    ///     ValueError: there is no candidate, or a load is NaN.
    #[pyo3(signature = (sight, slots, seed, decision_id, prompt_tokens, request, roster, signals, /))]
    #[expect(clippy::too_many_arguments, reason = "a view, without an object in between")]
    fn decide<'py>(
        &self,
        sight: &Bound<'py, Sight>,
        slots: &Bound<'py, PyTuple>,
        seed: &Bound<'py, PyInt>,
        decision_id: &Bound<'py, PyInt>,
        prompt_tokens: f64,
        request: &Bound<'py, PyAny>,
        roster: &Bound<'py, Roster>,
        signals: &Bound<'py, PyTuple>,
    ) -> PyResult<(i64, Bound<'py, PyString>)> {
        let (py, sight) = (slots.py(), sight.get());
        let candidates = &sight.of_candidates(slots)?;
        let text_hash = self.text_hash.as_ref();
        let roster = roster.get();
        let decision = Asked { sight, candidates, request, roster, signals, given: &[], text_hash };
        let case = case(&decision, seed, decision_id, prompt_tokens)?;
        let (at, why) = self.kernel.decide(&case).map_err(raised)?;
        let slot = at.and_then(|at| i64::try_from(case.slot(at)).ok());
        Ok((slot.unwrap_or(-1), reason(py, why)))
    }

    /// The scores of the candidates, why, and the temperature, of a kernel that takes the highest.
    ///
    /// Args:
    ///     sight, slots, seed, decision_id, prompt_tokens, request, roster, signals: as those of `decide`.
    ///     given: a column for each `Formula.given`.
    ///
    /// Raises:
    ///     ConfigError: the kernel has no scores, or what `decide` raises.
    #[pyo3(signature = (sight, slots, seed, decision_id, prompt_tokens, request, roster, signals, /, *, given = None))]
    #[expect(clippy::too_many_arguments, reason = "a view, without an object in between")]
    fn scores<'py>(
        &self,
        sight: &Bound<'py, Sight>,
        slots: &Bound<'py, PyTuple>,
        seed: &Bound<'py, PyInt>,
        decision_id: &Bound<'py, PyInt>,
        prompt_tokens: f64,
        request: &Bound<'py, PyAny>,
        roster: &Bound<'py, Roster>,
        signals: &Bound<'py, PyTuple>,
        given: Option<&Bound<'py, PyList>>,
    ) -> PyResult<(Bound<'py, PyArray1<f64>>, String, f64)> {
        let core::Rule::Best(best) = &self.kernel.rule else {
            return Err(errors::config("the kernel picks without scores"));
        };
        let sight = sight.get();
        let (candidates, given) = (&sight.of_candidates(slots)?, &*asked::given(given)?);
        let roster = roster.get();
        let decision = Asked { sight, candidates, request, roster, signals, given, text_hash: None };
        let case = case(&decision, seed, decision_id, prompt_tokens)?;
        let (scores, reason) = best.scores(&case).map_err(raised)?;
        Ok((PyArray1::from_vec(slots.py(), scores), reason.to_owned(), best.temperature))
    }
}

fn names<'py, T>(py: Python<'py>, all: &[(&'static str, T)]) -> PyResult<Bound<'py, PyTuple>> {
    PyTuple::new(py, all.iter().map(|(name, _)| *name))
}

impl Kernel {
    fn placed(key: &str, overflow: core::Overflow, hash: Py<PyAny>, fallback: Other<'_, '_>) -> PyResult<Self> {
        let rule = core::Rule::Hashed(named("key", &core::Key::ALL, key)?, overflow);
        Ok(Self::with(rule, fallback, None, Some(hash)))
    }
}

/// What a kernel decides on.
fn case<'a>(
    decision: &'a Asked<'a, '_>,
    seed: &Bound<'_, PyInt>,
    decision_id: &Bound<'_, PyInt>,
    prompt_tokens: f64,
) -> PyResult<core::Case<'a>> {
    let of = decision.candidates;
    Ok(core::Case {
        seed: bits(seed),
        decision_id: bits(decision_id),
        turn: turn(seed, decision_id, of.hits.len())?,
        prompt_tokens,
        in_session: decision.request.getattr(intern!(seed.py(), "session"))?.is_truthy()?,
        binding: decision.sight.binding,
        shared: decision.sight.shared,
        slots: of.slots.as_deref(),
        hits: &of.hits,
        loads: &of.loads,
        seen: decision,
    })
}

/// Seconds until a new request would start at a replica, by its report: SMG's `least_load` estimate; `None` = too little is
/// reported.
///
/// Args:
///     waiting_tokens: uncached tokens that wait there.
///     waiting: requests that wait there, which stand for 1,024 tokens each where no tokens are reported.
///     kv_use: share of the KV cache in use.
///     tokens_per_s: prefill throughput; `None` = assumed.
///     queued: uncached tokens that this router has waiting there.
#[pyfunction]
pub fn start_seconds(
    waiting_tokens: Option<f64>,
    waiting: Option<f64>,
    kv_use: Option<f64>,
    tokens_per_s: Option<f64>,
    queued: f64,
) -> Option<f64> {
    core::start_seconds([waiting_tokens, waiting], kv_use, tokens_per_s, queued)
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
fn reason<'py>(py: Python<'py>, why: &str) -> Bound<'py, PyString> {
    match why {
        "match" => intern!(py, "match"),
        "bound" => intern!(py, "bound"),
        "spill" => intern!(py, "spill"),
        "least" => intern!(py, "least"),
        "turn" => intern!(py, "turn"),
        "primary" => intern!(py, "primary"),
        "drawn" => intern!(py, "drawn"),
        "hashed" => intern!(py, "hashed"),
        "power_of_two" => intern!(py, "power_of_two"),
        "no_match" => intern!(py, "no_match"),
        _ => return PyString::intern(py, why),
    }
    .clone()
}
