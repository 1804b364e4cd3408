//! Two threads that look up in one index, against one.

use std::sync::Barrier;
use std::thread;
use std::time::Instant;

use prefixroute_core::BlockHash;

use super::fleet::{Feed, Fleet, PROMPT};

/// Rounds; the best of each kind counts, as a shared machine rarely leaves both cores alone.
const ROUNDS: usize = 40;
/// Blocks of a 128,000-token prompt.
const LONG: usize = 8_000;

pub fn speedup() {
    println!();
    for (what, len, lookups) in [("550 blocks", PROMPT, 100_000), ("8,000 blocks", LONG, 100_000)] {
        let fleet = Fleet::new(8, 18_750, len, Feed::Belief);
        let prompts: Vec<&[BlockHash]> = fleet.prompts.iter().map(|(_, prompt)| &prompt.chain[..]).collect();
        let best =
            |threads| (0..ROUNDS).map(|_| round(&fleet, &prompts, lookups, threads)).fold(f64::INFINITY, f64::min);
        println!("  15  two threads against one, lookups of {what}: {:.2}x, goal 1.85x", 2.0 * best(1) / best(2));
    }
}

/// Seconds from the first start to the last end of so many threads that do their lookups.
fn round(fleet: &Fleet, prompts: &[&[BlockHash]], lookups: usize, threads: usize) -> f64 {
    let barrier = Barrier::new(threads);
    let work = || {
        let mut out = [0; 8];
        barrier.wait();
        let start = Instant::now();
        for i in 0..lookups {
            fleet.index.match_blocks(prompts[i % prompts.len()], &mut out);
        }
        (start, Instant::now())
    };
    let spans: Vec<(Instant, Instant)> = thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers.into_iter().map(|worker| worker.join().unwrap()).collect()
    });
    let first = spans.iter().map(|span| span.0).min().unwrap();
    let last = spans.iter().map(|span| span.1).max().unwrap();
    (last - first).as_secs_f64()
}
