//! Which frames of a router were taken, so that a double of one, or an old one that somebody sends again, changes nothing.

/// Sequences behind a router's newest within which its frames may come in any order; an older one is refused. Twenty seconds
/// of a router that tells of a thousand requests a second.
pub const REACH: u64 = 1 << 16;

/// The frames of one router, by the sequence of their first message: the newest, and which of the `REACH` behind it.
#[derive(Debug, Default)]
pub struct Window {
    newest: u64,
    /// A bit for each sequence, modulo `REACH`; 8 KiB once a second frame has come.
    taken: Box<[u64]>,
}

impl Window {
    /// Takes a frame; false if it was taken before, or is too old to tell.
    pub fn take(&mut self, first: u64) -> bool {
        if self.newest == 0 || first > self.newest.saturating_add(REACH) {
            *self = Self { newest: first.max(1), taken: Box::default() };
            return true;
        }
        if first.saturating_add(REACH) <= self.newest {
            return false;
        }
        if self.taken.is_empty() {
            self.taken = vec![0; (REACH / 64) as usize].into();
            self.set(self.newest);
        }
        self.forget(self.newest + 1, first);
        self.newest = self.newest.max(first);
        let (word, bit) = place(first);
        let is_new = self.taken[word] & bit == 0;
        self.set(first);
        is_new
    }

    /// Clears the bits of the sequences from `at` to `last`, a word at a time.
    fn forget(&mut self, mut at: u64, last: u64) {
        while at <= last {
            let end = (at | 63).min(last);
            self.taken[place(at).0] &= !((!0 << (at % 64)) & (!0 >> (63 - end % 64)));
            at = end + 1;
        }
    }

    fn set(&mut self, sequence: u64) {
        let (word, bit) = place(sequence);
        self.taken[word] |= bit;
    }
}

fn place(sequence: u64) -> (usize, u64) {
    let at = sequence % REACH;
    ((at / 64) as usize, 1 << (at % 64))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_frame_is_taken_once_and_an_old_one_never() {
        let mut window = Window::default();
        let taken = [5, 4, 5, 4, 5 + REACH, 5, 6, 6, 5 + 2 * REACH + 1, 6 + REACH, 7 + REACH, u64::MAX, 9];
        let new = [true, true, false, false, true, false, true, false, true, false, true, true, false];
        assert_eq!(taken.map(|first| window.take(first)), new);
    }

    proptest! {
        /// The dull twin keeps every frame that came.
        #[test]
        fn the_twin_agrees(steps in prop::collection::vec((0_u64..400, prop::sample::select(vec![0, 1, REACH - 1, REACH])), 1..200)) {
            let (mut window, mut came, mut newest, mut base) = (Window::default(), HashSet::new(), 0, 1);
            for (offset, jump) in steps {
                base += jump;
                let first = (base + offset).saturating_sub(200).max(1);
                let is_new = first + REACH > newest && !came.contains(&first);
                prop_assert_eq!(window.take(first), is_new, "first {} newest {}", first, newest);
                came.insert(first);
                newest = newest.max(first);
            }
        }
    }
}
