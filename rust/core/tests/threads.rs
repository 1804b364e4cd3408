//! Many threads on one index: every block that a lookup counts was held at some moment of the call.

#![expect(clippy::expect_used, reason = "a test fails by panicking")]

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use prefixroute_core::testing::Prompt;
use prefixroute_core::{Config, Index};

/// Two writers let their replica's prefix grow, shrink, split and vanish between two bounds; readers see lengths between
/// them, of a prompt that others split all the time.
#[test]
fn readers_beside_writers() {
    let index = Index::new(Config::default()).expect("a valid config");
    let full = Prompt::new(0..200).chain;
    let slots: Vec<_> = (0..3).map(|i| index.add_replica(&i.to_string(), None).expect("room")).collect();
    for &slot in &slots {
        index.insert(slot, &full[..50], 0.0).expect("it is live");
        index.pin(slot, &full[..50]).expect("it is live");
    }
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let writers: Vec<_> = slots[..2]
            .iter()
            .map(|&slot| {
                let (index, full) = (&index, &full);
                scope.spawn(move || {
                    for round in 0..4_000 {
                        index.insert(slot, &full[..51 + round * 37 % 150], 0.0).expect("it is live");
                        index.set_capacity(slot, Some(50 + (round * 13 % 50) as u64)).expect("it is live");
                        index.set_capacity(slot, None).expect("it is live");
                    }
                })
            })
            .collect();
        for _ in 0..2 {
            scope.spawn(|| {
                let mut out = [0; 3];
                while !done.load(Ordering::Relaxed) {
                    index.match_blocks(&full, &mut out);
                    assert!(out[..2].iter().all(|tokens| (50 * 16..=200 * 16).contains(tokens)), "{out:?}");
                    assert_eq!(out[2], 50 * 16);
                }
            });
        }
        for writer in writers {
            writer.join().expect("writers do not panic");
        }
        done.store(true, Ordering::Relaxed);
    });
    index.validate().expect("every invariant holds");
}
