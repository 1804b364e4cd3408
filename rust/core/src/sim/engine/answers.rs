//! What a step gives: first tokens, further ones, and the ends of requests.

use super::{Ended, Engine, Failure};
use crate::replica_cache::Sequence;
use crate::sim::gaps::Gaps;
use crate::sim::request::{Job, Stage};

impl Engine {
    /// Whether the gaps of a request are counted.
    pub(super) fn counts(&self, job: &Job) -> bool {
        job.request.number >= self.limits.warmup
    }

    /// Whether a gap of so many seconds is late.
    pub(super) fn is_late(&self, seconds: f64) -> bool {
        seconds > self.limits.late_s
    }

    /// Take out the requests whose last token is out.
    pub(super) fn pop_finished<E>(&mut self, ended: &mut Ended) -> Result<(), Failure<E>> {
        while self.decoding.peek().is_some_and(|job| job.last() <= self.token) {
            let Some(mut job) = self.decoding.pop() else { break };
            self.leave(&mut job);
            self.release(job, ended)?;
        }
        Ok(())
    }

    /// Let complete prefills decode, or be done if their next token is their last.
    pub(super) fn pass_to_decode<E>(&mut self, ended: &mut Ended, now: f64, gaps: &mut Gaps) -> Result<(), Failure<E>> {
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
    pub(super) fn answer<E>(&mut self, mut job: Job, ended: &mut Ended, now: f64) -> Result<(), Failure<E>> {
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
