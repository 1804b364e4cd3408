//! Draws that depend on nothing but their arguments: what stands in for chance, and rendezvous hashing.

/// Odd constants that set turns and draws far apart; the first is the step of splitmix64.
const STEP: u64 = 0x9E37_79B9_7F4A_7C15;
const DRAW: u64 = 0xD1B5_4A32_D192_ED03;
/// Odd, from wyhash: sets replicas apart after the key is mixed in.
const SPREAD: u64 = 0xE703_7ED1_A0B4_28DB;

/// 64 well-mixed bits: the finaliser of splitmix64 (Steele, Lea, Flood 2014).
#[inline]
pub fn mix64(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    value ^ (value >> 31)
}

/// The `k`-th number of a decision, uniform in [0, 1).
#[inline]
pub fn draw(seed: u64, decision_id: u64, k: u64) -> f64 {
    let place = seed.wrapping_add(decision_id.wrapping_mul(STEP)).wrapping_add(k.wrapping_mul(DRAW));
    (mix64(place) >> 11) as f64 * (-53_f64).exp2()
}

/// The number at a place of a chain: any number of distinct ones from one key.
#[inline]
pub fn link(key: u64, place: u64) -> u64 {
    mix64(key.wrapping_add(place.wrapping_add(1).wrapping_mul(STEP)))
}

/// How a replica ranks for a key, the higher the better: the folded 128-bit product of both hashes, as in wyhash.
///
/// The order of replicas by rank is rendezvous hashing (Thaler, Ravishankar 1996): each replica comes first for its share of the
/// keys, and one that joins or leaves moves only those.
#[inline]
pub fn rank(key: u64, replica: u64) -> u64 {
    let product = u128::from(key ^ replica) * u128::from((replica ^ SPREAD) | 1);
    (product ^ (product >> 64)) as u64
}

/// The same for a replica that comes first `weight` times as often as one of weight 1; at most 0.
#[inline]
pub fn weighted_rank(key: u64, replica: u64, weight: f64) -> f64 {
    ((rank(key, replica) as f64 + 0.5) * (-64_f64).exp2()).ln() / weight
}

/// The replica that ranks first for a key, by its slot; of equal ranks the first. `weights` gives the weight of a slot.
///
/// # Errors
/// Whatever reading a candidate or a weight fails with.
#[inline]
pub fn first_choice<E>(
    key: u64,
    candidates: impl Iterator<Item = Result<(usize, u64), E>>,
    weights: Option<impl Fn(usize) -> Result<f64, E>>,
) -> Result<Option<usize>, E> {
    let key = mix64(key);
    match weights {
        None => first_of(candidates, |_, replica| Ok(rank(key, replica))),
        Some(weight) => first_of(candidates, |slot, replica| Ok(weighted_rank(key, replica, weight(slot)?))),
    }
}

fn first_of<E, R: PartialOrd>(
    candidates: impl Iterator<Item = Result<(usize, u64), E>>,
    rank: impl Fn(usize, u64) -> Result<R, E>,
) -> Result<Option<usize>, E> {
    let mut first = None;
    for candidate in candidates {
        let (slot, replica) = candidate?;
        let rank = rank(slot, replica)?;
        if first.as_ref().is_none_or(|(best, _)| rank > *best) {
            first = Some((rank, slot));
        }
    }
    Ok(first.map(|(_, slot)| slot))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_are_uniform_and_fixed() {
        let draws: Vec<f64> = (0..4_000).map(|turn| draw(7, turn, turn % 5)).collect();
        assert!(draws.iter().all(|draw| (0.0..1.0).contains(draw)));
        assert!((draws.iter().sum::<f64>() / 4_000.0 - 0.5).abs() < 0.02);
        assert_eq!(draws[17].to_bits(), draw(7, 17, 2).to_bits());
    }

    #[test]
    fn weights_are_shares() {
        let firsts = (0..6_000).filter(|&key| {
            let key = mix64(key);
            weighted_rank(key, 11, 2.0) > weighted_rank(key, 22, 1.0)
        });
        assert!((3_800..4_200).contains(&firsts.count()));
    }
}
