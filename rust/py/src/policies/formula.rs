//! `Formula`: costs and scores of policies, as they are declared in Python.

use std::sync::Arc;

use prefixroute_core::policies as core;
use prefixroute_core::policies::{Failure, Price};
use prefixroute_core::sim as prices;
use pyo3::prelude::*;
use pyo3::types::{PyInt, PyTuple};

use crate::columns;
use crate::draws::bits;
use crate::errors;
use crate::sim::{StepPrices, TransferPrices};

/// One number per candidate of a decision, worked out from what a view has. Immutable.
///
/// Args:
///     name: of a field of a view that is a column of numbers; `saved` (tokens held, as held / (held + 1,024)), `prefix` (share
///         of the prompt held), `length` (square of the tokens held over 8,192, at most 1), `kv_free` (free share of the KV
///         cache; where it is not reported, the mean of where it is, or a half), `session` (1 where the session is bound, else
///         0), `longest` (0 at the holders of the longest match, elsewhere minus infinity).
///
/// Raises:
///     ConfigError: there is no such column.
#[pyclass(frozen, module = "prefixroute._core")]
pub struct Formula(pub core::Formula);

impl Formula {
    fn of(formula: &Bound<'_, Self>) -> core::Formula {
        formula.get().0.clone()
    }

    fn priced(priced: core::Priced) -> Self {
        Self(core::Formula::Priced(Arc::new(priced)))
    }

    fn shared(formula: &Bound<'_, Self>) -> Arc<core::Formula> {
        Arc::new(Self::of(formula))
    }
}

#[pymethods]
impl Formula {
    #[new]
    fn new(name: &str) -> PyResult<Self> {
        let plain = core::Plain::named(name);
        let plain = plain.ok_or_else(|| errors::config(format!("no column is called {name:?}")))?;
        Ok(Self(core::Formula::Plain(plain)))
    }

    /// The same number everywhere.
    ///
    /// Args:
    ///     value: the number.
    #[staticmethod]
    fn constant(value: f64) -> Self {
        Self(core::Formula::Constant(value))
    }

    /// A column that is given with the question, by its place.
    ///
    /// Args:
    ///     number: place of the column among those given.
    #[staticmethod]
    fn given(number: usize) -> Self {
        Self(core::Formula::Given(number))
    }

    /// `prompt * tokens of the prompt + weight * formula * ... + ...`, divided by a formula if there is one.
    ///
    /// Args:
    ///     terms: (weight, formula, ...) each: a weight and the formulas that it is multiplied with.
    ///     prompt: weight of the tokens of the prompt.
    ///     over: the formula by which the sum is divided.
    #[staticmethod]
    #[pyo3(signature = (*terms, prompt = 0.0, over = None))]
    fn sum(terms: &Bound<'_, PyTuple>, prompt: f64, over: Option<&Bound<'_, Self>>) -> PyResult<Self> {
        let term = |term: Bound<'_, PyAny>| {
            let parts = term.cast::<PyTuple>()?;
            let factors = parts.iter().skip(1).map(|factor| Ok(Self::of(factor.cast::<Self>()?)));
            Ok((parts.get_item(0)?.extract()?, factors.collect::<PyResult<_>>()?))
        };
        let terms = terms.iter().map(term).collect::<PyResult<_>>()?;
        Ok(Self(core::Formula::Sum(Arc::new(core::Sum { prompt, terms, over: over.map(Self::of) }))))
    }

    /// The same, and 0 where it is less.
    ///
    /// Args:
    ///     formula: what it is made of.
    #[staticmethod]
    fn at_least_zero(formula: &Bound<'_, Self>) -> Self {
        Self(core::Formula::AtLeastZero(Self::shared(formula)))
    }

    /// The same, rounded to whole numbers, halves to even ones.
    ///
    /// Args:
    ///     formula: what it is made of.
    #[staticmethod]
    fn rounded(formula: &Bound<'_, Self>) -> Self {
        Self(core::Formula::Rounded(Self::shared(formula)))
    }

    /// From 1 at the lowest to 0 at the highest, in proportion; 1 everywhere if all are equal.
    ///
    /// Args:
    ///     formula: what it is made of.
    #[staticmethod]
    fn falling(formula: &Bound<'_, Self>) -> Self {
        Self(core::Formula::Falling(Self::shared(formula)))
    }

    /// A half where somebody holds something of the prompt, else the same.
    ///
    /// Args:
    ///     formula: what it is made of.
    #[staticmethod]
    fn cold(formula: &Bound<'_, Self>) -> Self {
        Self(core::Formula::Cold(Self::shared(formula)))
    }

    /// Learned prefill rates; where none is known the harmonic mean of the others, or `otherwise` if there are none.
    ///
    /// Args:
    ///     otherwise: prefill tokens a second.
    #[staticmethod]
    fn rates(otherwise: f64) -> Self {
        Self(core::Formula::Rates(otherwise))
    }

    /// 0 where the load is at most `ratio` times the least or within `gap` of it, elsewhere minus infinity.
    ///
    /// Args:
    ///     ratio: a multiple of the least load.
    ///     gap: a difference from it, in units of the load.
    #[staticmethod]
    fn within(ratio: f64, gap: f64) -> Self {
        Self(core::Formula::Within(ratio, gap))
    }

    /// 0 where this share of the prompt is held, elsewhere minus infinity; 0 everywhere if nobody holds so much.
    ///
    /// Args:
    ///     share: of the prompt, 0 to 1.
    #[staticmethod]
    fn holding(share: f64) -> Self {
        Self(core::Formula::Holding(share))
    }

    /// Hits, and the longest one where that is longer by more than a factor.
    ///
    /// Args:
    ///     threshold: the factor.
    #[staticmethod]
    fn fetched(threshold: f64) -> Self {
        Self(core::Formula::Fetched(threshold))
    }

    /// Seconds to compute what is left of the prompt behind so many cached tokens.
    ///
    /// Args:
    ///     price: `StepPrices`, or a function of new and cached tokens.
    ///     overhead_s: what is added to each price.
    ///     cached: the tokens.
    #[staticmethod]
    fn prefill(price: &Bound<'_, PyAny>, overhead_s: f64, cached: &Bound<'_, Self>) -> Self {
        Self::priced(core::Priced::Prefill(priced(price, overhead_s), Self::of(cached)))
    }

    /// Seconds of a decode step once the prompt has joined what is decoded.
    ///
    /// Args:
    ///     price: `StepPrices`, or a function of requests and of the tokens that they hold all together.
    ///     requests: requests in decode.
    ///     contexts: tokens that these hold.
    #[staticmethod]
    fn decode(price: &Bound<'_, PyAny>, requests: &Bound<'_, Self>, contexts: &Bound<'_, Self>) -> Self {
        Self::priced(core::Priced::Decode(priced(price, 0.0), Self::of(requests), Self::of(contexts)))
    }

    /// Seconds to move what is not held of the prompt from the replica that computes it; 0 for that itself.
    ///
    /// Args:
    ///     prices: of the link between the replicas.
    #[staticmethod]
    fn transfer(prices: &Bound<'_, TransferPrices>) -> Self {
        Self::priced(core::Priced::Transfer(prices.get().link.clone()))
    }

    /// Tokens of the answer: what the request allows, at most `limit`.
    ///
    /// Args:
    ///     limit: in tokens.
    #[staticmethod]
    fn answer(limit: f64) -> Self {
        Self(core::Formula::Answer(limit))
    }

    fn __repr__(&self) -> String {
        format!("<Formula {:?}>", self.0)
    }
}

/// The position of the highest score, of equal ones by draw; with a temperature above 0 one drawn by softmax.
///
/// Args:
///     scores: a column.
///     temperature: 0, or what the scores are divided by.
///     seed: the router's seed.
///     decision_id: number of the decision.
///
/// Raises:
///     ValueError: there are no scores, or one is NaN; a ConfigError if they are no column at all.
///     TypeError: a score is no real number.
#[pyfunction]
#[pyo3(signature = (scores, temperature, seed, decision_id, /))]
pub fn best_of(
    scores: &Bound<'_, PyAny>,
    temperature: f64,
    seed: &Bound<'_, PyInt>,
    decision_id: &Bound<'_, PyInt>,
) -> PyResult<usize> {
    let equal = columns::highest(scores)?;
    let (seed, decision_id) = (bits(seed), bits(decision_id));
    if temperature > 0.0 {
        return core::best_of(&columns::read(scores)?, temperature, seed, decision_id)
            .ok_or_else(columns::incomparable);
    }
    Ok(equal[core::tied(equal.len(), seed, decision_id)])
}

fn priced(price: &Bound<'_, PyAny>, overhead_s: f64) -> Arc<dyn Price> {
    match price.cast::<StepPrices>() {
        Ok(prices) => Arc::new(Modelled { prices: Arc::clone(&prices.get().prices), overhead_s }),
        Err(_) => Arc::new(Called(price.clone().unbind())),
    }
}

/// Prices of the cost model.
#[derive(Debug)]
struct Modelled {
    prices: Arc<prices::StepPrices>,
    overhead_s: f64,
}

impl Price for Modelled {
    fn prefill_seconds(&self, new: f64, cached: f64) -> Result<f64, Failure> {
        Ok(self.prices.prefill_seconds(new, cached) + self.overhead_s)
    }

    fn join(&self, prompt: f64, requests: &mut [f64], contexts: &[f64]) -> Result<(), Failure> {
        self.prices.join(prompt, requests, contexts);
        Ok(())
    }
}

/// Prices of anybody else: a function of whole numbers.
#[derive(Debug)]
struct Called(Py<PyAny>);

impl Called {
    fn seconds(&self, [one, other]: [f64; 2]) -> Result<f64, Failure> {
        Python::attach(|py| {
            let seconds = self.0.bind(py).call1((one as i64, other as i64))?;
            columns::number(&seconds, "a price")
        })
        .map_err(foreign)
    }
}

impl Price for Called {
    fn prefill_seconds(&self, new: f64, cached: f64) -> Result<f64, Failure> {
        self.seconds([new, cached])
    }

    fn join(&self, prompt: f64, requests: &mut [f64], contexts: &[f64]) -> Result<(), Failure> {
        for (requests, context) in requests.iter_mut().zip(contexts) {
            *requests = self.seconds([requests.round_ties_even() + 1.0, context.round_ties_even() + prompt])?;
        }
        Ok(())
    }
}

/// A Python error on its way through the core.
pub fn foreign(error: PyErr) -> Failure {
    Failure::Foreign(Box::new(error))
}

/// The Python error of a failure.
#[cold]
pub fn raised(failure: Failure) -> PyErr {
    match failure {
        Failure::Foreign(error) => error.downcast().map_or_else(|_| columns::incomparable(), |error| *error),
        Failure::Incomparable => columns::incomparable(),
    }
}
