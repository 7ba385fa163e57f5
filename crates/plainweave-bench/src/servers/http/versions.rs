//! Versions of the peers and of the load generators, for the head of the results.

use std::process::Command;

use crate::serving::nginx;
use crate::serving::wrk;

/// What this program was built from.
const LOCK: &str = include_str!("../../../../../Cargo.lock");

pub(super) fn all() -> Vec<(&'static str, String)> {
    let crates = [
        "hyper",
        "tokio",
        "may_minihttp",
        "may",
        "tungstenite",
        "rustls",
    ];
    let crates = crates
        .map(|name| format!("{name} {}", of_crate(name)))
        .join(", ");
    vec![
        ("crates", crates),
        ("nginx", nginx::version()),
        ("Go", first_line("go", &["version"])),
        ("GHC", first_line("ghc", &["--version"])),
        ("wrk", wrk::version()),
        ("h2load", first_line("h2load", &["--version"])),
    ]
}

/// Returns the version that `Cargo.lock` has, the last one if there are several.
fn of_crate(name: &str) -> &'static str {
    let entry = format!("name = \"{name}\"\nversion = \"");
    LOCK.rsplit(&*entry)
        .next()
        .and_then(|rest| rest.split('"').next())
        .unwrap_or_default()
}

fn first_line(program: &str, arguments: &[&str]) -> String {
    // Go's usual place is not in everybody's PATH.
    let path = format!(
        "{}:/usr/local/go/bin",
        std::env::var("PATH").unwrap_or_default()
    );
    let output = Command::new(program)
        .args(arguments)
        .env("PATH", path)
        .output();
    let text = output.map_or(String::new(), |output| {
        String::from_utf8_lossy(&output.stdout).into_owned()
    });
    text.lines()
        .next()
        .map_or("not installed".to_owned(), str::to_owned)
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_crate_has_a_version() {
        for name in ["hyper", "may_minihttp", "tungstenite", "rustls"] {
            let version = super::of_crate(name);
            assert!(
                version.split('.').count() == 3
                    && version.starts_with(|c: char| c.is_ascii_digit()),
                "{version}"
            );
        }
    }
}
