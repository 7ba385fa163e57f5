//! What `--json` writes, as a type: of a run, and of several.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize, Serializer};

/// A run, as `plainweave load --json` writes it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Results {
    /// What was loaded.
    pub target: String,
    /// Where that was found.
    pub addresses: Vec<String>,
    /// `closed`, or `open` and by what.
    #[serde(rename = "loop")]
    pub pace: String,
    /// At a time.
    pub connections: usize,
    /// Requests sent together.
    pub depth: usize,
    /// Requests in progress on a connection over HTTP/2.
    pub streams: usize,
    /// Threads that made the load.
    pub workers: usize,
    /// By which driver.
    pub driver: String,
    /// And in which mode.
    pub mode: String,
    /// Of all that was drawn.
    pub seed: u64,
    /// How often each kind of error came.
    pub errors_by_kind: BTreeMap<String, u64>,
    /// How often each status of HTTP came.
    pub answers_by_status: BTreeMap<String, u64>,
    /// Whether a signal ended the run.
    pub interrupted: bool,
    /// Whether latencies are the server's alone.
    pub valid: bool,
    /// Why they are not.
    pub invalid_because: Option<String>,
    /// Objectives that were missed, in sentences.
    pub missed: Vec<String>,
    /// Objectives that could not be judged.
    pub not_judged: Vec<String>,
    /// The seconds of the run, one after the other.
    pub seconds: Vec<Figures>,
    /// All figures of the run.
    pub figures: Figures,
}

/// Several runs, as `plainweave load --rates` or `--search` with `--json` writes them.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Series {
    /// What was loaded.
    pub target: String,
    /// The runs in their order.
    pub steps: Vec<Results>,
    /// What was looked for, if something was.
    pub search: Option<Search>,
}

/// What `--search` has looked for.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Search {
    /// Conditions that had to hold.
    pub objective: String,
    /// The highest rate at which they did; `None` if none was found.
    pub highest_rate: Option<f64>,
}

/// Figures by names that end in their units: `latency_p99_us`, `rate_per_second`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Figures(#[serde(serialize_with = "whole_as_integers")] pub(super) BTreeMap<String, f64>);

impl Figures {
    /// Returns the figure of this name; there is none where nothing was answered, say.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<f64> {
        self.0.get(name).copied()
    }
}

impl FromIterator<(String, f64)> for Figures {
    fn from_iter<I: IntoIterator<Item = (String, f64)>>(figures: I) -> Self {
        Self(figures.into_iter().collect())
    }
}

/// Numbers up to this are the same as integers.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// Writes counts without a decimal point.
fn whole_as_integers<S: Serializer>(
    figures: &BTreeMap<String, f64>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    #[serde(untagged)]
    enum Number {
        Whole(u64),
        Other(f64),
    }

    serializer.collect_map(figures.iter().map(|(name, value)| {
        let is_whole = value.fract() == 0.0 && (0.0..EXACT).contains(value);
        let number = if is_whole {
            Number::Whole(*value as u64)
        } else {
            Number::Other(*value)
        };
        (name, number)
    }))
}
