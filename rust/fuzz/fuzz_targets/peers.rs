//! Frames of peers in any order, lost, doubled and altered: no panic, no load below zero, none left at the end.
#![no_main]

use prefixroute_core::testing::peers;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Err(why) = peers::run(bytes) {
        panic!("{why}");
    }
});
