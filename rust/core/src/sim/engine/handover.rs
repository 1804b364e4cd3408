//! Requests that one replica prefills and another decodes.
//!
//! When the prompt is computed, the request leaves the batch of its prefill replica, which keeps the keys and values. It
//! waits in the queue of its decode replica until there is room for all of its prompt, as other engines do: then what is
//! not cached there begins to move, while both replicas go on with their steps. Once it has come, the prefill replica lets
//! go of it, and the request decodes from the next step on; its first token, sampled by the prefill replica, is out then. A
//! request that is preempted is computed again where it decodes, as by vLLM.

use super::{Ended, Engine, Failure};
use crate::replica_cache::Sequence;
use crate::sim::request::{Job, Kept, Stage};

/// Keys and values that are to move to the replica that asks for them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::sim) struct Transfer {
    /// The replica that has them.
    pub from: usize,
    /// Number of the transfer, to be given back to [`Engine::arrive`].
    pub number: u64,
    /// Tokens of the prompt that are not cached where they go.
    pub tokens: u64,
    /// Seconds that the rest takes to come from a tier.
    pub load_s: f64,
}

impl Engine {
    /// Let a request go to the replica that decodes it, but for its keys and values.
    pub(super) fn hand_over(&mut self, job: Job, to: usize, ended: &mut Ended) {
        self.handed += 1;
        ended.prefilled.push((to, job));
    }

    /// Ask for the keys and values of a request that was admitted.
    pub(super) fn ask(&mut self, mut job: Job, from: usize, load_s: f64) {
        self.asked += 1;
        let tokens = job.prompt_tokens - job.computed;
        (job.transfer, job.served.moved_tokens) = (self.asked, tokens);
        self.transfers.push(Transfer { from, number: self.asked, tokens, load_s });
        self.moving.push(job);
    }

    /// The transfers that were asked for since the last call.
    pub(in crate::sim) fn take_transfers(&mut self) -> Vec<Transfer> {
        std::mem::take(&mut self.transfers)
    }

    /// The keys and values of a transfer have come: the memory that they came from. `None` if nobody waits for them any more.
    pub(in crate::sim) fn arrive(&mut self, transfer: u64) -> Option<Kept> {
        let at = self.moving.iter().position(|job| job.transfer == transfer)?;
        let mut job = self.moving.remove(at);
        let kept = job.land();
        self.landed.push(job);
        kept
    }

    /// Let requests decode whose keys and values have come.
    pub(in crate::sim) fn take_landed<E>(&mut self, ended: &mut Ended, now: f64) -> Result<(), Failure<E>> {
        for job in std::mem::take(&mut self.landed) {
            self.answer(job, ended, now)?;
        }
        Ok(())
    }

    /// Give the memory of a prompt back whose keys and values have moved, or are not wanted. It stays cached.
    pub(in crate::sim) fn let_go<E>(&mut self, kept: &Kept) -> Result<(), Failure<E>> {
        self.handed -= 1;
        let prompt = kept.prompt.get();
        Ok(self.store().release(kept.running, prompt, prompt)?)
    }

    /// Take the requests out whose keys and values were to come from a replica that has died.
    pub(in crate::sim) fn recall(&mut self, from: usize) -> Vec<Job> {
        let is_meant = |job: &Job| matches!(job.stage, Stage::Decode { from: replica, .. } if replica == from);
        let (moving, rest): (Vec<Job>, Vec<Job>) = std::mem::take(&mut self.moving).into_iter().partition(is_meant);
        self.moving = rest;
        for running in moving.iter().filter_map(|job| job.running) {
            // A request that the cache knows can always be given up.
            let _ = self.store().preempt(running, Sequence { blocks: &[], tokens: 0 });
        }
        let (queued, rest): (Vec<Job>, Vec<Job>) = std::mem::take(&mut self.queue).into_iter().partition(is_meant);
        self.queue = rest.into();
        self.transfers.retain(|transfer| transfer.from != from);
        moving.into_iter().chain(queued).collect()
    }

    /// Take a request out that waits, or whose keys and values are on their way; with where these are kept.
    pub(super) fn withdraw(&mut self, number: u64) -> Option<(Job, Option<Kept>)> {
        let is_meant = |job: &Job| job.request.number == number;
        let mut job = if let Some(at) = self.queue.iter().position(is_meant) {
            self.queue.remove(at)?
        } else {
            let job = self.moving.remove(self.moving.iter().position(is_meant)?);
            self.transfers.retain(|transfer| transfer.number != job.transfer);
            if let Some(running) = job.running {
                // As above.
                let _ = self.store().preempt(running, Sequence { blocks: &[], tokens: 0 });
            }
            job
        };
        let kept = job.land();
        Some((job, kept))
    }

    /// Numbers of the requests that are to be decoded by a replica.
    pub(in crate::sim) fn bound_for(&self, to: usize) -> Vec<u64> {
        let jobs = self.prefilling.iter().chain(&self.queue);
        jobs.filter(|job| job.stage == Stage::Prefill { to }).map(|job| job.request.number).collect()
    }

    /// Let a request whose prompt is not computed yet be decoded by another replica; whether it is here.
    pub(in crate::sim) fn redirect(&mut self, number: u64, to: usize) -> bool {
        let mut jobs = self.prefilling.iter_mut().chain(&mut self.queue);
        let found = jobs.find(|job| job.request.number == number && matches!(job.stage, Stage::Prefill { .. }));
        found.map(|job| job.stage = Stage::Prefill { to }).is_some()
    }
}
