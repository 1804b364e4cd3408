//! Attempts of requests: what is booked of them, and what their ends give.

use super::counters::Outcome;
use super::heads::Head;
use super::sessions::Name;
use super::trust::Verdict;
use crate::ids::BlockHash;
use crate::replica_cache::SharedSequence;

/// One engine process: a slot, and the number of the process in it, which is never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process {
    /// Where it is.
    pub slot: usize,
    /// Its number; -1 = none.
    pub generation: i64,
}

/// What is known of a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// The replica's name; `None` = the slot is free.
    pub name: Option<Box<str>>,
    /// Of the process in it; -1 = none.
    pub generation: i64,
    /// Whether it takes nothing new and its sessions move.
    pub draining: bool,
}

/// What of its request an attempt is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// All of it.
    Whole,
    /// The prompt. The attempt of this number has the answer, and stands for the request.
    Prompt { answer: u64 },
    /// The answer. The attempt of this number computes the prompt, or did, in a process that held so many tokens of it.
    Answer { prompt: u64, computed_by: Process, hit: i64 },
}

/// One attempt of a request, in flight.
#[derive(Clone, Debug)]
pub struct Attempt<T> {
    /// What the caller keeps of it.
    pub item: T,
    /// Where it was booked.
    pub process: Process,
    /// Leading prompt tokens that the replica was believed to hold.
    pub hit: i64,
    /// Tokens of the prompt.
    pub context: i64,
    /// The host's name for it.
    pub key: Option<Name>,
    /// Its session.
    pub session: Option<Name>,
    /// It goes elsewhere while its session stays bound.
    pub detour: bool,
    /// Whether earlier attempts of its request were made.
    pub again: bool,
    /// The prompt's blocks, which are active until its end; `None` = they are not counted.
    pub blocks: Option<SharedSequence>,
    pub(super) begun: f64,
    pub(super) progress: f64,
    /// What the replica had to compute when it was booked, this attempt included, in tokens.
    pub(super) ahead: i64,
    pub(super) started: bool,
    pub(super) part: Part,
    /// The attempts of a hedged request; `None` = it is alone.
    pub(super) group: Option<u64>,
}

impl<T> Attempt<T> {
    /// An attempt that begins now.
    pub fn new(item: T, process: Process, hit: i64, context: i64, now: f64) -> Self {
        let (begun, progress) = (now, now);
        let (key, session, blocks, group) = (None, None, None, None);
        let (detour, again, started, ahead, part) = (false, false, false, 0, Part::Whole);
        Self {
            item,
            process,
            hit,
            context,
            key,
            session,
            detour,
            again,
            blocks,
            begun,
            progress,
            ahead,
            started,
            part,
            group,
        }
    }

    /// Uncached tokens that it waits for, and context tokens that it decodes behind, as on the load book.
    pub(super) fn load(&self) -> (i64, i64) {
        let decodes = match self.part {
            Part::Whole => self.started,
            Part::Prompt { .. } => false,
            Part::Answer { .. } => true,
        };
        if decodes { (0, self.context) } else { (self.context - self.hit, 0) }
    }
}

/// What a booking says of a decision, beside the attempt.
#[derive(Clone, Copy, Debug)]
pub struct Booking<'a> {
    /// Number of the decision.
    pub decision_id: i64,
    /// The policy's word for why.
    pub reason: &'a str,
    /// The most that any candidate held of the prompt.
    pub best_hit: i64,
    /// Hit tokens by medium, fastest first.
    pub media: [i64; 3],
    /// Where the prompt leaves what is known, with the head that ends there.
    pub branch: Option<(BlockHash, Head)>,
    /// Whether the session is new.
    pub first: bool,
    /// Prefill seconds that the replica is given.
    pub spent_s: Option<f64>,
    /// It is about the decode half of a pair.
    pub decodes: bool,
}

/// The halves of a pair: the one that computes the prompt, and the one that decodes and stands for the request. `None`: the
/// half of an earlier pair goes on.
#[derive(Clone, Copy, Debug)]
pub struct Halves<H> {
    /// Computes the prompt.
    pub prompt: H,
    /// Decodes the answer.
    pub answer: H,
}

/// A half that is to be booked: its number, itself, and what the booking says.
pub type Half<'a, T> = (u64, Attempt<T>, Booking<'a>);

/// What the end of an attempt asks of the caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Effect<T> {
    /// What the caller keeps of the attempt.
    pub item: T,
    /// How it ended.
    pub outcome: Outcome,
    /// Its predicted blocks have to be taken back.
    pub retract: bool,
    /// Its request is over: what follows it ends without an answer.
    pub abandon: bool,
}

/// Spans and bounds of a ledger.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Seconds without progress after which an attempt is given up.
    pub ticket_s: f64,
    /// Seconds after which an unused session is forgotten.
    pub session_idle_s: f64,
    /// Sessions remembered at most.
    pub sessions: usize,
}

/// What the end of an attempt gives.
#[derive(Debug)]
pub struct Finished<T> {
    /// What the caller kept of it.
    pub item: T,
    /// Of the other attempts of its request.
    pub effects: Vec<Effect<T>>,
    /// Whether the replica's belief is believed from now on.
    pub verdict: Option<Verdict>,
}
