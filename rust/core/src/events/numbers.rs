//! Numbers of an engine's batches that go back: which batch comes again, which comes late, which is of another process.
//!
//! A process numbers its batches from 0 on. Transports repeat a batch and, some of them, bring one late; a process that is
//! replaced begins again, and the first batch that is seen of the new one can have any number. So a number alone tells
//! nothing. Its content does: the applied batches are remembered, and a process never gives one number to two batches.

use std::collections::VecDeque;

use xxhash_rust::xxh3::xxh3_64;

/// Applied batches whose content is remembered. A batch that comes again is rarely more than a reconnect old.
pub const REMEMBERED_BATCHES: usize = 1_024;

/// What a number means that is not above that of the last batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Back {
    /// The batch was applied.
    Repeated,
    /// The batch was missing, and others were applied since: it comes too late to be applied in order.
    Late,
    /// The batch is of another process.
    Restarted,
}

/// A batch that was applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Batch {
    pub number: u64,
    /// Hash of its bytes.
    pub content: u64,
    /// Whether the numbers between the batch before and this one were never published.
    pub burnt: bool,
}

impl Batch {
    /// A batch before which any number may be missing.
    pub(crate) fn new(number: u64, payload: &[u8]) -> Self {
        Batch { number, content: Numbers::content(payload), burnt: false }
    }
}

/// The last batches that were applied of a process, in the order of their numbers.
#[derive(Clone, Debug, Default)]
pub struct Numbers {
    /// The last one: kept here, as it is known whatever room there is for others.
    newest: Option<Batch>,
    older: VecDeque<Batch>,
}

/// Batches by which the memory of them grows.
const STEP: usize = 64;

impl Numbers {
    /// Hash of a batch's bytes.
    pub fn content(payload: &[u8]) -> u64 {
        xxh3_64(payload)
    }

    /// Number of the last batch.
    pub fn last(&self) -> Option<u64> {
        self.newest.map(|batch| batch.number)
    }

    /// Content of a batch, if it is remembered.
    pub fn content_of(&self, number: u64) -> Option<u64> {
        self.find(number).ok().map(|batch| batch.content)
    }

    /// The batch with a number, or the next one if one before is remembered.
    fn find(&self, number: u64) -> Result<Batch, Option<Batch>> {
        if let Some(newest) = self.newest.filter(|newest| newest.number == number) {
            return Ok(newest);
        }
        match self.older.binary_search_by_key(&number, |batch| batch.number) {
            Ok(at) => Ok(self.older[at]),
            Err(0) => Err(None),
            Err(at) => Err(self.older.get(at).copied().or(self.newest)),
        }
    }

    /// A batch was applied whose number is above all others. `burnt`: no number between was ever published.
    pub fn applied(&mut self, number: u64, content: u64, burnt: bool) {
        self.push(Batch { number, content, burnt }, true);
    }

    /// A batch was applied; without `room` one before it is forgotten.
    pub(crate) fn push(&mut self, batch: Batch, room: bool) {
        let Some(before) = self.newest.replace(batch) else { return };
        if self.older.len() + 1 == REMEMBERED_BATCHES || (self.growth() > 0 && !room) {
            self.older.pop_front();
        }
        if self.growth() > 0 {
            if !room {
                return;
            }
            self.older.reserve_exact(STEP);
        }
        self.older.push_back(before);
    }

    /// Bytes that it takes to remember one more batch.
    pub(crate) fn growth(&self) -> usize {
        if self.older.len() < self.older.capacity() { 0 } else { STEP * size_of::<Batch>() }
    }

    /// What a number means that is not above the last one. `published`: the highest number that the engine has published
    /// since its numbers can only have risen; none if that is not known. A number above it cannot be of another process.
    pub fn back(&self, number: u64, content: u64, published: Option<u64>) -> Back {
        match self.find(number) {
            Ok(batch) if batch.content == content => Back::Repeated,
            Ok(_) => Back::Restarted,
            Err(Some(behind)) if !behind.burnt => Back::Late,
            Err(_) if published.is_some_and(|published| number <= published) => Back::Restarted,
            Err(_) => Back::Repeated, // and forgotten
        }
    }

    /// Forgets all: the next batch can have any number.
    pub fn clear(&mut self) {
        *self = Numbers::default();
    }

    /// The batches in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Batch> {
        self.older.iter().chain(&self.newest)
    }

    pub(crate) fn bytes(&self) -> usize {
        self.older.capacity() * size_of::<Batch>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(batches: &[(u64, bool)]) -> Numbers {
        let mut numbers = Numbers::default();
        for &(number, burnt) in batches {
            numbers.applied(number, number + 1_000, burnt);
        }
        numbers
    }

    #[test]
    fn content_tells_a_repeated_batch_from_another_process() {
        let numbers = numbers(&[(7, false), (8, false)]);
        assert_eq!(numbers.back(7, 1_007, Some(8)), Back::Repeated);
        assert_eq!(numbers.back(8, 1_007, Some(8)), Back::Restarted);
        assert_eq!((numbers.last(), numbers.content_of(8), numbers.content_of(9)), (Some(8), Some(1_008), None));
    }

    #[test]
    fn a_number_that_was_missing_is_late_and_one_that_was_never_published_is_not() {
        let numbers = numbers(&[(7, false), (10, false), (13, true)]);
        assert_eq!(numbers.back(9, 1, Some(13)), Back::Late);
        assert_eq!(numbers.back(12, 1, Some(13)), Back::Restarted);
        assert_eq!(numbers.back(12, 1, None), Back::Repeated);
    }

    #[test]
    fn a_forgotten_number_is_of_another_process_if_published_numbers_fall() {
        let all: Vec<_> = (0..REMEMBERED_BATCHES as u64 + 5).map(|number| (number, false)).collect();
        let numbers = numbers(&all);
        assert_eq!(numbers.iter().count(), REMEMBERED_BATCHES);
        assert_eq!(numbers.back(4, 1_004, Some(9)), Back::Restarted);
        assert_eq!(numbers.back(4, 1_004, Some(3)), Back::Repeated);
        assert_eq!(numbers.back(5, 1_005, Some(9)), Back::Repeated);
    }
}
