//! The ring: messages of one process in memory that others map too. One writer, any number of readers, no lock.
//!
//! The writer overwrites the oldest messages and waits for nobody; a reader that is too slow finds out that it was lapped.
//! Whoever dies, at whatever instruction, leaves a ring that can be read: a message is seen once its last store has made
//! the tail pass it, and not before. Beside the messages stand the loads of the process by replica, which a reader takes in
//! without reading messages.
//!
//! Every word is an atomic, so that a torn read is a wrong value and not undefined behaviour; the order of stores and loads
//! is that of a sequence lock: the head is moved before what it frees is overwritten, and looked at after it was read.

use std::sync::atomic::Ordering;

/// Marks a ring of this layout.
const MAGIC: u64 = 0x7066_7269_6e67_0001;
const HEADER_WORDS: usize = 8;
const HEAD: usize = 2;
const TAIL: usize = 3;
const LOADS: usize = 4;
/// Replicas whose load a ring can show.
pub const CELLS: usize = 1_024;
const CELL_WORDS: usize = 4;
const DATA: usize = HEADER_WORDS + CELLS * CELL_WORDS;
const WORD: usize = size_of::<u64>();

/// A word of shared memory.
pub trait Word {
    /// Its value.
    fn load(&self, order: Ordering) -> u64;
    /// Another value.
    fn store(&self, value: u64, order: Ordering);
    /// A fence among words of this kind.
    fn fence(order: Ordering);
}

impl Word for std::sync::atomic::AtomicU64 {
    #[inline]
    fn load(&self, order: Ordering) -> u64 {
        Self::load(self, order)
    }

    #[inline]
    fn store(&self, value: u64, order: Ordering) {
        Self::store(self, value, order);
    }

    #[inline]
    fn fence(order: Ordering) {
        std::sync::atomic::fence(order);
    }
}

/// Bytes that a ring takes whose messages have so many.
pub const fn ring_bytes(capacity: usize) -> usize {
    DATA * WORD + capacity
}

/// One replica's load as a ring shows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cell {
    /// What the replica is called; 0 = the cell is free.
    pub mark: u64,
    /// Requests in flight.
    pub requests: i64,
    /// Uncached tokens that wait.
    pub queued: i64,
    /// Tokens decoding.
    pub decoding: i64,
}

/// What a reader finds.
#[derive(Debug, PartialEq, Eq)]
pub enum Found {
    /// Nothing new.
    Nothing,
    /// A message is in the buffer.
    Message,
    /// The writer has overwritten what came next; the reader goes on at the oldest message left.
    Lapped,
}

/// The words of a ring.
#[derive(Debug)]
pub struct Ring<'a, W> {
    words: &'a [W],
    data: &'a [W],
}

impl<W> Clone for Ring<'_, W> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<W> Copy for Ring<'_, W> {}

impl<'a, W: Word> Ring<'a, W> {
    /// The ring in these words, `None` if they are too few.
    fn over(words: &'a [W]) -> Option<Self> {
        let data = words.get(DATA..).filter(|data| data.len() >= 4)?;
        Some(Self { words, data })
    }

    /// Makes a ring of words that are all zero.
    pub fn create(words: &'a [W]) -> Option<Self> {
        let ring = Self::over(words)?;
        words[1].store(ring.data.len() as u64, Ordering::Relaxed);
        words[0].store(MAGIC, Ordering::Release);
        Some(ring)
    }

    /// The ring that another process has made; `None` if this is none.
    pub fn open(words: &'a [W]) -> Option<Self> {
        let ring = Self::over(words)?;
        let fits =
            words[0].load(Ordering::Acquire) == MAGIC && words[1].load(Ordering::Relaxed) == ring.data.len() as u64;
        fits.then_some(ring)
    }

    fn at(&self, position: u64) -> &'a W {
        &self.data[(position % self.data.len() as u64) as usize]
    }

    /// Where the oldest message begins.
    pub fn head(&self) -> u64 {
        self.words[HEAD].load(Ordering::Acquire)
    }

    /// Writes a message; false if it is too long, more than half of the ring.
    pub fn push(&self, message: &[u8]) -> bool {
        let capacity = self.data.len() as u64;
        let wanted = 1 + message.len().div_ceil(WORD) as u64;
        if wanted > capacity / 2 {
            return false;
        }
        let tail = self.words[TAIL].load(Ordering::Relaxed);
        let mut head = self.words[HEAD].load(Ordering::Relaxed);
        while tail + wanted - head > capacity {
            head += 1 + self.at(head).load(Ordering::Relaxed).div_ceil(WORD as u64);
        }
        self.words[HEAD].store(head, Ordering::Relaxed);
        W::fence(Ordering::Release); // who sees a word of this message sees the new head
        self.at(tail).store(message.len() as u64, Ordering::Relaxed);
        for (place, chunk) in (tail + 1..).zip(message.chunks(WORD)) {
            let mut bytes = [0; WORD];
            bytes[..chunk.len()].copy_from_slice(chunk);
            self.at(place).store(u64::from_le_bytes(bytes), Ordering::Relaxed);
        }
        self.words[TAIL].store(tail + wanted, Ordering::Release);
        true
    }

    /// Reads the message at a cursor into a buffer, and moves the cursor behind it.
    pub fn read(&self, cursor: &mut u64, message: &mut Vec<u8>) -> Found {
        self.read_checked(cursor, message, true)
    }

    fn read_checked(&self, cursor: &mut u64, message: &mut Vec<u8>, check: bool) -> Found {
        let tail = self.words[TAIL].load(Ordering::Acquire);
        if *cursor >= tail {
            return Found::Nothing;
        }
        message.clear();
        let length = self.at(*cursor).load(Ordering::Relaxed);
        let end = *cursor + 1 + length.div_ceil(WORD as u64);
        if length / WORD as u64 <= self.data.len() as u64 {
            for place in *cursor + 1..end {
                message.extend_from_slice(&self.at(place).load(Ordering::Relaxed).to_le_bytes());
            }
            message.truncate(length as usize);
        }
        W::fence(Ordering::Acquire); // if a word was of a later message, its head is seen now
        let head = self.words[HEAD].load(Ordering::Relaxed);
        if check && (head > *cursor || end > tail) {
            *cursor = head.max(*cursor + u64::from(end > tail && head <= *cursor));
            return Found::Lapped;
        }
        *cursor = end;
        Found::Message
    }

    fn cell(&self, index: usize) -> &'a [W] {
        &self.words[HEADER_WORDS + index * CELL_WORDS..][..CELL_WORDS]
    }

    /// Shows the load of a replica in the cell of that number; only the writer may.
    pub fn show(&self, index: usize, shown: Cell) {
        let cell = self.cell(index);
        let [requests, queued, decoding] = [shown.requests, shown.queued, shown.decoding].map(bits);
        let values = [shown.mark, requests, queued, decoding];
        for (word, value) in cell.iter().zip(values) {
            word.store(value, Ordering::Relaxed);
        }
        let version = self.words[LOADS].load(Ordering::Relaxed);
        self.words[LOADS].store(version + 1, Ordering::Release);
    }

    /// Changes whenever a load does.
    #[inline]
    pub fn loads_version(&self) -> u64 {
        self.words[LOADS].load(Ordering::Acquire)
    }

    /// The loads shown, by cell. Of one that is being changed, a part may be old: the version then changes again.
    pub fn shown(&self, index: usize) -> Cell {
        let [mark, requests, queued, decoding] =
            [0, 1, 2, 3].map(|word| self.cell(index)[word].load(Ordering::Relaxed));
        let [requests, queued, decoding] =
            [requests, queued, decoding].map(|bits| i64::from_ne_bytes(bits.to_ne_bytes()));
        Cell { mark, requests, queued, decoding }
    }
}

/// A signed number as a word.
fn bits(number: i64) -> u64 {
    u64::from_ne_bytes(number.to_ne_bytes())
}

#[cfg(all(test, not(loom)))]
#[expect(clippy::expect_used, reason = "what a test sets up")]
mod tests {
    use std::cell::Cell as Counter;
    use std::sync::atomic::AtomicU64;

    use proptest::prelude::*;

    use super::*;

    fn zeroed<W: Default>(capacity: usize) -> Vec<W> {
        (0..DATA + capacity).map(|_| W::default()).collect()
    }

    fn all<W: Word>(ring: Ring<'_, W>, cursor: &mut u64) -> (Vec<Vec<u8>>, usize) {
        let (mut found, mut lapped, mut message) = (Vec::new(), 0, Vec::new());
        loop {
            match ring.read(cursor, &mut message) {
                Found::Nothing => return (found, lapped),
                Found::Message => found.push(message.clone()),
                Found::Lapped => lapped += 1,
            }
        }
    }

    proptest! {
        #[test]
        fn a_reader_gets_what_was_not_overwritten(
            capacity in 8usize..40,
            steps in prop::collection::vec((prop::collection::vec(any::<u8>(), 0..60), any::<bool>()), 0..60),
        ) {
            let words = zeroed::<AtomicU64>(capacity);
            let ring = Ring::create(&words).expect("large enough");
            let (mut cursor, mut pushed, mut read) = (0, Vec::new(), 0);
            for (message, reads) in steps {
                let fits = message.len().div_ceil(WORD) < capacity / 2;
                prop_assert_eq!(ring.push(&message), fits);
                if fits {
                    pushed.push(message);
                }
                if reads {
                    let (found, lapped) = all(Ring::open(&words).expect("made"), &mut cursor);
                    prop_assert!(lapped <= 1);
                    if lapped == 0 {
                        prop_assert_eq!(read + found.len(), pushed.len());
                    }
                    prop_assert_eq!(&found[..], &pushed[pushed.len() - found.len()..]);
                    read = pushed.len();
                }
            }
        }
    }

    thread_local!(static STORES_LEFT: Counter<usize> = const { Counter::new(usize::MAX) });

    /// A word whose writer dies before a chosen store.
    #[derive(Default)]
    struct Mortal(AtomicU64);

    impl Word for Mortal {
        fn load(&self, order: Ordering) -> u64 {
            self.0.load(order)
        }

        fn store(&self, value: u64, order: Ordering) {
            let left = STORES_LEFT.get();
            if left == 0 {
                std::panic::resume_unwind(Box::new("dead"));
            }
            STORES_LEFT.set(left - 1);
            self.0.store(value, order);
        }

        fn fence(_: Ordering) {}
    }

    /// The writer dies before each of its stores in turn: what is left can be read, and is what it had finished.
    #[test]
    fn a_writer_may_die_at_any_store() {
        let messages: Vec<Vec<u8>> = (0u8..12).map(|number| vec![number; 5 + usize::from(number) * 2]).collect();
        for stores in 2.. {
            let words = zeroed::<Mortal>(16);
            STORES_LEFT.set(stores);
            let mut pushed = 0;
            let died = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                let ring = Ring::create(&words).expect("large enough");
                for message in &messages {
                    assert!(ring.push(message));
                    pushed += 1;
                }
            }));
            STORES_LEFT.set(usize::MAX);
            let ring = Ring::open(&words).expect("made");
            let (found, lapped) = all(ring, &mut ring.head());
            assert_eq!(lapped, 0);
            assert_eq!(found, messages[pushed - found.len()..pushed]);
            if died.is_ok() {
                assert!(pushed == messages.len() && !found.is_empty());
                return;
            }
        }
    }

    #[test]
    fn loads_are_shown_with_a_version() {
        let words = zeroed::<AtomicU64>(8);
        let ring = Ring::create(&words).expect("large enough");
        let shown = Cell { mark: 7, requests: 2, queued: 100, decoding: -5 };
        ring.show(3, shown);
        let other = Ring::open(&words).expect("made");
        assert_eq!((other.loads_version(), other.shown(3), other.shown(4)), (1, shown, Cell::default()));
    }

    #[test]
    fn other_memory_is_no_ring() {
        assert!(Ring::open(&zeroed::<AtomicU64>(8)).is_none());
        assert!(Ring::create(&zeroed::<AtomicU64>(8)[..DATA]).is_none());
        let words = zeroed::<AtomicU64>(8);
        Ring::create(&words);
        assert!(Ring::open(&words[..DATA + 4]).is_none());
    }
}

/// Run with `RUSTFLAGS="--cfg loom" cargo test -p prefixroute-core --lib peers`.
#[cfg(all(test, loom))]
mod models {
    use loom::sync::Arc;
    use loom::sync::atomic::{AtomicU64, fence};
    use loom::thread;

    use super::*;

    impl Word for AtomicU64 {
        fn load(&self, order: Ordering) -> u64 {
            Self::load(self, order)
        }

        fn store(&self, value: u64, order: Ordering) {
            Self::store(self, value, order);
        }

        fn fence(order: Ordering) {
            fence(order);
        }
    }

    /// The words that a model touches are loom's, the cells between them are not there.
    fn model(check: bool) {
        loom::model(move || {
            let words: Arc<(Vec<AtomicU64>, Vec<AtomicU64>)> = Arc::new((
                (0..HEADER_WORDS).map(|_| AtomicU64::new(0)).collect(),
                (0..4).map(|_| AtomicU64::new(0)).collect(),
            ));
            assert!(Ring { words: &words.0, data: &words.1 }.push(&1_u64.to_le_bytes()));
            let writer = {
                let words = Arc::clone(&words);
                thread::spawn(move || {
                    let ring = Ring { words: &words.0, data: &words.1 };
                    for number in 2..=3_u64 {
                        assert!(ring.push(&number.to_le_bytes()));
                    }
                })
            };
            let ring = Ring { words: &words.0, data: &words.1 };
            let (mut cursor, mut message, mut last) = (0, Vec::new(), 0);
            for _ in 0..2 {
                if ring.read_checked(&mut cursor, &mut message, check) == Found::Message {
                    let number = u64::from_le_bytes(message[..].try_into().expect("a whole message"));
                    assert!(number > last && cursor == 2 * number, "message {number} ends at {cursor}");
                    last = number;
                }
            }
            writer.join().unwrap();
        });
    }

    #[test]
    fn a_reader_sees_whole_messages_in_order() {
        model(true);
    }

    /// The negative control: a reader that does not look at the head again takes a later message for an earlier one.
    #[test]
    #[should_panic(expected = "ends at")]
    fn a_reader_must_look_at_the_head_again() {
        model(false);
    }
}
