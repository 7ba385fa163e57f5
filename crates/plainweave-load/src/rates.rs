//! Rates as text: one, one that changes, several.

use super::objective::multiple;

/// Requests a second, perhaps changing steadily from one value to another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Rate {
    pub(super) from: f64,
    pub(super) to: f64,
}

impl Rate {
    /// Parses `500`, `10k` or `1k..10k`.
    ///
    /// # Errors
    /// Says what is written instead.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let rate = match text.split_once("..") {
            Some((from, to)) => Self {
                from: number(from)?,
                to: number(to)?,
            },
            None => {
                let rate = number(text)?;
                Self {
                    from: rate,
                    to: rate,
                }
            }
        };
        Ok(rate)
    }
}

/// The rates of a sweep, in order.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Rates(pub(super) Vec<f64>);

/// Most steps of a sweep.
const STEPS: usize = 1000;

impl Rates {
    /// Parses `10k..70k/13`, `1k,2k,5k`, or several of these joined by commas.
    ///
    /// # Errors
    /// Says what is written instead, and for which part.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut rates = Vec::new();
        for part in text.split(',') {
            rates.extend(part_of(part.trim()).map_err(|error| format!("'{part}': {error}"))?);
        }
        if rates.len() > STEPS {
            return Err(format!("{} steps, {STEPS} at most", rates.len()));
        }
        Ok(Self(rates))
    }
}

fn part_of(text: &str) -> Result<Vec<f64>, String> {
    let Some((from, rest)) = text.split_once("..") else {
        return Ok(vec![number(text)?]);
    };
    let (to, steps) = rest
        .split_once('/')
        .ok_or("write FROM..TO/STEPS, as in 10k..70k/13")?;
    let steps = steps
        .parse::<usize>()
        .ok()
        .filter(|steps| (2..=STEPS).contains(steps));
    let steps = steps.ok_or_else(|| format!("write 2 to {STEPS} steps, as in 10k..70k/13"))?;
    let from = number(from)?;
    let to = number(to)?;
    let part = (to - from) / (steps - 1) as f64;
    Ok((0..steps).map(|step| from + part * step as f64).collect())
}

fn number(text: &str) -> Result<f64, String> {
    let (digits, suffix) = text.split_at(
        text.find(|c: char| c.is_ascii_alphabetic())
            .unwrap_or(text.len()),
    );
    let rate = digits
        .parse::<f64>()
        .ok()
        .zip(multiple(suffix))
        .map(|(number, multiple)| number * multiple);
    let rate = rate.filter(|rate| (1e-3..=1e9).contains(rate));
    rate.ok_or_else(|| {
        "write requests a second, 0.001 to 1000000000, as in 500, 10k or 1M".to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates() {
        assert_eq!(Rate::parse("0.5"), Ok(Rate { from: 0.5, to: 0.5 }));
        assert_eq!(
            Rate::parse("1k..2.5k"),
            Ok(Rate {
                from: 1000.0,
                to: 2500.0
            })
        );
        for text in [
            "", "0", "-1", "nan", "inf", "1e10", "1..", "..", "1K", "0..5",
        ] {
            assert!(Rate::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn sweeps() {
        let thousands = |rates: &[f64]| Ok(Rates(rates.iter().map(|rate| rate * 1e3).collect()));
        assert_eq!(
            Rates::parse("10k..70k/4"),
            thousands(&[10.0, 30.0, 50.0, 70.0])
        );
        assert_eq!(
            Rates::parse("5k..1k/3, 8k"),
            thousands(&[5.0, 3.0, 1.0, 8.0])
        );
        assert_eq!(Rates::parse("10k..70k/13").unwrap().0.len(), 13);

        for (text, said) in [
            ("10k..70k", "FROM..TO/STEPS"),
            ("1..2/1", "2 to 1000"),
            ("1,x", "'x'"),
            ("1..2/900,1..2/900", "1800"),
        ] {
            let error = Rates::parse(text).unwrap_err();
            assert!(error.contains(said), "{text}: {error}");
        }
    }
}
