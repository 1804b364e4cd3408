//! How a step is built, and how long it takes.

use super::{Chunk, Engine, Failure, Prices, Wake, locked};
use crate::replica_cache::Sequence;
use crate::sim::request::{Job, Stage};

impl Engine {
    /// End a run of decode steps at the next step boundary, because a request waits or leaves.
    pub(in crate::sim) fn cut_run(&mut self, now: f64) -> Option<Wake> {
        if self.steps <= 1 || self.step_s <= 0.0 {
            return None;
        }
        #[expect(clippy::cast_sign_loss, reason = "a run does not begin after now; beyond the range it cuts nothing")]
        let done = (((now - self.began) / self.step_s) as u64).saturating_add(1);
        (done < self.steps).then(|| self.wake(done, self.step_s, now))
    }

    pub(super) fn wake(&mut self, steps: u64, seconds: f64, now: f64) -> Wake {
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
}
