//! The engine against the dull twins.

#![expect(clippy::expect_used, reason = "a test fails by panicking")]

use proptest::collection::vec;
use proptest::prelude::{ProptestConfig, any};
use proptest::proptest;

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn equal_on_any_history(bytes in vec(any::<u8>(), 0..900)) {
        prefixroute_core::testing::history::run(&bytes).expect("the engine is exact");
    }
}
