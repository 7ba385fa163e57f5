//! Latency when CPU is short: the figures of a server that may use a part of a core, at shares of its peer's peak.

use crate::sample::{Spread, ratios};

/// Of one CPU.
pub(crate) const SHARE: f64 = 0.25;
/// Of the peer's peak, in percent.
pub(crate) const LOADS: [u32; 3] = [30, 60, 90];

/// What the load generator calls a figure; what its row is called; the unit.
const FIGURES: [(&str, &str, &str); 4] = [
    ("latency_p50", "p50_us", "us"),
    ("latency_p99", "p99_us", "us"),
    ("latency_p99.9", "p999_us", "us"),
    // A server that cannot keep up, perhaps as the machine gives less than when the peak was found, lets clients wait
    // until they give up: that is a finding.
    ("errors", "errors", "count"),
];
/// Which of them are compared with the peer's.
const COMPARED: [(usize, &str); 2] = [(1, "p99_to_third_quartile"), (2, "p999_to_third_quartile")];

/// A peer's figures under the same load, and what ours are called as ratios to them.
pub(crate) struct Peer<'a> {
    pub(crate) tails: &'a Tails,
    pub(crate) p99: &'static str,
    pub(crate) p999: &'static str,
}

/// One server's figures under one load, a value a round.
#[derive(Debug, Default)]
pub(crate) struct Tails([Vec<f64>; FIGURES.len()]);

impl Tails {
    /// Adds a round, of whose figures `find` returns one by name.
    pub(crate) fn add(&mut self, find: impl Fn(&str) -> anyhow::Result<f64>) -> anyhow::Result<()> {
        for ((name, _, _), values) in FIGURES.iter().zip(&mut self.0) {
            values.push(find(name)?);
        }
        Ok(())
    }

    /// Returns metrics, units and values. Of what is compared with a peer also the ratios, round by round, and that of
    /// the median to the peer's third quartile, above which ours is worse than three of four rounds of the peer's.
    pub(crate) fn rows(&self, peer: Option<&Peer<'_>>) -> Vec<(&'static str, &'static str, Vec<f64>)> {
        let own = FIGURES.iter().zip(&self.0).map(|((_, metric, unit), values)| (*metric, *unit, values.clone()));
        let mut rows: Vec<_> = own.collect();
        let Some(Peer { tails, p99, p999 }) = peer else { return rows };
        for ((figure, to_quartile), ratio) in COMPARED.into_iter().zip([p99, p999]) {
            let (own, theirs) = (&self.0[figure], &tails.0[figure]);
            rows.push((ratio, "1", ratios(own, theirs)));
            rows.push((to_quartile, "1", vec![Spread::of(own).median / Spread::of(theirs).q3]));
        }
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::{Peer, Tails};

    #[test]
    fn a_median_is_held_against_the_peers_third_quartile() {
        let tails = |values: [f64; 3]| {
            let mut tails = Tails::default();
            for value in values {
                tails.add(|name| Ok(if name == "errors" { 0.0 } else { value })).expect("it has all figures");
            }
            tails
        };
        let (peer, own) = (tails([10.0, 20.0, 40.0]), tails([30.0, 15.0, 20.0]));
        assert_eq!(own.rows(None).len(), 4);
        let rows = own.rows(Some(&Peer { tails: &peer, p99: "p99_to_nginx", p999: "p999_to_nginx" }));
        let found = |metric: &str| rows.iter().find(|row| row.0 == metric).map(|row| row.2.clone());
        assert_eq!(found("p99_to_nginx"), Some(vec![3.0, 0.75, 0.5]));
        assert_eq!(found("p999_to_third_quartile"), Some(vec![20.0 / 30.0]));
        assert_eq!(found("p50_us"), Some(vec![30.0, 15.0, 20.0]));
    }
}
