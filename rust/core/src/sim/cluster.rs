//! Replicas on one clock.

use std::sync::{Arc, Mutex};

use super::clock::EventQueue;
use super::engine::{Ended, Engine, Failure, Limits, Prices, Wake};
use super::gaps::Gaps;
use super::link::Link;
use super::request::{Job, Kept, Request, Served, Stage};
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

/// What happens at a moment.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// A step or a run of a replica ends.
    Step { replica: usize, version: u64 },
    /// Keys and values come to a replica.
    Arrival { replica: usize, transfer: u64 },
    /// A replica begins its next step, after whatever else happens when the last one has ended.
    Begin { replica: usize },
}

/// What a replica that has died leaves behind.
#[derive(Debug)]
pub struct Stopped {
    /// Requests that begin again: its own, oldest first, and those elsewhere whose keys and values it had.
    pub requests: Vec<Request>,
    /// Numbers of requests that it was to decode and that are in prefill elsewhere: each needs another replica
    /// ([`Cluster::redirect`]) before time goes on.
    pub bereft: Vec<u64>,
    /// Its seconds of work.
    pub busy_s: f64,
}

/// Replicas that serve requests in virtual time. A replica's number is never used again.
///
/// Keys and values move from one to another over links: each replica sends to one other at a time and receives from one, in
/// the order in which the receivers had room.
#[derive(Debug)]
pub struct Cluster<P> {
    clock: EventQueue<Event>,
    replicas: Vec<Option<Engine>>,
    link: Link,
    /// By replica: when it can send or receive again.
    link_free: Vec<f64>,
    prices: P,
    limits: Limits,
    outcomes: Vec<Outcome>,
    /// Of replicas that have died.
    preempted: u64,
    /// Of all replicas: one table, which stays in the processor's caches.
    gaps: Gaps,
}

impl<P: Prices> Cluster<P> {
    /// No replicas. Those that come build their steps within the same limits, at the same prices, and are joined by like links.
    pub fn new(limits: Limits, prices: P, link: Link) -> Self {
        Self {
            clock: EventQueue::default(),
            replicas: Vec::new(),
            link,
            link_free: Vec::new(),
            prices,
            limits,
            outcomes: Vec::new(),
            preempted: 0,
            gaps: Gaps::default(),
        }
    }

    /// Add an idle replica over a store; its number.
    pub fn add(&mut self, store: Arc<Mutex<Store>>) -> usize {
        self.replicas.push(Some(Engine::new(self.limits, store)));
        self.link_free.push(0.0);
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

    /// Gaps between tokens of answers.
    pub fn gaps(&self) -> &Gaps {
        &self.gaps
    }

    /// Give a request to a replica at second `now`, to which the cluster has been advanced.
    ///
    /// # Errors
    ///
    /// [`Failure`] where a step has no price or none that is a time, or a request is not what its cache was told before.
    pub fn submit(&mut self, replica: usize, request: Request, now: f64) -> Result<(), Failure<P::Error>> {
        self.take(replica, Job::new(request), now)
    }

    /// Give a request to two replicas: one computes the prompt, the other decodes.
    ///
    /// # Errors
    ///
    /// [`Failure`] where a step has no price or none that is a time, or a request is not what its cache was told before.
    pub fn submit_pair(
        &mut self,
        prefill: usize,
        decode: usize,
        request: Request,
        now: f64,
    ) -> Result<(), Failure<P::Error>> {
        let mut job = Job::new(request);
        job.stage = Stage::Prefill { to: decode };
        self.take(prefill, job, now)
    }

    fn take(&mut self, replica: usize, job: Job, now: f64) -> Result<(), Failure<P::Error>> {
        let Some(engine) = self.replicas.get_mut(replica).and_then(Option::as_mut) else { return Ok(()) };
        let wake = engine.take(job, now, &self.prices)?;
        self.put(replica, wake, now)
    }

    /// When something happens next, unless a request comes first.
    pub fn next_at(&self) -> Option<f64> {
        self.clock.next_at()
    }

    /// Drop a request of a replica at second `now`; whether it waited and is gone at once. One that runs ends as
    /// [`Outcome::Aborted`], or as [`Outcome::Finished`] if the step under way finishes it.
    ///
    /// # Errors
    ///
    /// [`Failure`] where a step has no price or none that is a time, or a request is not what its cache was told before.
    pub fn abort(&mut self, replica: usize, number: u64, now: f64) -> Result<bool, Failure<P::Error>> {
        let Some(engine) = self.replicas.get_mut(replica).and_then(Option::as_mut) else { return Ok(false) };
        let (gone, wake, kept) = engine.abort(number, now);
        self.put(replica, wake, now)?;
        self.let_go(kept, now)?;
        Ok(gone)
    }

    /// Let a replica die at second `now`; what it leaves behind.
    ///
    /// # Errors
    ///
    /// [`Failure`] where a step has no price or none that is a time, or a request is not what its cache was told before.
    pub fn stop(&mut self, replica: usize, now: f64) -> Result<Stopped, Failure<P::Error>> {
        let mut left = Stopped { requests: Vec::new(), bereft: Vec::new(), busy_s: 0.0 };
        let Some(mut engine) = self.replicas.get_mut(replica).and_then(Option::take) else { return Ok(left) };
        let mut jobs = engine.stop(now);
        self.preempted += engine.preempted();
        left.busy_s = engine.busy_s();
        for job in &mut jobs {
            let kept = job.land();
            self.let_go(kept, now)?;
        }
        for other in 0..self.replicas.len() {
            let Some(engine) = self.replicas[other].as_mut() else { continue };
            left.bereft.extend(engine.bound_for(replica));
            let recalled = engine.recall(replica);
            if !recalled.is_empty() {
                jobs.extend(recalled);
                self.wake_idle(other, now)?;
            }
        }
        left.requests = jobs.into_iter().map(|job| *job.request).collect();
        Ok(left)
    }

    /// Let a request whose prompt is not computed yet be decoded by another replica.
    pub fn redirect(&mut self, number: u64, to: usize) {
        let mut engines = self.replicas.iter_mut().flatten();
        engines.any(|engine| engine.redirect(number, to));
    }

    /// Let time pass up to second `until`, what happens then included if `inclusive`; what became known, in order. With
    /// [`BATCH`] outcomes or more there may be more to come: call again.
    ///
    /// # Errors
    ///
    /// [`Failure`] where a step has no price or none that is a time, or a request is not what its cache was told before.
    pub fn advance(&mut self, until: f64, inclusive: bool) -> Result<Vec<Outcome>, Failure<P::Error>> {
        while let Some(at) = self.clock.next_at().filter(|&at| at < until || inclusive && at <= until) {
            if self.outcomes.len() >= BATCH {
                break;
            }
            match self.clock.pop() {
                Some(Event::Step { replica, version }) => self.end_step(replica, version, at)?,
                Some(Event::Arrival { replica, transfer }) => self.end_transfer(replica, transfer, at)?,
                Some(Event::Begin { replica }) => self.go_on(replica, Ended::default(), at)?,
                None => break,
            }
        }
        Ok(std::mem::take(&mut self.outcomes))
    }

    fn end_step(&mut self, replica: usize, version: u64, at: f64) -> Result<(), Failure<P::Error>> {
        let Some(engine) = self.replicas[replica].as_mut() else { return Ok(()) };
        let Some(mut ended) = engine.end(version, at, &mut self.gaps)? else { return Ok(()) };
        let prefilled = std::mem::take(&mut ended.prefilled);
        if prefilled.is_empty() {
            return self.go_on(replica, ended, at);
        }
        for (to, mut job) in prefilled {
            job.depart(replica);
            self.take(to, job, at)?;
        }
        tell(&mut self.outcomes, ended, replica, at);
        // What moves in no time has its memory given back before.
        self.clock.schedule(at, Event::Begin { replica }).map_err(Failure::Clock)
    }

    /// Begin the next step of a replica, and tell what the last one gave.
    fn go_on(&mut self, replica: usize, ended: Ended, at: f64) -> Result<(), Failure<P::Error>> {
        let Some(engine) = self.replicas[replica].as_mut() else { return Ok(()) };
        let events = engine.store().take_events();
        let wake = engine.begin(at, &self.prices)?;
        if !events.is_empty() {
            self.outcomes.push(Outcome::Changed { at, replica, events });
        }
        tell(&mut self.outcomes, ended, replica, at);
        self.put(replica, wake, at)
    }

    /// Keys and values have come to a replica, and their sender lets go of them.
    fn end_transfer(&mut self, replica: usize, transfer: u64, at: f64) -> Result<(), Failure<P::Error>> {
        let Some(engine) = self.replicas[replica].as_mut() else { return Ok(()) };
        let Some(kept) = engine.arrive(transfer) else { return Ok(()) };
        if engine.is_idle() {
            let mut ended = Ended::default();
            engine.take_landed(&mut ended, at)?;
            self.go_on(replica, ended, at)?;
        } else {
            let wake = engine.cut_run(at);
            self.put(replica, wake, at)?;
        }
        self.let_go(Some(kept), at)
    }

    /// Let the replica that keeps the keys and values of a prompt go on without them.
    fn let_go(&mut self, kept: Option<Kept>, now: f64) -> Result<(), Failure<P::Error>> {
        let Some(kept) = kept else { return Ok(()) };
        let Some(engine) = self.replicas[kept.replica].as_mut() else { return Ok(()) };
        engine.let_go(&kept)?;
        self.wake_idle(kept.replica, now)
    }

    /// Begin a step of a replica that is idle: it may have room now for a request that waits.
    fn wake_idle(&mut self, replica: usize, now: f64) -> Result<(), Failure<P::Error>> {
        match &self.replicas[replica] {
            Some(engine) if engine.is_idle() => self.go_on(replica, Ended::default(), now),
            _ => Ok(()),
        }
    }

    /// Put the end of a step on the clock, and the transfers that its replica has asked for.
    fn put(&mut self, replica: usize, wake: Option<Wake>, now: f64) -> Result<(), Failure<P::Error>> {
        if let Some(Wake { at, version }) = wake {
            self.clock.schedule(at, Event::Step { replica, version }).map_err(Failure::Clock)?;
        }
        let Some(engine) = self.replicas[replica].as_mut() else { return Ok(()) };
        for asked in engine.take_transfers() {
            let begun = now.max(self.link_free[asked.from]).max(self.link_free[replica]);
            let sent = begun + self.link.sending_s(asked.tokens as f64);
            (self.link_free[asked.from], self.link_free[replica]) = (sent, sent);
            let at = sent + self.link.latency_s + asked.load_s;
            let arrival = Event::Arrival { replica, transfer: asked.number };
            self.clock.schedule(at, arrival).map_err(Failure::Clock)?;
        }
        Ok(())
    }
}

fn tell(outcomes: &mut Vec<Outcome>, ended: Ended, replica: usize, at: f64) {
    let first = |served| Outcome::FirstToken { at, replica, served };
    outcomes.extend(ended.first_tokens.into_iter().map(first));
    let finished = |(request, served)| Outcome::Finished { at, replica, request, served };
    outcomes.extend(ended.finished.into_iter().map(finished));
    outcomes.extend(ended.aborted.into_iter().map(|number| Outcome::Aborted { at, number }));
}
