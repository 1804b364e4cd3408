//! An index as bytes: versioned, checksummed, with the LRU order. What cannot be read changes nothing.
//!
//! ```text
//! "prefixrt" u16 version | config | counters | replicas | runs, parents first | own names | orphans | event feeds | u64 XXH3-64 of all before
//! ```
//!
//! Numbers are little-endian. Pins belong to requests in flight in one process and are not saved.

mod codec;
mod feeds;
mod load;
mod save;

pub(crate) use load::load;
pub(crate) use save::save;

use crate::config::Config;
use crate::outcome::Stats;

const MAGIC: &[u8; 8] = b"prefixrt";
const VERSION: u16 = 4;

/// The counters that are saved, in order; what follows from the state is not.
fn counters(stats: &mut Stats) -> [&mut u64; 9] {
    [
        &mut stats.orphaned,
        &mut stats.orphans_dropped,
        &mut stats.unknown_removals,
        &mut stats.reused,
        &mut stats.dropped,
        &mut stats.evicted_capacity,
        &mut stats.evicted_bytes,
        &mut stats.expired,
        &mut stats.retracted,
    ]
}

/// The parts of a config that are numbers; none is `u64::MAX`.
fn limits(config: &Config) -> [Option<u64>; 5] {
    let [ttl, provisional] = [config.ttl, config.provisional].map(|seconds| seconds.map(f64::to_bits));
    [config.capacity_blocks, config.max_bytes, ttl, provisional, u64::try_from(config.orphan_blocks).ok()]
}
