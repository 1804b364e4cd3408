//! What a kernel may ask about a request and the replicas beside hits and loads.

use std::any::Any;
use std::borrow::Cow;

use crate::routing::Signal;

/// What a request may be placed by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// Its session.
    Session,
    /// The head of its prompt.
    Head,
    /// Its document, else the head of its prompt.
    Document,
}

impl Key {
    /// All of them, by name.
    pub const ALL: [(&'static str, Self); 3] =
        [("session", Self::Session), ("head", Self::Head), ("document", Self::Document)];
}

/// A figure of a replica's report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Figure {
    /// Uncached tokens that wait.
    WaitingTokens,
    /// Requests that wait.
    Waiting,
    /// Requests that run.
    Running,
    /// Share of the KV cache in use.
    KvUse,
    /// Prefill throughput.
    TokensPerS,
}

/// Why there is no pick.
#[derive(Debug)]
pub enum Failure {
    /// There is no best of nothing, nor of what is not a number.
    Incomparable,
    /// What was asked has failed, for a reason of its own.
    Foreign(Box<dyn Any + Send>),
}

/// What a kernel asks about a decision. Columns have one number per candidate, in the order of their slots.
pub trait Seen {
    /// A signal that is a column of numbers.
    ///
    /// # Errors
    ///
    /// Who is asked has failed.
    fn column(&self, signal: Signal) -> Result<Cow<'_, [f64]>, Failure>;
    /// A column that came with the question.
    ///
    /// # Errors
    ///
    /// Who is asked has failed.
    fn given(&self, number: usize) -> Result<Cow<'_, [f64]>, Failure>;
    /// The hash of each candidate's name.
    ///
    /// # Errors
    ///
    /// Who is asked has failed.
    fn names(&self) -> Result<Cow<'_, [u64]>, Failure>;
    /// The speed of each candidate relative to the others; none: all are equal.
    ///
    /// # Errors
    ///
    /// Who is asked has failed.
    fn weights(&self) -> Result<Option<Cow<'_, [f64]>>, Failure>;
    /// Hash of the request's key; none: it has no such key.
    ///
    /// # Errors
    ///
    /// Who is asked has failed.
    fn key(&self, key: Key) -> Result<Option<u64>, Failure>;
    /// How many candidates have a fresh report.
    ///
    /// # Errors
    ///
    /// Who is asked has failed.
    fn reporting(&self) -> Result<usize, Failure>;
    /// A figure of a candidate's report; none: it is not reported.
    ///
    /// # Errors
    ///
    /// Who is asked has failed.
    fn reported(&self, at: usize, figure: Figure) -> Result<Option<f64>, Failure>;
    /// Slot of the replica that computes the prompt, in a decision on who decodes.
    ///
    /// # Errors
    ///
    /// Who is asked has failed.
    fn kv_at(&self) -> Result<Option<usize>, Failure>;
    /// Tokens of the answer at most.
    ///
    /// # Errors
    ///
    /// Who is asked has failed.
    fn max_tokens(&self) -> Result<Option<f64>, Failure>;
    /// Seconds within which the first token is wanted.
    ///
    /// # Errors
    ///
    /// Who is asked has failed.
    fn slo_ttft_s(&self) -> Result<Option<f64>, Failure>;
}
