//! The bindings: which replica has a session's prefix.

use xxhash_rust::xxh3::xxh3_128_with_seed;

use super::attempt::Process;
use crate::recency::RecencyMap;

/// What a name given by a host is kept as: 128 bits, however long it is. Equal under one key in every process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Name(pub u128);

impl Name {
    /// The name of these bytes under a key.
    pub fn of(bytes: &[u8], key: u64) -> Self {
        Self(xxh3_128_with_seed(bytes, key))
    }
}

/// A session's replica, and when the session was last seen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Binding {
    /// The process.
    pub process: Process,
    /// In seconds.
    pub seen: f64,
}

/// What happens to bindings. The discriminant is the place of its count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Move {
    /// A new session.
    Assigned,
    /// A request went elsewhere, and the session stays bound.
    Detour,
    /// The policy moved it.
    Moved,
    /// Its replica has left.
    Removed,
    /// Its replica drains.
    Drained,
    /// It was the longest unused of too many.
    Evicted,
    /// It was idle for too long.
    Idle,
}

impl Move {
    /// All, with the words for them.
    pub const ALL: [(Move, &'static str); 7] = [
        (Move::Assigned, "assigned"),
        (Move::Detour, "detour"),
        (Move::Moved, "moved"),
        (Move::Removed, "removed"),
        (Move::Drained, "drained"),
        (Move::Evicted, "evicted"),
        (Move::Idle, "idle"),
    ];
}

/// Sessions by name: at most `capacity` of them, none idle longer than `idle_s`.
#[derive(Debug)]
pub struct Sessions {
    /// Seconds.
    idle_s: f64,
    capacity: usize,
    bindings: RecencyMap<Name, Binding>,
    /// By [`Move`].
    pub moves: [u64; Move::ALL.len()],
}

impl Sessions {
    /// No sessions.
    pub fn new(idle_s: f64, capacity: usize) -> Self {
        Self { idle_s, capacity, bindings: RecencyMap::default(), moves: [0; Move::ALL.len()] }
    }

    /// Sessions remembered.
    pub fn len(&self) -> usize {
        self.bindings.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.bindings.is_empty()
    }

    /// A session's binding, unless it has been idle for too long.
    pub fn get(&self, session: Name, now: f64) -> Option<Binding> {
        self.bindings.get(&session).copied().filter(|binding| now - binding.seen <= self.idle_s)
    }

    /// Bind a session, or renew its binding.
    pub fn bind(&mut self, session: Name, process: Process, now: f64) {
        self.bindings.insert(session, Binding { process, seen: now });
        while self.bindings.len() > self.capacity {
            self.bindings.pop_first();
            self.count(Move::Evicted);
        }
    }

    /// Take in where another router has bound a session, unless it was used later than that here.
    pub fn learn(&mut self, session: Name, process: Process, seen: f64) {
        if self.bindings.get(&session).is_none_or(|known| known.seen <= seen) {
            self.bind(session, process, seen);
        }
    }

    /// The sessions used last, newest first, at most so many.
    pub fn newest(&self, most: usize) -> Vec<(Name, Binding)> {
        self.bindings.newest().take(most).map(|(name, binding)| (*name, *binding)).collect()
    }

    /// Drop a session; whether it was bound.
    pub fn forget(&mut self, session: Name) -> bool {
        self.bindings.remove(&session).is_some()
    }

    /// Drop every session; how many there were.
    pub fn clear(&mut self) -> usize {
        let count = self.bindings.len();
        self.bindings.clear();
        count
    }

    /// Drop the sessions that have been idle for too long.
    pub fn sweep(&mut self, now: f64) {
        while self.bindings.first().is_some_and(|(_, binding)| now - binding.seen > self.idle_s) {
            self.bindings.pop_first();
            self.count(Move::Idle);
        }
    }

    /// Count what has happened to a binding.
    pub fn count(&mut self, what: Move) {
        self.moves[what as usize] += 1;
    }
}
