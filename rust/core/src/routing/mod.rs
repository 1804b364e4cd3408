//! What a router keeps between decisions: load, requests in flight, session bindings, shared heads, and its counters.
//!
//! Every change is one call that runs to its end, so that a signal of the host cannot leave half of it. What a change asks of
//! others (the index, shadows, a log) is returned as [`Effect`]s, for the caller to carry out. A request's own data is a
//! parameter: the ledger keeps it and gives it back.

mod active;
mod attempt;
mod book;
mod counters;
mod heads;
mod ledger;
mod sessions;
mod signals;
mod trust;

pub use active::Active;
pub use attempt::{Attempt, Booking, Effect, Finished, Half, Halves, Limits, Process, State};
pub use book::{Balanced, Book, Counts, Windows};
pub use counters::{Counters, DURATIONS_S, MAX_REASON_CHARS, MAX_REASONS, OTHER_REASON, Outcome};
pub use heads::{Head, Heads};
pub use ledger::Ledger;
pub use sessions::{Binding, Move, Name, Sessions};
pub use signals::{Kind, Reading, Signal};
pub use trust::{HitRecord, Trust, Verdict, ZERO_STREAK};

#[cfg(test)]
#[expect(clippy::float_cmp, clippy::cast_possible_wrap, reason = "small numbers that floats have exactly")]
mod tests;
