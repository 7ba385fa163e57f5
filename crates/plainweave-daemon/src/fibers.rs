//! Dumps of a server's fibers: on standard error after SIGQUIT, and at the admin address.

use std::fmt::Write;
use std::sync::Weak;
use std::time::Duration;

use plainweave::Dump;
use plainweave::dump::Options;
use plainweave_http::header::CONTENT_TYPE;
use plainweave_http::{HeaderValue, Response, StatusCode};

use crate::architecture::Runtimes;

/// How long a dump with stacks takes at most.
const LIMIT: Duration = Duration::from_secs(5);

/// The pages of the admin address that list fibers.
pub struct FiberPages {
    runtimes: Weak<Runtimes>,
}

impl FiberPages {
    /// Answers for these runtimes.
    pub fn new(runtimes: Weak<Runtimes>) -> Self {
        Self { runtimes }
    }

    /// Returns a page, if it is one of these. `here`: only this machine can have asked.
    pub fn answer(&self, path: &str, query: Option<&str>, here: bool) -> Option<Response> {
        let json = match path {
            "/fibers" => false,
            "/fibers.json" => true,
            _ => return None,
        };

        let stacks = query.is_some_and(|query| query.split('&').any(|part| part == "stacks=1"));
        if stacks && !here {
            let why = "stacks tell of the program's memory, and leave it only where --admin is a loopback address: ask \
                       http://127.0.0.1 or http://localhost\n";
            return Some(Response::text(StatusCode::FORBIDDEN, why));
        }

        let hide = |dump: Dump| if here { dump } else { dump.without_addresses() };
        let (kind, text) = if json {
            ("application/json", self::json(&self.runtimes, stacks, hide))
        } else {
            (
                "text/plain; charset=utf-8",
                self::text(&self.runtimes, stacks, hide),
            )
        };

        Some(Response::ok(text).with_header(CONTENT_TYPE, HeaderValue::from_static(kind)))
    }
}

/// Dumps each runtime, by its role.
fn dumps(runtimes: &Weak<Runtimes>, stacks: bool) -> Vec<(String, Dump)> {
    let Some(runtimes) = runtimes.upgrade() else {
        return Vec::new();
    };
    let options = if stacks {
        Options::new().stacks(true).limit(LIMIT)
    } else {
        Options::new()
    };

    let named = |name: String| {
        if name.is_empty() {
            "main".to_owned()
        } else {
            name.trim_end_matches(':').to_owned()
        }
    };

    runtimes
        .named()
        .map(|(name, runtime)| (named(name), runtime.dump_with(&options)))
        .collect()
}

/// Returns the dumps of all runtimes as text.
pub fn text(runtimes: &Weak<Runtimes>, stacks: bool, hide: impl Fn(Dump) -> Dump) -> String {
    let mut text = String::new();
    for (name, dump) in dumps(runtimes, stacks) {
        let _ = write!(text, "runtime {name}: {}", hide(dump));
    }
    text
}

fn json(runtimes: &Weak<Runtimes>, stacks: bool, hide: impl Fn(Dump) -> Dump) -> String {
    let each = dumps(runtimes, stacks).into_iter();
    let each: Vec<_> = each
        .map(|(name, dump)| format!("{{\"name\":\"{name}\",\"dump\":{}}}", hide(dump).json()))
        .collect();
    format!("{{\"runtimes\":[{}]}}\n", each.join(","))
}
