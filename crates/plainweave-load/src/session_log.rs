//! Session logs: what one client asks for, visit by visit.
//!
//! The format is that of httperf's `--wsesslog` (D. Mosberger, T. Jin, 1998), of which this reads
//! the path, `method=` and `think=`: a line a request, a blank line between sessions, comments
//! behind `#`. A line may be indented, as httperf marks a page's embedded files. `think=S` is the
//! pause in seconds between the answer and the session's next request.

use std::time::Duration;

use anyhow::{Context, bail, ensure};

/// One request of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Visit {
    pub(super) path: String,
    /// The request's method, if not the load's own.
    pub(super) method: Option<String>,
    /// Before the session's next request.
    pub(super) think: Duration,
}

/// Longest pause.
const LONGEST: f64 = 86_400.0;

/// Reads the sessions of a log, none of them empty.
///
/// # Errors
/// Names the line and what is wrong with it.
pub(super) fn parse(name: &str, text: &str) -> anyhow::Result<Vec<Vec<Visit>>> {
    let mut sessions = Vec::new();
    let mut session = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let content = line.split('#').next().unwrap_or_default().trim();
        if !content.is_empty() {
            session.push(visit(content).with_context(|| format!("{name}:{}: {line}", number + 1))?);
        } else if !line.trim_start().starts_with('#') && !session.is_empty() {
            sessions.push(std::mem::take(&mut session));
        }
    }

    sessions.extend(Some(session).filter(|session| !session.is_empty()));
    ensure!(!sessions.is_empty(), "{name} has no session");
    Ok(sessions)
}

fn visit(line: &str) -> anyhow::Result<Visit> {
    let mut words = line.split_ascii_whitespace();
    let path = words.next().unwrap_or_default().to_owned();
    ensure!(
        path.starts_with('/'),
        "a request begins with its path, as in /index.html"
    );
    let mut visit = Visit {
        path,
        method: None,
        think: Duration::ZERO,
    };

    for word in words {
        match word.split_once('=') {
            Some(("think", seconds)) => {
                let seconds = seconds
                    .parse::<f64>()
                    .ok()
                    .filter(|seconds| (0.0..=LONGEST).contains(seconds));
                let wrong = || format!("{word}: write seconds, 0 to {LONGEST}, as in think=0.25");
                visit.think = Duration::from_secs_f64(seconds.with_context(wrong)?);
            }
            Some(("method", method)) => visit.method = Some(method.to_owned()),
            _ => bail!("{word}: only think=SECONDS and method=NAME are allowed after a path"),
        }
    }

    Ok(visit)
}

/// Writes a session, and the blank line behind it. Files of a page are indented behind its first.
pub(super) fn write(out: &mut String, session: &[(bool, Visit)]) {
    for (
        embedded,
        Visit {
            path,
            method,
            think,
        },
    ) in session
    {
        let method = method
            .as_ref()
            .map_or(String::new(), |method| format!(" method={method}"));
        let think = if think.is_zero() {
            String::new()
        } else {
            format!(" think={:.3}", think.as_secs_f64())
        };

        out.push_str(&format!(
            "{}{path}{method}{think}\n",
            if *embedded { "  " } else { "" }
        ));
    }
    out.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn simple(path: &str, millis: u64) -> Visit {
        Visit {
            path: path.to_owned(),
            method: None,
            think: Duration::from_millis(millis),
        }
    }

    #[test]
    fn sessions_are_read() {
        let text =
            "# made by hand\n\n/a think=0.25\n  /b.png\n# between\n/c method=POST # why\n\n\n/d\n";
        let mut third = simple("/c", 0);
        third.method = Some("POST".to_owned());
        let expected = [
            vec![simple("/a", 250), simple("/b.png", 0), third],
            vec![simple("/d", 0)],
        ];
        assert_eq!(parse("log", text).unwrap(), expected);
    }

    #[test]
    fn what_is_written_is_read() {
        let session = [(false, simple("/a?b", 1500)), (true, simple("/c", 0))];
        let mut text = String::new();
        write(&mut text, &session);
        assert_eq!(text, "/a?b think=1.500\n  /c\n\n");
        assert_eq!(
            parse("log", &text).unwrap(),
            [session.map(|(_, visit)| visit)]
        );
    }

    #[test]
    fn faults_name_their_line() {
        for (text, said) in [
            ("", "log has no session"),
            ("# nothing\n", "log has no session"),
            ("/a\nb\n", "log:2: b: a request begins with its path"),
            ("/a think=x\n", "log:1: /a think=x: think=x: write seconds"),
            ("/a think=-1\n", "write seconds"),
            ("\n/a size=3\n", "log:2: /a size=3: size=3: only think="),
        ] {
            let error = format!("{:#}", parse("log", text).unwrap_err());
            assert!(error.contains(said), "{text:?}: {error}");
        }
    }
}
