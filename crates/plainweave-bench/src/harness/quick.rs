//! `--quick`: an answer within about five minutes, from every experiment.
//!
//! It stands for flags of the experiment: fewer cases, rounds and workloads, or shorter ones. What
//! is given beside it counts. The head of the CSV has the command as it was given, and the
//! parameters as they were.

use std::ffi::{OsStr, OsString};

/// The flag.
const FLAG: &str = "--quick";

/// What it stands for, by experiment.
const PRESETS: [(&str, &[(&str, &str)]); 27] = [
    (
        "micro",
        &[
            ("--cases", "yield,cycle,spawn-join,ping-pong,mutex,select"),
            ("--runs", "3"),
            ("--seconds", "0.1"),
        ],
    ),
    ("queues", &[("--items", "200000"), ("--runs", "2")]),
    ("echo", &[("--iterations", "20000"), ("--runs", "3")]),
    (
        "fairness",
        &[("--seconds", "0.5"), ("--runs", "1"), ("--scale", "200")],
    ),
    (
        "shapes",
        &[
            ("--connections", "64,1024"),
            ("--seconds", "0.5"),
            ("--runs", "1"),
        ],
    ),
    ("stall", &[("--requests", "20"), ("--runs", "1")]),
    (
        "compose",
        &[
            ("--packets", "10000"),
            ("--iterations", "2"),
            ("--runs", "2"),
            ("--policies", "fifo,lifo-slot,local-fifo,global-fifo"),
            ("--best", "2"),
        ],
    ),
    ("packets", &[("--iterations", "3"), ("--packets", "10000")]),
    ("cache-effects", &[("--iterations", "3")]),
    ("bimodal", &[("--iterations", "3")]),
    ("mixer", &[("--iterations", "3")]),
    ("options", &[("--iterations", "3")]),
    ("fib", &[("--iterations", "3")]),
    (
        "overload-stages",
        &[("--iterations", "2"), ("--seconds", "0.5")],
    ),
    ("creation", &[("--iterations", "3")]),
    ("storm", &[("--fibers", "10000"), ("--runs", "1")]),
    (
        "predict",
        &[("--scale", "0.2"), ("--seconds", "0.1"), ("--runs", "1")],
    ),
    (
        "cache",
        &[
            ("--cases", "64,512,64x16"),
            ("--iterations", "20000"),
            ("--runs", "3"),
        ],
    ),
    (
        "cache-sweep",
        &[
            ("--updates", "3"),
            ("--steps", "4"),
            ("--workers", "1"),
            ("--seconds", "1"),
            ("--runs", "1"),
        ],
    ),
    (
        "std-io",
        &[
            ("--cases", "cached-1,uncached-64,datagrams,children"),
            ("--runs", "3"),
        ],
    ),
    ("store", &[("--requests", "300000"), ("--runs", "1")]),
    (
        "web",
        &[
            ("--cases", "1k-64,1k-close,100k"),
            ("--seconds", "1"),
            ("--runs", "3"),
        ],
    ),
    (
        "web-sweep",
        &[
            ("--scale", "200"),
            ("--steps", "3"),
            ("--seconds", "0.5"),
            ("--runs", "1"),
        ],
    ),
    ("files", &[("--seconds", "0.5"), ("--runs", "1")]),
    ("load", &[("--seconds", "0.5"), ("--runs", "2")]),
    ("http", &[("--seconds", "1"), ("--runs", "1")]),
    ("hello", &[("--seconds", "1"), ("--runs", "3")]),
];

/// Returns the arguments with what the flag stands for in place of it; as they are, if it is not
/// among them or stands for nothing.
pub(crate) fn expand(mut args: Vec<OsString>) -> Vec<OsString> {
    let is_flag = |arg: &OsString| arg == FLAG;
    let experiment = args.iter().skip(1).find(|arg| !is_flag(arg));
    let preset = PRESETS
        .iter()
        .find(|(name, _)| experiment.is_some_and(|experiment| experiment == name));
    let (true, Some((_, flags))) = (args.iter().any(is_flag), preset) else {
        return args;
    };
    args.retain(|arg| !is_flag(arg));

    for (flag, value) in *flags {
        if !args.iter().any(|arg| gives(arg, flag)) {
            args.extend([flag, value].map(OsString::from));
        }
    }

    args
}

/// Returns whether an argument is that flag, alone or with its value.
fn gives(arg: &OsStr, flag: &str) -> bool {
    let rest = arg.to_str().and_then(|arg| arg.strip_prefix(flag));
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('='))
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::*;
    use crate::Cli;

    fn expanded(args: &str) -> Vec<String> {
        let args = args.split(' ').map(OsString::from).collect();
        let args = expand(args).into_iter();
        args.map(|arg| arg.into_string().unwrap()).collect()
    }

    #[test]
    fn what_is_given_counts() {
        assert_eq!(
            expanded("bench queues --quick --runs=7 --far").join(" "),
            "bench queues --runs=7 --far --items 200000"
        );
        assert_eq!(
            expanded("bench --quick queues --items 5 --runs 1").join(" "),
            "bench queues --items 5 --runs 1"
        );
        for args in [
            "bench queues --runs 1",
            "bench report --quick results",
            "bench",
        ] {
            assert_eq!(expanded(args).join(" "), args);
        }
    }

    #[test]
    fn every_experiment_has_a_quick_form_that_its_flags_allow() {
        let own: Vec<_> = Cli::command()
            .get_subcommands()
            .filter(|command| !command.is_hide_set())
            .map(|command| command.get_name().to_owned())
            .filter(|name| {
                !["readme", "report", "seeds", "serve", "trace-svg"].contains(&name.as_str())
            })
            .collect();
        let presets = PRESETS.map(|(name, _)| name.to_owned());
        assert!(own.iter().all(|name| presets.contains(name)), "{own:?}");

        for name in presets {
            let parsed = Cli::try_parse_from(expanded(&format!("bench {name} --quick")));
            let quick = parsed
                .unwrap_or_else(|error| panic!("{name}: {error}"))
                .quick;
            assert!(!quick, "{name}");
        }

        let other = Cli::try_parse_from(expanded("bench report --quick results"));
        assert!(
            other.is_ok_and(|cli| cli.quick),
            "it is left for `main` to refuse"
        );
    }
}
