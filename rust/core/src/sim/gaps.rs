//! Gaps between the tokens of answers, counted by length: inter-token latency with its percentiles.

use rustc_hash::FxHashMap;

/// Bits of a float that a bucket leaves open: 128 buckets an octave, no wider than 0.8 % of their length.
const OPEN_BITS: u32 = 45;

/// How many gaps there were of each length, to within 0.4 %.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Gaps {
    /// Not in order: a step looks up a bucket for each answer, a run reads them once.
    counts: FxHashMap<u64, u64>,
}

impl Gaps {
    /// Count so many gaps of some seconds, 0 or more.
    pub fn add(&mut self, seconds: f64, count: u64) {
        if count > 0 {
            *self.counts.entry(seconds.max(0.0).to_bits() >> OPEN_BITS).or_default() += count;
        }
    }

    /// Seconds, as the middle of a bucket, and counts; the shortest first.
    pub fn iter(&self) -> impl Iterator<Item = (f64, u64)> + '_ {
        let mut counts: Vec<_> = self.counts.iter().map(|(&bucket, &count)| (bucket, count)).collect();
        counts.sort_unstable();
        counts.into_iter().map(|(bucket, count)| {
            let middle = if bucket == 0 { 0 } else { (bucket << OPEN_BITS) | (1 << (OPEN_BITS - 1)) };
            (f64::from_bits(middle), count)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn gaps_are_counted_by_length() {
        let mut gaps = Gaps::default();
        for (seconds, count) in [(0.01, 3), (0.0, 1), (5.0, 0), (0.01, 2)] {
            gaps.add(seconds, count);
        }
        let counts: Vec<u64> = gaps.iter().map(|(_, count)| count).collect();
        assert_eq!(counts, [1, 5]);
        assert_eq!(gaps.iter().next(), Some((0.0, 1)));
    }

    proptest! {
        #[test]
        fn a_length_is_kept_to_within_half_a_per_cent(seconds in 1e-6..1e6_f64) {
            let mut gaps = Gaps::default();
            gaps.add(seconds, 1);
            let found: Vec<_> = gaps.iter().collect();
            prop_assert_eq!(found.len(), 1);
            prop_assert!((found[0].0 / seconds - 1.0).abs() < 0.004);
        }
    }
}
