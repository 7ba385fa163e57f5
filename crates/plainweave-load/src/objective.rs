//! Objectives as text: conditions on the figures of a run, `p99<=5ms`, `errors>0.1%`, `rate<95%`.

use std::fmt;

/// What a condition compares. Times are in microseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Metric {
    /// A percentile of the latency.
    Percentile(f64),
    Mean,
    Max,
    /// Failed requests: their number, or their share of all.
    Errors,
    /// Answers with a status from the first to the last of these: likewise.
    Statuses(u16, u16),
    /// Reads of a cache that found nothing: likewise.
    Misses,
    /// Answers a second, or their share of the rate asked for.
    Rate,
    /// How late this program itself sent, 99th percentile.
    Lateness,
}

impl Metric {
    /// Returns whether a client that sends late falsifies it.
    pub(super) fn is_latency(self) -> bool {
        matches!(self, Metric::Percentile(_) | Metric::Mean | Metric::Max)
    }

    /// Returns whether it counts requests.
    pub(super) fn is_count(self) -> bool {
        matches!(self, Metric::Errors | Metric::Statuses(..) | Metric::Misses)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparison {
    Less,
    AtMost,
    Greater,
    AtLeast,
}

/// What a figure is compared with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Bound {
    /// A time in microseconds, a count, or a rate per second.
    Absolute(f64),
    /// 0 to 1.
    Share(f64),
}

/// A comparison of one figure with a bound.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Condition {
    text: String,
    pub(super) metric: Metric,
    comparison: Comparison,
    pub(super) bound: Bound,
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Condition {
    /// Parses one condition.
    ///
    /// # Errors
    /// Says what was expected, and points at the place.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        Reader { text, at: 0 }
            .condition(text.len())
            .map_err(|fault| fault.shown(text))
    }

    /// Parses conditions separated by commas, at least one.
    ///
    /// # Errors
    /// As for [`Condition::parse`].
    pub(super) fn parse_all(text: &str) -> Result<Conditions, String> {
        let mut all = Vec::new();
        let mut at = 0;
        for part in text.split(',') {
            let condition = Reader { text, at }.condition(at + part.len());
            all.push(condition.map_err(|fault| fault.shown(text))?);
            at += part.len() + 1;
        }
        Ok(Conditions(all))
    }

    /// Returns whether a figure lies above the bound, so that it would be another if it were less.
    pub(super) fn is_exceeded(&self, figure: f64) -> bool {
        let (Bound::Absolute(bound) | Bound::Share(bound)) = self.bound;
        figure > bound
    }

    /// Returns whether only an open loop has the figure.
    pub(super) fn needs_rate(&self) -> bool {
        matches!(
            (self.metric, self.bound),
            (Metric::Rate, Bound::Share(_)) | (Metric::Lateness, _)
        )
    }

    /// Returns whether it holds for a figure.
    pub(super) fn holds(&self, figure: f64) -> bool {
        let (Bound::Absolute(bound) | Bound::Share(bound)) = self.bound;
        match self.comparison {
            Comparison::Less => figure < bound,
            Comparison::AtMost => figure <= bound,
            Comparison::Greater => figure > bound,
            Comparison::AtLeast => figure >= bound,
        }
    }
}

/// Several conditions, all of which must hold.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Conditions(pub(super) Vec<Condition>);

impl fmt::Display for Conditions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let texts: Vec<_> = self.0.iter().map(Condition::to_string).collect();
        f.write_str(&texts.join(","))
    }
}

/// What is wrong, and from which byte on.
struct Fault {
    at: usize,
    expected: &'static str,
}

impl Fault {
    fn shown(&self, text: &str) -> String {
        let column = text[..self.at].chars().count();
        format!("{}\n    {text}\n    {:column$}^", self.expected, "")
    }
}

const METRICS: &str = "write p50, p99 or another percentile, mean, max, errors, a status as in 503 or \
                       5xx, misses, rate or lateness";
const PERCENTILE: &str = "write a percentile above 0 and below 100, as in p99.9";
const COMPARISON: &str = "write <, <=, > or >=";
const NUMBER: &str = "write a number that is not negative";
const TIME: &str = "write a time with its unit, us, ms or s, as in 20ms";
const STATUS: &str = "write a status as in 503, or a class of them as in 5xx";
const COUNT: &str = "write a share as in 0.1%, or a number of requests";
const RATE: &str =
    "write requests a second, as in 500 or 10k, or a share of the rate asked for as in 95%";

struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl Reader<'_> {
    /// Takes the characters up to `end` that `belongs` accepts.
    fn take(&mut self, end: usize, belongs: impl Fn(char) -> bool) -> &str {
        let rest = &self.text[self.at..end];
        let len = rest.find(|c| !belongs(c)).unwrap_or(rest.len());
        self.at += len;
        &rest[..len]
    }

    fn space(&mut self, end: usize) {
        self.take(end, char::is_whitespace);
    }

    fn condition(mut self, end: usize) -> Result<Condition, Fault> {
        self.space(end);
        let start = self.at;
        let metric = self.metric(end)?;
        self.space(end);
        let comparison = self.comparison(end)?;
        self.space(end);
        let bound = self.bound(end, metric)?;
        let text = self.text[start..self.at].to_owned();
        self.space(end);
        if self.at < end {
            return Err(Fault {
                at: self.at,
                expected: "the condition ends here",
            });
        }
        Ok(Condition {
            text,
            metric,
            comparison,
            bound,
        })
    }

    fn metric(&mut self, end: usize) -> Result<Metric, Fault> {
        let at = self.at;
        let name = self.take(end, |c| c.is_ascii_alphanumeric() || c == '.');
        match (name, name.strip_prefix('p')) {
            ("mean", _) => Ok(Metric::Mean),
            ("max", _) => Ok(Metric::Max),
            ("errors", _) => Ok(Metric::Errors),
            ("rate", _) => Ok(Metric::Rate),
            ("lateness", _) => Ok(Metric::Lateness),
            ("misses", _) => Ok(Metric::Misses),
            (status, _) if status.starts_with(|c: char| c.is_ascii_digit()) => statuses(status)
                .ok_or(Fault {
                    at,
                    expected: STATUS,
                }),
            (_, Some(number)) => {
                let percentile = number
                    .parse::<f64>()
                    .ok()
                    .filter(|p| *p > 0.0 && *p < 100.0);
                percentile.map(Metric::Percentile).ok_or(Fault {
                    at: at + 1,
                    expected: PERCENTILE,
                })
            }
            _ => Err(Fault {
                at,
                expected: METRICS,
            }),
        }
    }

    fn comparison(&mut self, end: usize) -> Result<Comparison, Fault> {
        let at = self.at;
        match self.take(end, |c| matches!(c, '<' | '>' | '=' | '!')) {
            "<" => Ok(Comparison::Less),
            "<=" => Ok(Comparison::AtMost),
            ">" => Ok(Comparison::Greater),
            ">=" => Ok(Comparison::AtLeast),
            _ => Err(Fault {
                at,
                expected: COMPARISON,
            }),
        }
    }

    fn bound(&mut self, end: usize, metric: Metric) -> Result<Bound, Fault> {
        let at = self.at;
        let number = self
            .take(end, |c| c.is_ascii_digit() || c == '.')
            .parse::<f64>();
        let number = number.map_err(|_| Fault {
            at,
            expected: NUMBER,
        })?;
        let at = self.at;
        let unit = self.take(end, |c| c.is_ascii_alphabetic() || c == '%');
        let (scale, expected) = match metric {
            _ if metric.is_count() && unit == "%" && number <= 100.0 => {
                return Ok(Bound::Share(number / 100.0));
            }
            Metric::Rate if unit == "%" => return Ok(Bound::Share(number / 100.0)),
            _ if metric.is_count() => (
                (unit.is_empty() && number.fract() == 0.0).then_some(1.0),
                COUNT,
            ),
            Metric::Rate => (multiple(unit), RATE),
            _ => (
                match unit {
                    "us" => Some(1.0),
                    "ms" => Some(1e3),
                    "s" => Some(1e6),
                    _ => None,
                },
                TIME,
            ),
        };
        scale
            .map(|scale| Bound::Absolute(number * scale))
            .ok_or(Fault { at, expected })
    }
}

/// Reads `503`, or `5xx` for all from 500 to 599.
fn statuses(text: &str) -> Option<Metric> {
    let (number, width) = match text.strip_suffix("xx") {
        Some(class) => (class, 100),
        None => (text, 1),
    };

    let first = number.parse::<u16>().ok()?.checked_mul(width)?;
    let known = text.len() == 3 && (100..=599).contains(&first);
    known.then_some(Metric::Statuses(first, first + width - 1))
}

/// What a rate's suffix multiplies it by.
pub(super) fn multiple(suffix: &str) -> Option<f64> {
    match suffix {
        "" => Some(1.0),
        "k" => Some(1e3),
        "M" => Some(1e6),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_compare_figures() {
        for (text, metric, bound, below, above) in [
            (
                "p99>20ms",
                Metric::Percentile(99.0),
                Bound::Absolute(20e3),
                false,
                true,
            ),
            (
                " p99.99 <= 5 us",
                Metric::Percentile(99.99),
                Bound::Absolute(5.0),
                true,
                false,
            ),
            ("max<1s", Metric::Max, Bound::Absolute(1e6), true, false),
            (
                "mean>=1.5ms",
                Metric::Mean,
                Bound::Absolute(1500.0),
                false,
                true,
            ),
            (
                "errors>0.1%",
                Metric::Errors,
                Bound::Share(0.001),
                false,
                true,
            ),
            (
                "5xx>0.5%",
                Metric::Statuses(500, 599),
                Bound::Share(0.005),
                false,
                true,
            ),
            (
                "404>=3",
                Metric::Statuses(404, 404),
                Bound::Absolute(3.0),
                false,
                true,
            ),
            ("misses<10%", Metric::Misses, Bound::Share(0.1), true, false),
            (
                "errors>7",
                Metric::Errors,
                Bound::Absolute(7.0),
                false,
                true,
            ),
            ("rate<95%", Metric::Rate, Bound::Share(0.95), true, false),
            (
                "rate<10k",
                Metric::Rate,
                Bound::Absolute(10_000.0),
                true,
                false,
            ),
            (
                "lateness>=100us",
                Metric::Lateness,
                Bound::Absolute(100.0),
                false,
                true,
            ),
        ] {
            // A blank before a unit is none of the notation's.
            let text = text.replace(" us", "us");
            let condition =
                Condition::parse(&text).unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(
                (condition.metric, condition.bound),
                (metric, bound),
                "{text}"
            );
            let (Bound::Absolute(at) | Bound::Share(at)) = bound;
            assert_eq!(
                (condition.holds(at * 0.9), condition.holds(at * 1.1)),
                (below, above),
                "{text}"
            );
        }

        assert!(
            Condition::parse("max<=3ms").unwrap().holds(3000.0)
                && !Condition::parse("max<3ms").unwrap().holds(3e3)
        );
    }

    #[test]
    fn faults_point_at_their_place() {
        for (text, column, expected) in [
            ("", 0, METRICS),
            ("latency<5ms", 0, METRICS),
            ("p100<5ms", 1, PERCENTILE),
            ("px<5ms", 1, PERCENTILE),
            ("p99=5ms", 3, COMPARISON),
            ("p99<", 4, NUMBER),
            ("p99<-5ms", 4, NUMBER),
            ("p99<1.2.3ms", 4, NUMBER),
            ("p99>20", 6, TIME),
            ("p99>20%", 6, TIME),
            ("errors>0.5", 10, COUNT),
            ("errors>101%", 10, COUNT),
            ("404>1ms", 5, COUNT),
            ("misses>1.5", 10, COUNT),
            ("600>0", 0, STATUS),
            ("9xx>0", 0, STATUS),
            ("5x>0", 0, STATUS),
            ("65536xx>0", 0, STATUS),
            ("rate<5ms", 6, RATE),
            ("p99<5ms 3", 8, "ends here"),
        ] {
            let error = Condition::parse(text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
            assert_eq!(
                error.lines().last().unwrap(),
                format!("    {:column$}^", ""),
                "{text}: {error}"
            );
        }

        let error = Condition::parse_all("p99<5ms,errors<1x").unwrap_err();
        assert!(
            error.contains(COUNT) && error.ends_with(&format!("\n    {:16}^", "")),
            "{error}"
        );
        let all = Condition::parse_all("p99<=5ms, errors<=0.1%").unwrap();
        assert_eq!(
            (all.0.len(), all.to_string().as_str()),
            (2, "p99<=5ms,errors<=0.1%")
        );
    }
}
