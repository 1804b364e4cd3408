//! What is measured.

mod belief;
mod lookup;
mod memory;
mod replay;
mod threads;
mod write;

use crate::report::Row;

/// How many samples to take.
#[derive(Clone, Copy)]
pub struct Effort {
    /// Rounds in which the contenders take turns.
    pub rounds: usize,
    /// Whole builds, replays and the like.
    pub builds: usize,
}

impl Effort {
    pub const FULL: Effort = Effort { rounds: 40, builds: 7 };
    pub const QUICK: Effort = Effort { rounds: 6, builds: 3 };
}

type Case = fn(Effort, f64, &mut dyn FnMut(Row));

/// Every case, by name.
pub const ALL: [(&str, Case); 8] = [
    ("lookup", lookup::hot),
    ("cold", lookup::cold),
    ("growth", lookup::growth),
    ("write", write::events),
    ("memory", memory::bytes),
    ("belief", belief::insert_and_evict),
    ("replay", replay::mooncake),
    ("threads", threads::together),
];

/// Calls a generic function once for each contender that is built in, ours first; gives the results in a vector.
macro_rules! each {
    ($run:ident($($argument:expr),*)) => {{
        use crate::contender as c;
        vec![
            $run::<c::Ours>($($argument),*),
            #[cfg(feature = "smg")]
            $run::<c::SmgChain>($($argument),*),
            #[cfg(feature = "smg")]
            $run::<c::SmgRadix>($($argument),*),
            #[cfg(feature = "dynamo")]
            $run::<c::DynamoRadix>($($argument),*),
            #[cfg(feature = "dynamo")]
            $run::<c::DynamoConcurrent>($($argument),*),
            #[cfg(feature = "wheel")]
            $run::<c::DynamoWheel>($($argument),*),
        ]
    }};
}
/// The same for those that are Rust: their memory can be counted, and they are not slowed down by an interpreter.
macro_rules! each_native {
    ($run:ident($($argument:expr),*)) => {{
        use crate::contender as c;
        vec![
            $run::<c::Ours>($($argument),*),
            #[cfg(feature = "smg")]
            $run::<c::SmgChain>($($argument),*),
            #[cfg(feature = "smg")]
            $run::<c::SmgRadix>($($argument),*),
            #[cfg(feature = "dynamo")]
            $run::<c::DynamoRadix>($($argument),*),
            #[cfg(feature = "dynamo")]
            $run::<c::DynamoConcurrent>($($argument),*),
        ]
    }};
}
/// The same for those that threads can share.
macro_rules! each_shared {
    ($run:ident($($argument:expr),*)) => {{
        use crate::contender as c;
        vec![
            $run::<c::Ours>($($argument),*),
            #[cfg(feature = "smg")]
            $run::<c::SmgChain>($($argument),*),
            #[cfg(feature = "dynamo")]
            $run::<c::DynamoConcurrent>($($argument),*),
        ]
    }};
}
pub(crate) use {each, each_native, each_shared};
