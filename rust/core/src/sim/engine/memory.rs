//! The memory that answers take as they grow, and who gives way when it runs out.

use super::{Engine, Failure};
use crate::replica_cache::Sequence;
use crate::sim::request::Job;

impl Engine {
    /// Reserve the blocks that answers take at a decode step; false if there are too few.
    pub(super) fn reserve_until(&mut self, step: u64) -> bool {
        let blocks = self.growth.blocks_at(step);
        let fits = blocks == self.reserved || self.store().reserve(blocks);
        if fits {
            self.reserved = blocks;
        }
        fits
    }

    /// Take the blocks that the next decode step needs, preempting the requests that were admitted last while there are
    /// too few; return whether any was.
    pub(super) fn make_room<E>(&mut self) -> Result<bool, Failure<E>> {
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
    pub(super) fn steps_with_room(&self, most: u64) -> u64 {
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

    pub(super) fn stop_prefill<E>(&mut self, mut job: Job) -> Result<Job, Failure<E>> {
        if let Some(running) = job.running {
            self.store().preempt(running, Sequence { blocks: &[], tokens: 0 })?;
        }
        job.restart(None);
        Ok(job)
    }

    pub(super) fn stop_decode<E>(&mut self, mut job: Job) -> Result<Job, Failure<E>> {
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
    pub(super) fn leave(&mut self, job: &mut Job) {
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
}
