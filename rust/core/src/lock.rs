//! A readers-writer lock whose readers do not meet: each core's readers have a word of their own, a writer takes them all.
//!
//! Lookups take tens of nanoseconds, and one word that two cores both write costs more than that each time it moves. The
//! `unsafe` here says that a value behind several locks is as safe as behind one.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{OnceLock, PoisonError};

#[cfg(loom)]
use loom::{cell::UnsafeCell, sync::RwLock};
#[cfg(not(loom))]
use std::sync::RwLock;

/// Words at most; more cores share them.
const MOST: usize = 16;

/// Kept apart by two cache lines, as neighbours are fetched in pairs.
#[repr(align(128))]
#[derive(Debug)]
struct Word(RwLock<()>);

/// What the words take at most: the same on every machine, so that what a bound leaves room for does not depend on its cores.
pub(crate) const WORD_BYTES: usize = MOST * size_of::<Word>();

/// A value that many read and one writes.
pub(crate) struct Shared<T> {
    words: Box<[Word]>,
    value: UnsafeCell<T>,
}

// SAFETY: `read` gives `&T` to several threads at once (so T must be Sync) and `write` gives `&mut T` to one at a time (so T
// must be Send). A reader holds one word for reading, a writer all of them for writing, so the two never overlap.
unsafe impl<T: Send + Sync> Sync for Shared<T> {}

impl<T> Shared<T> {
    /// As many words as cores.
    pub(crate) fn new(value: T) -> Self {
        // Asking the system takes longer than many an index lives.
        static CORES: OnceLock<usize> = OnceLock::new();
        let cores = *CORES.get_or_init(|| std::thread::available_parallelism().map_or(1, usize::from));
        Shared::with_words(value, cores.next_power_of_two().min(MOST))
    }

    fn with_words(value: T, words: usize) -> Self {
        Shared { words: (0..words).map(|_| Word(RwLock::new(()))).collect(), value: UnsafeCell::new(value) }
    }

    /// Works on the value beside other readers.
    #[inline]
    pub(crate) fn read<R>(&self, work: impl FnOnce(&T) -> R) -> R {
        self.read_by(reader(), work)
    }

    // Poison is ignored, here and below: a panic in the core is a bug, but memory is safe, and it must not make every later
    // call panic too.
    #[inline]
    fn read_by<R>(&self, reader: usize, work: impl FnOnce(&T) -> R) -> R {
        let _word = self.words[reader & (self.words.len() - 1)].0.read().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: a word is held for reading, and a writer holds all for writing, so nobody writes until it is dropped.
        self.value.with(|value| work(unsafe { &*value }))
    }

    /// Works on the value alone.
    pub(crate) fn write<R>(&self, work: impl FnOnce(&mut T) -> R) -> R {
        self.write_behind(self.words.len(), work)
    }

    /// Works on the value behind the first so many words, taken in order, so that two writers do not wait for each other in
    /// a circle. All of them make it safe; the negative control of the model takes fewer.
    fn write_behind<R>(&self, words: usize, work: impl FnOnce(&mut T) -> R) -> R {
        let mut held = [const { None }; MOST];
        for (word, held) in self.words[..words].iter().zip(&mut held) {
            *held = Some(word.0.write().unwrap_or_else(PoisonError::into_inner));
        }
        // SAFETY: all words are held for writing, and whoever reads or writes holds one, so there is no other reference.
        self.value.with_mut(|value| work(unsafe { &mut *value }))
    }
}

/// The number of this thread, which says which word it reads by.
#[inline]
fn reader() -> usize {
    static THREADS: AtomicUsize = AtomicUsize::new(0);
    thread_local!(static READER: usize = THREADS.fetch_add(1, Ordering::Relaxed));
    READER.with(|reader| *reader)
}

/// `std`'s cell with the calls of loom's.
#[cfg(not(loom))]
struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

#[cfg(not(loom))]
impl<T> UnsafeCell<T> {
    fn new(value: T) -> Self {
        UnsafeCell(std::cell::UnsafeCell::new(value))
    }

    #[inline]
    fn with<R>(&self, work: impl FnOnce(*const T) -> R) -> R {
        work(self.0.get())
    }

    #[inline]
    fn with_mut<R>(&self, work: impl FnOnce(*mut T) -> R) -> R {
        work(self.0.get())
    }
}

impl<T> fmt::Debug for Shared<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("words", &self.words.len()).finish_non_exhaustive()
    }
}

/// Run with `RUSTFLAGS="--cfg loom" cargo test -p prefixroute-core --release --lib lock`.
#[cfg(all(test, loom))]
mod models {
    use loom::sync::Arc;
    use loom::thread;

    use super::Shared;

    /// Two readers by different words and a writer that changes two halves of a value.
    fn readers_and_writer(words_taken: usize) {
        loom::model(move || {
            let shared = Arc::new(Shared::with_words((0, 0), 2));
            let readers: Vec<_> = (0..2)
                .map(|reader| {
                    let shared = Arc::clone(&shared);
                    thread::spawn(move || shared.read_by(reader, |&(a, b)| assert_eq!(a, b)))
                })
                .collect();
            shared.write_behind(words_taken, |value| {
                value.0 += 1;
                value.1 += 1;
            });
            for reader in readers {
                reader.join().unwrap();
            }
        });
    }

    #[test]
    fn readers_see_whole_writes() {
        readers_and_writer(2);
    }

    /// The negative control: a writer that leaves a word out is caught.
    #[test]
    #[should_panic(expected = "Causality violation")]
    fn a_writer_needs_all_words() {
        readers_and_writer(1);
    }

    #[test]
    fn writers_exclude_each_other() {
        loom::model(|| {
            let shared = Arc::new(Shared::with_words(0, 2));
            let other = Arc::clone(&shared);
            let writer = thread::spawn(move || other.write(|value| *value += 1));
            shared.write(|value| *value += 1);
            writer.join().unwrap();
            assert_eq!(shared.read_by(1, |value| *value), 2);
        });
    }
}
