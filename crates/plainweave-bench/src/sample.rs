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

impl Row {
    /// Median, least and greatest.
    pub(crate) fn spread(&self) -> (f64, f64, f64) {
        let mut sorted = self.values.clone();
        sorted.sort_by(f64::total_cmp);
        let (Some(&min), Some(&max)) = (sorted.first(), sorted.last()) else { return (f64::NAN, f64::NAN, f64::NAN) };
        let middle = sorted.len() / 2;
        let median = if sorted.len() % 2 == 1 { sorted[middle] } else { (sorted[middle - 1] + sorted[middle]) / 2.0 };
        (median, min, max)
    }

    pub(crate) fn csv(&self) -> String {
        let (median, min, max) = self.spread();
        let Row { experiment, case, system, workers, metric, unit, values } = self;
        let runs = values.len();
        format!("{experiment},{case},{system},{workers},{metric},{unit},{median:.3},{min:.3},{max:.3},{runs}")
    }
}

/// The CSV's first line.
pub(crate) const COLUMNS: &str = "experiment,case,system,workers,metric,unit,median,min,max,runs";
