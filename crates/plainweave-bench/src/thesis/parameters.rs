//! The parameters of an experiment as a table: its command's options, its children's flags and its cases come from it.
//!
//! A case is a published combination under a name: its settings go before the defaults, and options go before those. An
//! option may be a list, and is then swept; the rows of the result name what was swept or given.

use std::marker::PhantomData;

use anyhow::{Context, bail, ensure};
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};

/// Combinations of swept values that a case may have.
const MOST_PLANS: usize = 100;

/// A parameter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Key {
    name: &'static str,
    kind: Kind,
    /// By default: one that ends within minutes on two processors.
    value: &'static str,
    /// The published one.
    full: &'static str,
    help: &'static str,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Count(u64, u64),
    Decimal(f64, f64),
    Word(&'static [&'static str]),
}

/// Makes a parameter that is a number, within bounds.
pub(super) const fn count(
    name: &'static str,
    value: &'static str,
    (least, most): (u64, u64),
    help: &'static str,
) -> Key {
    Key { name, kind: Kind::Count(least, most), value, full: value, help }
}

/// Makes the parameter for how much may be under way, which [`Room`](super::room::Room) bounds.
pub(super) const fn in_flight(help: &'static str) -> Key {
    count("in-flight", "0", (0, 1_000_000), help)
}

/// Makes a parameter that may have a fraction.
pub(super) const fn decimal(
    name: &'static str,
    value: &'static str,
    (least, most): (f64, f64),
    help: &'static str,
) -> Key {
    Key { name, kind: Kind::Decimal(least, most), value, full: value, help }
}

/// Makes a parameter that is one of these words; the first is the default.
pub(super) const fn word(name: &'static str, words: &'static [&'static str], help: &'static str) -> Key {
    Key { name, kind: Kind::Word(words), value: words[0], full: words[0], help }
}

impl Key {
    /// The published value, where the default is smaller.
    pub(super) const fn full(self, value: &'static str) -> Self {
        Self { full: value, ..self }
    }

    /// Says what is allowed.
    fn range(&self) -> String {
        match self.kind {
            Kind::Count(least, most) => format!("from {least} to {most}"),
            Kind::Decimal(least, most) => format!("from {least} to {most}, perhaps with a fraction"),
            Kind::Word(words) => format!("one of {}", words.join(", ")),
        }
    }

    fn check(&self, text: &str) -> Result<String, String> {
        let right = match self.kind {
            Kind::Count(least, most) => text.parse().is_ok_and(|n| (least..=most).contains(&n)),
            Kind::Decimal(least, most) => text.parse().is_ok_and(|n| (least..=most).contains(&n)),
            Kind::Word(words) => words.contains(&text),
        };
        if right { Ok(text.to_owned()) } else { Err(self.range()) }
    }

    fn arg(&'static self) -> Arg {
        let Key { name, value, full, help, .. } = *self;
        let full = if full == value { String::new() } else { format!("; {full} with --full") };
        let list = if matches!(self.kind, Kind::Word(_)) { "WORD,.." } else { "N,.." };
        let help = format!("{help}: {} [default: {value}{full}]", self.range());
        let arg = Arg::new(name).long(name).value_name(list).help(help).help_heading("Parameters");
        arg.value_delimiter(',').value_parser(move |text: &str| self.check(text))
    }
}

/// A combination that has a name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Case {
    pub(super) name: &'static str,
    pub(super) summary: &'static str,
    /// How it differs from the defaults: `name=value`, with spaces between.
    settings: &'static str,
    /// How it differs from them in the published size, besides.
    full: &'static str,
    /// Policies that are measured unless others are named; none: those of the experiment.
    pub(super) policies: &'static [&'static str],
}

/// Makes a case.
pub(super) const fn case(name: &'static str, settings: &'static str, summary: &'static str) -> Case {
    Case { name, summary, settings, full: "", policies: &[] }
}

impl Case {
    pub(super) const fn full(self, settings: &'static str) -> Self {
        Self { full: settings, ..self }
    }

    pub(super) const fn policies(self, policies: &'static [&'static str]) -> Self {
        Self { policies, ..self }
    }
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
    pub(super) fn parse(keys: &'static [Key], texts: &[String]) -> anyhow::Result<Self> {
        let value = |key: &Key| {
            let given = texts.iter().find_map(|text| text.strip_prefix(key.name)?.strip_prefix('='));
            let text = given.with_context(|| format!("no value for '{}'", key.name))?;
            let checked = key.check(text).map_err(|range| anyhow::anyhow!("--{} {text}: {range}", key.name))?;
            Ok((key.name, checked))
        };
        Ok(Self { values: keys.iter().map(value).collect::<anyhow::Result<_>>()?, title: String::new() })
    }

    /// Returns them as `name=value`s.
    pub(super) fn texts(&self) -> Vec<String> {
        self.values.iter().map(|(name, value)| format!("{name}={value}")).collect()
    }

    pub(super) fn word(&self, name: &str) -> &str {
        let found = self.values.iter().find(|(key, _)| *key == name);
        &found.unwrap_or_else(|| panic!("no parameter is called '{name}'")).1
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
    const KEYS: &'static [Key];
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
        let mut plans = vec![Plan { title: case.name.to_owned(), ..Plan::default() }];
        for key in T::KEYS {
            let given = self.given.iter().find(|(name, _)| *name == key.name).map(|(_, values)| values.clone());
            let named = given.is_some();
            let values = match given {
                Some(values) => values,
                None => split(case.setting(key.name, full).unwrap_or(if full { key.full } else { key.value })),
            };
            let named = named || values.len() > 1;
            let with = |plan: &Plan, value: &String| {
                let mut plan = plan.clone();
                plan.values.push((key.name, value.clone()));
                if named {
                    plan.title += &format!(" {}={value}", key.name);
                }
                plan
            };
            plans = plans.iter().flat_map(|plan| values.iter().map(move |value| with(plan, value))).collect();
            let (n, name) = (plans.len(), key.name);
            ensure!(n <= MOST_PLANS, "--{name}: {n} combinations of values, at most {MOST_PLANS}");
        }
        Ok(plans)
    }
}

impl Case {
    fn setting(&self, name: &str, full: bool) -> Option<&'static str> {
        let of = |settings: &'static str| {
            settings.split(' ').find_map(|setting| setting.strip_prefix(name)?.strip_prefix('='))
        };
        full.then(|| of(self.full)).flatten().or_else(|| of(self.settings))
    }
}

fn split(values: &str) -> Vec<String> {
    values.split(',').map(str::to_owned).collect()
}

impl<T: Table> FromArgMatches for Options<T> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let given = |key: &Key| {
            let said = matches.value_source(key.name) == Some(ValueSource::CommandLine);
            said.then(|| (key.name, matches.get_many::<String>(key.name).into_iter().flatten().cloned().collect()))
        };
        Ok(Self { given: T::KEYS.iter().filter_map(given).collect(), table: PhantomData })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl<T: Table> Args for Options<T> {
    fn augment_args(command: Command) -> Command {
        T::KEYS.iter().fold(command, |command, key| command.arg(key.arg()))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

/// Fails with the option and the allowed range unless a number lies between two others.
pub(super) fn within(option: &str, value: u64, (least, most): (u64, u64), why: &str) -> anyhow::Result<()> {
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
        const KEYS: &'static [Key] = &[
            count("tasks", "10", (1, 100), "Tasks").full("50"),
            decimal("share", "0.2", (0.0, 1.0), "A share"),
            word("copy", &["here", "there"], "Where"),
        ];
    }

    fn plans(case: &Case, full: bool, args: &[&str]) -> anyhow::Result<Vec<(String, Vec<String>)>> {
        let command = Options::<Trial>::augment_args(Command::new("trial").no_binary_name(true));
        let options = Options::<Trial>::from_arg_matches(&command.try_get_matches_from(args)?)?;
        Ok(options.plans(case, full)?.iter().map(|plan| (plan.title.clone(), plan.texts())).collect())
    }

    #[test]
    fn options_go_before_cases_and_these_before_defaults() {
        let case = case("text", "tasks=20 copy=there", "").full("tasks=40");
        let texts = |full, args: &[&str]| plans(&case, full, args).unwrap().remove(0);
        assert_eq!(
            texts(false, &[]),
            ("text".into(), vec!["tasks=20".into(), "share=0.2".into(), "copy=there".into()])
        );
        assert_eq!(texts(true, &[]).1[0], "tasks=40");
        assert_eq!(texts(true, &["--tasks=7", "--copy=here"]).0, "text tasks=7 copy=here");
        assert_eq!(plans(&Case { settings: "", full: "", ..case }, true, &[]).unwrap()[0].1[0], "tasks=50");
    }

    #[test]
    fn lists_are_swept() {
        let base = case("base", "", "");
        let swept = plans(&base, false, &["--tasks", "1,2", "--copy", "here,there"]).unwrap();
        let titles: Vec<_> = swept.iter().map(|(title, _)| title.as_str()).collect();
        let wanted = ["base tasks=1 copy=here", "base tasks=1 copy=there", "base tasks=2 copy=here"];
        assert_eq!(titles[..3], wanted);
        let many = (1..=100).map(|n| n.to_string()).collect::<Vec<_>>().join(",");
        let error = plans(&base, false, &["--tasks", &many, "--copy", "here,there"]).unwrap_err().to_string();
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
            let text = plans(&case("base", "", ""), false, &[arg]).unwrap_err().to_string();
            assert!(text.contains(range) && text.contains(arg.split('=').next().unwrap()), "{text}");
            let error = Plan::parse(Trial::KEYS, &[arg[2..].to_owned()]).unwrap_err().to_string();
            assert!(error.contains(range) || error.contains("no value"), "{error}");
        }
    }
}
