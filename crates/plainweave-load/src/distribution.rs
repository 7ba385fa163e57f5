//! Distributions of sizes and gaps, in the notation of mutilate (J. Leverich, C. Kozyrakis, EuroSys
//! 2014).
//!
//! The presets `fb_key`, `fb_value` and `fb_ia` are the fits for Facebook's pool "ETC" in B.
//! Atikoglu et al., Workload Analysis of a Large-Scale Key-Value Store, SIGMETRICS 2012.

use std::f64::consts::TAU;

/// A distribution by its inverse distribution function, where it has one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Distribution {
    /// Always the same.
    Fixed(f64),
    /// Evenly between 0 and this.
    Uniform(f64),
    /// Mean and standard deviation.
    Normal(f64, f64),
    /// Rate: the mean is its inverse.
    Exponential(f64),
    /// Generalised Pareto: location, scale, shape.
    Pareto(f64, f64, f64),
    /// Generalised extreme value: location, scale, shape.
    Gev(f64, f64, f64),
    /// Scale and shape.
    Weibull(f64, f64),
    /// Sizes of values: listed below 15 bytes, generalised Pareto above.
    FacebookValue,
}

const FACEBOOK_KEY: Distribution = Distribution::Gev(30.7984, 8.20449, 0.078688);
const FACEBOOK_GAP: Distribution = Distribution::Pareto(0.0, 16.0292, 0.154971);
const FACEBOOK_TAIL: Distribution = Distribution::Pareto(15.0, 214.476, 0.348238);
/// Shares of the sizes 0, 1, 2, ... in bytes.
const FACEBOOK_SMALL: [f64; 15] = [
    0.00536, 0.00047, 0.17820, 0.09239, 0.00018, 0.02740, 0.00065, 0.00606, 0.00023, 0.00837,
    0.00837, 0.08989, 0.00092, 0.00326, 0.01980,
];

const NOTATION: &str = "write fixed:N (or N), uniform:MAX, normal:MEAN,SD, exponential:RATE, pareto:LOC,SCALE,SHAPE, \
                        gev:LOC,SCALE,SHAPE, weibull:SCALE,SHAPE, fb_key, fb_value or fb_ia";

/// Quantiles that a mean is computed from.
const STEPS: usize = 100_000;

impl Distribution {
    /// Reads mutilate's notation.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let (name, rest) =
            text.split_once(':')
                .unwrap_or(if text.starts_with(|c: char| c.is_ascii_digit()) {
                    ("fixed", text)
                } else {
                    (text, "")
                });
        let wrong = || NOTATION.to_owned();
        let numbers: Result<Vec<f64>, _> = rest
            .split(',')
            .filter(|n| !n.is_empty())
            .map(str::parse)
            .collect();
        let numbers = numbers.map_err(|_| wrong())?;
        if !numbers.iter().all(|n| n.is_finite()) {
            return Err(wrong());
        }
        let distribution = match (name, numbers.as_slice()) {
            ("fixed", [n]) => Distribution::Fixed(*n),
            ("uniform", [max]) if *max > 0.0 => Distribution::Uniform(*max),
            ("normal", [mean, deviation]) if *deviation >= 0.0 => {
                Distribution::Normal(*mean, *deviation)
            }
            ("exponential", [rate]) if *rate > 0.0 => Distribution::Exponential(*rate),
            ("pareto", [at, scale, shape]) if *scale > 0.0 && *shape < 1.0 => {
                Distribution::Pareto(*at, *scale, *shape)
            }
            ("gev", [at, scale, shape]) if *scale > 0.0 && *shape < 1.0 => {
                Distribution::Gev(*at, *scale, *shape)
            }
            ("weibull", [scale, shape]) if *scale > 0.0 && *shape > 0.0 => {
                Distribution::Weibull(*scale, *shape)
            }
            ("fb_key", []) => FACEBOOK_KEY,
            ("fb_value", []) => Distribution::FacebookValue,
            ("fb_ia", []) => FACEBOOK_GAP,
            _ => return Err(wrong()),
        };
        Ok(distribution)
    }

    /// Returns the value that a share `u` of samples, 0 to 1, lies below. `v` is a second sample,
    /// used by the normal distribution alone (Box and Muller, 1958).
    pub(super) fn at(self, u: f64, v: f64) -> f64 {
        // Neither end, where a distribution may be infinite, is ever drawn.
        let u = u.clamp(1e-12, 1.0 - 1e-12);
        let stretched = |at: f64, scale: f64, shape: f64, x: f64| match shape {
            0.0 => at - scale * x.ln(),
            shape => at + scale * (x.powf(-shape) - 1.0) / shape,
        };

        match self {
            Distribution::Fixed(n) => n,
            Distribution::Uniform(max) => u * max,
            Distribution::Normal(mean, deviation) => {
                mean + deviation * (-2.0 * u.ln()).sqrt() * (TAU * v).cos()
            }
            Distribution::Exponential(rate) => -(1.0 - u).ln() / rate,
            Distribution::Pareto(at, scale, shape) => stretched(at, scale, shape, 1.0 - u),
            Distribution::Gev(at, scale, shape) => stretched(at, scale, shape, -u.ln()),
            Distribution::Weibull(scale, shape) => scale * (-(1.0 - u).ln()).powf(1.0 / shape),
            Distribution::FacebookValue => {
                let mut left = u;
                for (size, share) in FACEBOOK_SMALL.into_iter().enumerate() {
                    if left < share {
                        return size as f64;
                    }
                    left -= share;
                }
                FACEBOOK_TAIL.at(left / (1.0 - FACEBOOK_SMALL.iter().sum::<f64>()), v)
            }
        }
    }

    /// Returns the mean, numerically where there is no short formula.
    pub(super) fn mean(self) -> f64 {
        match self {
            Distribution::Fixed(n) => n,
            Distribution::Uniform(max) => max / 2.0,
            Distribution::Normal(mean, _) => mean,
            Distribution::Exponential(rate) => 1.0 / rate,
            Distribution::Pareto(at, scale, shape) => at + scale / (1.0 - shape),
            Distribution::Gev(..) | Distribution::Weibull(..) | Distribution::FacebookValue => {
                (0..STEPS)
                    .map(|n| self.at((n as f64 + 0.5) / STEPS as f64, 0.0))
                    .sum::<f64>()
                    / STEPS as f64
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notation() {
        assert_eq!(Distribution::parse("30"), Ok(Distribution::Fixed(30.0)));
        assert_eq!(
            Distribution::parse("normal:10,2"),
            Ok(Distribution::Normal(10.0, 2.0))
        );
        assert_eq!(
            Distribution::parse("fb_key"),
            Ok(Distribution::Gev(30.7984, 8.20449, 0.078688))
        );
        let wrong = [
            "",
            "x",
            "fixed",
            "fixed:",
            "fixed:1,2",
            "uniform:0",
            "normal:1,-1",
            "pareto:0,1,1",
            "gev:nan,1,0",
        ];
        assert!(wrong.iter().all(|text| Distribution::parse(text).is_err()));
    }

    #[test]
    fn every_law_has_its_mean() {
        // By midpoints of a grid; a tail of infinite variance needs no more than this. References:
        // mean of GEV is at + scale (gamma(1 - shape) - 1) / shape, and gamma(0.921312) = 1.053115.
        for (distribution, mean) in [
            (Distribution::Fixed(3.0), 3.0),
            (Distribution::Uniform(8.0), 4.0),
            // scale gamma(1 + 1 / shape), gamma(1.5) = 0.886227.
            (Distribution::Weibull(2.0, 2.0), 1.772454),
            (Distribution::Exponential(0.25), 4.0),
            (Distribution::Pareto(0.0, 16.0292, 0.154971), 18.9688),
            (Distribution::Pareto(1.0, 2.0, 0.0), 3.0),
            (Distribution::Gev(30.7984, 8.20449, 0.078688), 36.336),
        ] {
            let steps = 200_000;
            let drawn =
                (0..steps).map(|n| distribution.at((f64::from(n) + 0.5) / f64::from(steps), 0.0));
            let drawn = drawn.sum::<f64>() / f64::from(steps);
            let close = |x: f64| (x - mean).abs() < mean * 0.005;
            assert!(
                close(drawn) && close(distribution.mean()),
                "{distribution:?}: {drawn}, {}, not {mean}",
                distribution.mean()
            );
        }
    }

    #[test]
    fn a_normal_law_has_its_spread() {
        let distribution = Distribution::Normal(10.0, 2.0);
        let steps = 500;
        let draw = |n: i32| (f64::from(n) + 0.5) / f64::from(steps);
        let drawn: Vec<_> = (0..steps)
            .flat_map(|u| (0..steps).map(move |v| distribution.at(draw(u), draw(v))))
            .collect();
        let mean = drawn.iter().sum::<f64>() / drawn.len() as f64;
        let deviation =
            (drawn.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / drawn.len() as f64).sqrt();

        assert!(
            (mean - 10.0).abs() < 0.01 && (deviation - 2.0).abs() < 0.02,
            "{mean} {deviation}"
        );
    }

    #[test]
    fn small_values_have_their_listed_shares() {
        assert_eq!(Distribution::FacebookValue.at(0.001, 0.0), 0.0);
        assert_eq!(Distribution::FacebookValue.at(0.1, 0.0), 2.0);
        assert!(
            (15.0..16.0).contains(&Distribution::FacebookValue.at(0.442, 0.0)),
            "{}",
            Distribution::FacebookValue.at(0.442, 0.0)
        );
        assert!(Distribution::FacebookValue.at(0.999, 0.0) > 1000.0);
    }
}
