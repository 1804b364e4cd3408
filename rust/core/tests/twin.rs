//! The engine against the dull twins.

#![expect(clippy::expect_used, reason = "a test fails by panicking")]

use proptest::collection::vec;
use proptest::prelude::{ProptestConfig, any};
use proptest::proptest;

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Bytes that are nearly a saved index load as a valid one or not at all.
    #[test]
    fn any_bytes_load_or_are_refused(history in vec(any::<u8>(), 0..300), at in any::<usize>(), with in any::<u8>()) {
        let mut bytes = prefixroute_core::testing::history::saved(&history).expect("the engine is exact");
        let body = bytes.len() - 8;
        prefixroute_core::Index::from_bytes(&bytes).expect("what was saved loads");
        assert!(prefixroute_core::Index::from_bytes(&bytes[..body - at % body]).is_err(), "bytes are missing");
        bytes[at % body] ^= with;
        assert_eq!(prefixroute_core::Index::from_bytes(&bytes).is_err(), with != 0, "a byte was altered");
        prefixroute_core::testing::history::load(&bytes[..body]).expect("what loads is valid");
    }

    #[test]
    fn equal_on_any_history(bytes in vec(any::<u8>(), 0..900)) {
        prefixroute_core::testing::history::run(&bytes).expect("the engine is exact");
    }
}
