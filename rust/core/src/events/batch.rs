//! A whole batch of events, applied under one lock.

use super::apply::StoreEvent;
use super::numbers::Batch as NumberedBatch;
use super::payload::{Action, Batch, Store};
use crate::budget::admit_apart;
use crate::engine::Engine;
use crate::ids::{Medium, Slot};
use crate::outcome::{Applied, Removed, Stored};

/// Reasons that a batch's result repeats.
const REASONS: usize = 8;
/// Adapters that a batch's result names: an engine has a few dozen at once.
const ADAPTERS: usize = 256;

/// What to do, with the content hashes of what is stored.
#[derive(Debug)]
pub(crate) struct Prepared<'a> {
    pub action: Action<'a>,
    pub contents: Vec<u64>,
}

impl Store<'_> {
    pub(crate) fn event(&self) -> StoreEvent<'_> {
        StoreEvent {
            names: &self.names,
            parent: self.parent,
            tokens: &self.tokens,
            keys: &self.keys,
            block_size: self.block_size,
            seed: self.seed,
            residence: self.residence,
            group: self.group,
        }
    }
}

/// Applies a batch; see `Index::apply`. `numbered`: its number and the hash of its bytes.
pub(crate) fn apply(
    engine: &mut Engine,
    slot: Slot,
    batch: &Batch<'_>,
    actions: &[Prepared<'_>],
    numbered: Option<NumberedBatch>,
    now: f64,
) -> Applied {
    engine.expect_events(slot);
    let mut done = Applied { timestamp: batch.timestamp, rank: batch.rank, ..Applied::default() };
    if let Some(numbered) = numbered {
        let room = admit_apart(&mut engine.held, || engine.truth.feed_mut(slot).numbers.growth());
        let restarted = engine.truth.feed_mut(slot).follow(numbered, room, &mut done);
        if done.stale {
            return done;
        }
        if restarted {
            engine.clear(slot);
        }
    }
    done.events = actions.len();
    for (at, event) in actions.iter().enumerate() {
        let reason = match &event.action {
            Action::Store(_) | Action::Remove { .. } | Action::Clear => {
                apply_one(engine, slot, event, now, &mut done);
                continue;
            }
            Action::Refuse(why) => {
                done.refused += 1;
                why
            }
            Action::PassOver(why) => {
                done.unrecognized += 1;
                why
            }
        };
        if done.reasons.len() < REASONS {
            done.reasons.push(format!("event {at}: {reason}"));
        }
    }
    let feed = engine.truth.feed_mut(slot);
    feed.compare_rank(batch.rank);
    let counters = &mut feed.counters;
    counters.batches += 1;
    counters.events += done.events as u64;
    counters.refused += done.refused as u64;
    counters.unrecognized += done.unrecognized as u64;
    done
}

fn apply_one(engine: &mut Engine, slot: Slot, event: &Prepared<'_>, now: f64, done: &mut Applied) {
    let known_medium = match &event.action {
        Action::Store(store) if engine.is_full() => {
            engine.held.counters.dropped += store.names.len() as u64;
            done.stored.dropped += store.names.len();
            true
        }
        Action::Store(store) => {
            done.tiered |= store.residence.medium != Medium::Gpu;
            done.stored += engine.store(slot, &store.event(), &event.contents, now);
            note_adapter(store, done);
            store.known_medium
        }
        Action::Remove { names, residence, known_medium, group } => {
            done.removed += engine.remove(slot, names, *residence, *group);
            *known_medium
        }
        _ => {
            engine.clear(slot);
            done.cleared += 1;
            true
        }
    };
    engine.truth.feed_mut(slot).counters.unknown_media += u64::from(!known_medium);
}

/// Names the adapter of a store event in the batch's result, once.
fn note_adapter(store: &Store<'_>, done: &mut Applied) {
    let Some(adapter) = store.adapter.as_deref().filter(|adapter| !adapter.is_empty()) else { return };
    let known = done.adapters.iter().any(|name| name.as_bytes() == adapter);
    if !known && done.adapters.len() < ADAPTERS {
        done.adapters.extend(std::str::from_utf8(adapter).map(str::to_owned));
    }
}

impl std::ops::AddAssign for Stored {
    fn add_assign(&mut self, other: Stored) {
        self.stored += other.stored;
        self.confirmed += other.confirmed;
        self.copies += other.copies;
        self.orphaned += other.orphaned;
        self.adopted += other.adopted;
        self.dropped += other.dropped;
        self.reused += other.reused;
        self.unindexed += other.unindexed;
        self.placeless += other.placeless;
        self.unfilled += other.unfilled;
    }
}

impl std::ops::AddAssign for Removed {
    fn add_assign(&mut self, other: Removed) {
        self.removed += other.removed;
        self.unknown += other.unknown;
    }
}
