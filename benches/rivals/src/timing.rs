//! Calls by the monotonic clock, its own cost taken off. The clock of a virtual machine may step by 10 ns, so medians come
//! from batches and the tail from single calls.

use std::time::Instant;

use rustix::time::{ClockId, clock_gettime};

/// Calls of a batch.
pub const BATCH: usize = 8;

/// Nanoseconds a call.
#[derive(Default)]
pub struct Samples {
    /// Means of batches.
    pub batches: Vec<f64>,
    pub singles: Vec<f64>,
}

impl Samples {
    pub fn timing(self) -> Timing {
        Timing { p50: Timing::of(self.batches).p50, p99: Timing::of(self.singles).p99 }
    }
}

/// Nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    pub p50: f64,
    pub p99: f64,
}

impl Timing {
    pub fn of(mut samples: Vec<f64>) -> Self {
        samples.sort_by(f64::total_cmp);
        let at = |share: f64| samples[((samples.len() - 1) as f64 * share).round() as usize];
        Timing { p50: at(0.5), p99: at(0.99) }
    }
}

/// The middle of some figures, of which there is one at least.
pub fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    let middle = figures.len() / 2;
    if figures.len() % 2 == 1 { figures[middle] } else { f64::midpoint(figures[middle - 1], figures[middle]) }
}

/// Median cost of reading the clock twice.
pub fn clock_cost() -> f64 {
    let samples: Vec<f64> = (0..10_001).map(|_| nanoseconds(|| {}, 0.0)).collect();
    Timing::of(samples).p50
}

/// Time of one call, less the clock's cost.
pub fn nanoseconds(call: impl FnOnce(), clock: f64) -> f64 {
    let start = Instant::now();
    call();
    start.elapsed().as_nanos() as f64 - clock
}

/// Processor time of the whole process, in nanoseconds: what work costs on one core, whichever thread of an index does it
/// and whoever else uses the machine.
pub fn processor_time(work: impl FnOnce()) -> f64 {
    let now = || {
        let time = clock_gettime(ClockId::ProcessCPUTime);
        time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
    };
    let start = now();
    work();
    now() - start
}
