//! What is measured.

mod belief;
mod lookup;
mod memory;
mod replay;
mod threads;
mod write;

use crate::report::Row;

/// How many samples one process takes.
#[derive(Clone, Copy)]
pub struct Effort {
    /// Turns of lookups, inserts and the like.
    pub rounds: usize,
    /// Whole builds, replays and the like.
    pub builds: usize,
}

impl Effort {
    pub const FULL: Effort = Effort { rounds: 8, builds: 2 };
    pub const QUICK: Effort = Effort { rounds: 5, builds: 2 };
}

/// What one process does.
pub struct Task<'a> {
    /// The name of the one contender that it measures.
    pub contender: &'a str,
    pub effort: Effort,
    /// Cost of reading the clock, in nanoseconds.
    pub clock: f64,
}

pub struct Case {
    pub name: &'static str,
    /// Names of those that take part.
    pub contenders: fn() -> Vec<&'static str>,
    pub run: fn(&Task, &mut dyn FnMut(Row)),
}

/// Every case.
pub static ALL: [Case; 8] = [
    Case { name: "lookup", contenders: fed, run: lookup::hot },
    Case { name: "cold", contenders: fed, run: lookup::cold },
    Case { name: "growth", contenders: fed, run: lookup::growth },
    Case { name: "write", contenders: fed, run: write::events },
    Case { name: "memory", contenders: native, run: memory::bytes },
    Case { name: "belief", contenders: belief::contenders, run: belief::insert_and_evict },
    Case { name: "replay", contenders: native, run: replay::mooncake },
    Case { name: "threads", contenders: shared, run: threads::together },
];

fn fed() -> Vec<&'static str> {
    each!(names)
}

fn native() -> Vec<&'static str> {
    each_native!(names)
}

fn shared() -> Vec<&'static str> {
    each_shared!(names)
}

/// Of a list of contenders: their names, or a generic function called for the one that has a name.
macro_rules! among {
    ([$($(#[$built_in:meta])? $contender:ident),*] names) => {{
        use crate::contender as c;
        vec![$($(#[$built_in])? <c::$contender as c::Contender>::NAME),*]
    }};
    ([$($(#[$built_in:meta])? $contender:ident),*] $name:expr, $run:ident $arguments:tt) => {{
        use crate::contender as c;
        let mut found = None;
        $($(#[$built_in])? if $name == <c::$contender as c::Contender>::NAME {
            found = Some($run::<c::$contender> $arguments);
        })*
        found
    }};
}
/// Those that events feed, ours first.
macro_rules! each {
    ($($what:tt)*) => {
        $crate::cases::among!([
            Ours,
            #[cfg(feature = "smg")] SmgChain,
            #[cfg(feature = "smg")] SmgRadix,
            #[cfg(feature = "dynamo")] DynamoRadix,
            #[cfg(feature = "dynamo")] DynamoConcurrent,
            #[cfg(feature = "wheel")] DynamoWheel
        ] $($what)*)
    };
}
/// Those of them that are Rust: their memory can be counted, and they are not slowed down by an interpreter.
macro_rules! each_native {
    ($($what:tt)*) => {
        $crate::cases::among!([
            Ours,
            #[cfg(feature = "smg")] SmgChain,
            #[cfg(feature = "smg")] SmgRadix,
            #[cfg(feature = "dynamo")] DynamoRadix,
            #[cfg(feature = "dynamo")] DynamoConcurrent
        ] $($what)*)
    };
}
/// Those that threads can share.
macro_rules! each_shared {
    ($($what:tt)*) => {
        $crate::cases::among!([
            Ours,
            #[cfg(feature = "smg")] SmgChain,
            #[cfg(feature = "dynamo")] DynamoConcurrent
        ] $($what)*)
    };
}
pub(crate) use {among, each, each_native, each_shared};
