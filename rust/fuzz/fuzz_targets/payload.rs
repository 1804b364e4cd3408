//! Any bytes as a batch of events: they are refused and change nothing, or apply and leave the index valid.
#![no_main]

use prefixroute_core::testing::payloads;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Err(why) = payloads::apply(bytes) {
        panic!("{why}");
    }
});
