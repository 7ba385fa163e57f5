//! Which sources figures come from.

use std::process::Command;

/// Returns the commit of the working directory, 12 digits, and "with changes" if files have changed outside `results`,
/// where reports of earlier runs land. Without git or a repository it is "unknown".
#[must_use]
pub fn commit() -> String {
    let head = git(&["rev-parse", "--short=12", "HEAD"]);
    let changed =
        !git(&["status", "--porcelain", "--untracked-files=no", "--", ":/", ":(exclude,top)results"]).is_empty();
    match (head.is_empty(), changed) {
        (true, _) => "unknown".to_owned(),
        (false, false) => head,
        (false, true) => format!("{head} with changes"),
    }
}

fn git(args: &[&str]) -> String {
    let output = Command::new("git").args(args).output();
    output.map_or(String::new(), |output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
