//! One measured figure, and the rows of the long-form CSV.

use plainweave_report::statistics::Spread;

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

/// The CSV's first line. (Results from before quartiles lack `q1` and `q3`: go by the names.)
pub(crate) const COLUMNS: &str =
    "experiment,case,system,workers,metric,unit,median,q1,q3,min,max,runs";
