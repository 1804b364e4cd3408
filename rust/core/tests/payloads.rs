//! Batches of events as bytes: any history of an engine with blocks of any size, and any bytes at all.

#![expect(clippy::expect_used, reason = "a test fails by panicking")]

use prefixroute_core::EngineHash;
use prefixroute_core::testing::payloads::{self, StoreForm, batch};
use proptest::collection::vec;
use proptest::prelude::{ProptestConfig, any};
use proptest::proptest;

fn batch_of_two() -> Vec<u8> {
    let names = [EngineHash(3), EngineHash(u64::MAX - 4)];
    let tokens: Vec<u32> = (0..8).map(|at| 60_000 * at).collect();
    let event = StoreForm {
        names: &names,
        parent: Some(EngineHash(2)),
        tokens: &tokens,
        block_size: 4,
        medium: "GPU",
        form: 2,
        is_array: false,
    };
    batch(&[event.packed(), StoreForm { is_array: true, form: 1, ..event }.packed()])
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn equal_on_any_history(bytes in vec(any::<u8>(), 0..700)) {
        payloads::run(&bytes).expect("the index holds what the engine holds");
    }

    #[test]
    fn any_bytes_apply_or_change_nothing(bytes in vec(any::<u8>(), 0..200)) {
        payloads::apply(&bytes).expect("the index stays valid");
    }

    /// Bytes that are nearly a batch: the decoder gets deep into it.
    #[test]
    fn altered_batches_apply_or_change_nothing(at in any::<usize>(), with in any::<u8>(), cut in any::<usize>()) {
        let mut bytes = batch_of_two();
        let len = bytes.len();
        bytes[at % len] ^= with;
        payloads::apply(&bytes).expect("the index stays valid");
        payloads::apply(&bytes[..cut % len]).expect("the index stays valid");
    }
}
