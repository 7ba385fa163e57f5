//! One measured figure, and the rows of the long-form CSV.

/// A figure for one case of one system, over all repetitions.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) experiment: &'static str,
    pub(crate) case: String,
    pub(crate) system: String,
    pub(crate) workers: usize,
    pub(crate) metric: &'static str,
    pub(crate) unit: &'static str,
    /// One value a repetition.
    pub(crate) values: Vec<f64>,
}

/// Where rows come from: an experiment, and how many workers it had.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin {
    name: &'static str,
    workers: usize,
}

impl Origin {
    /// Names one whose rows have one worker.
    pub(crate) const fn new(name: &'static str) -> Self {
        Self { name, workers: 1 }
    }

    pub(crate) const fn with_workers(self, workers: usize) -> Self {
        Self { workers, ..self }
    }

    pub(crate) const fn name(self) -> &'static str {
        self.name
    }

    /// Makes a row of one value a repetition.
    pub(crate) fn row(
        self,
        case: impl Into<String>,
        system: impl Into<String>,
        metric: &'static str,
        unit: &'static str,
        values: Vec<f64>,
    ) -> Row {
        Row {
            experiment: self.name,
            case: case.into(),
            system: system.into(),
            workers: self.workers,
            metric,
            unit,
            values,
        }
    }
}

impl Row {
    pub(crate) fn spread(&self) -> Spread {
        Spread::of(&self.values)
    }

    pub(crate) fn csv(&self) -> String {
        let Spread {
            median,
            q1,
            q3,
            min,
            max,
        } = self.spread();
        let Row {
            experiment,
            case,
            system,
            workers,
            metric,
            unit,
            values,
        } = self;
        let runs = values.len();
        format!(
            "{experiment},{case},{system},{workers},{metric},{unit},\
             {median:.3},{q1:.3},{q3:.3},{min:.3},{max:.3},{runs}"
        )
    }
}

/// How the values of a row are distributed; each is NaN if there are none.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) q1: f64,
    pub(crate) q3: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

impl Spread {
    pub(crate) fn of(values: &[f64]) -> Self {
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
pub(crate) fn ratios(own: &[f64], to: &[f64]) -> Vec<f64> {
    own.iter().zip(to).map(|(own, to)| own / to).collect()
}

/// The CSV's first line. (Results from before quartiles lack `q1` and `q3`: go by the names.)
pub(crate) const COLUMNS: &str =
    "experiment,case,system,workers,metric,unit,median,q1,q3,min,max,runs";

#[cfg(test)]
mod tests {
    use super::Origin;

    fn spread(values: &[f64]) -> [f64; 5] {
        let micro = Origin::new("micro");
        let row = micro.row("yield", "threads", "ops", "count", values.to_vec());

        let spread = row.spread();
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
