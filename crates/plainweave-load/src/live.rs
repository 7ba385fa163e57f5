//! What is shown while a run lasts, on standard error: on a terminal a few lines that are drawn
//! again each second, elsewhere a line every ten seconds.

use std::io::{IsTerminal, Write, stderr};

use super::collect::{Second, Watch};
use super::plan::Plan;
use super::series::{NAMES, Point};
use super::tally::{Failures, Tally};
use super::text;

/// Seconds between two lines if standard error is no terminal.
const SELDOM: u64 = 10;
/// Width of a terminal that does not say.
const USUAL_WIDTH: usize = 80;
/// Seconds that a sparkline shows.
const HISTORY: usize = 60;
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Shows the seconds of one run.
pub(super) struct Live {
    terminal: bool,
    quiet: bool,
    view: View,
    /// Lines that are on the terminal.
    drawn: usize,
}

impl Live {
    pub(super) fn new(plan: &Plan, quiet: bool) -> Self {
        let whole = plan
            .duration
            .map(|duration| (plan.warm_up + duration).as_secs_f64());
        let view = View {
            rate: plan.rate,
            whole,
            warm_up: plan.warm_up.as_secs_f64(),
            points: Vec::new(),
            errors: Failures::default(),
        };

        Self {
            terminal: stderr().is_terminal(),
            quiet,
            view,
            drawn: 0,
        }
    }

    fn clear(&mut self) -> String {
        let back = if self.drawn > 0 {
            format!("\x1b[{}A", self.drawn)
        } else {
            String::new()
        };

        self.drawn = 0;
        format!("{back}\r\x1b[J")
    }
}

impl Watch for Live {
    fn second(&mut self, second: &Second<'_>) {
        self.view.take(Point::of(second), second.tally);
        if self.quiet {
            return;
        }
        if self.terminal {
            let width = terminal_size::terminal_size_of(stderr())
                .map_or(USUAL_WIDTH, |size| usize::from(size.0.0));
            let lines = self.view.frame(width);
            let clear = self.clear();
            let _ = writeln!(stderr(), "{clear}{}", lines.join("\n"));
            self.drawn = lines.len();
        } else if (second.number + 1).is_multiple_of(SELDOM) {
            let _ = writeln!(stderr(), "{}", self.view.line());
        }
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        if self.terminal && !self.quiet {
            let clear = self.clear();
            let _ = write!(stderr(), "{clear}");
        }
    }
}

/// What is known so far, as text.
struct View {
    rate: Option<f64>,
    /// Seconds that the run is to take, with its warm-up; unknown if only the number of requests
    /// ends it.
    whole: Option<f64>,
    warm_up: f64,
    points: Vec<Point>,
    errors: Failures,
}

impl View {
    fn take(&mut self, point: Option<Point>, tally: &Tally) {
        self.points.extend(point);
        tally
            .failures
            .by_kind()
            .for_each(|(failure, count)| self.errors.add(failure, count));
    }

    fn time(&self) -> String {
        let at = self.points.last().map_or(0.0, |point| point.at);
        let of = self
            .whole
            .map(|whole| format!(" of {whole:.0}"))
            .unwrap_or_default();
        let warm = if at <= self.warm_up {
            ", warming up"
        } else {
            ""
        };

        format!("{at:.0}{of} s{warm}")
    }

    /// Returns one line.
    fn line(&self) -> String {
        let Some(point) = self.points.last() else {
            return String::new();
        };
        let latency = point.latency.map(|latency| {
            format!(
                ", p50 {}, p99 {}",
                text::time(latency[0]),
                text::time(latency[2])
            )
        });

        let errors = self.errors.total();
        format!(
            "{}: {:.0}/s, {errors} errors{}",
            self.time(),
            point.rate,
            latency.unwrap_or_default()
        )
    }

    /// Returns a few lines, none wider than the terminal.
    fn frame(&self, width: usize) -> Vec<String> {
        let Some(point) = self.points.last() else {
            return Vec::new();
        };
        let history = &self.points[self.points.len().saturating_sub(HISTORY)..];
        let asked = self
            .rate
            .map(|rate| format!(" of {}/s", text::short_rate(rate)))
            .unwrap_or_default();
        let rates = sparkline(history.iter().map(|point| Some(point.rate)));
        let tails = sparkline(
            history
                .iter()
                .map(|point| point.latency.map(|latency| latency[2])),
        );
        let latency = point.latency.map_or("none yet".to_owned(), |latency| {
            let parts = NAMES
                .iter()
                .zip(latency)
                .map(|(name, us)| format!("{name} {}", text::time(us)));
            parts.collect::<Vec<_>>().join("  ")
        });

        let lines = [
            self.time(),
            format!(
                "rate     {:>12}{asked}  {rates}",
                format!("{}/s", text::short_rate(point.rate))
            ),
            format!(
                "errors   {:>12}  in all {}: {}",
                format!("{}/s", text::short_rate(point.errors)),
                self.errors.total(),
                self.errors
            ),
            format!("latency  {latency}"),
            format!("p99      {tails}"),
        ];
        // A line that wraps would not be cleared.
        lines
            .map(|line| line.chars().take(width.saturating_sub(1)).collect())
            .into()
    }
}

/// Returns a bar for each value, relative to the greatest; a blank where there is none.
fn sparkline(values: impl Iterator<Item = Option<f64>> + Clone) -> String {
    let greatest = values.clone().flatten().fold(0.0, f64::max);
    let bar = |value: f64| {
        let part = if greatest > 0.0 {
            value / greatest * (BARS.len() - 1) as f64
        } else {
            0.0
        };
        BARS[(part.round() as usize).min(BARS.len() - 1)]
    };
    values.map(|value| value.map_or(' ', bar)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tally::Failure;

    fn view(points: &[(f64, Option<f64>)]) -> View {
        let mut view = View {
            rate: Some(5000.0),
            whole: Some(30.0),
            warm_up: 1.0,
            points: Vec::new(),
            errors: Failures::default(),
        };

        for (n, (rate, p99)) in points.iter().enumerate() {
            let latency = p99.map(|p99| [p99 / 10.0, p99 / 5.0, p99, p99, p99 * 2.0]);
            view.points.push(Point {
                at: n as f64 + 1.0,
                rate: *rate,
                errors: 0.5,
                latency,
            });
        }

        view
    }

    #[test]
    fn sparklines() {
        assert_eq!(
            sparkline([Some(0.0), None, Some(3.5), Some(7.0)].into_iter()),
            "▁ ▅█"
        );
        assert_eq!(sparkline([Some(0.0)].into_iter()), "▁");
        assert_eq!(sparkline(std::iter::empty::<Option<f64>>()), "");
    }

    #[test]
    fn a_frame_says_how_it_goes() {
        let mut view = view(&[
            (5000.0, None),
            (2500.0, Some(1500.0)),
            (5000.0, Some(3000.0)),
        ]);
        view.errors.add(Failure::TimedOut, 3);
        let lines = view.frame(200);
        assert_eq!(lines[0], "3 of 30 s");
        assert_eq!(lines[1], "rate           5000/s of 5000/s  █▅█");
        assert_eq!(lines[2], "errors          0.5/s  in all 3: timeout 3");
        assert_eq!(
            lines[3],
            "latency  p50 300 us  p90 600 us  p99 3.00 ms  p99.9 3.00 ms  max 6.00 ms"
        );
        assert_eq!(lines[4], "p99       ▅█");
        assert_eq!(
            view.line(),
            "3 of 30 s: 5000/s, 3 errors, p50 300 us, p99 3.00 ms"
        );
        assert!(view.frame(20).iter().all(|line| line.chars().count() < 20));
        assert_eq!(view.frame(0).concat(), "");
    }

    /// The last part of a run may be a millisecond long.
    #[test]
    fn a_moment_has_no_rate() {
        let mut tally = Tally::new();
        tally.ok = 5;
        let point = |number, length| {
            Point::of(&Second {
                number,
                length,
                tally: &tally,
            })
        };

        let mut view = view(&[(500.0, None)]);
        view.take(point(1, 1_000_000), &tally);
        assert_eq!(view.line(), "1 of 30 s, warming up: 500/s, 0 errors");
        view.take(point(1, 500_000_000), &tally);
        assert_eq!(view.line(), "2 of 30 s: 10/s, 0 errors");

        assert_eq!(
            point(0, 1_000_000).map(|point| point.rate),
            Some(5000.0),
            "all there is"
        );
    }

    #[test]
    fn a_warm_up_is_said() {
        assert_eq!(
            view(&[(10.0, None)]).line(),
            "1 of 30 s, warming up: 10/s, 0 errors"
        );
    }
}
