//! What a server with `--waits` has written.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, ensure};

/// How ready fibers waited.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waits {
    pub(super) mean_us: f64,
    pub(super) greatest_us: f64,
    /// On average.
    pub(super) rank_error: f64,
    pub(super) greatest_rank_error: f64,
}

impl Waits {
    /// Reads what was observed between two moments after 1970.
    pub(super) fn read(file: &Path, (from, to): (Duration, Duration)) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(file)
            .with_context(|| format!("cannot read {}", file.display()))?;
        let mut pops = 0.0;
        let mut total = 0.0;
        let mut ranks = 0.0;
        let mut greatest = 0.0_f64;
        let mut greatest_rank = 0.0_f64;

        // A last line may be in the making.
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        for line in csv::Reader::from_reader(whole.as_bytes()).deserialize() {
            let [at, count, waited, most, rank, most_rank]: [f64; 6] =
                line.with_context(|| format!("no waits: {}", file.display()))?;

            // A line tells of the time before it.
            if at > from.as_secs_f64() * 1e3 && at <= to.as_secs_f64() * 1e3 {
                pops += count;
                total += waited;
                ranks += rank;
                greatest = greatest.max(most);
                greatest_rank = greatest_rank.max(most_rank);
            }
        }

        ensure!(
            pops > 0.0,
            "no fiber was seen to run in {:?}, in {}",
            to.saturating_sub(from),
            file.display()
        );
        Ok(Self {
            mean_us: total / pops / 1e3,
            greatest_us: greatest / 1e3,
            rank_error: ranks / pops,
            greatest_rank_error: greatest_rank,
        })
    }
}
