//! `Cluster`: replicas on one clock.

use std::collections::HashMap;
use std::sync::Arc;

use prefixroute_core::sim as core;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyInt, PyList};
use pyo3::{PyTraverseError, PyVisit};

use super::link::TransferPrices;
use super::prices::StepPrices;
use super::store::ReplicaStore;
use crate::cache::CacheEvent;
use crate::errors;
use crate::hashes::BlockHashes;
use crate::routing::{Attempt, Ledger};

/// Kinds of outcomes, as Python sees them.
const FIRST_TOKEN: u8 = 0;
const FINISHED: u8 = 1;
const CHANGED: u8 = 2;
const ABORTED: u8 = 3;

/// Prices as numbers, or a function of (chunks, decodes, context tokens) that is called for each step.
enum Prices {
    Numbers(Box<core::StepPrices>),
    Function(Py<PyAny>),
}

impl core::Prices for Prices {
    type Error = PyErr;

    fn step_seconds(&self, chunks: &[core::Chunk], decodes: usize, context_tokens: i128) -> PyResult<f64> {
        match self {
            Self::Numbers(prices) => Ok(prices.step_seconds(chunks, decodes, context_tokens)),
            Self::Function(function) => Python::attach(|py| {
                let chunks = PyList::new(py, chunks)?;
                function.bind(py).call1((chunks, decodes, context_tokens))?.extract()
            }),
        }
    }
}

/// A router that hears of its requests without Python in between: what it has booked, by number.
struct Hearer {
    ledger: Py<Ledger>,
    belief: Py<PyAny>,
    flights: HashMap<u64, (Py<Attempt>, Py<BlockHashes>)>,
}

/// Replicas that serve requests in virtual time. Not thread-safe: a simulation is one thread.
#[pyclass(module = "prefixroute._core")]
pub struct Cluster {
    replicas: core::Cluster<Prices>,
    /// By replica: its number in the log.
    labels: Vec<i32>,
    warmup: u64,
    log: Vec<u8>,
    hearer: Option<Hearer>,
}

#[pymethods]
impl Cluster {
    #[new]
    #[pyo3(signature = (prices, *, chunk_tokens, max_running, overhead_s=0.0, warmup=0, late_s=f64::INFINITY, link=None))]
    fn new(
        prices: &Bound<'_, PyAny>,
        chunk_tokens: &Bound<'_, PyInt>,
        max_running: &Bound<'_, PyInt>,
        overhead_s: f64,
        warmup: u64,
        late_s: f64,
        link: Option<&Bound<'_, TransferPrices>>,
    ) -> Self {
        let limits = core::Limits {
            // What is too large for the machine is no limit.
            chunk_tokens: chunk_tokens.extract().unwrap_or(u64::MAX),
            max_running: max_running.extract().unwrap_or(usize::MAX),
            overhead_s,
            warmup,
            late_s,
        };
        let prices = match prices.cast::<StepPrices>() {
            Ok(numbers) => Prices::Numbers(Box::new((*numbers.get().prices).clone())),
            Err(_) => Prices::Function(prices.clone().unbind()),
        };
        let link = link.map(|link| link.get().link.clone()).unwrap_or_default();
        Self {
            replicas: core::Cluster::new(limits, prices, link),
            labels: Vec::new(),
            warmup,
            log: Vec::new(),
            hearer: None,
        }
    }

    fn add(&mut self, store: &Bound<'_, ReplicaStore>, label: i32) -> usize {
        self.labels.push(label);
        self.replicas.add(Arc::clone(&store.get().store))
    }

    /// Tell a router, by its ledger and its belief, of the requests that are submitted with an attempt: first tokens, and ends
    /// with what a replica then holds. `advance` tells their ends only. The router neither hedges nor books pairs, and no other
    /// router listens to it.
    fn tell(&mut self, ledger: Py<Ledger>, belief: Py<PyAny>) {
        self.hearer = Some(Hearer { ledger, belief, flights: HashMap::new() });
    }

    /// Tell no more of a request.
    fn let_go(&mut self, number: u64) {
        if let Some(hearer) = &mut self.hearer {
            drop(hearer.flights.remove(&number));
        }
    }

    /// `decode`: the replica that decodes, if another one computes the prompt. `attempt`: what the router that hears has booked.
    #[pyo3(signature = (replica, number, session, prompt, context, prompt_tokens, output_tokens, arrival, now, decode=None,
        attempt=None))]
    #[expect(clippy::too_many_arguments, reason = "a request, without an object in between")]
    fn submit(
        &mut self,
        replica: usize,
        number: u64,
        session: u32,
        prompt: &Bound<'_, BlockHashes>,
        context: &Bound<'_, BlockHashes>,
        prompt_tokens: &Bound<'_, PyAny>,
        output_tokens: &Bound<'_, PyAny>,
        arrival: f64,
        now: f64,
        decode: Option<usize>,
        attempt: Option<Py<Attempt>>,
    ) -> PyResult<()> {
        let request = core::Request {
            number,
            session,
            prompt: prompt.get().shared(),
            context: context.get().shared(),
            prompt_tokens: tokens(prompt_tokens, 1)?,
            output_tokens: tokens(output_tokens, 0)?,
            arrival,
        };
        match decode {
            None => self.replicas.submit(replica, request, now),
            Some(decode) => self.replicas.submit_pair(replica, decode, request, now),
        }
        .map_err(failed)?;
        if let (Some(hearer), Some(attempt)) = (&mut self.hearer, attempt) {
            drop(hearer.flights.insert(number, (attempt, context.clone().unbind())));
        }
        Ok(())
    }

    /// Let a request whose prompt is not computed yet be decoded by another replica.
    fn redirect(&mut self, number: u64, decode: usize) {
        self.replicas.redirect(number, decode);
    }

    #[pyo3(signature = (until, inclusive=true))]
    fn advance<'py>(&mut self, py: Python<'py>, until: f64, inclusive: bool) -> PyResult<Bound<'py, PyList>> {
        let told = PyList::empty(py);
        loop {
            let outcomes = self.replicas.advance(until, inclusive).map_err(failed)?;
            let is_all = outcomes.len() < core::BATCH;
            self.take(&told, outcomes)?;
            if is_all || told.len() >= core::BATCH {
                return Ok(told);
            }
        }
    }

    fn abort(&mut self, replica: usize, number: u64, now: f64) -> PyResult<bool> {
        self.replicas.abort(replica, number, now).map_err(failed)
    }

    #[getter]
    fn next_at(&self) -> Option<f64> {
        self.replicas.next_at()
    }

    fn stop(&mut self, replica: usize, now: f64) -> PyResult<(Vec<u64>, Vec<u64>, f64)> {
        let left = self.replicas.stop(replica, now).map_err(failed)?;
        Ok((left.requests.into_iter().map(|request| request.number).collect(), left.bereft, left.busy_s))
    }

    #[classattr]
    const BATCH: usize = core::BATCH;

    fn busy_s(&self, replica: usize) -> f64 {
        self.replicas.engine(replica).map_or(0.0, core::Engine::busy_s)
    }

    fn waiting(&self, replica: usize) -> usize {
        self.replicas.engine(replica).map_or(0, core::Engine::waiting)
    }

    fn running(&self, replica: usize) -> usize {
        self.replicas.engine(replica).map_or(0, core::Engine::running)
    }

    #[getter]
    fn preempted(&self) -> u64 {
        self.replicas.preempted()
    }

    fn gaps(&self) -> Vec<(f64, u64)> {
        self.replicas.gaps().iter().collect()
    }

    fn take_log<'py>(&mut self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &std::mem::take(&mut self.log))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        if let Some(hearer) = &self.hearer {
            visit.call(&hearer.ledger)?;
            visit.call(&hearer.belief)?;
            hearer.flights.values().try_for_each(|(attempt, _)| visit.call(attempt))?;
        }
        match self.replicas.prices() {
            Prices::Numbers(_) => Ok(()),
            Prices::Function(function) => visit.call(function),
        }
    }
}

impl Hearer {
    fn first_token(&self, py: Python<'_>, number: u64, at: f64) -> PyResult<()> {
        let Some((attempt, _)) = self.flights.get(&number) else { return Ok(()) };
        self.ledger.get().first_token(attempt.bind(py), at).map(drop) // nothing is hedged, so nothing is asked
    }

    /// Whether the replica's belief counts from now on, if that has changed.
    fn finish(&mut self, py: Python<'_>, served: &core::Served, at: f64) -> PyResult<Option<bool>> {
        let Some((attempt, context)) = self.flights.remove(&served.number) else { return Ok(None) };
        let (attempt, context, belief) = (attempt.bind(py), context.bind(py).as_any(), self.belief.bind(py));
        let hit = i64::try_from(served.hit_tokens).ok();
        let held = attempt.get().is_open().then_some(context);
        let ended = self.ledger.get().finish(attempt, at, hit, belief, held, None)?;
        Ok(ended.and_then(|(_, believed)| believed))
    }
}

impl Cluster {
    /// Tells the router that hears, and lists what is to be told by others.
    fn take(&mut self, told: &Bound<'_, PyList>, outcomes: Vec<core::Outcome>) -> PyResult<()> {
        let py = told.py();
        for outcome in outcomes {
            match outcome {
                core::Outcome::FirstToken { at, served, .. } => match &self.hearer {
                    None => told.append((FIRST_TOKEN, at, served.number, served.hit_tokens))?,
                    Some(hearer) => hearer.first_token(py, served.number, at)?,
                },
                core::Outcome::Finished { at, replica, request, served } => {
                    self.write(at, replica, &request, &served);
                    match &mut self.hearer {
                        None => told.append((FINISHED, at, served.number, served.hit_tokens))?,
                        Some(hearer) => told.append((FINISHED, at, served.number, hearer.finish(py, &served, at)?))?,
                    }
                }
                core::Outcome::Aborted { at, number } => told.append((ABORTED, at, number, 0))?,
                core::Outcome::Changed { at, replica, events } => {
                    let events: Vec<_> = events.into_iter().map(CacheEvent::from).collect();
                    told.append((CHANGED, at, replica, events))?;
                }
            }
        }
        Ok(())
    }

    /// Appends a line of `prefixroute.sim.RequestLog`.
    fn write(&mut self, at: f64, replica: usize, request: &core::Request, served: &core::Served) {
        if served.number < self.warmup {
            return;
        }
        let log = &mut self.log;
        let computed_at = served.prefilled_at.unwrap_or(replica);
        log.extend_from_slice(&self.labels[computed_at].to_ne_bytes());
        log.extend_from_slice(&request.session.to_ne_bytes());
        for count in [served.number, request.prompt_tokens, served.hit_tokens] {
            log.extend_from_slice(&count.to_ne_bytes());
        }
        for seconds in [request.arrival, served.started, served.first_token, at] {
            log.extend_from_slice(&seconds.to_ne_bytes());
        }
        log.extend_from_slice(&request.output_tokens.to_ne_bytes());
        log.extend_from_slice(&self.labels[replica].to_ne_bytes());
        log.extend_from_slice(&served.moved_tokens.to_ne_bytes());
        log.extend_from_slice(&served.prefilled.to_ne_bytes());
        log.extend_from_slice(&served.late_gaps.to_ne_bytes());
    }
}

fn failed(failure: core::Failure<PyErr>) -> PyErr {
    match failure {
        core::Failure::Price(error) => error,
        core::Failure::Clock(error) => PyValueError::new_err(error.to_string()),
        core::Failure::Cache(refused) => errors::of_refused(refused),
    }
}

fn tokens(count: &Bound<'_, PyAny>, least: u64) -> PyResult<u64> {
    match errors::caught(count.py(), count.extract())? {
        Some(tokens) if (least..=core::MAX_TOKENS).contains(&tokens) => Ok(tokens),
        _ => Err(errors::config(format!("tokens of a request must be {least}..={}, got {count}", core::MAX_TOKENS))),
    }
}
