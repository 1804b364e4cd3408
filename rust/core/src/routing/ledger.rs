//! The ledger: every request in flight, and what each end of it gives back.

use hashbrown::HashMap;
use rustc_hash::FxBuildHasher;

use super::active::Active;
use super::attempt::{Attempt, Booking, Effect, Finished, Limits, Part, Process, State};
use super::book::{Book, Windows};
use super::counters::{Counters, Outcome};
use super::heads::Heads;
use super::sessions::{Move, Name, Sessions};
use super::signals::Reading;
use super::trust::Trust;
use crate::ids::BlockHash;
use crate::peers::Load;
use crate::recency::RecencyMap;

mod hedges;
mod pairs;

/// Keyed requests that can be explained after they have ended.
const REMEMBERED: usize = 256;

/// Open attempts by number, oldest progress first, with the load, the sessions and the counters that follow from them.
#[derive(Debug)]
pub struct Ledger<T> {
    /// What is in flight where.
    pub book: Book,
    /// Blocks of what is in flight, if some policy reads them.
    pub active: Option<Active>,
    /// Bindings.
    pub sessions: Sessions,
    /// Shared heads.
    pub heads: Heads,
    /// Predicted against reported hits.
    pub trust: Trust,
    /// Totals.
    pub counters: Counters,
    ticket_s: f64,
    states: Vec<State>,
    attempts: RecencyMap<u64, Attempt<T>>,
    keys: HashMap<Name, u64, FxBuildHasher>,
    ended: RecencyMap<Name, T>,
    groups: HashMap<u64, Vec<u64>, FxBuildHasher>,
    gone: Vec<T>,
}

impl<T: Clone> Ledger<T> {
    /// Nothing in flight, and no slots.
    pub fn new(limits: Limits, windows: Windows) -> Self {
        Self {
            book: Book::new(windows),
            active: None,
            sessions: Sessions::new(limits.session_idle_s, limits.sessions),
            heads: Heads::default(),
            trust: Trust::default(),
            counters: Counters::default(),
            ticket_s: limits.ticket_s,
            states: Vec::new(),
            attempts: RecencyMap::default(),
            keys: HashMap::default(),
            ended: RecencyMap::default(),
            groups: HashMap::default(),
            gone: Vec::new(),
        }
    }

    /// The same, with active blocks of so many tokens if they are to be counted.
    #[must_use]
    pub fn with_active(self, block_size: Option<usize>) -> Self {
        Self { active: block_size.map(Active::new), ..self }
    }

    /// Take in what the slots are now. A slot with another process has no load and no record of hits; what was counted of a
    /// replica that has left goes to the counts of all that have left.
    pub fn see(&mut self, states: Vec<State>) {
        self.book.grow(states.len());
        self.counters.grow(states.len());
        self.active.iter_mut().for_each(|active| active.grow(states.len()));
        let free = State { name: None, generation: -1, draining: false };
        self.states.resize(self.states.len().max(states.len()), free.clone());
        let missing = std::iter::repeat_n(free, self.states.len() - states.len());
        for (slot, state) in states.into_iter().chain(missing).enumerate() {
            let known = std::mem::replace(&mut self.states[slot], state);
            if known.generation != self.states[slot].generation {
                self.book.reset(slot);
                self.trust.reset(slot);
                self.active.iter_mut().for_each(|active| active.reset(slot));
            }
            if known.name != self.states[slot].name {
                self.counters.retire(slot);
            }
        }
    }

    /// What the signals of a decision on a prompt are read from.
    pub fn reading<'a>(&'a self, blocks: &'a [BlockHash], now: f64) -> Reading<'a> {
        Reading { book: &self.book, active: self.active.as_ref(), blocks, now }
    }

    /// What the slots are.
    pub fn states(&self) -> &[State] {
        &self.states
    }

    /// Attempts in flight.
    pub fn len(&self) -> usize {
        self.attempts.len()
    }

    /// Whether nothing is in flight.
    pub fn is_empty(&self) -> bool {
        self.attempts.is_empty()
    }

    /// This router's own requests in flight by slot; the load book counts those of others too.
    pub fn own_in_flight(&self) -> Vec<i64> {
        let mut counts = vec![0; self.states.len()];
        for attempt in self.attempts.values().filter(|attempt| self.alive(attempt.process)) {
            counts[attempt.process.slot] += 1;
        }
        counts
    }

    /// What the caller keeps of what is in flight, in no order.
    pub fn open_items(&self) -> impl Iterator<Item = &T> {
        self.attempts.values().map(|attempt| &attempt.item)
    }

    /// The same of everything that is in flight or can be explained.
    pub fn items(&self) -> impl Iterator<Item = &T> {
        self.open_items().chain(self.ended.values())
    }

    /// What nobody can ask for any more. The caller drops it when nothing of the ledger is borrowed: what is dropped may call.
    pub fn take_gone(&mut self) -> Vec<T> {
        std::mem::take(&mut self.gone)
    }

    /// The attempt in flight under a key, or the last one that ended under it.
    pub fn known(&self, key: Name) -> Option<&T> {
        self.open(key).or_else(|| self.ended.get(&key))
    }

    /// The attempt in flight under a key.
    pub fn open(&self, key: Name) -> Option<&T> {
        self.attempts.get(self.keys.get(&key)?).map(|attempt| &attempt.item)
    }

    /// Whether an attempt is in flight.
    pub fn is_open(&self, number: u64) -> bool {
        self.attempts.get(&number).is_some()
    }

    /// Where a session is bound; a slot, or -1 if its replica has left or drains.
    pub fn bound(&self, session: Name, now: f64) -> Option<i64> {
        let process = self.sessions.get(session, now)?.process;
        let state = self.states.get(process.slot);
        let stays = state.is_some_and(|state| state.generation == process.generation && !state.draining);
        #[expect(clippy::cast_possible_wrap, reason = "slots are few")]
        Some(if stays { process.slot as i64 } else { -1 })
    }

    /// Whether a process still has its slot. A free slot has none.
    pub fn alive(&self, process: Process) -> bool {
        process.generation >= 0
            && self.states.get(process.slot).is_some_and(|state| state.generation == process.generation)
    }

    /// Count a request of another router among those booked since the replica's report; with -1, one that never reached it.
    pub fn booked_elsewhere(&mut self, process: Process, uncached: i64, sign: i64) {
        if self.alive(process) {
            if sign < 0 {
                self.book.unbook(process.slot, uncached);
            } else {
                self.book.since_requests[process.slot] += 1;
                self.book.since_tokens[process.slot] += uncached;
            }
        }
    }

    /// Book the first attempt of a request: load up, key and session to it, and everything counted.
    pub fn book(&mut self, number: u64, attempt: Attempt<T>, booking: Booking<'_>) -> Vec<Effect<T>> {
        let (process, context, now) = (attempt.process, attempt.context, attempt.begun);
        self.enter(number, attempt, booking.decision_id);
        let effects = self.claim(number);
        self.bind(number, now);
        self.tally(process, context, booking);
        self.note(process, booking, now);
        effects
    }

    /// Count the prompt of a new request, and what its replica holds of it.
    fn tally(&mut self, process: Process, context: i64, booking: Booking<'_>) {
        self.counters.prompt_tokens += context;
        let mut best_hit = booking.best_hit;
        if self.alive(process) {
            best_hit = best_hit.max(booking.media.iter().sum()); // the host may take what was no candidate
            self.counters.hit(process.slot, booking.media);
        }
        self.counters.best_hit_tokens += best_hit;
        if booking.best_hit == 0 || booking.branch.is_some() {
            self.heads.learn(booking.branch, booking.first);
        }
    }

    fn enter(&mut self, number: u64, mut attempt: Attempt<T>, decision_id: i64) {
        if self.alive(attempt.process) {
            let (queued, decoding) = attempt.load();
            attempt.ahead = self.book.book(attempt.process.slot, queued, attempt.context, decision_id);
            self.book.start(attempt.process.slot, 0, decoding);
            if let (Some(active), Some(blocks)) = (&mut self.active, &attempt.blocks) {
                active.enter(attempt.process.slot, blocks.get().blocks);
            }
        }
        if !matches!(attempt.part, Part::Answer { .. }) {
            self.counters.count(Outcome::Committed); // a pair once
        }
        self.attempts.insert(number, attempt);
    }

    fn note(&mut self, process: Process, booking: Booking<'_>, now: f64) {
        if self.alive(process) {
            self.counters.decide(process.slot, booking.decodes, booking.reason);
            if let Some(seconds) = booking.spent_s {
                self.book.spend(process.slot, seconds, now);
            }
        }
    }

    /// Let an attempt answer to its key; other requests in flight under it are refunded: charged once.
    fn claim(&mut self, number: u64) -> Vec<Effect<T>> {
        let Some(&Attempt { key: Some(key), group, .. }) = self.attempts.get(&number) else { return Vec::new() };
        let mut effects = Vec::new();
        while let Some(&earlier) = self.keys.get(&key) {
            let own = earlier == number || group.is_some_and(|group| self.groups[&group].contains(&earlier));
            if own || !self.is_open(earlier) {
                break;
            }
            effects.extend(self.abort(earlier, Outcome::Rebooked));
        }
        self.keys.insert(key, number);
        effects
    }

    /// Bind the session of an attempt to its replica, unless it is only on a detour.
    fn bind(&mut self, number: u64, now: f64) {
        let Some(attempt) = self.attempts.get(&number) else { return };
        let (process, detour) = (attempt.process, attempt.detour);
        let Some(session) = attempt.session else {
            if !attempt.again {
                self.counters.count(Outcome::Keyless);
            }
            return;
        };
        match self.sessions.get(session, now).map(|bound| bound.process) {
            None => self.sessions.count(Move::Assigned),
            Some(bound) if bound == process => {}
            Some(bound) if detour => {
                self.sessions.count(Move::Detour);
                self.sessions.bind(session, bound, now);
                return;
            }
            Some(bound) => self.sessions.count(self.why_moved(bound)),
        }
        self.sessions.bind(session, process, now);
    }

    fn why_moved(&self, bound: Process) -> Move {
        match self.states.get(bound.slot) {
            Some(state) if state.generation == bound.generation => {
                if state.draining {
                    Move::Drained
                } else {
                    Move::Moved
                }
            }
            _ => Move::Removed,
        }
    }

    /// Note that the engine answers: prefill load becomes decode load, and a hedge is decided. `None` if it has ended.
    pub fn first_token(&mut self, number: u64, now: f64) -> Option<Vec<Effect<T>>> {
        let Some(attempt) = self.attempts.touch(&number) else {
            self.counters.count(Outcome::FirstTokenLate);
            return None;
        };
        attempt.progress = now;
        if std::mem::replace(&mut attempt.started, true) {
            return Some(Vec::new());
        }
        if let Part::Answer { prompt, .. } = attempt.part {
            return Some(self.hand_over(prompt, now).into_iter().collect());
        }
        let (process, uncached, context) = (attempt.process, attempt.context - attempt.hit, attempt.context);
        let (ahead, begun, group) = (attempt.ahead, attempt.begun, attempt.group);
        if self.alive(process) {
            self.book.start(process.slot, uncached, context);
            self.book.learn(process.slot, ahead, now - begun);
        }
        Some(group.map_or_else(Vec::new, |group| self.win(number, group, now)))
    }

    /// Note that an attempt is complete. `reported`: cached tokens as the engine reports them. `None` if it had ended.
    pub fn finish(&mut self, number: u64, reported: Option<i64>, now: f64) -> Option<Finished<T>> {
        let Some(attempt) = self.attempts.get(&number) else {
            self.counters.count(Outcome::FinishLate);
            return None;
        };
        let (part, group) = (attempt.part, attempt.group);
        let mut effects = group.map_or_else(Vec::new, |group| self.win(number, group, now));
        if let Part::Answer { prompt, .. } = part {
            effects.extend(self.hand_over(prompt, now));
        }
        let attempt = self.close(number)?;
        self.counters.count(Outcome::Finished);
        if self.alive(attempt.process) {
            self.book.serve(attempt.process.slot);
        }
        let (computed_by, hit) = match part {
            Part::Answer { computed_by, hit, .. } => (computed_by, hit),
            Part::Whole | Part::Prompt { .. } => (attempt.process, attempt.hit),
        };
        let mut verdict = None;
        if self.alive(computed_by) {
            verdict = self.trust.learn(computed_by.slot, hit, reported);
        }
        Some(Finished { item: attempt.item, effects, verdict })
    }

    /// Give a request up: its load goes back, and before the first token its predicted blocks too. Nothing if it had ended.
    pub fn abort(&mut self, number: u64, outcome: Outcome) -> Vec<Effect<T>> {
        let number = match self.attempts.get(&number).map(|attempt| attempt.part) {
            Some(Part::Prompt { answer }) => answer,
            _ => number,
        };
        let Some(&Attempt { part, group, .. }) = self.attempts.get(&number) else {
            self.counters.count(Outcome::AbortLate);
            return Vec::new();
        };
        let mut effects: Vec<_> = self.withdraw(number, outcome).into_iter().collect();
        self.counters.count(outcome);
        let abandon = !outcome.continues() && self.other_open(group, number).is_none();
        for effect in &mut effects {
            effect.abandon = abandon;
        }
        if let Part::Answer { prompt, .. } = part {
            effects.extend(self.withdraw(prompt, outcome));
        }
        effects
    }

    /// Take back an attempt or a half; nothing if it had ended.
    fn withdraw(&mut self, number: u64, outcome: Outcome) -> Option<Effect<T>> {
        let attempt = self.close(number)?;
        let retract = !attempt.started && self.alive(attempt.process);
        if retract {
            self.book.unbook(attempt.process.slot, attempt.load().0);
        }
        Some(Effect { item: attempt.item, outcome, retract, abandon: false })
    }

    /// Take an attempt off the table, the book and its key.
    fn close(&mut self, number: u64) -> Option<Attempt<T>> {
        let attempt = self.attempts.remove(&number)?;
        if let Some(key) = attempt.key.filter(|key| self.keys.get(key) == Some(&number)) {
            if let Some(other) = self.other_open(attempt.group, number) {
                self.keys.insert(key, other);
            } else {
                self.keys.remove(&key);
                self.gone.extend(self.ended.insert(key, attempt.item.clone()));
                if self.ended.len() > REMEMBERED {
                    self.gone.extend(self.ended.pop_first().map(|(_, item)| item));
                }
            }
        }
        if self.alive(attempt.process) {
            let (queued, decoding) = attempt.load();
            self.book.release(attempt.process.slot, queued, decoding);
            if let (Some(active), Some(blocks)) = (&mut self.active, &attempt.blocks) {
                active.leave(attempt.process.slot, blocks.get().blocks);
            }
        }
        if let Some(group) = attempt.group.filter(|group| self.other_open(Some(*group), number).is_none()) {
            self.groups.remove(&group);
        }
        Some(attempt)
    }

    /// Refund these attempts, whose tickets were dropped, and those without progress.
    pub fn sweep(&mut self, dropped: &[u64], now: f64) -> Vec<Effect<T>> {
        let mut effects = Vec::new();
        for &number in dropped {
            if self.is_open(number) {
                effects.extend(self.abort(number, Outcome::Dropped));
            }
        }
        while let Some((number, attempt)) = self.attempts.first() {
            if now - attempt.progress <= self.ticket_s {
                break;
            }
            effects.extend(self.abort(number, Outcome::Expired));
        }
        effects
    }
}

impl<T: Clone> Load for Ledger<T> {
    fn is_alive(&self, process: Process) -> bool {
        self.alive(process)
    }

    fn adjust(&mut self, process: Process, requests: i64, queued: i64, decoding: i64) {
        if self.alive(process) {
            self.book.adjust(process.slot, requests, queued, decoding);
        }
    }
}
