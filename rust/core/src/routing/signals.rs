//! Signals: what policies read beside hits and loads.

use super::active::Active;
use super::book::{Book, floats};
use crate::columns::UNKNOWN_RATE;
use crate::ids::BlockHash;

/// What the signals of a decision are read from.
#[derive(Clone, Copy, Debug)]
pub struct Reading<'a> {
    /// The load book.
    pub book: &'a Book,
    /// Blocks of requests in flight, if they are kept.
    pub active: Option<&'a Active>,
    /// The prompt.
    pub blocks: &'a [BlockHash],
    /// Time in seconds.
    pub now: f64,
}

/// What the numbers of a signal are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Whole numbers.
    Counts,
    /// Any numbers.
    Numbers,
    /// Rates, [`UNKNOWN_RATE`] where none is known.
    Rates,
}

macro_rules! signals {
    ($($(#[doc = $doc:literal])+ $name:ident = $field:literal: $kind:ident, |$of:pat_param| $read:expr;)+) => {
        /// A signal of a view, in the order of a view's fields.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Signal {
            $($(#[doc = $doc])+ $name,)+
        }

        impl Signal {
            /// All of them, by the name of the view's field.
            pub const ALL: &'static [(&'static str, Self)] = &[$(($field, Self::$name),)+];

            /// What its numbers are.
            pub fn kind(self) -> Kind {
                match self {
                    $(Self::$name => Kind::$kind,)+
                }
            }

            /// Its number for each slot; none if the ledger does not have it.
            pub fn read(self, of: Reading<'_>) -> Option<Vec<f64>> {
                match (self, of) {
                    $((Self::$name, $of) => $read,)+
                }
            }
        }
    };
}

// One row for each: the name of the view's field, what its numbers are, and how it is read. What the ledger does not have
// comes with the sight or from Python.
signals! {
    /// Requests in flight.
    InFlight = "in_flight": Counts, |of| Some(floats(&of.book.weighed().in_flight));
    /// Prompt tokens that wait to be computed.
    Queued = "queued": Counts, |of| Some(floats(&of.book.weighed().queued));
    /// Context tokens in decode.
    Decoding = "decoding": Counts, |of| Some(floats(&of.book.weighed().decoding));
    /// How many of the latest bookings each replica received.
    Recent = "recent": Counts, |of| Some(floats(&of.book.recent.in_flight));
    /// Reports of load.
    Reports = "reports": Numbers, |_| None;
    /// Hash of the prompt's head.
    Head = "head": Counts, |_| None;
    /// Tokens that each replica is believed to hold in all.
    Held = "held": Counts, |_| None;
    /// Number of the decision on the last request that each replica took without a hit.
    LastMiss = "last_miss": Counts, |of| Some(floats(&of.book.last_miss));
    /// Prefill seconds given to each replica within the window.
    WindowS = "window_s": Numbers, |of| Some(of.book.window_s(of.now));
    /// Learned prefill rates.
    Rates = "rates": Rates, |of| Some(of.book.rates.iter().map(|rate| rate.unwrap_or(UNKNOWN_RATE)).collect());
    /// Tokens in the blocks of requests in flight.
    Active = "active": Counts, |of| of.active.map(Active::tokens);
    /// Leading prompt tokens whose blocks are among those.
    ActiveHits = "active_hits": Counts, |of| of.active.map(|active| active.hits(of.blocks));
    /// Share of the last beginnings that branched where the prompt does.
    Shared = "shared": Numbers, |_| None;
    /// Slot of the replica that computes the prompt.
    KvAt = "kv_at": Counts, |_| None;
}
