//! Latency when CPU is short: the figures of a server that may use a part of a core, at shares of
//! its peer's peak.

use super::client::Figures;
use crate::harness::report;
use plainweave_report::statistics::{Spread, ratios};

/// Of one CPU.
pub(crate) const SHARE: f64 = 0.25;
/// Rates, in percent of the peer's peak.
const LOADS: [u32; 3] = [30, 60, 90];

/// What the load generator calls a figure; what its row is called; the unit.
const FIGURES: [(&str, &str, &str); 4] = [
    ("latency_p50_us", "p50_us", "us"),
    ("latency_p99_us", "p99_us", "us"),
    ("latency_p99_9_us", "p999_us", "us"),
    // A server that cannot keep up, perhaps as the machine gives less than when the peak was found,
    // lets clients wait until they give up: that is a finding.
    ("errors", "errors", "count"),
];
/// Which of them are compared with the peer's.
const COMPARED: [(usize, &str); 2] = [(1, "p99_to_third_quartile"), (2, "p999_to_third_quartile")];

/// A peer's figures under the same load, and what ours are called as ratios to them.
struct Peer<'a> {
    tails: &'a Tails,
    /// Those of p99 and of p99.9.
    ratios: [&'static str; 2],
}

/// A metric, its unit, and a value a round.
type Values = (&'static str, &'static str, Vec<f64>);

/// Loads `servers`, the first of which is the peer, each with parts of its `peak`; `turn` does so
/// once, at a rate. In each of the `runs` rounds every server gets its turn. `row` receives what
/// came of it, with the case and the server; `ratios` are the names of our p99 and p99.9 as ratios
/// to the peer's.
pub(crate) fn measure<S>(
    (experiment, case): (&str, &str),
    servers: &[S],
    (peak, runs): (f64, usize),
    ratios: [&'static str; 2],
    turn: impl Fn(&S, &str) -> anyhow::Result<Figures>,
    mut row: impl FnMut(&str, &S, Values),
) -> anyhow::Result<()> {
    for percent in LOADS {
        let rate = (peak * f64::from(percent) / 100.0).to_string();
        let mut found: Vec<_> = servers.iter().map(|_| Tails::default()).collect();
        for round in 1..=runs {
            report::progress(&format!(
                "{experiment}: {case}, {percent} %, round {round} of {runs}"
            ));
            for (server, found) in servers.iter().zip(&mut found) {
                found.add(&turn(server, &rate)?)?;
            }
        }

        let case = format!("{case}-{percent}");
        let peer = Peer {
            tails: &found[0],
            ratios,
        };

        for (n, (server, found)) in servers.iter().zip(&found).enumerate() {
            found
                .rows((n > 0).then_some(&peer))
                .into_iter()
                .for_each(|values| row(&case, server, values));
        }
    }
    Ok(())
}

/// One server's figures under one load, a value a round.
#[derive(Debug, Default)]
struct Tails([Vec<f64>; FIGURES.len()]);

impl Tails {
    /// Adds a round.
    fn add(&mut self, figures: &Figures) -> anyhow::Result<()> {
        for ((name, _, _), values) in FIGURES.iter().zip(&mut self.0) {
            values.push(figures.get(name)?);
        }
        Ok(())
    }

    /// Returns metrics, units and values. Of what is compared with a peer also the ratios, round by
    /// round, and that of the median to the peer's third quartile, above which ours is worse than
    /// three of four rounds of the peer's.
    fn rows(&self, peer: Option<&Peer<'_>>) -> Vec<Values> {
        let own = FIGURES
            .iter()
            .zip(&self.0)
            .map(|((_, metric, unit), values)| (*metric, *unit, values.clone()));
        let mut rows: Vec<_> = own.collect();
        let Some(Peer {
            tails,
            ratios: names,
        }) = peer
        else {
            return rows;
        };

        for ((figure, to_quartile), ratio) in COMPARED.into_iter().zip(*names) {
            let own = &self.0[figure];
            let theirs = &tails.0[figure];
            rows.push((ratio, "1", ratios(own, theirs)));
            rows.push((
                to_quartile,
                "1",
                vec![Spread::of(own).median / Spread::of(theirs).q3],
            ));
        }

        rows
    }
}

#[cfg(test)]
mod tests {
    use super::{Figures, Peer, Tails};

    #[test]
    fn a_median_is_held_against_the_peers_third_quartile() {
        let tails = |values: [f64; 3]| {
            let mut tails = Tails::default();
            for value in values {
                let latencies = ["p50", "p99", "p99_9"].map(|p| format!("latency_{p}_us"));
                let [p50, p99, p999] = &latencies;
                let figures = [
                    (&**p50, value),
                    (p99, value),
                    (p999, value),
                    ("errors", 0.0),
                ];
                tails
                    .add(&Figures::of(&figures))
                    .expect("it has all figures");
            }
            tails
        };

        let peer = tails([10.0, 20.0, 40.0]);
        let own = tails([30.0, 15.0, 20.0]);
        assert_eq!(own.rows(None).len(), 4);
        let rows = own.rows(Some(&Peer {
            tails: &peer,
            ratios: ["p99_to_nginx", "p999_to_nginx"],
        }));
        let found = |metric: &str| {
            rows.iter()
                .find(|row| row.0 == metric)
                .map(|row| row.2.clone())
        };

        assert_eq!(found("p99_to_nginx"), Some(vec![3.0, 0.75, 0.5]));
        assert_eq!(found("p999_to_third_quartile"), Some(vec![20.0 / 30.0]));
        assert_eq!(found("p50_us"), Some(vec![30.0, 15.0, 20.0]));
    }
}
