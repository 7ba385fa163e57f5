//! How the values of repetitions are distributed, and ratios of what was measured in one round.

/// How values are distributed, interpolated between neighbours; each is NaN if there are none.
#[derive(Clone, Copy, Debug)]
pub struct Spread {
    /// Half of them are below.
    pub median: f64,
    /// The first quartile.
    pub q1: f64,
    /// The third quartile.
    pub q3: f64,
    /// The least.
    pub min: f64,
    /// The greatest.
    pub max: f64,
}

impl Spread {
    /// Returns that of the values, in whatever order.
    pub fn of(values: &[f64]) -> Self {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let at = |share| quantile(&sorted, share);
        Self {
            median: at(0.5),
            q1: at(0.25),
            q3: at(0.75),
            min: at(0.0),
            max: at(1.0),
        }
    }

    /// Returns that of the values that `change` makes of these; it keeps their order.
    #[must_use]
    pub fn map(self, change: impl Fn(f64) -> f64) -> Self {
        Self {
            median: change(self.median),
            q1: change(self.q1),
            q3: change(self.q3),
            min: change(self.min),
            max: change(self.max),
        }
    }
}

/// Returns the value below which this share of the sorted values lies, interpolated between
/// neighbours.
fn quantile(sorted: &[f64], share: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else {
        return f64::NAN;
    };
    let place = share * last as f64;

    let below = sorted[place.floor() as usize];
    let above = sorted[place.ceil() as usize];
    // Neighbours may both be infinite, and their difference no number.
    if below == above {
        below
    } else {
        below + (above - below) * place.fract()
    }
}

/// Returns each value's ratio to that of the same round.
pub fn ratios(own: &[f64], to: &[f64]) -> Vec<f64> {
    own.iter().zip(to).map(|(own, to)| own / to).collect()
}

#[cfg(test)]
mod tests {
    use super::Spread;

    fn spread(values: &[f64]) -> [f64; 5] {
        let spread = Spread::of(values);
        [spread.median, spread.q1, spread.q3, spread.min, spread.max]
    }

    #[test]
    fn quartiles_lie_between_the_values() {
        assert_eq!(spread(&[7.0]), [7.0; 5]);
        assert_eq!(spread(&[4.0, 1.0, 3.0, 2.0]), [2.5, 1.75, 3.25, 1.0, 4.0]);
        assert_eq!(
            spread(&[5.0, 1.0, 4.0, 2.0, 3.0]),
            [3.0, 2.0, 4.0, 1.0, 5.0]
        );
    }

    #[test]
    fn what_starves_takes_for_ever_and_is_still_a_number() {
        assert_eq!(spread(&[f64::INFINITY, f64::INFINITY]), [f64::INFINITY; 5]);
        assert!(spread(&[]).iter().all(|value| value.is_nan()));
    }
}
