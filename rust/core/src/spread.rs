//! Where values lie in tables: a keyed hash of one word.
//!
//! Engines' names and block hashes can be chosen by others, and can be 1, 2, 3. A secret key makes their places unknown, and
//! the product of two whole words, folded, spreads them evenly whatever the key is.

/// A keyed hash of words. Equal keys spread alike.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spread {
    mask: u64,
    factor: u64,
}

impl Spread {
    /// Every key is as good as any other, 0 and 1 too.
    pub(crate) fn new(key: u64) -> Self {
        Spread { mask: finish(key), factor: finish(key ^ FACTOR) | 1 }
    }

    /// All 64 bits of it depend on all of the value's.
    #[inline]
    pub(crate) fn of(self, value: u64) -> u64 {
        let product = u128::from(value ^ self.mask) * u128::from(self.factor);
        product as u64 ^ (product >> 64) as u64
    }
}

/// Keeps the two halves of a key apart.
const FACTOR: u64 = 0x9E37_79B9_7F4A_7C15;

/// The last steps of `SplitMix64`: neighbours become unlike each other.
fn finish(key: u64) -> u64 {
    let mut z = key.wrapping_add(FACTOR);
    z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ z >> 31
}

#[cfg(test)]
mod tests {
    use super::Spread;

    /// Of 1,024 buckets, 8,192 values in a row fill none with more than thrice its share, under keys that say little.
    #[test]
    fn sequences_spread_under_any_key() {
        for key in [0, 1, 2, 3, u64::MAX, 1 << 63] {
            let spread = Spread::new(key);
            for step in [1_u64, 2, 64, 1 << 20, 1 << 40] {
                let mut filled = [0_u32; 1024];
                for at in 0..8192 {
                    filled[(spread.of(at * step) >> 54) as usize] += 1;
                }
                let most = filled.iter().max().copied();
                assert!(most <= Some(24), "key {key}, step {step}: {most:?} of 8 expected");
            }
        }
    }
}
