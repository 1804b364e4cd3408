//! An engine with blocks of any size against what its events make of an index.
#![no_main]

use prefixroute_core::testing::payloads;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Err(why) = payloads::run(bytes) {
        panic!("{why}");
    }
});
