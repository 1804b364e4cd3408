//! One request on its way through a replica.

use std::cmp::Ordering;

use crate::hash::mix;
use crate::ids::BlockHash;
use crate::replica_cache::{RequestId, Sequence, SharedSequence};

/// Starts the chain of an answer of which nobody knows the text: no prompt has its blocks.
const UNKNOWN_TEXT: u64 = 0x6175_7468_6f72_2073;

/// A request as it arrives.
#[derive(Clone, Debug)]
pub struct Request {
    /// The caller's number of it, different from that of any other request of the run.
    pub number: u64,
    /// The caller's number of its session.
    pub session: u32,
    /// The prompt as caches see it.
    pub prompt: SharedSequence,
    /// Prompt and answer, as far as the answer's text is known.
    pub context: SharedSequence,
    /// Tokens of the prompt, 1 to [`super::MAX_TOKENS`].
    pub prompt_tokens: u64,
    /// Tokens of the answer, 0 to [`super::MAX_TOKENS`].
    pub output_tokens: u64,
    /// Second of its first arrival.
    pub arrival: f64,
}

/// What a finished request has been through. Times are seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Served {
    /// The caller's number of the request.
    pub number: u64,
    /// Prompt tokens that needed no prefill when it was first admitted.
    pub hit_tokens: u64,
    /// When it was first admitted.
    pub started: f64,
    /// When its prompt was computed, which is its first token unless keys and values moved then.
    pub prefilled: f64,
    /// When its first token was out.
    pub first_token: f64,
    /// The replica that computed its prompt, if another one decodes.
    pub prefilled_at: Option<usize>,
    /// Prompt tokens whose keys and values moved to the replica that decodes.
    pub moved_tokens: u64,
    /// Gaps between two tokens of its answer that were late, see [`super::Limits::late_s`].
    pub late_gaps: u64,
}

/// What of its request a job is, where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Prompt and answer, or what is left of them.
    Whole,
    /// The prompt alone: its keys and values then move to a replica.
    Prefill { to: usize },
    /// The answer alone: the prompt's keys and values come from a replica, which keeps them until they are here.
    Decode { from: usize, kept: Option<RequestId> },
}

/// Memory of a replica that can be given back: a prompt whose keys and values have moved.
#[derive(Debug)]
pub(super) struct Kept {
    pub replica: usize,
    pub running: Option<RequestId>,
    pub prompt: SharedSequence,
}

/// A request inside an engine. A preempted one begins a new life: what it has answered is then part of its prompt.
#[derive(Debug)]
pub(super) struct Job {
    pub request: Box<Request>,
    /// Tokens to be computed before the next one is sampled: the prompt, and what was answered in earlier lives.
    pub prompt_tokens: u64,
    /// Tokens of the answer that are still to come.
    pub output_tokens: u64,
    /// Tokens of `prompt_tokens` that are in the cache or under way.
    pub computed: u64,
    /// Tokens that an earlier life had computed, if prefill was interrupted: nobody else's are in the cache beyond them.
    pub most_cached: u64,
    /// How many were admitted before.
    pub order: u64,
    /// Decode steps of the engine when it began to decode.
    pub joined: u64,
    /// Late decode steps of the engine then.
    pub late_before: u64,
    /// Its number in the cache; `None` if it is larger than that.
    pub running: Option<RequestId>,
    /// Blocks that its answer keeps, if it has outgrown the cache.
    pub outgrown: Option<usize>,
    pub served: Served,
    pub stage: Stage,
    /// Number of the transfer that brings its keys and values.
    pub transfer: u64,
    /// Its order among those that have begun to decode.
    pub rank: u64,
    /// Second of its latest token when it was preempted.
    pub stopped: f64,
}

impl Job {
    pub fn new(request: Request) -> Self {
        let number = request.number;
        Self {
            prompt_tokens: request.prompt_tokens,
            output_tokens: request.output_tokens,
            request: Box::new(request),
            computed: 0,
            most_cached: u64::MAX,
            order: 0,
            joined: 0,
            late_before: 0,
            running: None,
            outgrown: None,
            served: Served {
                number,
                hit_tokens: 0,
                started: f64::NAN,
                prefilled: f64::NAN,
                first_token: f64::NAN,
                prefilled_at: None,
                moved_tokens: 0,
                late_gaps: 0,
            },
            stage: Stage::Whole,
            transfer: 0,
            rank: 0,
            stopped: f64::NAN,
        }
    }

    /// Whether a token of its answer is out.
    pub fn has_answered(&self) -> bool {
        !self.served.first_token.is_nan()
    }

    /// Add up to `budget` of the remaining tokens to a step; return how many, and those before them.
    pub fn take(&mut self, budget: u64) -> Option<(u64, u64)> {
        let (tokens, before) = (budget.min(self.prompt_tokens - self.computed), self.computed);
        self.computed += tokens;
        (tokens > 0).then_some((tokens, before))
    }

    /// The decode step that ends it.
    pub fn last(&self) -> u64 {
        self.joined + self.output_tokens - 1
    }

    /// The chain of what is computed in this life, with all of the answer whose text is known if it has ended.
    ///
    /// `sampled`: tokens of the answer that are in the cache, earlier lives included.
    pub fn chain(&self, sampled: u64, block_size: usize, ended: bool) -> Vec<BlockHash> {
        let known = self.request.context.get().blocks;
        let full = (self.request.prompt.get().tokens + sampled as usize) / block_size;
        if ended && full <= known.len() {
            return known.to_vec();
        }
        let mut chain = known[..full.min(known.len())].to_vec();
        let seed = mix(UNKNOWN_TEXT, self.request.number);
        chain.extend((chain.len()..full).map(|at| BlockHash(mix(seed, at as u64))));
        chain
    }

    /// Tokens of the answer that were sampled before this life.
    pub fn answered_before(&self) -> u64 {
        self.prompt_tokens - self.request.prompt_tokens
    }

    /// Begin a new life after preemption at a decode step, or in prefill.
    pub fn restart(&mut self, step: Option<u64>) {
        if let Some(step) = step {
            let sampled = step - self.joined + 1;
            self.prompt_tokens += sampled;
            self.output_tokens -= sampled;
            self.most_cached = u64::MAX;
        } else {
            self.most_cached = self.computed;
        }
        (self.computed, self.running, self.outgrown) = (0, None, None);
        self.stage = Stage::Whole; // what was moved and is evicted is computed here
    }

    /// Let it go to the replica that decodes it, from one that keeps its keys and values until they are there.
    pub fn depart(&mut self, from: usize) {
        self.stage = Stage::Decode { from, kept: self.running.take() };
        self.served.prefilled_at = Some(from);
        self.computed = 0;
    }

    /// Let it decode here, its keys and values having come; the memory that they came from.
    pub fn land(&mut self) -> Option<Kept> {
        match std::mem::replace(&mut self.stage, Stage::Whole) {
            Stage::Decode { from, kept } => {
                Some(Kept { replica: from, running: kept, prompt: self.request.prompt.clone() })
            }
            Stage::Whole | Stage::Prefill { .. } => None,
        }
    }

    /// The prompt, as the caller gave it.
    pub fn prompt(&self) -> Sequence<'_> {
        self.request.prompt.get()
    }
}

/// Decoding requests are ordered by the step that ends them, then by the order in which they joined; the heap gives the
/// greatest first, so the order is reversed.
impl Ord for Job {
    fn cmp(&self, other: &Self) -> Ordering {
        (other.last(), other.rank).cmp(&(self.last(), self.rank))
    }
}

impl PartialOrd for Job {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Job {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Job {}
