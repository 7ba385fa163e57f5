//! Settings of the file and of the environment become arguments.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::ops::Range;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::builder::ValueParser;
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Args, Command};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::config::{Mistake, Tables, beside, nearest};
use crate::flags::Flags;

/// The name of the subcommand, behind which the settings stand.
pub(super) const SUBCOMMAND: &str = "web";
/// What the names of variables begin with.
const PREFIX: &str = "PLAINWEAVE_WEB_";
/// Flags that are no settings: they say where these are, or what to do with them.
const NO_SETTINGS: [&str; 7] = [
    "config",
    "check",
    "doctor",
    "print-config",
    "print-schema",
    "help",
    "version",
];

/// Where a setting's value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    Default,
    /// At this line.
    File(usize),
    /// By the variable of this name.
    Environment(String),
    CommandLine,
}

/// All settings as arguments, and where they come from.
#[derive(Debug)]
pub(crate) struct Gathered {
    /// What stands behind the subcommand's name: of the file, of the environment, as given.
    pub(super) arguments: Vec<OsString>,
    /// By the settings' names, for those that are set.
    pub(super) origins: BTreeMap<String, Origin>,
    /// Those of the file and of the environment, by their names.
    settings: BTreeMap<String, Vec<OsString>>,
    /// The file, and its text.
    pub(super) file: Option<(PathBuf, String)>,
}

/// A setting of the file or the environment.
struct Setting {
    name: String,
    arguments: Vec<OsString>,
    origin: Origin,
}

impl Gathered {
    /// Gathers what is given behind the subcommand's name and what stands elsewhere.
    pub(super) fn of(given: &[OsString]) -> anyhow::Result<Self> {
        let command = command();
        // What is wrong with them, and --help, the parser says when it gets all of it.
        let lenient = command.clone().ignore_errors(true);
        let Ok(matches) = lenient.try_get_matches_from(given) else {
            return Ok(Self::given(given));
        };

        let from_variables = variables(&command, std::env::vars_os())?;
        let variable = std::env::var_os(format!("{PREFIX}CONFIG"));
        let variable = variable.filter(|path| !path.is_empty());
        let file = match matches.get_one::<PathBuf>("config") {
            Some(path) => Some(path.clone()),
            None => variable.map(PathBuf::from),
        };

        let file = file.map(|path| read(&path).map(|text| (path, text)));
        let file = file.transpose()?;
        let from_file = match &file {
            Some((path, text)) => settings(&command, path, text)?,
            None => Vec::new(),
        };

        let mut gathered = Self::given(given);
        gathered.file = file;
        gathered.note_given(&command, &matches);
        for layer in [from_variables, from_file] {
            gathered.put_below(layer);
        }

        Ok(gathered)
    }

    fn given(given: &[OsString]) -> Self {
        Self {
            arguments: given.to_vec(),
            origins: BTreeMap::new(),
            settings: BTreeMap::new(),
            file: None,
        }
    }

    /// Adds settings where nothing says so far what they are, nor the contrary.
    fn put_below(&mut self, layer: Vec<Setting>) {
        let above: BTreeSet<_> = self.origins.keys().cloned().collect();
        let is_said = |name: &str| above.contains(name) || above.contains(&counterpart(name));
        // The last to be put in front is the first of all: the order among them does not matter.
        for setting in layer {
            if is_said(&setting.name) {
                continue;
            }
            let arguments = setting.arguments;
            self.arguments.splice(0..0, arguments.clone());
            self.settings.insert(setting.name.clone(), arguments);
            self.origins.insert(setting.name, setting.origin);
        }
    }

    /// Notes which settings the command line has.
    fn note_given(&mut self, command: &Command, matches: &ArgMatches) {
        for argument in command.get_arguments() {
            let id = argument.get_id().as_str();
            if matches.value_source(id) == Some(ValueSource::CommandLine) {
                self.origins.insert(name(argument), Origin::CommandLine);
            }
        }
    }

    /// Returns the tables of the file; none without one.
    pub(crate) fn tables(&self) -> anyhow::Result<Tables> {
        match &self.file {
            Some((path, text)) => Ok(Tables::of(path, text)?),
            None => Ok(Tables::default()),
        }
    }

    /// Returns whether anything says what this setting is.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.origins.contains_key(name)
    }

    /// Returns the names of the settings that are others now.
    pub(crate) fn changed<'g>(&'g self, now: &'g Self) -> impl Iterator<Item = &'g str> {
        let names = self.settings.keys().chain(now.settings.keys());
        names
            .filter(|name| self.settings.get(*name) != now.settings.get(*name))
            .map(String::as_str)
    }

    /// Returns the file and its text.
    pub(crate) fn file(&self) -> Option<(&Path, &str)> {
        let (path, text) = self.file.as_ref()?;
        Some((path, text))
    }
}

/// Returns the parser of the flags alone, without a program's name in front.
pub(super) fn command() -> Command {
    Flags::augment_args(Command::new(SUBCOMMAND)).no_binary_name(true)
}

/// Returns the name of the flag that says the contrary, whether there is one or not.
fn counterpart(name: &str) -> String {
    match name.strip_prefix("no-") {
        Some(name) => name.to_owned(),
        None => format!("no-{name}"),
    }
}

fn read(path: &Path) -> anyhow::Result<String> {
    let shown = path.display();
    let is_other = std::fs::metadata(path).is_ok_and(|found| !found.is_file());
    if is_other {
        bail!("--config {shown} is no regular file, which HUP could read again");
    }

    let bytes = std::fs::read(path).with_context(|| format!("--config {shown} cannot be read"))?;
    String::from_utf8(bytes).with_context(|| format!("--config {shown} is not UTF-8"))
}

/// Returns a flag's name; the directory has one, too.
pub(super) fn name(argument: &Arg) -> String {
    let long = argument.get_long();
    long.unwrap_or(argument.get_id().as_str()).to_owned()
}

/// Returns the settings, by their names.
pub(super) fn all(command: &Command) -> impl Iterator<Item = (String, &Arg)> {
    command
        .get_arguments()
        .map(|argument| (name(argument), argument))
        .filter(|(name, _)| !NO_SETTINGS.contains(&name.as_str()))
}

/// Finds out whether the settings of a file's text can be read.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn read_text(file: &Path, text: &str) -> anyhow::Result<()> {
    static COMMAND: std::sync::LazyLock<Command> = std::sync::LazyLock::new(command);
    settings(&COMMAND, file, text).map(drop)
}

/// Reads the settings of a file.
fn settings(command: &Command, path: &Path, text: &str) -> anyhow::Result<Vec<Setting>> {
    let read = || -> Result<Vec<Setting>, Mistake> {
        let top = DeTable::parse(text)?;
        let tables = |key: &str| Tables::KEYS.contains(&key);
        let keys = top.get_ref().iter();
        keys.filter(|(key, _)| !tables(key.get_ref()))
            .map(|(key, value)| {
                let origin = Origin::File(1 + text[..key.span().start].matches('\n').count());
                let argument = known(command, key.get_ref(), key.span())?;
                let arguments = of_value(command, argument, value, path)?;
                checked(command, &arguments).map_err(|what| Mistake::new(value.span(), what))?;
                Ok(Setting {
                    name: name(argument),
                    arguments,
                    origin,
                })
            })
            .collect()
    };

    Ok(read().map_err(|at| at.of(path, text))?)
}

/// Returns the flag of this name.
fn known<'c>(command: &'c Command, key: &str, span: Range<usize>) -> Result<&'c Arg, Mistake> {
    if let Some((_, argument)) = all(command).find(|(name, _)| name == key) {
        return Ok(argument);
    }

    let names: Vec<_> = all(command).map(|(name, _)| name).collect();
    let names = names.iter().map(String::as_str).chain(Tables::KEYS);
    Err(Mistake::new(
        span,
        match nearest(key, names) {
            Some(near) => format!("unknown key `{key}`; is `{near}` meant?"),
            None => format!("unknown key `{key}`; plainweave web --print-config lists them"),
        },
    ))
}

/// Returns a value of the file as arguments.
fn of_value(
    command: &Command,
    argument: &Arg,
    value: &Spanned<DeValue<'_>>,
    path: &Path,
) -> Result<Vec<OsString>, Mistake> {
    let is_list = matches!(argument.get_action(), ArgAction::Append);
    let wrong = |what: String| Mistake::new(value.span(), what);
    let name = name(argument);
    match (argument.get_action(), value.get_ref()) {
        (ArgAction::SetTrue, DeValue::Boolean(false)) => Ok(against(command, &name)),
        (ArgAction::SetTrue, DeValue::Boolean(true)) => Ok(switch(&name, true)),
        (ArgAction::SetTrue, _) => Err(wrong(format!("write {name} = true, or false"))),
        // One whose value may be left out.
        (_, DeValue::Boolean(on)) if takes_nothing(argument) => Ok(switch(&name, *on)),
        (_, DeValue::Array(values)) if is_list => {
            let texts = values.iter().map(|value| scalar(argument, value, path));
            texts.collect()
        }

        (_, DeValue::Array(_)) => Err(wrong(format!("{name} takes one value, not a list"))),
        _ => Ok(vec![scalar(argument, value, path)?]),
    }
}

/// Returns a value as one argument.
fn scalar(argument: &Arg, value: &Spanned<DeValue<'_>>, path: &Path) -> Result<OsString, Mistake> {
    let text = match value.get_ref() {
        DeValue::String(text) => text.to_string(),
        DeValue::Integer(number) if number.radix() == 10 => number.as_str().to_owned(),
        DeValue::Float(number) => number.as_str().to_owned(),
        other => {
            let what = format!(
                "{} takes a string, not {}",
                name(argument),
                other.type_str()
            );
            return Err(Mistake::new(value.span(), what));
        }
    };

    let text = match is_path(argument, text.as_ref()) {
        true => beside(path, Path::new(&text)).into_os_string(),
        false => text.into(),
    };

    Ok(written(argument, &text))
}

/// Returns whether a value is a path; `-` is standard output.
pub(super) fn is_path(argument: &Arg, value: &OsStr) -> bool {
    let is_of_paths = argument.get_value_parser().type_id() == ValueParser::path_buf().type_id();
    is_of_paths && value != "-"
}

/// Returns a value as the command line has it.
fn written(argument: &Arg, value: &OsStr) -> OsString {
    if argument.is_positional() {
        // So that it is not taken for a flag.
        return Path::new(".").join(value).into_os_string();
    }

    let mut written = OsString::from(format!("--{}=", name(argument)));
    written.push(value);
    written
}

fn switch(name: &str, on: bool) -> Vec<OsString> {
    match on {
        true => vec![format!("--{name}").into()],
        false => Vec::new(),
    }
}

/// Returns what says that a switch is off: a flag for that, or nothing.
fn against(command: &Command, name: &str) -> Vec<OsString> {
    let contrary = counterpart(name);
    let exists = all(command).any(|(name, _)| name == contrary);
    switch(&contrary, exists)
}

/// Returns whether a flag's value may be left out.
pub(super) fn takes_nothing(argument: &Arg) -> bool {
    argument
        .get_num_args()
        .is_some_and(|range| range.min_values() == 0)
}

/// Has the flag's own parser look at one setting. What it needs beside it is looked at when all are
/// there.
fn checked(command: &Command, arguments: &[OsString]) -> Result<(), String> {
    let Err(error) = command.clone().try_get_matches_from(arguments) else {
        return Ok(());
    };

    match error.kind() {
        ErrorKind::MissingRequiredArgument | ErrorKind::ArgumentConflict => Ok(()),
        _ => Err(first_line(&error)),
    }
}

/// Returns what is wrong, without the help that follows.
pub(super) fn first_line(error: &clap::Error) -> String {
    let text = error.to_string();
    let first = text.lines().next().unwrap_or_default();
    first.trim_start_matches("error: ").to_owned()
}

/// Reads the settings of the environment.
fn variables(
    command: &Command,
    variables: impl Iterator<Item = (OsString, OsString)>,
) -> anyhow::Result<Vec<Setting>> {
    let mut settings = Vec::new();
    for (variable, value) in variables {
        let Some(name) = variable.to_str().and_then(|name| name.strip_prefix(PREFIX)) else {
            continue;
        };

        let name = name.to_lowercase().replace('_', "-");
        let mut all = all(command).map(|(name, argument)| (name, Some(argument)));
        let argument = match name.as_str() {
            // Empty: as if it did not stand there.
            "config" if value.is_empty() => continue,
            "config" => None,
            name => match all.find(|(known, _)| known == name) {
                Some((_, argument)) => argument,
                None => bail!("{}: no setting has this name", variable.display()),
            },
        };

        let arguments = match argument {
            None => {
                let mut written = OsString::from("--config=");
                written.push(&value);
                vec![written]
            }
            Some(argument) => of_text(command, argument, &value)
                .and_then(|arguments| checked(command, &arguments).map(|()| arguments))
                .map_err(anyhow::Error::msg)
                .with_context(|| variable.display().to_string())?,
        };

        settings.push(Setting {
            name,
            arguments,
            origin: Origin::Environment(variable.display().to_string()),
        });
    }

    Ok(settings)
}

/// Returns a variable's value as arguments; those of a list have commas between them.
fn of_text(command: &Command, argument: &Arg, value: &OsStr) -> Result<Vec<OsString>, String> {
    let text = value.to_str();
    let switched = match text {
        Some("1" | "true" | "yes" | "on") => Some(true),
        Some("0" | "false" | "no" | "off" | "") => Some(false),
        _ => None,
    };

    match argument.get_action() {
        ArgAction::SetTrue => match switched {
            Some(true) => Ok(switch(&name(argument), true)),
            Some(false) => Ok(against(command, &name(argument))),
            None => Err("write true or false".to_owned()),
        },
        ArgAction::Append => {
            let parts = text.ok_or("not UTF-8")?.split(',');
            Ok(parts.map(|part| written(argument, part.as_ref())).collect())
        }

        _ => match switched.filter(|_| takes_nothing(argument)) {
            Some(on) => Ok(switch(&name(argument), on)),
            None => Ok(vec![written(argument, value)]),
        },
    }
}
