//! Decisions as they are booked.

use std::borrow::Cow;

use prefixroute_core::replica_cache::SharedSequence;
use prefixroute_core::routing as core;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};

use super::attempt::Attempt;
use super::ledger::{Effects, Item, Ledger, carry_out};
use super::sight::Sight;

type Half<'a> = core::Half<'a, Item>;

/// What is booked of the first decision on a request, or of one that takes its place.
struct First<'a> {
    booking: core::Booking<'a>,
    session: Option<core::Name>,
    detour: bool,
    blocks: Option<SharedSequence>,
}

impl First<'_> {
    /// An attempt as it enters the core's tables.
    fn entry(&self, attempt: &Bound<'_, Attempt>, insertion: Py<PyAny>) -> core::Attempt<Item> {
        let mut entry = self.answer(attempt, insertion);
        (entry.session, entry.detour) = (self.session, self.detour);
        entry
    }

    /// The same of a half that only decodes: the session is bound to the other.
    fn answer(&self, attempt: &Bound<'_, Attempt>, insertion: Py<PyAny>) -> core::Attempt<Item> {
        let one = attempt.get();
        one.set_insertion(insertion);
        let item = Item(attempt.clone().unbind());
        let mut entry = core::Attempt::new(item, one.process, one.hit, one.prompt_tokens, one.begun);
        (entry.key, entry.blocks) = (one.key, self.blocks.clone());
        entry
    }
}

impl Ledger {
    #[expect(clippy::too_many_arguments, reason = "a decision, without its object")]
    fn first<'a>(
        &self,
        attempt: &Attempt,
        decision_id: i64,
        reason: &'a Cow<'a, str>,
        sight: &Sight,
        slots: &Bound<'_, PyTuple>,
        session: Option<&Bound<'_, PyString>>,
        media: Option<[i64; 3]>,
        spent_s: Option<f64>,
    ) -> PyResult<First<'a>> {
        let (best_hit, branch) = sight.branched(slots)?;
        let (media, first) = (media.unwrap_or([attempt.hit, 0, 0]), session.is_some() && sight.binding.is_none());
        let booking = core::Booking { decision_id, reason, best_hit, media, branch, first, spent_s, decodes: false };
        let (session, detour) = (self.optional_name(session)?, sight.is_detour(slots));
        Ok(First { booking, session, detour, blocks: sight.active.clone() })
    }
}

#[pymethods]
impl Ledger {
    /// Book an attempt: load up, key and session to it, everything counted. `earlier`: an attempt of the same request.
    #[pyo3(signature = (attempt, insertion, decision_id, reason, sight, slots, session, media, spent_s, earlier=None,
        hedge=false, /))]
    #[expect(clippy::too_many_arguments, reason = "a decision, without its object")]
    fn book<'py>(
        &self,
        attempt: &Bound<'py, Attempt>,
        insertion: Py<PyAny>,
        decision_id: i64,
        reason: &Bound<'py, PyString>,
        sight: &Bound<'py, Sight>,
        slots: &Bound<'py, PyTuple>,
        session: Option<&Bound<'py, PyString>>,
        media: Option<[i64; 3]>,
        spent_s: Option<f64>,
        earlier: Option<&Bound<'py, Attempt>>,
        hedge: bool,
    ) -> PyResult<Effects<'py>> {
        let (one, reason) = (attempt.get(), &reason.to_string_lossy());
        let first = self.first(one, decision_id, reason, sight.get(), slots, session, media, spent_s)?;
        let entry = first.entry(attempt, insertion);
        if let Some(earlier) = earlier {
            one.follow_on(attempt.py(), earlier.get(), !hedge);
        }
        let effects = self.with(|ledger| match earlier {
            None => ledger.book(one.number, entry, first.booking),
            Some(earlier) => ledger.book_again(one.number, entry, earlier.get().number, hedge, first.booking),
        });
        carry_out(attempt.py(), effects)
    }

    /// Book both halves of a request, or what takes the place of an earlier pair. A half without an insertion is that of the
    /// earlier pair, and goes on. Whether it was booked, which it was not if a half that was to go on has ended; and effects.
    #[pyo3(signature = (prompt, insertion, decision_id, reason, sight, slots, session, media, spent_s, answer,
        answer_insertion, answer_decision_id, answer_reason, earlier=None, /))]
    #[expect(clippy::too_many_arguments, reason = "two decisions, without their objects")]
    fn book_pair<'py>(
        &self,
        prompt: &Bound<'py, Attempt>,
        insertion: Option<Py<PyAny>>,
        decision_id: i64,
        reason: &Bound<'py, PyString>,
        sight: &Bound<'py, Sight>,
        slots: &Bound<'py, PyTuple>,
        session: Option<&Bound<'py, PyString>>,
        media: Option<[i64; 3]>,
        spent_s: Option<f64>,
        answer: &Bound<'py, Attempt>,
        answer_insertion: Option<Py<PyAny>>,
        answer_decision_id: i64,
        answer_reason: &Bound<'py, PyString>,
        earlier: Option<&Bound<'py, Attempt>>,
    ) -> PyResult<(bool, Effects<'py>)> {
        let (reason, answer_reason) = (&reason.to_string_lossy(), &*answer_reason.to_string_lossy());
        let first = self.first(prompt.get(), decision_id, reason, sight.get(), slots, session, media, spent_s)?;
        let (decision_id, reason, spent_s) = (answer_decision_id, answer_reason, None);
        let second = core::Booking { decision_id, reason, branch: None, spent_s, decodes: true, ..first.booking };
        let halves = core::Halves {
            prompt: insertion.map(|insertion| (prompt.get().number, first.entry(prompt, insertion), first.booking)),
            answer: answer_insertion.map(|insertion| (answer.get().number, first.answer(answer, insertion), second)),
        };
        self.enter_pair(prompt, answer, halves, earlier)
    }
}

impl Ledger {
    fn enter_pair<'py>(
        &self,
        prompt: &Bound<'py, Attempt>,
        answer: &Bound<'py, Attempt>,
        halves: core::Halves<Option<Half<'_>>>,
        earlier: Option<&Bound<'py, Attempt>>,
    ) -> PyResult<(bool, Effects<'py>)> {
        let anew = [(prompt, halves.prompt.is_some()), (answer, halves.answer.is_some())];
        if let Some(earlier) = earlier.filter(|_| halves.answer.is_some()) {
            answer.get().follow_on(prompt.py(), earlier.get(), true);
        }
        let effects = self.with(|ledger| match (earlier, halves) {
            (None, core::Halves { prompt: Some(prompt), answer: Some(answer) }) => {
                Some(ledger.book_pair(core::Halves { prompt, answer }))
            }
            (Some(earlier), halves) => ledger.book_pair_again(earlier.get().number, halves),
            (None, _) => None,
        });
        if let Some(effects) = effects {
            answer.get().decode_behind(prompt.clone().unbind());
            return Ok((true, carry_out(prompt.py(), effects)?));
        }
        for (attempt, _) in anew.into_iter().filter(|&(_, is_new)| is_new) {
            drop(attempt.get().end(core::Outcome::Aborted));
        }
        Ok((false, None))
    }
}
