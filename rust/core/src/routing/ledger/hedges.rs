//! Further attempts of a request: the one that takes the place of an earlier one, and hedges, of which the first to answer
//! wins.

use super::Ledger;
use crate::routing::attempt::{Attempt, Booking, Effect};
use crate::routing::counters::Outcome;

impl<T: Clone> Ledger<T> {
    /// Book a further attempt of a request. `hedge`: the earlier one goes on, and the first to answer wins.
    pub fn book_again(
        &mut self,
        number: u64,
        mut attempt: Attempt<T>,
        earlier: u64,
        hedge: bool,
        booking: Booking<'_>,
    ) -> Vec<Effect<T>> {
        let (process, now) = (attempt.process, attempt.begun);
        attempt.again = true;
        self.enter(number, attempt, booking.decision_id);
        let group = self.group_of(earlier);
        if hedge || group.is_some() {
            self.pair(group.unwrap_or(earlier), earlier, number);
        }
        let effects = self.claim(number);
        if !hedge {
            self.bind(number, now);
        }
        self.note(process, booking, now);
        effects
    }

    /// The group that an attempt is in, or was in when its last attempt but it was retried.
    pub(super) fn group_of(&self, number: u64) -> Option<u64> {
        self.groups.iter().find(|(_, numbers)| numbers.contains(&number)).map(|(group, _)| *group)
    }

    /// Make attempts a hedge: the first to answer wins.
    fn pair(&mut self, group: u64, earlier: u64, number: u64) {
        let numbers = self.groups.entry(group).or_insert_with(|| vec![earlier]);
        numbers.push(number);
        for number in numbers.clone() {
            if let Some(attempt) = self.attempts.get_mut(&number) {
                attempt.group = Some(group);
            }
        }
    }

    /// Whether another attempt of the request of an attempt that has ended is open.
    pub fn goes_on(&self, number: u64) -> bool {
        self.other_open(self.group_of(number), number).is_some()
    }

    pub(super) fn other_open(&self, group: Option<u64>, number: u64) -> Option<u64> {
        let numbers = self.groups.get(&group?)?;
        numbers.iter().copied().find(|&other| other != number && self.is_open(other))
    }

    /// Decide a hedge: the others are refunded, the winner takes the key and the session.
    pub(super) fn win(&mut self, number: u64, group: u64, now: f64) -> Vec<Effect<T>> {
        let numbers = self.groups.remove(&group).unwrap_or_default();
        let mut effects = Vec::new();
        for other in numbers {
            if let Some(attempt) = self.attempts.get_mut(&other) {
                attempt.group = None;
                if other != number {
                    effects.extend(self.abort(other, Outcome::HedgeLost));
                }
            }
        }
        effects.extend(self.claim(number));
        self.bind(number, now);
        effects
    }
}
