//! `plainweave policies`: the scheduling policies, where they come from, and what their parameters
//! are.

use std::io::stdout;

use anyhow::bail;
use plainweave::policy::{Choice, Conservation, PRESETS, Preset};
use serde_json::{Value, json};

use plainweave_daemon::console::say;

/// Width of the longest column's text.
const WIDTH: usize = 100;

/// List the scheduling policies that --policy knows
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  plainweave policies\n  plainweave policies fifo\n  \
                        plainweave web --policy lifo-slot\n  plainweave web --policy fifo:capacity=64,victim=near:2"
)]
pub(crate) struct Flags {
    /// Show this one with its parameters
    #[arg(value_name = "NAME")]
    name: Option<String>,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Prints all, or one with its parameters.
pub(crate) fn run(flags: &Flags) -> anyhow::Result<()> {
    let chosen = match &flags.name {
        None => PRESETS.iter().collect(),
        Some(name) => match Choice::parse(name) {
            Ok(choice) => vec![choice.preset()],
            Err(message) => bail!("{message}"),
        },
    };

    if flags.json {
        let all: Vec<_> = chosen.into_iter().map(as_json).collect();
        say(stdout(), &serde_json::to_string_pretty(&all)?);
    } else if flags.name.is_some() {
        chosen.into_iter().for_each(show);
    } else {
        table(&chosen);
    }

    Ok(())
}

fn table(presets: &[&Preset]) {
    let name = presets
        .iter()
        .map(|preset| preset.name.len())
        .max()
        .unwrap_or(0);
    for preset in presets {
        let head = format!("{:name$}  {}", preset.name, preset.tradeoff);
        lines(&head, name + 2);
        lines(&format!("{:name$}  from {}", "", preset.source), name + 2);
        let promises = format!("{}; {}", waits(preset), idle_workers(preset).1);
        lines(
            &format!("{:name$}  is {}; {promises}", "", family(preset)),
            name + 2,
        );
    }

    say(
        stdout(),
        "\nNAME:param=value,... changes a policy; `plainweave policies NAME` shows its parameters.",
    );
}

fn waits(preset: &Preset) -> &'static str {
    if preset.bounded {
        "waits are bounded"
    } else {
        "waits are not bounded"
    }
}

/// What it promises to workers without work: its name in JSON, and in words.
fn idle_workers(preset: &Preset) -> (&'static str, &'static str) {
    match Choice::parse(preset.name).map(|choice| choice.conservation()) {
        Ok(Conservation::Always) => ("always", "no worker sleeps beside work"),
        Ok(Conservation::AfterSearches) => (
            "after-searches",
            "no worker sleeps beside work but between two searches",
        ),
        Ok(Conservation::Never) | Err(_) => ("never", "workers may sleep beside others' work"),
    }
}

fn family(preset: &Preset) -> String {
    let with = if preset.settings.is_empty() {
        ""
    } else {
        " with "
    };

    // With room to break the line.
    format!(
        "{}{with}{}",
        preset.family,
        preset.settings.replace(',', ", ")
    )
}

fn show(preset: &Preset) {
    for (what, text) in [
        ("name", preset.name),
        ("is", &family(preset)),
        ("from", preset.source),
        ("trade-off", preset.tradeoff),
        ("bound", waits(preset)),
        ("idle", idle_workers(preset).1),
    ] {
        lines(&format!("{what:<10} {text}"), 11);
    }

    say(
        stdout(),
        if preset.keys().is_empty() {
            "no parameters"
        } else {
            "parameters"
        },
    );
    for key in preset.keys() {
        lines(&format!("  {}={}", key.name, key.values), 6);
        lines(&format!("      {}", key.what), 6);
    }
}

/// Prints a text in lines of at most [`WIDTH`], all but the first indented.
fn lines(text: &str, indent: usize) {
    let start = text.len() - text.trim_start().len();
    let mut line = " ".repeat(start);
    for word in text[start..].split_inclusive(' ') {
        if line.len() + word.trim_end().len() > WIDTH && line.len() > indent {
            say(stdout(), line.trim_end());
            line = " ".repeat(indent);
        }
        line.push_str(word);
    }

    say(stdout(), line.trim_end());
}

fn as_json(preset: &Preset) -> Value {
    let keys = preset
        .keys()
        .iter()
        .map(|key| json!({"name": key.name, "values": key.values, "what": key.what}));
    json!({
        "name": preset.name,
        "family": preset.family.as_str(),
        "settings": preset.settings,
        "source": preset.source,
        "tradeoff": preset.tradeoff,
        "bounded": preset.bounded,
        "conservation": idle_workers(preset).0,
        "parameters": keys.collect::<Vec<_>>(),
    })
}
