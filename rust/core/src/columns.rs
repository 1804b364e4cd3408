//! Columns: one number per replica, and the passes over them that policies are made of.
//!
//! Where a pass takes a length and a function, the numbers are read where they lie, whatever they are kept in.

/// The best of some numbers: where the first of them is, and how many are equal to it. `None` if there are none, if one of
/// them cannot be read, or if one is NaN.
#[inline]
pub fn best<T: Copy + PartialOrd>(
    length: usize,
    value: impl Fn(usize) -> Option<T>,
    better: impl Fn(T, T) -> bool,
) -> Option<(usize, usize)> {
    let mut best = if length == 0 { None } else { value(0) }?;
    let (mut first, mut count, mut ordered) = (0, 0, true);
    for at in 0..length {
        let value = value(at)?;
        ordered &= value.partial_cmp(&value).is_some();
        if better(value, best) {
            (best, first, count) = (value, at, 1);
        } else if value == best {
            count += 1;
        }
    }
    ordered.then_some((first, count))
}

/// The position of the number behind `earlier` others that are equal to it.
#[inline]
pub fn nth<T: PartialEq>(
    length: usize,
    value: impl Fn(usize) -> Option<T>,
    wanted: &T,
    earlier: usize,
) -> Option<usize> {
    (0..length).filter(|&at| value(at).as_ref() == Some(wanted)).nth(earlier)
}

/// Scales numbers to 1 at the lowest and 0 at the highest, in proportion; to 1 all of them where they are equal.
pub fn fall(column: &mut [f64]) {
    let (low, high) = column.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), &value| {
        (if value < low { value } else { low }, if value > high { value } else { high })
    });
    for value in column {
        *value = if high > low { (high - *value) / (high - low) } else { 1.0 };
    }
}

/// A rate that stands for an unknown one in [`fill`]: it adds no time.
pub const UNKNOWN_RATE: f64 = f64::INFINITY;

/// Gives the unknown rates, which are [`UNKNOWN_RATE`], the harmonic mean of the others, or `otherwise` if none is known: the
/// rate at which a fleet of equal replicas would take as long in all.
pub fn fill(rates: &mut [f64], otherwise: f64) {
    let unknown = rates.iter().filter(|&&rate| rate == UNKNOWN_RATE).count();
    if unknown == 0 {
        return;
    }
    let known = rates.len() - unknown;
    let slowness: f64 = rates.iter().map(|rate| 1.0 / rate).sum();
    let lowest = rates.iter().copied().fold(f64::INFINITY, f64::min);
    let highest = rates.iter().copied().filter(|rate| rate.is_finite()).fold(0.0, f64::max);
    // What is known of one alone, or is the same of all, is passed on to the last bit: an equal replica stays equal.
    let mean = match known {
        0 => otherwise,
        _ if lowest >= highest => lowest,
        _ => known as f64 / slowness,
    };
    for rate in rates.iter_mut().filter(|rate| **rate == UNKNOWN_RATE) {
        *rate = mean;
    }
}

/// Combines a column with another of the same length, place by place; the two lengths if they differ.
///
/// # Errors
///
/// The two lengths differ; the column is unchanged.
pub fn combine(column: &mut [f64], other: &[f64], operation: impl Fn(f64, f64) -> f64) -> Result<(), (usize, usize)> {
    if column.len() != other.len() {
        return Err((column.len(), other.len()));
    }
    column.iter_mut().zip(other).for_each(|(value, &other)| *value = operation(*value, other));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn floats(values: &[f64]) -> impl Fn(usize) -> Option<f64> {
        |at| values.get(at).copied()
    }

    #[test]
    fn the_best_is_the_first_of_equals() {
        let max = |values: &[f64]| best(values.len(), floats(values), |one, other| one > other);
        assert_eq!(max(&[1.0, 3.0, 2.0, 3.0]), Some((1, 2)));
        assert_eq!(max(&[f64::NEG_INFINITY]), Some((0, 1)));
        assert_eq!(max(&[]), None);
        assert_eq!(max(&[1.0, f64::NAN]), None);
        assert_eq!(best(2, |at| (at == 0).then_some(1), |one, other| one > other), None, "one cannot be read");
        assert_eq!(nth(4, floats(&[1.0, 3.0, 2.0, 3.0]), &3.0, 1), Some(3));
        assert_eq!(nth(4, floats(&[1.0, 3.0, 2.0, 3.0]), &3.0, 2), None);
    }

    #[test]
    fn unknown_rates_take_the_harmonic_mean() {
        let filled = |rates: &[f64]| {
            let mut rates = rates.to_vec();
            fill(&mut rates, 7.0);
            rates
        };
        assert_eq!(filled(&[2.0, UNKNOWN_RATE, 6.0]), [2.0, 3.0, 6.0]);
        assert_eq!(filled(&[0.1, UNKNOWN_RATE, 0.1]), [0.1; 3]);
        assert_eq!(filled(&[UNKNOWN_RATE; 2]), [7.0; 2]);
        assert_eq!(filled(&[2.0]), [2.0]);
    }

    #[test]
    fn columns_fall_and_combine() {
        let mut column = vec![10.0, 30.0, 20.0];
        fall(&mut column);
        assert_eq!(column, vec![1.0, 0.0, 0.5]);
        assert_eq!(combine(&mut column, &[2.0], |one, other| one * other), Err((3, 1)));
        assert_eq!(combine(&mut column, &[1.0, 2.0, 3.0], |one, other| one + other), Ok(()));
        assert_eq!(column, vec![2.0, 2.0, 3.5]);
    }
}
