//! One replica in time: a queue, chunked prefill beside decode.
//!
//! A *step* takes up to `chunk_tokens` prompt tokens from the requests in prefill, first come first served, and one token
//! for each decoding request. Steps without prompt tokens are all alike, so a run of them up to the next change is one
//! event: a request costs its chunks plus about two events, not one per token.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// Tokens of a prompt or an output above which a request is refused: more than any model reads or writes.
pub const MAX_TOKENS: u64 = 1 << 32;

/// How steps are built.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Tokens of one step.
    pub chunk_tokens: u64,
    /// Requests in prefill or decode at once.
    pub max_running: usize,
}

/// Prompt tokens computed in one step, and the tokens of that prompt before them.
pub type Chunk = (u64, u64);

/// An admitted request: what its cache spares it.
#[derive(Clone, Copy, Debug)]
pub struct Started {
    /// Leading prompt tokens that need no prefill.
    pub hit_tokens: u64,
    /// Seconds that starting it adds to its first step.
    pub extra_s: f64,
}

/// The caller's number of a request.
pub type RequestId = usize;

/// What surrounds an engine: the cache that admits, and the price of a step.
pub trait Host {
    /// Why it failed.
    type Error;

    /// Room for a request; `None` if there is none beside the running ones. `alone`: nothing else runs.
    fn admit(&mut self, request: RequestId, alone: bool) -> Result<Option<Started>, Self::Error>;

    /// Seconds of a step with these chunks, beside `decodes` requests with `context_tokens` all together.
    fn step_seconds(&mut self, chunks: &[Chunk], decodes: usize, context_tokens: i128) -> Result<f64, Self::Error>;
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
    /// Requests whose prefill is done.
    pub first_tokens: Vec<RequestId>,
    /// Requests whose last token is out, which may be their first.
    pub finished: Vec<RequestId>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Job {
    id: RequestId,
    prompt_tokens: u64,
    output_tokens: u64,
    computed: u64,
    /// How many were admitted before.
    order: u64,
}

impl Job {
    /// Add up to `budget` of the prompt's remaining tokens to a step; return how many.
    fn take(&mut self, budget: u64, chunks: &mut Vec<Chunk>) -> u64 {
        let tokens = budget.min(self.prompt_tokens - self.computed);
        if tokens > 0 {
            chunks.push((tokens, self.computed));
            self.computed += tokens;
        }
        tokens
    }
}

/// A decoding request: the decode step that ends it, and its number among those that have joined; the next to end first.
type Decoding = Reverse<(u64, u64, Job)>;

/// A replica that serves requests in virtual time.
#[derive(Debug)]
pub struct Engine {
    limits: Limits,
    queue: VecDeque<Job>,
    prefilling: Vec<Job>,
    decoding: BinaryHeap<Decoding>,
    /// Tokens of the decoding requests, less the decode steps that each had seen when it joined.
    context: i128,
    /// Decode steps so far: the clock on which outputs end.
    token: u64,
    admitted: u64,
    joined: u64,
    version: u64,
    began: f64,
    /// In the event under way; 0 = idle.
    steps: u64,
    step_s: f64,
    busy_s: f64,
}

impl Engine {
    /// An idle engine.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            queue: VecDeque::new(),
            prefilling: Vec::new(),
            decoding: BinaryHeap::new(),
            context: 0,
            token: 0,
            admitted: 0,
            joined: 0,
            version: 0,
            began: 0.0,
            steps: 0,
            step_s: 0.0,
            busy_s: 0.0,
        }
    }

    /// Requests that have not been admitted.
    pub fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// Requests in prefill or decode.
    pub fn running(&self) -> usize {
        self.prefilling.len() + self.decoding.len()
    }

    /// Seconds spent in steps that have ended.
    pub fn busy_s(&self) -> f64 {
        self.busy_s
    }

    /// Take a request of 1 to [`MAX_TOKENS`] prompt tokens. It starts with the next step if there is room.
    pub fn submit<H: Host>(
        &mut self,
        id: RequestId,
        prompt_tokens: u64,
        output_tokens: u64,
        now: f64,
        host: &mut H,
    ) -> Result<Option<Wake>, H::Error> {
        self.queue.push_back(Job { id, prompt_tokens, output_tokens, computed: 0, order: 0 });
        if self.steps == 0 {
            return self.begin(now, host);
        }
        Ok(if self.steps > 1 && self.queue.len() == 1 { self.cut_run(now) } else { None })
    }

    /// Die at second `now`: give back every request, in the order in which they started, then those that wait.
    pub fn stop(&mut self, now: f64) -> Vec<RequestId> {
        if self.steps > 0 {
            self.busy_s += now - self.began;
        }
        let decoding = self.decoding.drain().map(|Reverse((_, _, job))| job);
        let mut jobs: Vec<Job> = decoding.chain(self.prefilling.drain(..)).collect();
        jobs.sort_unstable_by_key(|job| job.order);
        jobs.extend(self.queue.drain(..));
        self.context = 0;
        self.steps = 0;
        self.version += 1;
        jobs.into_iter().map(|job| job.id).collect()
    }

    /// End a run of decode steps at the next step boundary, because a request waits.
    fn cut_run(&mut self, now: f64) -> Option<Wake> {
        if self.step_s <= 0.0 {
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
    pub fn begin<H: Host>(&mut self, now: f64, host: &mut H) -> Result<Option<Wake>, H::Error> {
        self.began = now;
        let mut chunks = Vec::new();
        let extra_s = self.fill(&mut chunks, host)?;
        let decodes = self.decoding.len();
        let context = self.context + decodes as i128 * i128::from(self.token);
        if !chunks.is_empty() {
            let seconds = host.step_seconds(&chunks, decodes, context)?;
            return Ok(Some(self.wake(1, seconds + extra_s, now)));
        }
        let Some(&Reverse((last, ..))) = self.decoding.peek() else {
            self.steps = 0;
            return Ok(None);
        };
        let steps = last - self.token;
        // The context grows by a token a step for each request: that of the middle step stands for all.
        let middle = context + decodes as i128 * (i128::from(steps) - 1) / 2;
        let seconds = host.step_seconds(&chunks, decodes, middle)?;
        Ok(Some(self.wake(steps, seconds, now)))
    }

    /// Fill a step with prompt tokens, admitting while there is room; return the seconds that starting requests adds.
    fn fill<H: Host>(&mut self, chunks: &mut Vec<Chunk>, host: &mut H) -> Result<f64, H::Error> {
        let mut budget = self.limits.chunk_tokens.saturating_sub(self.decoding.len() as u64).max(1);
        let mut extra_s = 0.0;
        for job in &mut self.prefilling {
            budget -= job.take(budget, chunks);
        }
        while budget > 0 && self.running() < self.limits.max_running {
            let Some(&(mut job)) = self.queue.front() else { break };
            let Some(started) = host.admit(job.id, self.running() == 0)? else { break };
            self.queue.pop_front();
            self.admitted += 1;
            job.order = self.admitted;
            job.computed = started.hit_tokens.min(job.prompt_tokens - 1); // the last token is always computed
            budget -= job.take(budget, chunks);
            extra_s += started.extra_s;
            self.prefilling.push(job);
        }
        Ok(extra_s)
    }

    /// Close the step or run under way: tokens out, requests on. `None` if `version` is stale: the run was cut short, or
    /// the replica died. Else [`Self::begin`] has to follow, once what has finished is out of the cache.
    pub fn end(&mut self, version: u64, now: f64) -> Option<Ended> {
        if version != self.version {
            return None;
        }
        self.busy_s += now - self.began;
        let mut ended = Ended::default();
        if !self.decoding.is_empty() {
            self.token += self.steps;
            self.pop_finished(&mut ended);
        }
        self.pass_to_decode(&mut ended);
        Some(ended)
    }

    /// Take out the requests whose last token is out.
    fn pop_finished(&mut self, ended: &mut Ended) {
        while let Some(&Reverse((last, _, job))) = self.decoding.peek() {
            if last > self.token {
                break;
            }
            self.decoding.pop();
            self.context -= i128::from(job.prompt_tokens) - (i128::from(last) - i128::from(job.output_tokens) + 1);
            ended.finished.push(job.id);
        }
    }

    /// Let complete prefills decode, or be done if their first token is their only one.
    fn pass_to_decode(&mut self, ended: &mut Ended) {
        let Self { prefilling, decoding, context, token, joined, .. } = self;
        prefilling.retain(|job| {
            if job.computed < job.prompt_tokens {
                return true;
            }
            ended.first_tokens.push(job.id);
            if job.output_tokens <= 1 {
                ended.finished.push(job.id);
                return false;
            }
            *context += i128::from(job.prompt_tokens) - i128::from(*token);
            *joined += 1;
            decoding.push(Reverse((*token + job.output_tokens - 1, *joined, *job)));
            false
        });
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test that panics has failed")]
mod tests {
    use super::*;

    /// A second a prompt token, ten a decode step; room for `room` requests.
    struct Linear {
        room: usize,
        steps: Vec<(Vec<Chunk>, usize, i128)>,
    }

    impl Host for Linear {
        type Error = std::convert::Infallible;

        fn admit(&mut self, _: RequestId, alone: bool) -> Result<Option<Started>, Self::Error> {
            if self.room == 0 && !alone {
                return Ok(None);
            }
            self.room = self.room.saturating_sub(1);
            Ok(Some(Started { hit_tokens: 0, extra_s: 0.0 }))
        }

        fn step_seconds(&mut self, chunks: &[Chunk], decodes: usize, context: i128) -> Result<f64, Self::Error> {
            self.steps.push((chunks.to_vec(), decodes, context));
            let tokens: u64 = chunks.iter().map(|chunk| chunk.0).sum();
            Ok(tokens as f64 + if decodes > 0 { 10.0 } else { 0.0 })
        }
    }

    fn run(engine: &mut Engine, host: &mut Linear, mut wake: Option<Wake>) -> Vec<(RequestId, f64)> {
        let mut finished = Vec::new();
        while let Some(Wake { at, version }) = wake {
            let ended = engine.end(version, at).unwrap();
            host.room += ended.finished.len();
            finished.extend(ended.finished.into_iter().map(|id| (id, at)));
            wake = engine.begin(at, host).unwrap();
        }
        finished
    }

    #[test]
    fn a_run_of_decode_steps_is_cut_for_a_request_that_waits() {
        let mut engine = Engine::new(Limits { chunk_tokens: 100, max_running: 8 });
        let mut host = Linear { room: 9, steps: Vec::new() };
        let prefill = engine.submit(0, 10, 100, 0.0, &mut host).unwrap().unwrap();
        assert_eq!(engine.end(prefill.version, prefill.at).unwrap().first_tokens, [0]);
        let whole = engine.begin(prefill.at, &mut host).unwrap().unwrap();
        let cut = engine.submit(1, 5, 1, 35.0, &mut host).unwrap().unwrap();
        assert_eq!((whole.at, cut.at), (1000.0, 40.0));
        assert!(engine.end(whole.version, whole.at).is_none(), "the run that was cut is stale");
        assert_eq!(run(&mut engine, &mut host, Some(cut)), [(1, 55.0), (0, 1005.0)]);
        assert_eq!((engine.running(), engine.waiting(), engine.context), (0, 0, 0));
        assert!((engine.busy_s() - 1005.0).abs() < 1e-9);
    }

    #[test]
    fn a_stopped_engine_gives_back_all_in_order_and_begins_anew() {
        let mut engine = Engine::new(Limits { chunk_tokens: 100, max_running: 2 });
        let mut host = Linear { room: 2, steps: Vec::new() };
        let wake = engine.submit(7, 10, 50, 0.0, &mut host).unwrap().unwrap();
        engine.end(wake.version, wake.at).unwrap();
        engine.submit(3, 300, 2, wake.at, &mut host).unwrap();
        let under_way = engine.begin(wake.at, &mut host).unwrap().unwrap();
        engine.submit(5, 10, 2, 12.0, &mut host).unwrap();
        assert_eq!(engine.stop(15.0), [7, 3, 5]);
        assert!(engine.end(under_way.version, under_way.at).is_none());
        assert!((engine.busy_s() - 15.0).abs() < 1e-9);
        let again = engine.submit(1, 10, 1, 20.0, &mut host).unwrap();
        assert_eq!(run(&mut engine, &mut host, again), [(1, 30.0)]);
    }
}
