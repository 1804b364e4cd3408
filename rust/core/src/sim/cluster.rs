//! Replicas on one clock.

use std::sync::{Arc, Mutex};

use super::clock::EventQueue;
use super::engine::{Ended, Engine, Failure, Limits, Prices, Wake};
use super::gaps::Gaps;
use super::request::{Request, Served};
use super::store::Store;
use crate::replica_cache::CacheEvent;

/// Outcomes after which a call of [`Cluster::advance`] returns early.
pub const BATCH: usize = 1_024;

/// What becomes known outside.
#[derive(Debug)]
pub enum Outcome {
    /// The first token of a request is out.
    FirstToken {
        /// When, in seconds.
        at: f64,
        /// The replica.
        replica: usize,
        /// What it has been through.
        served: Served,
    },
    /// The last token of a request is out.
    Finished {
        /// When, in seconds.
        at: f64,
        /// The replica.
        replica: usize,
        /// The request, which is given back.
        request: Request,
        /// What it has been through.
        served: Served,
    },
    /// A request that was aborted while it ran is out.
    Aborted {
        /// When, in seconds.
        at: f64,
        /// The caller's number of the request.
        number: u64,
    },
    /// A step has changed what a replica holds. Only of stores that record it.
    Changed {
        /// When, in seconds.
        at: f64,
        /// The replica.
        replica: usize,
        /// Changes, oldest first.
        events: Vec<CacheEvent>,
    },
}

/// Replicas that serve requests in virtual time. A replica's number is never used again.
#[derive(Debug)]
pub struct Cluster<P> {
    clock: EventQueue<(usize, u64)>,
    replicas: Vec<Option<Engine>>,
    prices: P,
    limits: Limits,
    outcomes: Vec<Outcome>,
    /// Of replicas that have died.
    preempted: u64,
    gaps: Gaps,
}

impl<P: Prices> Cluster<P> {
    /// No replicas. Those that come build their steps within the same limits, at the same prices.
    pub fn new(limits: Limits, prices: P) -> Self {
        let (replicas, outcomes) = (Vec::new(), Vec::new());
        Self { clock: EventQueue::default(), replicas, prices, limits, outcomes, preempted: 0, gaps: Gaps::default() }
    }

    /// Add an idle replica over a store; its number.
    pub fn add(&mut self, store: Arc<Mutex<Store>>) -> usize {
        self.replicas.push(Some(Engine::new(self.limits, store)));
        self.replicas.len() - 1
    }

    /// A replica that lives.
    pub fn engine(&self, replica: usize) -> Option<&Engine> {
        self.replicas.get(replica)?.as_ref()
    }

    /// The prices.
    pub fn prices(&self) -> &P {
        &self.prices
    }

    /// How many times a request was preempted, by replicas that live and that have died.
    pub fn preempted(&self) -> u64 {
        self.preempted + self.replicas.iter().flatten().map(Engine::preempted).sum::<u64>()
    }

    /// Gaps between tokens of answers, by replicas that live and that have died.
    pub fn gaps(&self) -> Gaps {
        let mut gaps = self.gaps.clone();
        for engine in self.replicas.iter().flatten() {
            gaps.extend(engine.gaps());
        }
        gaps
    }

    /// Give a request to a replica at second `now`, to which the cluster has been advanced.
    pub fn submit(&mut self, replica: usize, request: Request, now: f64) -> Result<(), Failure<P::Error>> {
        let Some(engine) = self.replicas.get_mut(replica).and_then(Option::as_mut) else { return Ok(()) };
        let wake = engine.submit(request, now, &self.prices)?;
        self.put(replica, wake)
    }

    /// When something happens next, unless a request comes first.
    pub fn next_at(&self) -> Option<f64> {
        self.clock.next_at()
    }

    /// Drop a request of a replica at second `now`; whether it waited and is gone at once. One that runs ends as
    /// [`Outcome::Aborted`], or as [`Outcome::Finished`] if the step under way finishes it.
    pub fn abort(&mut self, replica: usize, number: u64, now: f64) -> Result<bool, Failure<P::Error>> {
        let Some(engine) = self.replicas.get_mut(replica).and_then(Option::as_mut) else { return Ok(false) };
        let (gone, wake) = engine.abort(number, now);
        self.put(replica, wake)?;
        Ok(gone)
    }

    /// Let a replica die at second `now`: its requests, oldest first, and its seconds of work.
    pub fn stop(&mut self, replica: usize, now: f64) -> (Vec<Request>, f64) {
        let Some(mut engine) = self.replicas.get_mut(replica).and_then(Option::take) else { return (Vec::new(), 0.0) };
        let requests = engine.stop(now);
        self.preempted += engine.preempted();
        self.gaps.extend(engine.gaps());
        (requests, engine.busy_s())
    }

    /// Let time pass up to second `until`, what happens then included if `inclusive`; what became known, in order. With
    /// [`BATCH`] outcomes or more there may be more to come: call again.
    pub fn advance(&mut self, until: f64, inclusive: bool) -> Result<Vec<Outcome>, Failure<P::Error>> {
        while let Some(at) = self.clock.next_at().filter(|&at| at < until || inclusive && at <= until) {
            if self.outcomes.len() >= BATCH {
                break;
            }
            let Some((replica, version)) = self.clock.pop() else { break };
            let Some(engine) = self.replicas[replica].as_mut() else { continue };
            let Some(ended) = engine.end(version, at)? else { continue };
            let events = engine.store().take_events();
            let wake = engine.begin(at, &self.prices)?;
            if !events.is_empty() {
                self.outcomes.push(Outcome::Changed { at, replica, events });
            }
            tell(&mut self.outcomes, ended, replica, at);
            self.put(replica, wake)?;
        }
        Ok(std::mem::take(&mut self.outcomes))
    }

    fn put(&mut self, replica: usize, wake: Option<Wake>) -> Result<(), Failure<P::Error>> {
        let Some(Wake { at, version }) = wake else { return Ok(()) };
        self.clock.schedule(at, (replica, version)).map_err(Failure::Clock)
    }
}

fn tell(outcomes: &mut Vec<Outcome>, ended: Ended, replica: usize, at: f64) {
    let first = |served| Outcome::FirstToken { at, replica, served };
    outcomes.extend(ended.first_tokens.into_iter().map(first));
    let finished = |(request, served)| Outcome::Finished { at, replica, request, served };
    outcomes.extend(ended.finished.into_iter().map(finished));
    outcomes.extend(ended.aborted.into_iter().map(|number| Outcome::Aborted { at, number }));
}
