//! The engine against the dull twins.

#![expect(clippy::expect_used, reason = "a test fails by panicking")]

use prefixroute_core::Index;
use prefixroute_core::hash::mix;
use prefixroute_core::testing::history;
use proptest::collection::vec;
use proptest::prelude::{ProptestConfig, any};
use proptest::proptest;

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Bytes that are nearly a saved index load as a valid one or not at all.
    #[test]
    fn any_bytes_load_or_are_refused(history in vec(any::<u8>(), 0..300), at in any::<usize>(), with in any::<u8>()) {
        let mut bytes = history::saved(&history).expect("the engine is exact");
        let body = bytes.len() - 8;
        Index::from_bytes(&bytes).expect("what was saved loads");
        assert!(Index::from_bytes(&bytes[..body - at % body]).is_err(), "bytes are missing");
        bytes[at % body] ^= with;
        assert_eq!(Index::from_bytes(&bytes).is_err(), with != 0, "a byte was altered");
        history::load(&bytes[..body]).expect("what loads is valid");
    }

    #[test]
    fn equal_on_any_history(bytes in vec(any::<u8>(), 0..900)) {
        history::run(&bytes).expect("the engine is exact");
    }
}

/// The histories are not idle: each kind of event happens in some of them.
#[test]
fn histories_reach_every_counter() {
    let mut seen = [0; 9];
    for seed in 0..200_u64 {
        let bytes: Vec<u8> = (0..600).map(|at| (mix(seed + 1, at) >> 32) as u8).collect();
        let saved = history::saved(&bytes).expect("the engine is exact");
        let stats = Index::from_bytes(&saved).expect("what was saved loads").stats();
        let counters = [
            stats.orphaned,
            stats.orphans_dropped,
            stats.unknown_removals,
            stats.reused,
            stats.dropped,
            stats.evicted_capacity,
            stats.expired,
            stats.retracted,
            stats.event_names as u64,
        ];
        for (seen, counter) in seen.iter_mut().zip(counters) {
            *seen += counter;
        }
    }
    assert!(seen.iter().all(|&count| count > 100), "{seen:?}");
}
