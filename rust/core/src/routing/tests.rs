//! The ledger beside a plain list of attempts: whatever happens, the books are what the list says.

use std::collections::HashSet;
use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::ids::BlockHash;
use crate::replica_cache::SharedSequence;

const SLOTS: usize = 3;

fn ledger() -> Ledger<u64> {
    let limits = Limits { ticket_s: 50.0, session_idle_s: 30.0, sessions: 4 };
    let ledger = Ledger::new(
        limits,
        Windows { bookings: None, prefill_s: 10.0, recent: true, balances_recent: false, served: true },
    );
    let mut ledger = ledger.with_active(Some(16));
    ledger.see(fleet([1, 2, 3]));
    ledger
}

fn fleet(generations: [i64; SLOTS]) -> Vec<State> {
    let state = |(slot, generation)| State { name: Some(format!("r{slot}").into()), generation, draining: false };
    generations.into_iter().enumerate().map(state).collect()
}

fn booking(decision_id: i64) -> Booking<'static> {
    Booking {
        decision_id,
        reason: "match",
        best_hit: 16,
        media: [16, 0, 0],
        branch: None,
        first: false,
        spent_s: None,
        decodes: false,
    }
}

/// A prompt in a tree of which each node has two children.
fn blocks(number: u64) -> Vec<BlockHash> {
    (0..number % 6).map(|depth| BlockHash(1 << depth | (number / 6) & ((1 << depth) - 1))).collect()
}

fn attempt(number: u64, slot: usize, generation: i64, now: f64) -> Attempt<u64> {
    Attempt::new(number, Process { slot, generation }, 16, 100, now)
}

#[test]
fn a_request_is_load_from_its_booking_to_its_end() {
    let mut ledger = ledger();
    assert!(ledger.book(7, attempt(7, 1, 2, 0.0), booking(0)).is_empty());
    assert_eq!((ledger.book.live.in_flight[1], ledger.book.live.queued[1]), (1, 84));
    assert_eq!(ledger.first_token(7, 1.0), Some(Vec::new()));
    assert_eq!((ledger.book.live.queued[1], ledger.book.live.decoding[1]), (0, 100));
    assert_eq!(ledger.book.rates[1], Some(84.0));
    let finished = ledger.finish(7, Some(16), 2.0);
    assert_eq!(finished.map(|finished| finished.item), Some(7));
    assert_eq!((ledger.book.live.decoding[1], ledger.book.busy[1], ledger.len()), (0, 0.5, 0));
    assert!(ledger.finish(7, None, 3.0).is_none());
    assert_eq!(ledger.counters.outcomes[Outcome::FinishLate as usize], 1);
}

#[test]
fn an_attempt_given_up_before_its_first_token_asks_for_its_blocks_back() {
    let mut ledger = ledger();
    for (number, started) in [(1, false), (2, true)] {
        ledger.book(number, attempt(number, 0, 1, 0.0), booking(0));
        if started {
            ledger.first_token(number, 0.0);
        }
        let effect = Effect { item: number, outcome: Outcome::Aborted, retract: !started, abandon: true };
        assert_eq!(ledger.abort(number, Outcome::Aborted), [effect]);
    }
}

#[test]
fn a_key_is_charged_once_and_explained_afterwards() {
    let (mut ledger, key) = (ledger(), Name::of(b"k", 1));
    for number in [1, 2] {
        let keyed = Attempt { key: Some(key), ..attempt(number, 0, 1, 0.0) };
        let ended: Vec<u64> = ledger.book(number, keyed, booking(0)).iter().map(|effect| effect.item).collect();
        assert_eq!(ended, (1..number).collect::<Vec<_>>());
    }
    assert_eq!((ledger.open(key), ledger.len()), (Some(&2), 1));
    ledger.finish(2, None, 1.0);
    assert_eq!((ledger.open(key), ledger.known(key)), (None, Some(&2)));
}

#[test]
fn the_first_of_a_hedge_to_answer_takes_key_and_session() {
    let (mut ledger, key, session) = (ledger(), Name::of(b"k", 1), Name::of(b"s", 1));
    let asked = |attempt| Attempt { key: Some(key), session: Some(session), ..attempt };
    ledger.book(1, asked(attempt(1, 0, 1, 0.0)), booking(0));
    ledger.book_again(2, asked(attempt(2, 1, 2, 0.0)), 1, true, booking(1));
    assert_eq!((ledger.len(), ledger.bound(session, 0.0)), (2, Some(0)));
    let effects = ledger.first_token(2, 1.0).unwrap_or_default();
    let lost = Effect { item: 1, outcome: Outcome::HedgeLost, retract: true, abandon: false };
    assert_eq!(effects, [lost]);
    assert_eq!((ledger.open(key), ledger.bound(session, 1.0)), (Some(&2), Some(1)));
}

#[test]
fn a_new_process_has_no_load_and_no_sessions() {
    let (mut ledger, session) = (ledger(), Name::of(b"s", 1));
    let asked = Attempt { session: Some(session), ..attempt(1, 0, 1, 0.0) };
    ledger.book(1, asked, booking(0));
    ledger.see(fleet([9, 2, 3]));
    assert_eq!((ledger.book.live.in_flight[0], ledger.bound(session, 0.0)), (0, Some(-1)));
    ledger.finish(1, Some(5), 1.0);
    assert_eq!((ledger.book.live.in_flight[0], ledger.trust.records.len()), (0, 0));
}

#[test]
fn a_replica_that_reports_no_hit_is_distrusted_until_it_reports_one() {
    let mut trust = Trust::default();
    for _ in 1..ZERO_STREAK {
        assert_eq!(trust.learn(0, 16, Some(0)), None);
    }
    assert_eq!(trust.learn(0, 16, None), None);
    assert_eq!(trust.learn(0, 16, Some(0)), Some(Verdict::Distrusted));
    assert_eq!(trust.distrusted, 1);
    assert_eq!(trust.learn(0, 0, Some(16)), Some(Verdict::Trusted));
    assert_eq!((trust.distrusted, trust.unreported), (0, 1));
}

#[test]
fn a_block_where_many_begin_something_new_is_a_head() {
    let mut heads = Heads::default();
    let (common, head) = (BlockHash(1), Head { tokens: 32, holders: 1, replicas: 8 });
    for number in 0..40_u64 {
        heads.learn(Some((if number % 2 == 0 { common } else { BlockHash(100 + number) }, head)), true);
    }
    assert_eq!(heads.share(common), 0.5);
    assert_eq!(heads.commonest(), (head, 0.5));
    for number in 0..300 {
        heads.learn(Some((BlockHash(1_000 + number), head)), true);
    }
    assert_eq!((heads.share(common), heads.beginnings()), (0.0, 256));
}

/// What a history does next.
#[derive(Clone, Copy, Debug)]
enum Step {
    Book { slot: usize, key: Option<u8> },
    Hedge(usize),
    First(usize),
    Finish(usize),
    Abort(usize),
    Renew(usize),
    Wait(u8),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0..SLOTS, prop::option::of(0_u8..3)).prop_map(|(slot, key)| Step::Book { slot, key }),
        1 => (0_usize..20).prop_map(Step::Hedge),
        2 => (0_usize..20).prop_map(Step::First),
        2 => (0_usize..20).prop_map(Step::Finish),
        1 => (0_usize..20).prop_map(Step::Abort),
        1 => (0..SLOTS).prop_map(Step::Renew),
        1 => (0_u8..40).prop_map(Step::Wait),
    ];
    prop::collection::vec(step, 0..80)
}

proptest! {
    /// The dull twin: every attempt with its process, whether it has started, and whether it is open by the ledger's own word.
    #[test]
    fn the_books_are_what_the_open_attempts_say(steps in steps()) {
        let (mut ledger, mut twin, mut now) = (ledger(), Vec::<(Process, bool, Vec<BlockHash>)>::new(), 0.0);
        let mut generations = [1, 2, 3];
        for (id, step) in steps.into_iter().enumerate() {
            let number = twin.len() as u64;
            let known = |at: usize| (!twin.is_empty()).then(|| (at % twin.len()) as u64);
            match step {
                Step::Book { slot, key } => {
                    let process = Process { slot, generation: generations[slot] };
                    let key = key.map(|key| Name::of(&[key], 1));
                    let (hashes, count) = (Arc::new(blocks(number)), blocks(number).len());
                    let prompt = Some(SharedSequence::new(hashes, count, 100));
                    let booked = Attempt { key, blocks: prompt, ..Attempt::new(number, process, 16, 100, now) };
                    ledger.book(number, booked, booking(id as i64));
                    twin.push((process, false, blocks(number)));
                }
                Step::Hedge(at) => {
                    let Some(earlier) = known(at).filter(|earlier| ledger.is_open(*earlier)) else { continue };
                    let slot = (twin[earlier as usize].0.slot + 1) % SLOTS;
                    let process = Process { slot, generation: generations[slot] };
                    ledger.book_again(number, Attempt::new(number, process, 16, 100, now), earlier, true, booking(id as i64));
                    twin.push((process, false, Vec::new()));
                }
                Step::First(at) => {
                    let Some(number) = known(at) else { continue };
                    twin[number as usize].1 |= ledger.first_token(number, now).is_some();
                }
                Step::Finish(at) => drop(known(at).map(|number| ledger.finish(number, None, now))),
                Step::Abort(at) => drop(known(at).map(|number| ledger.abort(number, Outcome::Aborted))),
                Step::Renew(slot) => {
                    generations[slot] = 10 + id as i64;
                    ledger.see(fleet(generations));
                }
                Step::Wait(seconds) => {
                    now += f64::from(seconds);
                    ledger.sweep(&[], now);
                }
            }
            let (mut counts, mut active) = ([[0; 3]; SLOTS], HashSet::new());
            for (number, (process, started, blocks)) in twin.iter().enumerate() {
                if ledger.is_open(number as u64) && generations[process.slot] == process.generation {
                    let (queued, decoding) = if *started { (0, 100) } else { (84, 0) };
                    let count = &mut counts[process.slot];
                    *count = [count[0] + 1, count[1] + queued, count[2] + decoding];
                    active.extend(blocks.iter().map(|block| (process.slot, *block)));
                }
            }
            let live = &ledger.book.live;
            let booked: Vec<_> = (0..SLOTS).map(|slot| [live.in_flight[slot], live.queued[slot], live.decoding[slot]]).collect();
            prop_assert_eq!(&booked[..], &counts[..]);
            let (asked, Some(reading)) = (blocks(id as u64), &ledger.active) else { continue };
            let held = |slot: usize, asked: &[BlockHash]| asked.iter().take_while(|block| active.contains(&(slot, **block))).count();
            let (mut tokens, mut hits) = (vec![0.0; SLOTS], vec![0.0; SLOTS]);
            for (slot, _) in &active {
                tokens[*slot] += 16.0;
            }
            for (slot, hit) in hits.iter_mut().enumerate() {
                *hit = 16.0 * held(slot, &asked) as f64;
            }
            prop_assert_eq!((reading.tokens(), reading.hits(&asked), reading.validate()), (tokens, hits, Ok(())));
        }
        for number in 0..twin.len() as u64 {
            ledger.abort(number, Outcome::Aborted);
        }
        prop_assert!(ledger.is_empty());
        prop_assert_eq!(&ledger.book.live.in_flight, &vec![0; SLOTS]);
        prop_assert_eq!(ledger.active.map(|active| active.tokens()), Some(vec![0.0; SLOTS]));
    }
}
