//! What decisions read of a belief and of a ledger.

use numpy::{PyArray1, PyArrayMethods};
use prefixroute_core::BlockHash;
use prefixroute_core::replica_cache::SharedSequence;
use prefixroute_core::routing::{self as core, Signal};
use pyo3::prelude::*;
use pyo3::types::{PyList, PyString, PyTuple};
use pyo3::{PyTraverseError, PyVisit, intern};

use super::ledger::Ledger;
use super::sight::Sight;
use crate::columns;
use crate::errors;
use crate::hashes::{BlockHashes, hash_values};
use crate::index::PrefixIndex;
use crate::ints::hash_of;
use crate::out::not_an_out_array;

/// What a policy reads, and how.
///
/// Args:
///     block_size: tokens of a block. A hit is at most the full blocks before the last token, which engines recompute.
///     wanted: places in `Kernel.SIGNALS` of what is kept for the policy.
///     head: tokens of the prompt's head, or a function that gives them for the prompt's length.
///     credits: what tokens count on each medium, as an array; None: all count in full.
#[pyclass(frozen, module = "prefixroute._core")]
pub struct Lens {
    block_size: usize,
    signals: Vec<Signal>,
    head: Option<Head>,
    credits: Option<Py<PyAny>>,
}

/// What replicas hold of a prompt.
struct Hits {
    tokens: Vec<u32>,
    /// Hash of the block at whose end the prompt leaves what is known.
    branch: Option<u64>,
    head: Option<u64>,
}

/// How long the head is that stands for a prompt.
enum Head {
    Tokens(usize),
    Function(Py<PyAny>),
}

#[pymethods]
impl Lens {
    #[new]
    #[pyo3(signature = (block_size, wanted, head, credits=None))]
    fn new(
        block_size: usize,
        wanted: &Bound<'_, PyTuple>,
        head: &Bound<'_, PyAny>,
        credits: Option<Py<PyAny>>,
    ) -> PyResult<Self> {
        let signals = wanted.iter_borrowed().filter_map(|place| Signal::ALL.get(hash_of(&place)? as usize));
        let signals: Vec<Signal> = signals.map(|&(_, signal)| signal).collect();
        let is_wanted = signals.contains(&Signal::Head);
        let head = is_wanted.then(|| match hash_of(head) {
            Some(tokens) => Head::Tokens(usize::try_from(tokens).unwrap_or(usize::MAX)),
            None => Head::Function(head.clone().unbind()),
        });
        if block_size == 0 {
            return Err(errors::config("block size must be 1 or more, got 0"));
        }
        Ok(Self { block_size, signals, head, credits })
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        if let Some(Head::Function(function)) = &self.head {
            visit.call(function)?;
        }
        visit.call(&self.credits)
    }
}

impl Lens {
    /// The hash of a prompt's head; none if it has no full block, or if nobody asks.
    fn head_of(&self, blocks: &Bound<'_, PyAny>, prompt_tokens: usize) -> PyResult<Option<u64>> {
        let tokens = match &self.head {
            None => return Ok(None),
            Some(Head::Tokens(tokens)) => *tokens,
            Some(Head::Function(function)) => function.bind(blocks.py()).call1((prompt_tokens,))?.extract()?,
        };
        let count = blocks.len()?.min((tokens / self.block_size).max(1));
        count.checked_sub(1).map(|last| hash_at(blocks, last)).transpose()
    }

    /// What counts of the tokens that each slot holds, where the prompt leaves them, and its head.
    fn hits(&self, belief: &Bound<'_, PyAny>, blocks: &Bound<'_, PyAny>, mut tokens: Vec<u32>) -> PyResult<Hits> {
        let prompt_tokens = token_count(blocks)?;
        let limit = prompt_tokens.saturating_sub(1) / self.block_size * self.block_size;
        let most_told = u32::try_from(limit).unwrap_or(u32::MAX);
        for hit in &mut tokens {
            *hit = (*hit).min(most_told);
        }
        let branch = match tokens.iter().copied().max().unwrap_or(0) as usize {
            most if 0 < most && most < limit => Some(hash_at(blocks, most / self.block_size - 1)?),
            _ => None,
        };
        if let Some(worth) = self.worth(belief, blocks)? {
            tokens = worth.into_iter().map(|tokens| whole(tokens.min(f64::from(most_told)))).collect();
        }
        Ok(Hits { tokens, branch, head: self.head_of(blocks, prompt_tokens)? })
    }

    /// What of the held tokens counts, where that is not all of them.
    fn worth(&self, belief: &Bound<'_, PyAny>, blocks: &Bound<'_, PyAny>) -> PyResult<Option<Vec<f64>>> {
        let Some(credits) = &self.credits else { return Ok(None) };
        let media = belief.call_method1(intern!(belief.py(), "match_media"), (blocks,))?;
        columns::read(&media.matmul(credits)?).map(Some)
    }
}

#[pymethods]
impl Ledger {
    /// What a decision sees: the prompt hashed and matched, and what the ledger knows, in one call.
    ///
    /// Args:
    ///     lens: what is read.
    ///     belief: what each replica is believed to hold.
    ///     prompt: as the belief takes it.
    ///     namespace: what else must be equal.
    ///     width: slots.
    ///     session: the request's session.
    ///     now: seconds.
    ///     load: which of `LOADS` is balanced, by its place; or the loads.
    ///     kv_at: slot of the replica that computes the prompt, where it is decided who decodes.
    ///     scale: of the hits, from the router's tokens to the engine's.
    ///
    /// Returns:
    ///     The prompt's hashes, and the sight.
    ///
    /// Raises:
    ///     TokensError: the prompt holds something that is no token id.
    ///     ConfigError: the hashes are of other blocks or another key, or a load is no number.
    #[pyo3(signature = (lens, belief, prompt, namespace, width, session, now, load, kv_at=None,
        scale=1.0, /))]
    #[expect(clippy::too_many_arguments, reason = "a decision, without an object in between")]
    fn look<'py>(
        &self,
        lens: &Bound<'py, Lens>,
        belief: &Bound<'py, PyAny>,
        prompt: &Bound<'py, PyAny>,
        namespace: Option<&Bound<'py, PyAny>>,
        width: usize,
        session: Option<&Bound<'py, PyString>>,
        now: f64,
        load: &Bound<'py, PyAny>,
        kv_at: Option<usize>,
        scale: f64,
    ) -> PyResult<(Bound<'py, PyAny>, Sight)> {
        let lens = lens.get();
        let (blocks, hits) = matched(belief, prompt, namespace, width)?;
        let of = lens.hits(belief, &blocks, hits)?;
        let (booked, given) = match hash_of(load) {
            Some(place) => (core::Balanced::ALL.get(place as usize), Vec::new()),
            None => (None, columns::read(load)?),
        };
        let (session, mut hits) = (self.optional_name(session)?, of.tokens);
        let active = if self.counts_active { Some(shared(&blocks)?) } else { None };
        let ledger = self.lock();
        for slot in ledger.trust.distrusted_slots() {
            hits.get_mut(slot).into_iter().for_each(|hit| *hit = 0);
        }
        for hit in &mut hits {
            *hit = whole(f64::from(*hit) * scale);
        }
        let reading = ledger.reading(active.as_ref().map_or(&[], |active| active.get().blocks), now);
        let signal = |&signal: &Signal| Some((signal, signal.read(reading)?));
        let sight = Sight {
            hits,
            loads: booked.map_or(given, |(_, load)| ledger.book.balanced(*load)),
            binding: session.and_then(|session| ledger.bound(session, now)),
            branch: of.branch,
            shared: of.branch.map(|branch| ledger.heads.share(BlockHash(branch))),
            head: of.head,
            kv_at,
            active: active.clone(),
            signals: lens.signals.iter().filter_map(signal).collect(),
        };
        Ok((blocks, sight))
    }

    /// Names of the loads that a ledger knows.
    #[classattr]
    #[pyo3(name = "LOADS")]
    fn load_names(py: Python<'_>) -> PyResult<Bound<'_, PyTuple>> {
        PyTuple::new(py, core::Balanced::ALL.map(|(name, _)| name))
    }

    /// A load by slot, by its place in `LOADS`.
    #[pyo3(signature = (load, /))]
    fn balanced<'py>(&self, py: Python<'py>, load: usize) -> PyResult<Bound<'py, PyList>> {
        let (_, what) = core::Balanced::ALL[load];
        let loads = self.lock().book.balanced(what);
        PyList::new(py, loads)
    }

    /// What is in flight, by slot.
    fn loads(slf: Py<Self>) -> LoadCounts {
        LoadCounts { ledger: slf }
    }

    #[getter]
    fn since_requests<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        self.column(py, |book| &book.since_requests)
    }

    #[getter]
    fn since_tokens<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        self.column(py, |book| &book.since_tokens)
    }

    #[getter]
    fn rates<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        self.column(py, |book| &book.rates)
    }

    /// A replica has reported its load: what was booked before is in the report.
    fn reported(&self, slot: usize) {
        self.lock().book.reported(slot);
    }
}

/// Requests and tokens by slot, as they are when they are read.
#[pyclass(frozen, module = "prefixroute._core")]
pub struct LoadCounts {
    ledger: Py<Ledger>,
}

impl LoadCounts {
    fn column<'py>(&self, py: Python<'py>, of: impl Fn(&core::Counts) -> &Vec<i64>) -> PyResult<Bound<'py, PyList>> {
        self.ledger.get().column(py, |book| of(&book.live))
    }
}

#[pymethods]
impl LoadCounts {
    #[getter]
    fn in_flight<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        self.column(py, |counts| &counts.in_flight)
    }

    #[getter]
    fn queued<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        self.column(py, |counts| &counts.queued)
    }

    #[getter]
    fn decoding<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        self.column(py, |counts| &counts.decoding)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.ledger)
    }
}

/// A prompt hashed, and the tokens of it that each of some slots holds.
fn matched<'py>(
    belief: &Bound<'py, PyAny>,
    prompt: &Bound<'py, PyAny>,
    namespace: Option<&Bound<'py, PyAny>>,
    width: usize,
) -> PyResult<(Bound<'py, PyAny>, Vec<u32>)> {
    let py = belief.py();
    if let Ok(index) = belief.cast::<PrefixIndex>() {
        let (hashes, held) = index.get().hash_and_hold(py, prompt, namespace, width)?;
        return Ok((hashes.into_any(), held));
    }
    let out = PyArray1::<u32>::zeros(py, width, false);
    let blocks = belief.call_method1(intern!(py, "hash_and_match"), (prompt, &out, namespace))?;
    let held = out.try_readonly().map_err(|_| not_an_out_array())?;
    let held = held.as_slice().map_err(|_| not_an_out_array())?.to_vec();
    Ok((blocks, held))
}

/// A prompt's blocks as they are kept, of whatever class a belief has for prompts.
fn shared(blocks: &Bound<'_, PyAny>) -> PyResult<SharedSequence> {
    if let Ok(hashes) = blocks.cast::<BlockHashes>() {
        return Ok(hashes.get().shared());
    }
    let array = blocks.getattr(intern!(blocks.py(), "array"))?;
    let hashes: Vec<_> = hash_values(&array)?.iter().copied().map(BlockHash).collect();
    let count = hashes.len();
    Ok(SharedSequence::new(hashes.into(), count, token_count(blocks)?))
}

/// Tokens of a prompt, of whatever class a belief has for prompts.
fn token_count(blocks: &Bound<'_, PyAny>) -> PyResult<usize> {
    match blocks.cast::<BlockHashes>() {
        Ok(hashes) => Ok(hashes.get().tokens()),
        Err(_) => blocks.getattr(intern!(blocks.py(), "token_count"))?.extract(),
    }
}

/// The whole tokens of a count that is 0 or more.
#[expect(clippy::cast_sign_loss, reason = "none is below 0")]
fn whole(tokens: f64) -> u32 {
    tokens as u32
}

/// The hash of a block of a prompt, of whatever class a belief has for prompts.
fn hash_at(blocks: &Bound<'_, PyAny>, block: usize) -> PyResult<u64> {
    if let Ok(hashes) = blocks.cast::<BlockHashes>() {
        return hashes.get().hash_at(block);
    }
    blocks.call_method1(intern!(blocks.py(), "hash_at"), (block,))?.extract()
}
