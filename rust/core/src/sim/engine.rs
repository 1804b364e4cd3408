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
use super::request::{Job, Kept, Request, Served, Stage};
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

    /// End a run of decode steps at the next step boundary, because a request waits or leaves.
    pub(super) fn cut_run(&mut self, now: f64) -> Option<Wake> {
        if self.steps <= 1 || self.step_s <= 0.0 {
            return None;
        }
        #[expect(clippy::cast_sign_loss, reason = "a run does not begin after now; beyond the range it cuts nothing")]
        let done = (((now - self.began) / self.step_s) as u64).saturating_add(1);
        (done < self.steps).then(|| self.wake(done, self.step_s, now))
    }

    fn wake(&mut self, steps: u64, seconds: f64, now: f64) -> Wake {
        self.version += 1;
        (self.steps, self.step_s) = (steps, seconds);
        let at = self.began + steps as f64 * seconds;
        Wake { at: if at < now { now } else { at }, version: self.version }
    }

    /// Choose the next step, or fall idle.
    ///
    /// # Errors
    ///
    /// [`Failure::Price`] where the step has no price, and [`Failure::Cache`] where a request is not what its cache was told before.
    pub fn begin<P: Prices>(&mut self, now: f64, prices: &P) -> Result<Option<Wake>, Failure<P::Error>> {
        self.began = now;
        let mut chunks = Vec::new();
        let preempts = self.make_room()?;
        let extra_s = self.fill(&mut chunks, now, preempts);
        let decodes = self.decoding.len();
        let context = self.context + decodes as i128 * i128::from(self.token);
        if !chunks.is_empty() {
            let seconds = prices.step_seconds(&chunks, decodes, context).map_err(Failure::Price)?;
            return Ok(Some(self.wake(1, seconds + extra_s, now)));
        }
        let Some(next) = self.decoding.peek() else {
            self.steps = 0;
            return Ok(None);
        };
        let most = if preempts { 1 } else { next.last() - self.token };
        let steps = self.steps_with_room(most);
        // The context grows by a token a step for each request: that of the middle step stands for all.
        let middle = context + decodes as i128 * (i128::from(steps) - 1) / 2;
        let seconds = prices.step_seconds(&chunks, decodes, middle).map_err(Failure::Price)?;
        Ok(Some(self.wake(steps, seconds, now)))
    }

    /// Fill a step with prompt tokens, admitting while there is room; return the seconds that starting requests adds.
    fn fill(&mut self, chunks: &mut Vec<Chunk>, now: f64, preempts: bool) -> f64 {
        let mut budget = self.limits.chunk_tokens.saturating_sub(self.decoding.len() as u64).max(1);
        for job in &mut self.prefilling {
            let chunk = job.take(budget);
            budget -= chunk.map_or(0, |(tokens, _)| tokens);
            chunks.extend(chunk);
        }
        let mut extra_s = 0.0;
        while !preempts && budget > 0 && self.running() < self.limits.max_running {
            let Some(mut job) = self.queue.pop_front() else { break };
            let Some(load_s) = self.admit(&mut job, now) else {
                self.queue.push_front(job);
                break;
            };
            if let Stage::Decode { from, .. } = job.stage {
                self.ask(job, from, load_s);
                continue;
            }
            let chunk = job.take(budget);
            budget -= chunk.map_or(0, |(tokens, _)| tokens);
            chunks.extend(chunk);
            extra_s += load_s + self.limits.overhead_s;
            self.prefilling.push(job);
        }
        extra_s
    }

    /// Let a request in if there is room for all of its prompt; the seconds to load what a tier has of it.
    fn admit(&mut self, job: &mut Job, now: f64) -> Option<f64> {
        let alone = self.running() == 0 && self.handed == 0;
        let mut store = locked(&self.store);
        let answered = job.answered_before();
        let admitted = if answered == 0 {
            store.admit(job.prompt(), alone)
        } else {
            let blocks = job.chain(answered, self.block_size, false);
            let tokens = job.prompt().tokens + answered as usize;
            store.admit(Sequence { blocks: &blocks, tokens }, alone)
        }?;
        drop(store);
        self.admitted += 1;
        job.order = self.admitted;
        job.running = admitted.running;
        // The last token is always computed: it gives the next one.
        job.computed = (admitted.hit_tokens as u64).min(job.prompt_tokens - 1).min(job.most_cached);
        if job.served.started.is_nan() {
            (job.served.started, job.served.hit_tokens) = (now, admitted.hit_tokens as u64);
        }
        Some(admitted.load_s)
    }

    /// Reserve the blocks that answers take at a decode step; false if there are too few.
    fn reserve_until(&mut self, step: u64) -> bool {
        let blocks = self.growth.blocks_at(step);
        let fits = blocks == self.reserved || self.store().reserve(blocks);
        if fits {
            self.reserved = blocks;
        }
        fits
    }

    /// Take the blocks that the next decode step needs, preempting the requests that were admitted last while there are
    /// too few; return whether any was.
    fn make_room<E>(&mut self) -> Result<bool, Failure<E>> {
        let mut preempts = false;
        while !self.decoding.is_empty() {
            if self.reserve_until(self.token + 1) {
                break;
            }
            if self.running() == 1 {
                self.outgrow();
            } else {
                self.preempt_last()?;
                preempts = true;
            }
        }
        Ok(preempts)
    }

    /// Let the one request that is left go on without more memory than there is.
    fn outgrow(&mut self) {
        let Some(mut job) = self.decoding.pop() else { return };
        job.outgrown = Some(self.growth.fix(job.prompt_tokens, job.joined, self.token));
        self.decoding.push(job);
        self.store().outgrown();
    }

    /// Decode steps up to `most` for which there is memory, at least one.
    fn steps_with_room(&self, most: u64) -> u64 {
        let room = self.reserved + self.store().room();
        if self.growth.blocks_at(self.token + most) <= room {
            return most;
        }
        let (mut fits, mut beyond) = (1, most);
        while beyond - fits > 1 {
            let steps = u64::midpoint(fits, beyond);
            if self.growth.blocks_at(self.token + steps) <= room {
                fits = steps;
            } else {
                beyond = steps;
            }
        }
        fits
    }

    /// Send the request that was admitted last back to the front of the queue.
    fn preempt_last<E>(&mut self) -> Result<(), Failure<E>> {
        let prefilling = self.prefilling.last().map_or(0, |job| job.order);
        let last = self.decoding.iter().map(|job| job.order).max().unwrap_or(0);
        let job = if prefilling > last {
            self.prefilling.pop().map(|job| self.stop_prefill(job))
        } else {
            self.take_decoding(|job| job.order == last).map(|job| self.stop_decode(job))
        };
        if let Some(job) = job {
            self.preempted += 1;
            self.queue.push_front(job?);
        }
        Ok(())
    }

    fn stop_prefill<E>(&mut self, mut job: Job) -> Result<Job, Failure<E>> {
        if let Some(running) = job.running {
            self.store().preempt(running, Sequence { blocks: &[], tokens: 0 })?;
        }
        job.restart(None);
        Ok(job)
    }

    fn stop_decode<E>(&mut self, mut job: Job) -> Result<Job, Failure<E>> {
        self.leave(&mut job);
        if let Some(running) = job.running {
            let sampled = job.answered_before() + self.token - job.joined;
            let blocks = job.chain(sampled, self.block_size, false);
            let tokens = job.prompt().tokens + sampled as usize;
            self.store().preempt(running, Sequence { blocks: &blocks, tokens })?;
        }
        job.restart(Some(self.token));
        job.stopped = self.began;
        Ok(job)
    }

    /// Take a decoding request out of the sums, and give back what its answer had reserved.
    fn leave(&mut self, job: &mut Job) {
        job.served.late_gaps += self.late - job.late_before;
        self.counted -= u64::from(self.counts(job));
        self.context -= i128::from(job.prompt_tokens) - i128::from(job.joined);
        match job.outgrown {
            Some(blocks) => self.growth.unfix(blocks),
            None if job.running.is_some() => self.growth.remove(job.prompt_tokens, job.joined),
            None => {}
        }
        self.reserve_until(self.token);
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

    /// Whether the gaps of a request are counted.
    fn counts(&self, job: &Job) -> bool {
        job.request.number >= self.limits.warmup
    }

    /// Whether a gap of so many seconds is late.
    fn is_late(&self, seconds: f64) -> bool {
        seconds > self.limits.late_s
    }

    /// Take out the requests whose last token is out.
    fn pop_finished<E>(&mut self, ended: &mut Ended) -> Result<(), Failure<E>> {
        while self.decoding.peek().is_some_and(|job| job.last() <= self.token) {
            let Some(mut job) = self.decoding.pop() else { break };
            self.leave(&mut job);
            self.release(job, ended)?;
        }
        Ok(())
    }

    /// Let complete prefills decode, or be done if their next token is their last.
    fn pass_to_decode<E>(&mut self, ended: &mut Ended, now: f64, gaps: &mut Gaps) -> Result<(), Failure<E>> {
        let done = self.prefilling.iter().take_while(|job| job.computed == job.prompt_tokens).count();
        if done == 0 {
            return Ok(());
        }
        let rest = self.prefilling.split_off(done);
        for mut job in std::mem::replace(&mut self.prefilling, rest) {
            if job.has_answered() {
                gaps.add(now - job.stopped, u64::from(self.counts(&job)));
                job.served.late_gaps += u64::from(self.is_late(now - job.stopped));
            } else {
                job.served.prefilled = now;
            }
            match job.stage {
                Stage::Prefill { to } => self.hand_over(job, to, ended),
                Stage::Whole | Stage::Decode { .. } => self.answer(job, ended, now)?,
            }
        }
        Ok(())
    }

    /// Let a request decode whose next token is out, or be done if that is its last.
    fn answer<E>(&mut self, mut job: Job, ended: &mut Ended, now: f64) -> Result<(), Failure<E>> {
        if !job.has_answered() {
            job.served.first_token = now;
            ended.first_tokens.push(job.served);
        }
        if job.output_tokens <= 1 {
            return self.release(job, ended);
        }
        self.context += i128::from(job.prompt_tokens) - i128::from(self.token);
        self.joined += 1;
        (job.joined, job.rank, job.late_before) = (self.token, self.joined, self.late);
        self.counted += u64::from(self.counts(&job));
        if job.running.is_some() {
            self.growth.add(job.prompt_tokens, job.joined);
        }
        self.decoding.push(job);
        Ok(())
    }

    /// Give the memory of a request back, whose last token is out.
    fn release<E>(&mut self, job: Job, ended: &mut Ended) -> Result<(), Failure<E>> {
        let cached = (job.answered_before() + job.output_tokens).saturating_sub(1);
        let (prompt, known) = (job.prompt(), job.request.context.get());
        let tokens = prompt.tokens + cached as usize;
        if known.blocks.len() >= tokens / self.block_size {
            self.store().release(job.running, prompt, Sequence { blocks: known.blocks, tokens })?;
        } else {
            let blocks = job.chain(cached, self.block_size, true);
            self.store().release(job.running, prompt, Sequence { blocks: &blocks, tokens })?;
        }
        ended.finished.push((*job.request, job.served));
        Ok(())
    }
}

fn locked(store: &Mutex<Store>) -> MutexGuard<'_, Store> {
    // A panic under the lock would be a defect of the core; the store is still memory-safe.
    store.lock().unwrap_or_else(PoisonError::into_inner)
}

mod handover;
pub(super) use handover::Transfer;

#[cfg(test)]
mod tests;
