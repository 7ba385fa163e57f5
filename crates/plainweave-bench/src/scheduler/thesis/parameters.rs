//! The parameters of an experiment as a table: its command's options, its children's flags and its
//! cases come from it.
//!
//! A case is a published combination under a name: its settings go before the defaults, and options
//! go before those. An option may be a list, and is then swept; the rows of the result name what
//! was swept or given.

use std::marker::PhantomData;

use anyhow::{Context, bail, ensure};
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};
use plainweave_sim::thesis::{Case, Parameter, Range};

/// Combinations of swept values that a case may have.
const MOST_PLANS: usize = 100;

/// Makes the parameter for how much may be under way, which [`Room`](super::room::Room) bounds.
pub(super) const fn in_flight(help: &'static str) -> Parameter {
    Parameter::count("in-flight", "0", (0, 1_000_000), help)
}

/// Says what is allowed.
fn allowed(range: Range) -> String {
    match range {
        Range::Count(least, most) => format!("from {least} to {most}"),
        Range::Decimal(least, most) => format!("from {least} to {most}, perhaps with a fraction"),
        Range::Word(words) => format!("one of {}", words.join(", ")),
    }
}

fn check(parameter: &Parameter, text: &str) -> Result<String, String> {
    let right = match parameter.range {
        Range::Count(least, most) => text.parse().is_ok_and(|n| (least..=most).contains(&n)),
        Range::Decimal(least, most) => text.parse().is_ok_and(|n| (least..=most).contains(&n)),
        Range::Word(words) => words.contains(&text),
    };
    if right {
        Ok(text.to_owned())
    } else {
        Err(allowed(parameter.range))
    }
}

/// Returns the option of a parameter.
fn arg(parameter: &'static Parameter) -> Arg {
    let Parameter {
        name,
        value,
        full,
        help,
        range,
    } = *parameter;
    let full = if full == value {
        String::new()
    } else {
        format!("; {full} with --full")
    };

    let list = if matches!(range, Range::Word(_)) {
        "WORD,.."
    } else {
        "N,.."
    };

    let help = format!("{help}: {} [default: {value}{full}]", allowed(range));
    let arg = Arg::new(name)
        .long(name)
        .value_name(list)
        .help(help)
        .help_heading("Parameters");
    arg.value_delimiter(',')
        .value_parser(move |text: &str| check(parameter, text))
}

/// The values of an experiment's parameters, and how the rows name them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Plan {
    values: Vec<(&'static str, String)>,
    pub(super) title: String,
}

impl Plan {
    /// Reads `name=value`s.
    ///
    /// # Errors
    /// One is not a parameter, or out of bounds; or one is missing.
    pub(super) fn parse(
        parameters: &'static [Parameter],
        texts: &[String],
    ) -> anyhow::Result<Self> {
        let value = |parameter: &Parameter| {
            let name = parameter.name;
            let given = texts
                .iter()
                .find_map(|text| text.strip_prefix(name)?.strip_prefix('='));
            let text = given.with_context(|| format!("no value for '{name}'"))?;
            let checked = check(parameter, text)
                .map_err(|range| anyhow::anyhow!("--{name} {text}: {range}"))?;
            Ok((name, checked))
        };

        Ok(Self {
            values: parameters
                .iter()
                .map(value)
                .collect::<anyhow::Result<_>>()?,
            title: String::new(),
        })
    }

    /// Returns them as `name=value`s.
    pub(super) fn texts(&self) -> Vec<String> {
        self.values
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect()
    }

    pub(super) fn word(&self, name: &str) -> &str {
        let found = self.values.iter().find(|(key, _)| *key == name);
        &found
            .unwrap_or_else(|| panic!("no parameter is called '{name}'"))
            .1
    }

    pub(super) fn count(&self, name: &str) -> u64 {
        self.word(name).parse().expect("checked when it was read")
    }

    pub(super) fn decimal(&self, name: &str) -> f64 {
        self.word(name).parse().expect("checked when it was read")
    }
}

/// An experiment's table, as a type: what its options are made from.
pub(crate) trait Table: Send + Sync + 'static {
    const NAME: &'static str;
    const PARAMETERS: &'static [Parameter];
}

/// The options that were given.
#[derive(Debug)]
pub(super) struct Options<T> {
    given: Vec<(&'static str, Vec<String>)>,
    table: PhantomData<T>,
}

impl<T: Table> Options<T> {
    /// Returns the plans of a case: one, or as many as there are combinations of swept values.
    ///
    /// # Errors
    /// There are too many.
    pub(super) fn plans(&self, case: &Case, full: bool) -> anyhow::Result<Vec<Plan>> {
        let mut plans = vec![Plan {
            title: case.name.to_owned(),
            ..Plan::default()
        }];
        for &Parameter {
            name,
            value,
            full: published,
            ..
        } in T::PARAMETERS
        {
            let given = self
                .given
                .iter()
                .find(|(given, _)| *given == name)
                .map(|(_, values)| values.clone());
            let named = given.is_some();
            let values = match given {
                Some(values) => values,
                None => {
                    split(
                        case.setting(name, full)
                            .unwrap_or(if full { published } else { value }),
                    )
                }
            };
            let named = named || values.len() > 1;
            let with = |plan: &Plan, value: &String| {
                let mut plan = plan.clone();
                plan.values.push((name, value.clone()));
                if named {
                    plan.title += &format!(" {name}={value}");
                }
                plan
            };
            plans = plans
                .iter()
                .flat_map(|plan| values.iter().map(move |value| with(plan, value)))
                .collect();
            let n = plans.len();
            ensure!(
                n <= MOST_PLANS,
                "--{name}: {n} combinations of values, at most {MOST_PLANS}"
            );
        }
        Ok(plans)
    }
}

fn split(values: &str) -> Vec<String> {
    values.split(',').map(str::to_owned).collect()
}

impl<T: Table> FromArgMatches for Options<T> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let given = |parameter: &Parameter| {
            let name = parameter.name;
            let said = matches.value_source(name) == Some(ValueSource::CommandLine);
            said.then(|| {
                (
                    name,
                    matches
                        .get_many::<String>(name)
                        .into_iter()
                        .flatten()
                        .cloned()
                        .collect(),
                )
            })
        };
        Ok(Self {
            given: T::PARAMETERS.iter().filter_map(given).collect(),
            table: PhantomData,
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl<T: Table> Args for Options<T> {
    fn augment_args(command: Command) -> Command {
        T::PARAMETERS
            .iter()
            .fold(command, |command, parameter| command.arg(arg(parameter)))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

/// Fails with the option and the allowed range unless a number lies between two others.
pub(super) fn within(
    option: &str,
    value: u64,
    (least, most): (u64, u64),
    why: &str,
) -> anyhow::Result<()> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    bail!("--{option} {value}: from {least} to {most}, {why}")
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Trial;

    impl Table for Trial {
        const NAME: &'static str = "trial";
        const PARAMETERS: &'static [Parameter] = &[
            Parameter::count("tasks", "10", (1, 100), "Tasks").full("50"),
            Parameter::decimal("share", "0.2", (0.0, 1.0), "A share"),
            Parameter::word("copy", &["here", "there"], "Where"),
        ];
    }

    fn plans(case: &Case, full: bool, args: &[&str]) -> anyhow::Result<Vec<(String, Vec<String>)>> {
        let command = Options::<Trial>::augment_args(Command::new("trial").no_binary_name(true));
        let options = Options::<Trial>::from_arg_matches(&command.try_get_matches_from(args)?)?;
        Ok(options
            .plans(case, full)?
            .iter()
            .map(|plan| (plan.title.clone(), plan.texts()))
            .collect())
    }

    #[test]
    fn options_go_before_cases_and_these_before_defaults() {
        let case = Case::new("text", "tasks=20 copy=there", "").full("tasks=40");
        let texts = |full, args: &[&str]| plans(&case, full, args).unwrap().remove(0);
        assert_eq!(
            texts(false, &[]),
            (
                "text".into(),
                vec!["tasks=20".into(), "share=0.2".into(), "copy=there".into()]
            )
        );
        assert_eq!(texts(true, &[]).1[0], "tasks=40");
        assert_eq!(
            texts(true, &["--tasks=7", "--copy=here"]).0,
            "text tasks=7 copy=here"
        );

        assert_eq!(
            plans(
                &Case {
                    settings: "",
                    full: "",
                    ..case
                },
                true,
                &[]
            )
            .unwrap()[0]
                .1[0],
            "tasks=50"
        );
    }

    #[test]
    fn lists_are_swept() {
        let base = Case::new("base", "", "");
        let swept = plans(&base, false, &["--tasks", "1,2", "--copy", "here,there"]).unwrap();
        let titles: Vec<_> = swept.iter().map(|(title, _)| title.as_str()).collect();
        let wanted = [
            "base tasks=1 copy=here",
            "base tasks=1 copy=there",
            "base tasks=2 copy=here",
        ];
        assert_eq!(titles[..3], wanted);
        let many = (1..=100)
            .map(|n| n.to_string())
            .collect::<Vec<_>>()
            .join(",");
        let error = plans(&base, false, &["--tasks", &many, "--copy", "here,there"])
            .unwrap_err()
            .to_string();

        assert_eq!(error, "--copy: 200 combinations of values, at most 100");
    }

    #[test]
    fn what_is_out_of_bounds_is_refused_with_option_and_range() {
        for (arg, range) in [
            ("--tasks=0", "from 1 to 100"),
            ("--tasks=1.5", "from 1 to 100"),
            ("--share=1.1", "from 0 to 1, perhaps with a fraction"),
            ("--share=NaN", "from 0 to 1, perhaps with a fraction"),
            ("--copy=nowhere", "one of here, there"),
        ] {
            let text = plans(&Case::new("base", "", ""), false, &[arg])
                .unwrap_err()
                .to_string();
            assert!(
                text.contains(range) && text.contains(arg.split('=').next().unwrap()),
                "{text}"
            );
            let error = Plan::parse(Trial::PARAMETERS, &[arg[2..].to_owned()])
                .unwrap_err()
                .to_string();
            assert!(
                error.contains(range) || error.contains("no value"),
                "{error}"
            );
        }
    }
}
