//! What to try where a flag is none: one that is spelt almost so, or what a flag of other servers
//! and load generators is called here.

use std::ffi::OsString;

use clap::Error;
use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};

/// How alike two names are at least, from 0 to 1, where one is meant for the other. The parser's
/// own bound takes `--user` for `--tls-cert`.
const ALIKE: f64 = 0.6;

/// Flags that were the servers' own once.
const BENCH: &[&str] = &["--bench-block", "--bench-waits", "--bench-anytime-shared"];

/// Flags of others, by subcommand, and what stands here for them.
const ELSEWHERE: [(&str, &[&str], &str); 19] = [
    ("web", BENCH, "a flag of plainweave bench serve web"),
    ("cache", BENCH, "a flag of plainweave bench serve cache"),
    (
        "web",
        &[
            "-p",
            "--port",
            "-b",
            "--bind",
            "-a",
            "--addr",
            "--address",
            "--host",
        ],
        "'--listen ADDRESS:PORT'",
    ),
    (
        "web",
        &["--root", "--dir", "--directory", "-d"],
        "the directory stands by itself: 'plainweave web DIR'",
    ),
    ("web", &["--browse", "--autoindex"], "'--listing'"),
    (
        "web",
        &["--spa", "--single", "--try-files"],
        "'--fallback PATH'",
    ),
    (
        "web",
        &["--cert", "--certificate", "--ssl-certificate"],
        "'--tls-cert FILE'",
    ),
    (
        "web",
        &["--key", "--certificate-key", "--ssl-certificate-key"],
        "'--tls-key FILE'",
    ),
    ("web", &["--log", "--access_log"], "'--access-log FILE'"),
    ("web", &["-t", "--threads", "-w"], "'--workers N'"),
    (
        "web",
        &["--gzip", "--brotli"],
        "'--compress', or '--compress=gzip'",
    ),
    (
        "web",
        &["--gzip-static"],
        "'--precompressed', with files that stand beside",
    ),
    ("web", &["-c", "--conf", "--config-file"], "'--config FILE'"),
    ("load", &["-q", "--qps", "-r", "--rps"], "'--rate R'"),
    ("load", &["-z", "--time"], "'--duration TIME'"),
    ("load", &["--vus", "--concurrency"], "'--connections N'"),
    ("load", &["-t", "--threads"], "'--workers N'"),
    ("load", &["-H", "--headers"], "'--header \"NAME: VALUE\"'"),
    ("load", &["-m", "-X", "--request"], "'--method METHOD'"),
];

/// Replaces the parser's tips by better ones, or by none.
pub(crate) fn improve(error: &mut Error, arguments: impl IntoIterator<Item = OsString>) {
    if error.kind() != ErrorKind::UnknownArgument {
        return;
    }
    let Some(ContextValue::String(given)) = error.get(ContextKind::InvalidArg) else {
        return;
    };
    let given = given.clone();

    // That it could be a name of a file or of a server is of no help.
    error.remove(ContextKind::Suggested);
    if let Some(ContextValue::String(close)) = error.get(ContextKind::SuggestedArg)
        && !is_meant(&given, close)
    {
        error.remove(ContextKind::SuggestedArg);
    }

    let command = arguments.into_iter().nth(1).unwrap_or_default();
    let known = ELSEWHERE
        .iter()
        .find(|(of, flags, _)| command == **of && flags.contains(&&*given));
    if let Some((_, _, here)) = known {
        error.remove(ContextKind::SuggestedArg);
        let tip = StyledStr::from(format!("here that is {here}"));
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip]));
    }
}

fn is_meant(given: &str, close: &str) -> bool {
    close.starts_with(given) || strsim::normalized_damerau_levenshtein(given, close) >= ALIKE
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::*;
    use crate::arguments::Arguments;

    fn said(line: &str) -> String {
        let arguments: Vec<_> = line.split(' ').map(OsString::from).collect();
        let mut error = Arguments::try_parse_from(&arguments).expect_err("there is no such flag");
        improve(&mut error, arguments);
        error.to_string()
    }

    #[test]
    fn tips_lead_to_what_was_meant() {
        for (line, tip) in [
            ("plainweave web --lisen", "'--listen'"),
            ("plainweave web --conections 5", "'--max-connections'"),
            (
                "plainweave web --port 80",
                "tip: here that is '--listen ADDRESS:PORT'",
            ),
            ("plainweave web -p 80", "'--listen ADDRESS:PORT'"),
            ("plainweave web --root=/srv", "'plainweave web DIR'"),
            ("plainweave load http --qps=3 http://h/", "'--rate R'"),
            ("plainweave load cache -t 3 h", "'--workers N'"),
            (
                "plainweave cache --bench-block 1s/3",
                "plainweave bench serve cache",
            ),
        ] {
            let said = said(line);
            assert!(
                said.contains(tip) && said.matches("tip:").count() == 1,
                "{line}: {said}"
            );
        }

        for line in [
            "plainweave web --group www",
            "plainweave web --foo",
            "plainweave web -Q",
            "plainweave cache --port-file x",
        ] {
            let said = said(line);
            assert!(!said.contains("tip:"), "{line}: {said}");
        }
    }

    /// No tip is for a flag that there is, and none names one that there is not.
    #[test]
    fn tips_fit_the_flags() {
        for (name, flags, here) in ELSEWHERE {
            let mut command = Arguments::command();
            let mut command = command.find_subcommand_mut(name).expect("a subcommand");
            if name == "load" {
                command = command.find_subcommand_mut("http").expect("a subcommand");
            }
            command.build();
            let all: Vec<_> = command
                .get_arguments()
                .flat_map(|argument| {
                    let long = argument.get_long().map(|long| format!("--{long}"));
                    let short = argument.get_short().map(|short| format!("-{short}"));
                    long.into_iter().chain(short)
                })
                .collect();
            let named = here.trim_start_matches('\'').split([' ', '\'']).next();
            let named = named.filter(|named| named.starts_with("--"));

            assert!(
                named.is_none_or(|named| all.iter().any(|flag| flag == named)),
                "{here}"
            );
            assert!(
                !flags
                    .iter()
                    .any(|flag| all.iter().any(|there| there == flag)),
                "{flags:?}"
            );
        }
    }
}
