//! Timing: medians over many samples of a monotonic clock, printed as a table.

use std::hint::black_box;
use std::time::{Duration, Instant};

/// How long one measurement samples.
const BUDGET: Duration = Duration::from_millis(300);

/// Best, median and 99th percentile, in nanoseconds a unit. The best is what a shared machine disturbs least.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    pub best: f64,
    pub p50: f64,
    pub p99: f64,
}

/// Times of `work(i)`, which does `units` units of work; short work is timed in batches.
pub fn each<R>(units: usize, mut work: impl FnMut(usize) -> R) -> Times {
    let mut i = 0;
    let start = Instant::now();
    while start.elapsed() < BUDGET / 10 {
        black_box(work(i));
        i += 1;
    }
    let once = start.elapsed() / i as u32;
    let batch = (Duration::from_micros(1).as_nanos() / once.as_nanos().max(1)).max(1) as usize;
    let mut samples = Vec::new();
    let begin = Instant::now();
    while begin.elapsed() < BUDGET {
        let start = Instant::now();
        for _ in 0..batch {
            black_box(work(i));
            i += 1;
        }
        samples.push(start.elapsed().as_nanos() as f64 / (batch * units) as f64);
    }
    times(samples)
}

/// Times of `rounds` rounds that each need a fresh state: `work` times itself.
pub fn rounds(rounds: usize, units: usize, mut work: impl FnMut() -> Duration) -> Times {
    times((0..rounds).map(|_| work().as_nanos() as f64 / units as f64).collect())
}

fn times(mut samples: Vec<f64>) -> Times {
    samples.sort_by(f64::total_cmp);
    let at = |percent: usize| samples[(samples.len() - 1) * percent / 100];
    Times { best: at(0), p50: at(50), p99: at(99) }
}

/// One line of the table.
pub fn line(goal: &str, what: &str, times: Times, unit: &str, limit: &str) {
    println!("{goal:>4}  {what:<58} {:>9.1} {:>9.1} {:>9.1}  {unit:<9} {limit}", times.best, times.p50, times.p99);
}
