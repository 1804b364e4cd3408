//! Requests whose prompt one replica computes and another decodes behind: two attempts, one of which stands for the
//! request.

use super::Ledger;
use crate::routing::attempt::{Effect, Half, Halves, Part};
use crate::routing::counters::Outcome;

impl<T: Clone> Ledger<T> {
    /// Book both halves of a request: the loads of each, the key to the half that decodes, the session to the other one.
    pub fn book_pair(&mut self, halves: Halves<Half<'_, T>>) -> Vec<Effect<T>> {
        let (process, context) = (halves.prompt.1.process, halves.prompt.1.context);
        self.tally(process, context, halves.prompt.2);
        self.enter_pair(halves, false)
    }

    fn enter_pair(&mut self, halves: Halves<Half<'_, T>>, again: bool) -> Vec<Effect<T>> {
        let (prompt, mut first, about_first) = halves.prompt;
        let (answer, mut second, about_second) = halves.answer;
        let (by, from, now) = (first.process, second.process, first.begun);
        (first.part, first.again) = (Part::Prompt { answer }, again);
        second.part = Part::Answer { prompt, computed_by: by, hit: first.hit };
        self.enter(prompt, first, about_first.decision_id);
        self.enter(answer, second, about_second.decision_id);
        let effects = self.claim(answer);
        self.bind(prompt, now);
        self.note(by, about_first, now);
        self.note(from, about_second, now);
        effects
    }

    /// Book what takes the place of an earlier pair, whose decode half has the number `earlier`, and give back what of that
    /// does not go on. `None` if what was to go on has ended: then nothing is booked.
    pub fn book_pair_again(&mut self, earlier: u64, halves: Halves<Option<Half<'_, T>>>) -> Option<Vec<Effect<T>>> {
        match (halves.prompt, halves.answer) {
            (Some(prompt), Some(answer)) => {
                let mut effects =
                    if self.is_open(earlier) { self.abort(earlier, Outcome::Retried) } else { Vec::new() };
                effects.extend(self.enter_pair(Halves { prompt, answer }, true));
                Some(effects)
            }
            (Some(prompt), None) => self.book_prompt_again(earlier, prompt),
            (None, Some(answer)) => self.book_answer_again(earlier, answer),
            (None, None) => None,
        }
    }

    fn book_prompt_again(&mut self, answer: u64, prompt: Half<'_, T>) -> Option<Vec<Effect<T>>> {
        let (number, mut first, booking) = prompt;
        let half = self.attempts.get_mut(&answer)?;
        let Part::Answer { prompt: before, .. } = half.part else { return None };
        half.part = Part::Answer { prompt: number, computed_by: first.process, hit: first.hit };
        let (process, now) = (first.process, first.begun);
        (first.part, first.again) = (Part::Prompt { answer }, true);
        let effects = self.withdraw(before, Outcome::Retried);
        self.counters.count(Outcome::Retried);
        self.enter(number, first, booking.decision_id);
        self.bind(number, now);
        self.note(process, booking, now);
        Some(effects.into_iter().collect())
    }

    fn book_answer_again(&mut self, earlier: u64, answer: Half<'_, T>) -> Option<Vec<Effect<T>>> {
        let (number, mut second, booking) = answer;
        let part = self.attempts.get(&earlier)?.part;
        let Part::Answer { prompt, .. } = part else { return None };
        self.attempts.get_mut(&prompt)?.part = Part::Prompt { answer: number };
        second.part = part;
        let (process, now) = (second.process, second.begun);
        let mut effects: Vec<_> = self.withdraw(earlier, Outcome::Retried).into_iter().collect();
        self.counters.count(Outcome::Retried);
        self.counters.count(Outcome::Committed);
        self.enter(number, second, booking.decision_id);
        effects.extend(self.claim(number));
        self.note(process, booking, now);
        Some(effects)
    }

    /// Note that the half that computes the prompt is done; nothing if it was before.
    pub(super) fn hand_over(&mut self, prompt: u64, now: f64) -> Option<Effect<T>> {
        let half = self.close(prompt)?;
        if self.alive(half.process) {
            self.book.learn(half.process.slot, half.ahead, now - half.begun);
            self.book.serve(half.process.slot);
        }
        Some(Effect { item: half.item, outcome: Outcome::HandedOver, retract: false, abandon: false })
    }
}
