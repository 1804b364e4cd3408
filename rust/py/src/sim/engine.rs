//! `ReplicaEngine`: one replica in time.

use prefixroute_core::sim as core;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use pyo3::{PyTraverseError, PyVisit, intern};

use super::clock::{Action, EventQueue};
use super::prices::StepPrices;
use crate::errors;

/// A replica that serves jobs in virtual time: a queue, and chunked prefill beside decode.
///
/// A step takes up to `chunk_tokens` prompt tokens from the requests in prefill, first come first served, and one token
/// for each decoding request. Steps without prompt tokens are all alike, so a run of them up to the next change is one
/// event: a request costs its chunks plus about two events, not one per token. Not thread-safe: a simulation is one
/// thread.
///
/// Args:
///     model: how steps are built and what they cost, see `prefixroute.sim.EngineModel`.
///     store: admits jobs into its cache and releases them.
///     events: the clock.
///     listener: hears of first tokens and of ends.
#[pyclass(module = "prefixroute._core")]
pub struct ReplicaEngine {
    engine: core::Engine,
    jobs: Jobs,
    host: Surroundings,
    events: Py<EventQueue>,
    listener: Py<PyAny>,
}

/// Jobs by the number under which the core knows them; a number is reused.
#[derive(Default)]
struct Jobs {
    jobs: Vec<Option<Py<PyAny>>>,
    free: Vec<usize>,
}

impl Jobs {
    fn keep(&mut self, job: Py<PyAny>) -> usize {
        if let Some(id) = self.free.pop() {
            self.jobs[id] = Some(job);
            return id;
        }
        self.jobs.push(Some(job));
        self.jobs.len() - 1
    }

    fn get<'py>(&self, py: Python<'py>, id: usize) -> Option<&Bound<'py, PyAny>> {
        self.jobs.get(id)?.as_ref().map(|job| job.bind(py))
    }

    fn take(&mut self, id: usize) -> Option<Py<PyAny>> {
        let job = self.jobs.get_mut(id)?.take();
        if job.is_some() {
            self.free.push(id);
        }
        job
    }
}

struct Surroundings {
    cost: Py<PyAny>,
    overhead_s: f64,
    /// The steps of `cost` as numbers, if it has no formula of its own.
    prices: Option<Py<StepPrices>>,
    store: Py<PyAny>,
}

/// The surroundings at one moment.
struct Moment<'a, 'py> {
    py: Python<'py>,
    now: f64,
    jobs: &'a Jobs,
    host: &'a Surroundings,
}

impl core::Host for Moment<'_, '_> {
    type Error = PyErr;

    fn admit(&mut self, request: usize, alone: bool) -> PyResult<Option<core::Started>> {
        let py = self.py;
        let Some(job) = self.jobs.get(py, request) else { return Ok(None) };
        let options = PyDict::new(py);
        options.set_item(intern!(py, "alone"), alone)?;
        if !self.host.store.bind(py).call_method(intern!(py, "admit"), (job,), Some(&options))?.is_truthy()? {
            return Ok(None);
        }
        job.setattr(intern!(py, "started"), self.now)?;
        let hit_tokens = job.getattr(intern!(py, "hit"))?.extract()?;
        let load_s: f64 = job.getattr(intern!(py, "load_s"))?.extract()?;
        Ok(Some(core::Started { hit_tokens, extra_s: load_s + self.host.overhead_s }))
    }

    fn step_seconds(&mut self, chunks: &[core::Chunk], decodes: usize, context_tokens: i128) -> PyResult<f64> {
        if let Some(prices) = &self.host.prices {
            return Ok(prices.get().prices.step_seconds(chunks, decodes, context_tokens));
        }
        let py = self.py;
        let options = PyDict::new(py);
        options.set_item(intern!(py, "decodes"), decodes)?;
        options.set_item(intern!(py, "decode_context_tokens"), context_tokens)?;
        let cost = self.host.cost.bind(py);
        let chunks = PyList::new(py, chunks)?;
        cost.call_method(intern!(py, "step_seconds"), (chunks,), Some(&options))?.extract()
    }
}

impl ReplicaEngine {
    /// Run `call` on the engine, now; put the end of the step that it began, if any, on the clock.
    fn advance<F>(slf: &Bound<'_, Self>, call: F) -> PyResult<()>
    where
        F: FnOnce(&mut core::Engine, f64, &mut Moment<'_, '_>) -> PyResult<Option<core::Wake>>,
    {
        let py = slf.py();
        let mut this = slf.try_borrow_mut()?;
        let Self { engine, jobs, host, events, .. } = &mut *this;
        let now = events.get().time();
        let wake = call(engine, now, &mut Moment { py, now, jobs, host })?;
        match wake {
            Some(core::Wake { at, version }) => events.get().put(at, Action::Step(slf.clone().unbind(), version)),
            None => Ok(()),
        }
    }

    /// The end of a step: tell of first tokens, release and tell of what is done, and begin the next step.
    pub fn end(slf: &Bound<'_, Self>, version: u64) -> PyResult<()> {
        let py = slf.py();
        let (now, ended, firsts, store, listener) = {
            let mut this = slf.try_borrow_mut()?;
            let now = this.events.get().time();
            let Some(ended) = this.engine.end(version, now) else { return Ok(()) };
            let firsts: Vec<Py<PyAny>> = ended
                .first_tokens
                .iter()
                .filter_map(|&id| this.jobs.get(py, id))
                .map(|job| job.clone().unbind())
                .collect();
            (now, ended.finished, firsts, this.host.store.clone_ref(py), this.listener.clone_ref(py))
        };
        let (store, listener) = (store.bind(py), listener.bind(py));
        for job in firsts {
            job.setattr(py, intern!(py, "first_token"), now)?;
            listener.call_method1(intern!(py, "first_token"), (job,))?;
        }
        for id in ended {
            let Some(job) = slf.try_borrow_mut()?.jobs.take(id) else { continue };
            job.setattr(py, intern!(py, "finished"), now)?;
            store.call_method1(intern!(py, "release"), (&job,))?;
            listener.call_method1(intern!(py, "finished"), (job,))?;
        }
        Self::advance(slf, |engine, now, moment| engine.begin(now, moment))
    }
}

#[pymethods]
impl ReplicaEngine {
    #[new]
    fn new(model: &Bound<'_, PyAny>, store: Py<PyAny>, events: Py<EventQueue>, listener: Py<PyAny>) -> PyResult<Self> {
        let py = model.py();
        let limits = core::Limits {
            // What is too large for the machine is no limit.
            chunk_tokens: model.getattr(intern!(py, "chunk_tokens"))?.extract().unwrap_or(u64::MAX),
            max_running: model.getattr(intern!(py, "max_running"))?.extract().unwrap_or(usize::MAX),
        };
        let cost = model.getattr(intern!(py, "cost"))?;
        let overhead_s = cost.getattr(intern!(py, "overhead_s"))?.extract()?;
        let prices = model.getattr(intern!(py, "prices"))?.extract()?;
        let host = Surroundings { cost: cost.unbind(), overhead_s, prices, store };
        Ok(Self { engine: core::Engine::new(limits), jobs: Jobs::default(), host, events, listener })
    }

    /// Requests that have not been admitted.
    #[getter]
    fn waiting(&self) -> usize {
        self.engine.waiting()
    }

    /// Requests in prefill or decode.
    #[getter]
    fn running(&self) -> usize {
        self.engine.running()
    }

    /// Seconds spent in steps that have ended.
    #[getter]
    fn busy_s(&self) -> f64 {
        self.engine.busy_s()
    }

    /// Take a job. It starts with the next step if there is room.
    ///
    /// Raises:
    ///     ConfigError: a prompt without tokens, or more tokens than 2**32 of prompt or output.
    fn submit(slf: &Bound<'_, Self>, job: Bound<'_, PyAny>) -> PyResult<()> {
        let py = slf.py();
        let request = job.getattr(intern!(py, "request"))?;
        let prompt_tokens = tokens(&request.getattr(intern!(py, "prompt_tokens"))?, 1)?;
        let output_tokens = tokens(&request.getattr(intern!(py, "output_tokens"))?, 0)?;
        let id = slf.try_borrow_mut()?.jobs.keep(job.unbind());
        Self::advance(slf, |engine, now, moment| engine.submit(id, prompt_tokens, output_tokens, now, moment))
    }

    /// Die: return every job that was here, oldest first, and forget them and the step under way.
    fn stop(&mut self) -> Vec<Py<PyAny>> {
        let Self { engine, jobs, events, .. } = self;
        engine.stop(events.get().time()).into_iter().filter_map(|id| jobs.take(id)).collect()
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.events)?;
        visit.call(&self.listener)?;
        visit.call(&self.host.cost)?;
        visit.call(&self.host.store)?;
        self.jobs.jobs.iter().flatten().try_for_each(|job| visit.call(job))
    }

    fn __clear__(&mut self) {
        self.jobs = Jobs::default();
    }

    fn __repr__(&self) -> String {
        format!("<ReplicaEngine running={} waiting={}>", self.engine.running(), self.engine.waiting())
    }
}

fn tokens(count: &Bound<'_, PyAny>, least: u64) -> PyResult<u64> {
    match errors::caught(count.py(), count.extract())? {
        Some(tokens) if (least..=core::MAX_TOKENS).contains(&tokens) => Ok(tokens),
        _ => Err(errors::config(format!("tokens of a request must be {least}..={}, got {count}", core::MAX_TOKENS))),
    }
}
