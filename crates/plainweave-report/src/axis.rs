//! Where values lie on an axis, and where its grid is.

/// An axis from one value to another; `log`: each step is ten times the one before.
#[derive(Clone, Copy, Debug)]
pub struct Axis {
    /// The least value that it shows.
    pub low: f64,
    /// The greatest.
    pub high: f64,
    /// Whether it is a log axis.
    pub log: bool,
}

/// More decades than this are not all labelled.
const DECADES: usize = 6;

impl Axis {
    /// Covers the values, from zero on, or in whole decades.
    pub fn over(values: impl Iterator<Item = f64>, log: bool) -> Self {
        let mut low = f64::INFINITY;
        let mut high = f64::NEG_INFINITY;
        for value in values.filter(|value| value.is_finite() && (!log || *value > 0.0)) {
            (low, high) = (low.min(value), high.max(value));
        }

        match (low <= high, log) {
            (false, _) => Self {
                low: if log { 1.0 } else { 0.0 },
                high: 10.0,
                log,
            },
            (true, true) => {
                let low = low.log10().floor();
                Self {
                    low: 10f64.powf(low),
                    high: 10f64.powf(high.log10().ceil().max(low + 1.0)),
                    log,
                }
            }
            (true, false) => Self {
                low: low.min(0.0),
                high: if high > 0.0 { high } else { 1.0 },
                log,
            },
        }
    }

    /// Ends at a line of the grid.
    pub fn rounded(self) -> Self {
        let step = self.step();
        let high = (self.high / step - 1e-9).ceil() * step;
        if self.log {
            self
        } else {
            Self { high, ..self }
        }
    }

    /// Returns the distance of lines of the grid of a plain axis.
    pub fn step(&self) -> f64 {
        round_step((self.high - self.low) / 5.0)
    }

    /// Returns whether values are so far apart that small ones would vanish on a plain axis.
    pub fn wants_log(values: impl Iterator<Item = f64>, apart: f64) -> bool {
        let mut low = f64::INFINITY;
        let mut high = 0.0_f64;
        for value in values.filter(|value| value.is_finite()) {
            (low, high) = (low.min(value), high.max(value));
        }
        low > 0.0 && high / low >= apart
    }

    /// Returns the place of a value, between zero and one; what is beyond the axis lies at its end.
    pub fn at(&self, value: f64) -> f64 {
        let place = if self.log {
            (value.max(self.low) / self.low).log10() / (self.high / self.low).log10()
        } else {
            (value - self.low) / (self.high - self.low)
        };
        place.clamp(0.0, 1.0)
    }

    /// Returns where lines of the grid are: decades, or about five round numbers.
    pub fn ticks(&self) -> Vec<f64> {
        if self.log {
            let decades = (self.high / self.low).log10().round() as usize;
            return (0..=decades)
                .step_by(decades.div_ceil(DECADES).max(1))
                .map(|n| self.low * 10f64.powi(n as i32))
                .collect();
        }

        let step = self.step();
        let first = (self.low / step - 1e-9).ceil();
        let count = (self.high / step - first + 1e-9).floor().max(0.0) as usize;
        (0..=count).map(|n| (first + n as f64) * step).collect()
    }
}

/// Returns 1, 2 or 5 times a power of ten, at least `step`.
pub fn round_step(step: f64) -> f64 {
    let power = 10_f64.powf(step.max(1e-9).log10().floor());
    [1.0, 2.0, 5.0]
        .map(|of| of * power)
        .into_iter()
        .find(|round| *round >= step)
        .unwrap_or(10.0 * power)
}

#[cfg(test)]
mod tests {
    use super::Axis;

    #[test]
    fn axes_have_round_numbers() {
        let plain = Axis::over([3.0, 47_000.0].into_iter(), false);
        assert_eq!(plain.ticks(), [0.0, 10_000.0, 20_000.0, 30_000.0, 40_000.0]);
        let log = Axis::over([300.0, 45_000.0, 0.0, f64::NAN].into_iter(), true);
        let ticks: Vec<_> = log.ticks().into_iter().map(f64::round).collect();
        assert_eq!(ticks, [100.0, 1_000.0, 10_000.0, 100_000.0]);
        assert!(
            (log.at(1e3) - 1.0 / 3.0).abs() < 1e-9 && log.at(1.0) == 0.0 && plain.at(1e9) == 1.0
        );
        let wide = Axis::over([1e-9, 1e9].into_iter(), true);

        assert!(
            wide.ticks().len() <= 8 && wide.ticks().len() >= 4,
            "{:?}",
            wide.ticks()
        );
        let rounded = plain.rounded();
        assert_eq!((rounded.high, rounded.rounded().high), (50_000.0, 50_000.0));
        assert_eq!(log.rounded().high, log.high);
        let below = Axis::over([-20.0, 30.0].into_iter(), false);
        assert_eq!(below.ticks(), [-20.0, -10.0, 0.0, 10.0, 20.0, 30.0]);
    }

    #[test]
    fn far_values_want_a_log_axis() {
        assert!(
            Axis::wants_log([1.0, 30.0].into_iter(), 30.0)
                && !Axis::wants_log([1.0, 29.0].into_iter(), 30.0)
        );
        assert!(
            !Axis::wants_log([0.0, 1e9].into_iter(), 30.0)
                && !Axis::wants_log([].into_iter(), 30.0)
        );
    }
}
