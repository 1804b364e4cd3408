//! Any bytes load as a valid index or not at all. Seeds: `history::saved` of any bytes.
#![no_main]

use prefixroute_core::testing::history;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Err(why) = history::load(bytes) {
        panic!("{why}");
    }
});
