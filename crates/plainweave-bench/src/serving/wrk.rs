//! wrk, the closed loop: all paths in turn, one or several sets of header fields.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::Duration;

use anyhow::{Context, ensure};

use super::closed::Load;
use super::site::Site;
use crate::harness::report;

pub(crate) fn version() -> String {
    let output = Command::new("wrk").arg("-v").output();
    let text = output.map_or("not installed".to_owned(), |o| {
        String::from_utf8_lossy(&o.stdout).into_owned()
    });
    text.lines()
        .next()
        .unwrap_or_default()
        .split('[')
        .next()
        .unwrap_or_default()
        .trim()
        .to_owned()
}

/// Writes the script: requests are made before the load and sent as they are. Few paths come with
/// each set of fields, many with one of them.
pub(crate) fn script(site: &Site, name: &str, load: &Load) -> anyhow::Result<PathBuf> {
    let close = if load.close {
        "[\"Connection\"] = \"close\", "
    } else {
        ""
    };

    let mut text = "local sets = {\n".to_owned();
    for fields in load.heads {
        let fields = fields
            .iter()
            .map(|(name, value)| format!("[{name:?}] = {value:?}"));
        let fields = fields.collect::<Vec<_>>().join(", ");
        let _ = writeln!(
            text,
            "  {{ [\"Host\"] = \"www.example.com\", {close}{fields} }},"
        );
    }

    text += "}\nlocal paths = {\n";
    for &n in &load.catalog.order {
        let _ = writeln!(text, "  {:?},", load.catalog.items[n].path);
    }
    text += "}\n\
        local requests, last = {}, 0\n\
        init = function(args)\n\
        \x20 local count = #paths\n\
        \x20 if count <= 1000 then count = count * #sets end\n\
        \x20 for i = 0, count - 1 do\n\
        \x20   local set = sets[(i + math.floor(i / #paths)) % #sets + 1]\n\
        \x20   requests[i + 1] = wrk.format('GET', paths[i % #paths + 1], set)\n\
        \x20 end\n\
        end\n\
        request = function()\n\
        \x20 last = last % #requests + 1\n\
        \x20 return requests[last]\n\
        end\n";
    let path = site.dir().join(format!("{name}.lua"));
    std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;

    Ok(path)
}

/// Returns the command: one thread, on the CPU of the caller.
pub(crate) fn command(url: &str, connections: usize, length: Duration) -> Command {
    let mut command = Command::new("wrk");
    command.args([
        "-t1",
        &format!("-c{connections}"),
        &format!("-d{}", length.as_secs().max(1)),
        "--timeout",
        "10",
    ]);
    command.arg(url);
    command
}

/// Runs it to its end, and gives its requests. Errors are those of [`requests`].
pub(crate) fn run(command: &mut Command) -> anyhow::Result<f64> {
    requests(&command.output().context("cannot run wrk")?)
}

/// Returns how many requests a run came to. Wrong answers are an error; requests without an answer
/// are reported.
pub(crate) fn requests(output: &Output) -> anyhow::Result<f64> {
    let text = String::from_utf8_lossy(&output.stdout);
    ensure!(
        output.status.success(),
        "wrk: {}{text}",
        String::from_utf8_lossy(&output.stderr)
    );
    ensure!(!text.contains("Non-2xx"), "wrk saw errors: {text}");
    if let Some(line) = text.lines().find(|line| line.contains("Socket errors")) {
        report::note(&format!("warning: wrk: {}", line.trim()));
    }
    let line = text.lines().find(|line| line.contains(" requests in "));
    let number = line.and_then(|line| line.split_whitespace().next()?.parse().ok());

    number.with_context(|| format!("wrk said nothing of its requests: {text}"))
}
