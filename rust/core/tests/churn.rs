//! A day of stores and evictions in miniature: what the index takes returns to its level.

#![expect(clippy::expect_used, reason = "a test fails by panicking")]

use prefixroute_core::hash::mix;
use prefixroute_core::testing::Prompt;
use prefixroute_core::{BlockHash, Config, EngineHash, Index, Medium, Slot, Stats};

const REPLICAS: usize = 4;
const SYSTEM: usize = 20;

fn fleet(capacity_blocks: Option<u64>) -> (Index, Vec<Slot>) {
    let index = Index::new(Config { capacity_blocks, ..Config::default() }).expect("a valid config");
    let slots = (0..REPLICAS).map(|i| index.add_replica(&i.to_string(), None).expect("room")).collect();
    (index, slots)
}

fn level(stats: &Stats) -> (usize, usize, u64, u64, u64, usize) {
    (stats.runs, stats.table_entries, stats.live_bytes, stats.blocks, stats.memberships, stats.event_names)
}

/// Prompts that stay are split at every block by prompts that come and go, on all replicas.
#[test]
fn splits_are_merged_again() {
    let (index, slots) = fleet(None);
    let staying: Vec<Prompt> = (0..10).map(|family| Prompt::forked(family, 60, 0, 60)).collect();
    for prompt in &staying {
        for &slot in &slots {
            prompt.store(&index, slot);
        }
    }
    let before = index.stats();
    for round in 0..3_000_u64 {
        let slot = slots[round as usize % REPLICAS];
        let passing = Prompt::forked(round % 10, (round % 60) as usize, round + 1, 60 + (round % 7) as usize);
        // The shared part becomes a second copy, which its removal takes away again.
        passing.store(&index, slot);
        if round % 2 == 0 {
            index.removed(slot, &passing.names, Medium::Gpu).expect("a live replica");
        } else {
            let reversed: Vec<EngineHash> = passing.names.iter().rev().copied().collect();
            index.removed(slot, &reversed, Medium::Gpu).expect("a live replica");
        }
    }
    index.validate().expect("every invariant holds");
    assert_eq!(level(&index.stats()), level(&before));
}

/// Belief under a capacity: after a warm day each further day ends where the first ended, within the noise of the prompts.
#[test]
fn belief_stays_at_its_level() {
    let (index, slots) = fleet(Some(1_000));
    let mut turn = 0_u64;
    let mut day = || {
        for _ in 0..5_000 {
            turn += 1;
            let prompt = Prompt::forked(turn % 8, SYSTEM, mix(turn, 7), SYSTEM + 10 + (turn % 30) as usize);
            index.insert(slots[turn as usize % REPLICAS], &prompt.chain, turn as f64).expect("a live replica");
        }
        index.stats()
    };
    let first = day();
    for _ in 0..4 {
        let later = day();
        assert_eq!(later.believed, first.believed);
        for (later, first) in [
            (later.runs as u64, first.runs as u64),
            (later.table_entries as u64, first.table_entries as u64),
            (later.live_bytes, first.live_bytes),
            (later.reserved_bytes, first.reserved_bytes),
        ] {
            assert!(later * 10 <= first * 11, "{later} after {first}");
        }
    }
    index.validate().expect("every invariant holds");
}

/// After its replicas are gone an index is as empty as new.
#[test]
fn empty_as_new() {
    let (index, slots) = fleet(Some(500));
    let new = index.stats();
    for round in 0..500 {
        let prompt = Prompt::forked(round % 5, 10, round, 40);
        index.insert(slots[round as usize % 2], &prompt.chain, 0.0).expect("a live replica");
        prompt.store(&index, slots[2 + round as usize % 2]);
    }
    for slot in slots {
        index.clear(slot).expect("a live replica");
    }
    let cleared = index.stats();
    assert_eq!(level(&cleared), level(&new));
    assert_eq!((cleared.reserved_bytes, cleared.orphans), (new.reserved_bytes, 0));
}

/// What a user can build against the structure: one-block runs, a fork at every block, deep chains.
#[test]
fn hostile_shapes_stay_linear() {
    let (index, slots) = fleet(None);
    let chain = Prompt::forked(0, 2_000, 0, 2_000).chain;
    index.insert(slots[0], &chain, 0.0).expect("a live replica");
    for end in (1..chain.len()).rev() {
        index.touch(slots[0], &chain[..end], 0.0).expect("a live replica");
    }
    assert_eq!(index.stats().runs, chain.len(), "every block was touched last by another call");
    index.insert(slots[0], &chain, 0.0).expect("a live replica");
    assert_eq!(index.stats().runs, 1, "one touch joins them again");
    for fork in 0..chain.len() as u64 {
        let prompt = Prompt::forked(0, fork as usize, fork + 1, fork as usize + 1);
        index.insert(slots[1], &prompt.chain, 0.0).expect("a live replica");
    }
    index.validate().expect("every invariant holds");
    index.remove_replica(slots[1]).expect("a live replica");
    assert_eq!(index.stats().runs, 1, "forks are merged again");
    for block in (0..50_000_u64).map(|at| [BlockHash(mix(at, 3))]) {
        index.insert(slots[2], &block, 0.0).expect("a live replica");
    }
    index.clear(slots[2]).expect("a live replica");
    assert_eq!(index.stats().blocks, chain.len() as u64);
}

/// A small event map in which blocks come and go for long: each of its few buckets has then been passed by an entry that is still there,
/// and looking for a name that it does not have must end all the same.
#[test]
fn names_that_are_not_there_are_looked_for_once_around() {
    for key in 0..20 {
        let index = Index::with_table_key(Config::default(), mix(0xFEED, key)).expect("a valid config");
        let slot = index.add_replica("a", None).expect("room");
        let mut held: Vec<EngineHash> = Vec::new();
        for step in 0..5_000 {
            let draw = mix(key, step);
            if held.len() < 40 || (held.len() < 56 && draw % 2 == 0) {
                let prompt = Prompt::forked(0, 0, draw, 1);
                prompt.store(&index, slot);
                held.push(prompt.names[0]);
            } else {
                let name = held.swap_remove(draw as usize % held.len());
                let removed = index.removed(slot, &[name], Medium::Gpu).expect("a live replica");
                assert_eq!(removed.unknown, 0);
            }
            let missing = index.removed(slot, &[EngineHash(draw)], Medium::Gpu).expect("a live replica");
            assert_eq!(missing.unknown, 1);
        }
        index.validate().expect("every invariant holds");
        assert_eq!(index.stats().memberships, held.len() as u64);
    }
}
