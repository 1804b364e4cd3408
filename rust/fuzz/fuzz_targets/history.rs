//! Every call of an index in any order, against the dull twins.
#![no_main]

use prefixroute_core::testing::history;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Err(why) = history::run(bytes) {
        panic!("{why}");
    }
});
