//! Events ordered by time, then by the order in which they were scheduled.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::fmt;

/// An event was to lie in the past, or at no finite time: a bug of the caller.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NotInOrder {
    /// The present.
    pub now: f64,
    /// The time asked for.
    pub at: f64,
}

impl fmt::Display for NotInOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an event must lie in [{}, inf), got {}", self.now, self.at)
    }
}

impl std::error::Error for NotInOrder {}

#[derive(Debug)]
struct Entry<A> {
    at: f64,
    sequence: u64,
    action: A,
}

impl<A> Ord for Entry<A> {
    /// The reverse of time, because the standard heap gives its greatest entry first.
    fn cmp(&self, other: &Self) -> Ordering {
        other.at.total_cmp(&self.at).then_with(|| other.sequence.cmp(&self.sequence))
    }
}

impl<A> PartialOrd for Entry<A> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<A> PartialEq for Entry<A> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<A> Eq for Entry<A> {}

/// A clock that jumps from event to event, in seconds from the start.
///
/// There is no cancel: an owner that changes its mind schedules again and ignores the stale event by a version of its own.
#[derive(Debug)]
pub struct EventQueue<A> {
    heap: BinaryHeap<Entry<A>>,
    sequence: u64,
    now: f64,
}

impl<A> Default for EventQueue<A> {
    fn default() -> Self {
        Self { heap: BinaryHeap::new(), sequence: 0, now: 0.0 }
    }
}

impl<A> EventQueue<A> {
    /// The time of the last event taken.
    pub fn now(&self) -> f64 {
        self.now
    }

    /// Pending events.
    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// Whether nothing is pending.
    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }

    /// Put an event at second `at`.
    ///
    /// # Errors
    ///
    /// [`NotInOrder`] of a time before the present, and of one that is not finite.
    pub fn schedule(&mut self, at: f64, action: A) -> Result<(), NotInOrder> {
        if !(self.now <= at && at < f64::INFINITY) {
            return Err(NotInOrder { now: self.now, at });
        }
        let at = at + 0.0; // the order of bits sets -0 before 0, and time does not
        self.heap.push(Entry { at, sequence: self.sequence, action });
        self.sequence += 1;
        Ok(())
    }

    /// The time of the next event.
    pub fn next_at(&self) -> Option<f64> {
        self.heap.peek().map(|entry| entry.at)
    }

    /// Take the next event and let its time be the present.
    pub fn pop(&mut self) -> Option<A> {
        let Entry { at, action, .. } = self.heap.pop()?;
        self.now = at;
        Some(action)
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test that panics has failed")]
mod tests {
    use super::*;

    #[test]
    fn events_come_by_time_and_then_in_the_order_of_scheduling() {
        let mut queue = EventQueue::default();
        for (number, at) in [3.0, 1.0, 3.0, 0.0, -0.0, 1.0].into_iter().enumerate() {
            queue.schedule(at, number).unwrap();
        }
        let order: Vec<usize> = std::iter::from_fn(|| queue.pop()).collect();
        assert_eq!(order, [3, 4, 1, 5, 0, 2]);
        assert!((queue.now() - 3.0).abs() < f64::EPSILON);
    }

    #[test]
    fn the_past_and_never_are_refused() {
        let mut queue = EventQueue::default();
        queue.schedule(1.0, ()).unwrap();
        queue.pop();
        for at in [0.5, f64::INFINITY, f64::NAN] {
            assert!(queue.schedule(at, ()).is_err());
        }
        assert!(queue.is_empty());
    }
}
