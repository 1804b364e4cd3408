//! Faults seen in the field: the index must not have them.

#![expect(clippy::expect_used, reason = "a test fails by panicking")]

use prefixroute_core::hash::{self, ExtraKey, NamespaceSpec};
use prefixroute_core::{
    BlockHash, Config, Contents, EngineHash, Error, Index, MAX_REPLICAS, Medium, Slot, StoredEvent,
};

/// An index of these settings with so many replicas.
fn fleet<const N: usize>(config: Config) -> (Index, [Slot; N]) {
    let index = Index::new(config).expect("a valid config");
    let slots = std::array::from_fn(|at| index.add_replica(&at.to_string(), None).expect("room"));
    (index, slots)
}

fn sized<const N: usize>(block_size: usize) -> (Index, [Slot; N]) {
    fleet(Config { block_size, ..Config::default() })
}

fn bounded<const N: usize>(max_bytes: u64) -> (Index, [Slot; N]) {
    fleet(Config { max_bytes: Some(max_bytes), ..Config::default() })
}

fn chain(tokens: &[u32], block_size: usize) -> Vec<BlockHash> {
    let mut out = Vec::new();
    hash::hash_tokens(tokens, block_size, 0, &[], &mut out).expect("a valid block size");
    out
}

fn matched(index: &Index, hashes: &[BlockHash]) -> Vec<u32> {
    let mut out = vec![u32::MAX; index.slots()];
    assert_eq!(index.match_blocks(hashes, &mut out), index.slots());
    out
}

fn store(index: &Index, slot: Slot, engine: &[u64], parent: Option<u64>, contents: &[u64], medium: Medium) {
    let engine: Vec<EngineHash> = engine.iter().map(|&name| EngineHash(name)).collect();
    let event = StoredEvent {
        engine: &engine,
        parent: parent.map(EngineHash),
        contents: Contents::Blocks(contents),
        seed: 0,
        medium,
    };
    index.stored(slot, &event, 0.0).expect("a valid event");
}

fn from_contents(contents: impl IntoIterator<Item = u64>) -> Vec<BlockHash> {
    hash::chained(0, contents).collect()
}

/// Row 10: the byte budget is the index's, not each replica's, and the oldest goes first.
#[test]
fn budget_holds_for_the_whole_index() {
    let budget = 28_000;
    let (index, slots) = bounded::<10>(budget);
    let prompt = |slot: u64, at: u64| from_contents((0..50).map(|i| slot * 1_000 + at * 50 + i + 1));
    for at in 0..10 {
        for &slot in &slots {
            let done = index.insert(slot, &prompt(u64::from(slot.0), at), 0.0).expect("it is live");
            assert_eq!((done.stored, done.dropped), (50, 0));
            let stats = index.stats();
            assert!(stats.reserved_bytes <= budget, "{stats:?}");
            index.validate().expect("every invariant holds");
        }
    }
    let stats = index.stats();
    assert!(stats.blocks >= 1_000, "{stats:?}");
    for &slot in &slots {
        assert_eq!(matched(&index, &prompt(u64::from(slot.0), 9))[slot.index()], 800);
        assert_eq!(matched(&index, &prompt(u64::from(slot.0), 0))[slot.index()], 0);
    }
}

/// Row 10, one prompt larger than the budget: the head that fits is kept.
#[test]
fn budget_keeps_the_head_of_a_long_prompt() {
    let (index, [a]) = bounded(20_000);
    let long = from_contents(1..10_000);
    let done = index.insert(a, &long, 0.0).expect("a is live");
    assert_eq!(done.stored + done.dropped, long.len());
    assert!(done.stored > 500 && index.stats().reserved_bytes <= 20_000, "{done:?}");
    assert_eq!(matched(&index, &long), [done.stored as u32 * 16]);
}

/// Row 10, for ever: at its bound the index holds what fits, whatever the prompts' lengths.
#[test]
fn budget_stays_full() {
    for (most, len) in [(60_000, 1), (500_000, 1), (500_000, 3), (500_000, 40)] {
        let (index, slots) = bounded::<10>(most);
        let mut peak = 0;
        for at in 0..most / 8 {
            let prompt = from_contents((0..len).map(|i| hash::mix(at, i)));
            index.insert(slots[at as usize % 10], &prompt, 0.0).expect("it is live");
            let stats = index.stats();
            assert!(stats.reserved_bytes <= most, "{stats:?}");
            peak = peak.max(stats.blocks);
            if at > most / 16 {
                assert!(stats.blocks >= peak * 3 / 4, "{len}: {peak} blocks once, {stats:?}");
            }
        }
        index.validate().expect("every invariant holds");
    }
}

/// Row 10, events: what engines hold is not evicted, but what does not fit is not stored.
#[test]
fn budget_holds_for_events() {
    let (index, [a]) = bounded(40_000);
    let store_prompt = |at: u64| {
        let contents: Vec<u64> = (1..=20).map(|i| at * 100 + i).collect();
        store(&index, a, &contents, None, &contents, Medium::Gpu);
    };
    (0..200).for_each(store_prompt);
    let full = index.stats();
    assert!(full.dropped > 0 && full.blocks > 500, "{full:?}");
    assert!(full.reserved_bytes <= 40_000, "{full:?}");
    index.clear(a).expect("a is live");
    store_prompt(1_000);
    assert_eq!(index.stats().blocks, 20, "there is room again");
}

/// A bound below what an empty index takes is refused, with the least that is allowed, and changes nothing.
#[test]
fn budget_below_the_fixed_size_is_refused() {
    let config = |most| Config { max_bytes: Some(most), ..Config::default() };
    let least = |error| if let Error::Budget { least, .. } = error { least } else { u64::MAX };
    let empty = least(Index::new(config(0)).expect_err("nothing fits"));
    assert!(Index::new(config(empty - 1)).is_err());
    let index = Index::new(config(empty)).expect("an empty index fits");
    assert_eq!(index.stats().reserved_bytes, empty);
    let one = least(index.add_replica("a", None).expect_err("a replica does not fit"));
    assert_eq!(index.slots(), 0);
    let index = Index::new(config(one)).expect("an empty index fits");
    index.check_room(1).expect("a replica fits");
    let two = least(index.check_room(2).expect_err("two do not"));
    let a = index.add_replica("a", None).expect("a replica fits");
    assert_eq!(index.stats().reserved_bytes, one);
    assert_eq!(
        least(index.add_replica("b", None).expect_err("two do not")),
        two + 4,
        "two names of a letter, each kept twice"
    );
    index.remove_replica(a).expect("it lives");
    index.add_replica("b", None).expect("its slot is used again");
    let done = index.insert("b", &from_contents([1, 2, 3]), 0.0).expect("it lives");
    assert_eq!((done.stored, done.dropped), (0, 3), "there is room for nothing else");
    index.validate().expect("every invariant holds");
}

/// A saved index whose bound is below its fixed size is not loaded.
#[test]
fn a_saved_budget_is_checked() {
    let (index, [_]) = bounded(30_000);
    let mut bytes = index.to_bytes();
    let at = bytes.windows(8).position(|bytes| bytes == 30_000_u64.to_le_bytes()).expect("the bound is saved");
    bytes[at..at + 8].copy_from_slice(&1_000_u64.to_le_bytes());
    let end = bytes.len() - 8;
    let sum = xxhash_rust::xxh3::xxh3_64(&bytes[..end]);
    bytes[end..].copy_from_slice(&sum.to_le_bytes());
    assert!(matches!(Index::from_bytes(&bytes), Err(Error::Budget { given: 1_000, .. })));
}

/// A call by a name that no replica has changes nothing and says so.
#[test]
fn names_are_looked_up_in_the_call() {
    let (index, [_]) = sized(16);
    let prompt = from_contents([1, 2, 3]);
    assert_eq!(index.insert("b", &prompt, 0.0), Err(Error::UnknownReplica("b".to_owned())));
    assert_eq!(index.insert("0", &prompt, 0.0).expect("it lives").stored, 3);
    assert_eq!(matched(&index, &prompt), [48]);
    index.remove_replica("0").expect("it lives");
    assert!(index.touch("0", &prompt, 0.0).is_err());
}

/// Row 11: a replica that returns under its name comes back empty, the others keep their share.
#[test]
fn removed_replica_comes_back_empty() {
    let (index, [a, b]) = sized(16);
    let prompt = chain(&(0..320).collect::<Vec<_>>(), 16);
    index.insert(a, &prompt, 0.0).expect("a is live");
    index.insert(b, &prompt[..5], 0.0).expect("b is live");
    index.remove_replica(a).expect("a is live");
    assert_eq!(index.stats().blocks, 5);
    assert_eq!(index.add_replica("0", None), Ok(a));
    assert_eq!(matched(&index, &prompt), [0, 80]);
}

/// Row 16: one removal takes one of two copies.
#[test]
fn each_copy_needs_its_own_removal() {
    let (index, [a]) = sized(16);
    let hashes = from_contents([7, 8]);
    store(&index, a, &[100], None, &[7], Medium::Gpu);
    store(&index, a, &[101], Some(100), &[8], Medium::Gpu);
    store(&index, a, &[101], Some(100), &[8], Medium::Gpu);
    for held in [32, 16, 16] {
        index.removed(a, &[EngineHash(101)], Medium::Gpu).expect("a is live");
        assert_eq!(matched(&index, &hashes), [held]);
    }
    assert_eq!(index.stats().unknown_removals, 1);
}

/// Row A13: copies are counted without a parent too; where reuse is reported a removal ends the block.
#[test]
fn copies_without_a_parent_are_counted() {
    for (reuse_reports, held) in [(false, 32), (true, 16)] {
        let (index, []) = sized(16);
        let a = index.add_replica_with("a", None, reuse_reports).expect("room");
        for _ in 0..2 {
            store(&index, a, &[11, 12], None, &[7, 8], Medium::Gpu);
        }
        assert_eq!(index.stats().reused, if reuse_reports { 2 } else { 0 });
        index.removed(a, &[EngineHash(12)], Medium::Gpu).expect("a is live");
        assert_eq!(matched(&index, &from_contents([7, 8])), [held]);
    }
}

/// Row 17: what leaves the GPU is still on the CPU, and said to be there.
#[test]
fn tiers_are_apart() {
    let (index, [a]) = sized(16);
    let hashes = from_contents([7]);
    store(&index, a, &[100], None, &[7], Medium::Gpu);
    store(&index, a, &[100], None, &[7], Medium::Cpu);
    assert_eq!(index.match_media(&hashes), [[16, 0, 0]]);
    index.removed(a, &[EngineHash(100)], Medium::Gpu).expect("a is live");
    assert_eq!(index.match_media(&hashes), [[0, 16, 0]]);
    assert_eq!(matched(&index, &hashes), [16]);
}

/// A replica's name for a block outlives the block when the replica takes to the shared one: saving must not follow it.
#[test]
fn saves_with_names_of_blocks_that_are_gone() {
    let (index, [a, b]) = sized(16);
    store(&index, b, &[1], None, &[7], Medium::Gpu);
    store(&index, a, &[2], None, &[7], Medium::Gpu);
    store(&index, a, &[1], None, &[7], Medium::Cpu);
    index.removed(a, &[EngineHash(1)], Medium::Gpu).expect("a is live");
    index.removed(a, &[EngineHash(1)], Medium::Cpu).expect("a is live");
    index.clear(b).expect("b is live");
    assert_eq!(index.stats().blocks, 0);
    let again = Index::from_bytes(&index.to_bytes()).expect("what was saved loads");
    assert_eq!(again.stats().event_names, 0);
}

/// Row 20: events arrive, nothing matches: the signal grows until a query matches.
#[test]
fn unmatched_events_are_visible() {
    let (index, [a, b]) = sized(16);
    for name in 0..1_000 {
        store(&index, a, &[name], None, &[name + 1], Medium::Gpu);
        assert_eq!(matched(&index, &from_contents([name + 1_000_000])), [0, 0]);
    }
    assert_eq!(index.unmatched_event_blocks(), [1_000, 0]);
    let held = from_contents([2_000_000]);
    store(&index, b, &[5_000], None, &[2_000_000], Medium::Gpu);
    assert_eq!(matched(&index, &held), [0, 16]);
    assert_eq!(index.unmatched_event_blocks(), [1_000, 0], "a match elsewhere says nothing of it");
    assert_eq!(matched(&index, &from_contents([1])), [16, 0]);
    assert_eq!(index.stats().unmatched_event_blocks, 0);
}

/// Row 22: adapter, salt and version are told apart.
#[test]
fn namespaces_never_meet() {
    let specs = [("S", ""), ("", "S"), ("S v2", ""), ("", "")];
    let seeds = specs.map(|(lora, salt)| {
        hash::namespace_seed(&NamespaceSpec { model: b"m", lora: lora.as_bytes(), salt: salt.as_bytes() })
    });
    for (i, seed) in seeds.iter().enumerate() {
        assert!(!seeds[..i].contains(seed));
    }
}

/// Row 23: a match ends at the block in which prompts part, whatever the unit of other layers.
#[test]
fn match_is_whole_blocks_only() {
    let (index, [a]) = sized(128);
    let first: Vec<u32> = (0..7_680).collect();
    let mut second = first.clone();
    second[6_200] = 1;
    index.insert(a, &chain(&first, 128), 0.0).expect("a is live");
    assert_eq!(matched(&index, &chain(&second, 128)), [6_144]);
}

/// Row 23, with blocks of engines for hybrid models: what is shared is rounded down to blocks that are no power of two.
#[test]
fn blocks_of_any_size_match() {
    for (block_size, shared, held) in [
        (1_536, 6_144, 6_144),
        (2_096, 1_900, 0),
        (2_096, 2_100, 2_096),
        (2_096, 4_300, 4_192),
        (65_536, 131_073, 131_072),
    ] {
        let (index, [a]) = sized(block_size);
        let first: Vec<u32> = (0..4 * block_size as u32).collect();
        let mut second = first.clone();
        second[shared..].fill(u32::MAX);
        index.insert(a, &chain(&first, block_size), 0.0).expect("a is live");
        assert_eq!(matched(&index, &chain(&second, block_size)), [held]);
        let mut out = [0];
        index.match_tokens(&second, 0, &[], &mut out).expect("valid tokens");
        assert_eq!(out, [held]);
    }
}

/// Row 25: generated tokens that differ from re-tokenised ones end the match.
#[test]
fn other_tokens_for_the_same_text_do_not_match() {
    let (index, [a]) = sized(1);
    index.insert(a, &chain(&[1, 2, 30, 40], 1), 0.0).expect("a is live");
    assert_eq!(matched(&index, &chain(&[1, 2, 31, 5, 40], 1)), [2]);
}

/// Row 26: blocks of text may cut a letter; nothing is lost.
#[test]
fn text_is_cut_inside_letters() {
    let (index, [a]) = sized(1);
    let long = format!("{}\u{8a9e}\u{8a9e}", "x".repeat(254));
    for text in [
        "\u{ac00}\u{b098}\u{b2e4}\u{b77c}",
        "\u{ac01}\u{b098}\u{b2e4}\u{b77c}",
        "\u{65e5}\u{672c}\u{8a9e}\u{8a9e}",
        &long,
    ] {
        let mut hashes = Vec::new();
        hash::hash_text(text.as_bytes(), 1, 0, &mut hashes).expect("a valid block size");
        index.insert(a, &hashes, 0.0).expect("a is live");
        assert_eq!(matched(&index, &hashes), [text.len() as u32 / 4]);
    }
}

/// Row 38: media is keyed by content, and a difference in the partial last block is no full match.
#[test]
fn tails_and_media_count() {
    let (index, [a]) = sized(16);
    let tokens: Vec<u32> = (0..40).collect();
    let hash_with = |key: &str| {
        let mut out = Vec::new();
        let extra = [ExtraKey { position: 20, key: key.as_bytes() }];
        hash::hash_tokens(&tokens, 16, 0, &extra, &mut out).expect("a valid block size");
        out
    };
    index.insert(a, &hash_with("digest-1"), 0.0).expect("a is live");
    assert_eq!(matched(&index, &hash_with("digest-1")), [32]);
    assert_eq!(matched(&index, &hash_with("digest-2")), [16]);
}

#[test]
fn limits_are_typed_errors() {
    for block_size in [0, 65_537] {
        let given = Index::new(Config { block_size, ..Config::default() });
        assert_eq!(given.err(), Some(Error::BlockSize(block_size)));
    }
    let (index, _) = sized::<MAX_REPLICAS>(65_536);
    assert_eq!(index.add_replica("one more", None), Err(Error::TooManyReplicas));
    assert_eq!(index.add_replica("7", None), Err(Error::ReplicaExists("7".into())));
    assert_eq!(index.add_replica("", None), Err(Error::Name(0)));
    for _ in 0..1_000 {
        index.remove_replica(Slot(7)).expect("it is live");
        assert_eq!(index.add_replica("7", None), Ok(Slot(7)));
    }
    assert_eq!(index.clear(Slot(5_000)), Err(Error::UnknownSlot(Slot(5_000))));
}
