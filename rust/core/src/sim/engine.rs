//! One replica on a clock: a queue, chunked prefill beside decode, and the memory that both take.
//!
//! A *step* takes up to `chunk_tokens` prompt tokens from the requests in prefill, first come first served, and one token
//! for each decoding request. Steps without prompt tokens are all alike, so a run of them up to the next change is one
//! event: a request costs its chunks plus about two events, not one per token.
//!
//! An answer takes memory as it grows, block by block. When blocks run out, the request that was admitted last is
//! preempted, as vLLM does: it goes back to the front of the queue, what it has computed stays as ordinary cached blocks,
//! and what of it is evicted meanwhile is computed again. Nobody is admitted in a step that preempts.
//!
//! A request may be prefilled by one replica and decoded by another, see [`handover`].

use std::collections::{BinaryHeap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::clock::NotInOrder;
use super::gaps::Gaps;
use super::growth::Growth;
use super::request::{Job, Kept, Request, Served};
use super::store::Store;
use crate::replica_cache::{Refused, Sequence};

/// Tokens of a prompt or an output above which a request is refused: more than any model reads or writes.
pub const MAX_TOKENS: u64 = 1 << 32;

/// How steps are built.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Tokens of one step.
    pub chunk_tokens: u64,
    /// Requests in prefill or decode at once.
    pub max_running: usize,
    /// Seconds that admitting a request adds to a step.
    pub overhead_s: f64,
    /// Requests with a smaller number only warm the caches: their tokens are in no gap that is counted.
    pub warmup: u64,
    /// Seconds above which a gap between two tokens is late; infinite = none is.
    pub late_s: f64,
}

/// Prompt tokens computed in one step, and the tokens of that prompt before them.
pub type Chunk = (u64, u64);

/// What a step costs.
pub trait Prices {
    /// Why there is no price.
    type Error;

    /// Seconds of a step with these chunks, beside `decodes` requests with `context_tokens` all together.
    ///
    /// # Errors
    ///
    /// The step has no price.
    fn step_seconds(&self, chunks: &[Chunk], decodes: usize, context_tokens: i128) -> Result<f64, Self::Error>;
}

impl Prices for super::StepPrices {
    type Error = std::convert::Infallible;

    fn step_seconds(&self, chunks: &[Chunk], decodes: usize, context_tokens: i128) -> Result<f64, Self::Error> {
        Ok(self.step_seconds(chunks, decodes, context_tokens))
    }
}

/// Why a run cannot go on.
#[derive(Debug)]
pub enum Failure<E> {
    /// A step has no price.
    Price(E),
    /// A step has a price that is no time.
    Clock(NotInOrder),
    /// A request is not what its cache was told before.
    Cache(Refused),
}

impl<E> From<Refused> for Failure<E> {
    fn from(refused: Refused) -> Self {
        Self::Cache(refused)
    }
}

/// The end of a step, to be put on the clock; only the newest counts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Wake {
    /// Second at which to call [`Engine::end`].
    pub at: f64,
    /// To be given back to it.
    pub version: u64,
}

/// What a step gave, each in order.
#[derive(Debug, Default)]
pub struct Ended {
    /// Requests whose first token is out.
    pub first_tokens: Vec<Served>,
    /// Requests whose last token is out, which may be their first.
    pub finished: Vec<(Request, Served)>,
    /// Numbers of requests that were aborted.
    pub aborted: Vec<u64>,
    /// Requests whose prompt is computed, to be decoded by another replica.
    pub(super) prefilled: Vec<(usize, Job)>,
}

/// A replica that serves requests in virtual time.
#[derive(Debug)]
pub struct Engine {
    limits: Limits,
    store: Arc<Mutex<Store>>,
    block_size: usize,
    queue: VecDeque<Job>,
    prefilling: Vec<Job>,
    decoding: BinaryHeap<Job>,
    /// Tokens of the decoding requests, less the decode steps that each had seen when it joined.
    context: i128,
    /// Blocks that answers under way take, and how many of them the store has reserved.
    growth: Growth,
    reserved: usize,
    /// Decode steps so far: the clock on which outputs end.
    token: u64,
    admitted: u64,
    joined: u64,
    preempted: u64,
    /// Numbers of requests to be taken out when the step under way ends.
    aborting: Vec<u64>,
    version: u64,
    began: f64,
    /// In the event under way; 0 = idle.
    steps: u64,
    step_s: f64,
    busy_s: f64,
    /// Decoding requests whose gaps are counted.
    counted: u64,
    /// Decode steps so far that were late.
    late: u64,
    /// Admitted requests whose keys and values are on their way, and those that decode from the next step on.
    moving: Vec<Job>,
    landed: Vec<Job>,
    /// Transfers that have been asked for, and those that nobody has taken in hand.
    asked: u64,
    transfers: Vec<Transfer>,
    /// Requests that are gone but for their keys and values.
    handed: usize,
}

impl Engine {
    /// An idle engine over a store.
    pub fn new(limits: Limits, store: Arc<Mutex<Store>>) -> Self {
        let block_size = locked(&store).cache().block_size();
        Self {
            limits,
            store,
            block_size,
            queue: VecDeque::new(),
            prefilling: Vec::new(),
            decoding: BinaryHeap::new(),
            context: 0,
            growth: Growth::new(block_size),
            reserved: 0,
            token: 0,
            admitted: 0,
            joined: 0,
            preempted: 0,
            aborting: Vec::new(),
            version: 0,
            began: 0.0,
            steps: 0,
            step_s: 0.0,
            busy_s: 0.0,
            counted: 0,
            late: 0,
            moving: Vec::new(),
            landed: Vec::new(),
            asked: 0,
            transfers: Vec::new(),
            handed: 0,
        }
    }

    /// Requests that have not been admitted.
    pub fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// Requests in prefill or decode, or waiting for their keys and values.
    pub fn running(&self) -> usize {
        self.prefilling.len() + self.decoding.len() + self.moving.len() + self.landed.len()
    }

    /// Whether no step is under way.
    pub(super) fn is_idle(&self) -> bool {
        self.steps == 0
    }

    /// Seconds spent in steps that have ended.
    pub fn busy_s(&self) -> f64 {
        self.busy_s
    }

    /// How many times a request was preempted.
    pub fn preempted(&self) -> u64 {
        self.preempted
    }

    /// What the replica holds.
    pub fn store(&self) -> MutexGuard<'_, Store> {
        locked(&self.store)
    }

    /// Take a request. It starts with the next step if there is room.
    ///
    /// # Errors
    ///
    /// As [`Self::begin`].
    pub fn submit<P: Prices>(
        &mut self,
        request: Request,
        now: f64,
        prices: &P,
    ) -> Result<Option<Wake>, Failure<P::Error>> {
        self.take(Job::new(request), now, prices)
    }

    /// Take a job, in the same way.
    pub(super) fn take<P: Prices>(
        &mut self,
        job: Job,
        now: f64,
        prices: &P,
    ) -> Result<Option<Wake>, Failure<P::Error>> {
        self.queue.push_back(job);
        if self.steps == 0 {
            return self.begin(now, prices);
        }
        Ok(if self.queue.len() == 1 { self.cut_run(now) } else { None })
    }

    /// Stop at second `now`: give back every request, in the order in which they started, then those that wait. Their prompts
    /// stay cached.
    pub(super) fn stop(&mut self, now: f64) -> Vec<Job> {
        if self.steps > 0 {
            self.busy_s += now - self.began;
        }
        self.store().reserve(0);
        let mut jobs: Vec<Job> = self.decoding.drain().chain(self.prefilling.drain(..)).collect();
        jobs.extend(self.moving.drain(..).chain(self.landed.drain(..)));
        for running in jobs.iter().filter_map(|job| job.running) {
            // A request that the cache knows can always be given up.
            let _ = self.store().preempt(running, Sequence { blocks: &[], tokens: 0 });
        }
        jobs.sort_unstable_by_key(|job| job.order);
        jobs.extend(self.queue.drain(..));
        (self.context, self.reserved, self.steps, self.counted, self.handed) = (0, 0, 0, 0, 0);
        self.growth = Growth::new(self.block_size);
        self.aborting.clear();
        self.transfers.clear();
        self.version += 1;
        jobs
    }

    /// Drop a request whose client has gone, at second `now`; whether it waited and is gone at once. One that runs is taken
    /// out between two steps, as engines do: it is in [`Ended::aborted`] of the step under way, unless that finishes it.
    pub(super) fn abort(&mut self, number: u64, now: f64) -> (bool, Option<Wake>, Option<Kept>) {
        if let Some((_, kept)) = self.withdraw(number) {
            return (true, None, kept);
        }
        self.aborting.push(number);
        (false, self.cut_run(now), None)
    }

    /// Take out the requests that were aborted during the step that ends. What they have computed stays cached.
    fn pop_aborted<E>(&mut self, ended: &mut Ended) -> Result<(), Failure<E>> {
        for number in std::mem::take(&mut self.aborting) {
            if let Some(at) = self.prefilling.iter().position(|job| job.request.number == number) {
                let job = self.prefilling.remove(at);
                self.stop_prefill(job)?;
                ended.aborted.push(number);
            } else if let Some(job) = self.take_decoding(|job| job.request.number == number) {
                self.stop_decode(job)?;
                ended.aborted.push(number);
            }
        }
        Ok(())
    }

    /// Take the decoding request out that is meant, if any is.
    fn take_decoding(&mut self, is_meant: impl Fn(&Job) -> bool) -> Option<Job> {
        let mut taken = None;
        for job in std::mem::take(&mut self.decoding).into_vec() {
            if is_meant(&job) { taken = Some(job) } else { self.decoding.push(job) }
        }
        taken
    }

    /// Close the step or run under way: tokens out, requests on, and the gaps between tokens counted. `None` if `version`
    /// is stale: the run was cut short, or the replica died. Else [`Self::begin`] has to follow.
    ///
    /// # Errors
    ///
    /// [`Failure::Cache`] where a request is not what its cache was told before.
    pub fn end<E>(&mut self, version: u64, now: f64, gaps: &mut Gaps) -> Result<Option<Ended>, Failure<E>> {
        if version != self.version {
            return Ok(None);
        }
        self.busy_s += now - self.began;
        let steps = std::mem::replace(&mut self.steps, 1); // until the next one begins there is no run to cut
        let mut ended = Ended::default();
        if !self.decoding.is_empty() {
            gaps.add(self.step_s, steps * self.counted);
            self.late += steps * u64::from(self.is_late(self.step_s));
            self.token += steps;
            self.reserve_until(self.token);
            self.pop_finished(&mut ended)?;
        }
        self.pass_to_decode(&mut ended, now, gaps)?;
        self.take_landed(&mut ended, now)?;
        if !self.aborting.is_empty() {
            self.pop_aborted(&mut ended)?;
        }
        Ok(Some(ended))
    }
}

fn locked(store: &Mutex<Store>) -> MutexGuard<'_, Store> {
    // A panic under the lock would be a defect of the core; the store is still memory-safe.
    store.lock().unwrap_or_else(PoisonError::into_inner)
}

mod answers;
mod handover;
mod memory;
mod step;

pub(super) use handover::Transfer;

#[cfg(test)]
mod tests;
