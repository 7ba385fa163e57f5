//! Embeds the commit that the program is built from and the profile that it is built with, so that
//! figures name both wherever it runs.

use std::path::Path;
use std::process::Command;

fn main() {
    let head = git(&["rev-parse", "--short=12", "HEAD"]);
    // Where reports of earlier runs land, nothing that figures depend on.
    let changed = git(&["status", "--porcelain", "--", ":/", ":(exclude,top)results"]);
    let commit = match (head.as_deref(), changed.as_deref()) {
        (Some(head), Some("")) => head.to_owned(),
        (Some(head), _) => format!("{head} with changes"),
        _ => "unknown".to_owned(),
    };

    println!("cargo:rustc-env=PLAINWEAVE_COMMIT={commit}");
    println!("cargo:rustc-env=PLAINWEAVE_PROFILE={}", profile());
    println!("cargo:rerun-if-changed=../../crates");
    println!("cargo:rerun-if-changed=../../Cargo.lock");

    // Of a linked work tree, too.
    for path in ["HEAD", "logs/HEAD", "index"] {
        if let Some(path) = git(&["rev-parse", "--path-format=absolute", "--git-path", path]) {
            println!("cargo:rerun-if-changed={path}");
        }
    }
}

/// Returns what git answers; `None` without it, or outside a repository.
fn git(args: &[&str]) -> Option<String> {
    let output = Command::new("git").args(args).output().ok()?;
    output
        .status
        .success()
        .then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Returns the folder of the profile. (The variable PROFILE says "release" for all that inherit
/// from it; this script's folder is `<profile>/build/<package>/out`.)
fn profile() -> String {
    let folder = std::env::var_os("OUT_DIR").expect("cargo sets it");
    let profile = Path::new(&folder).ancestors().nth(3);
    let name = profile
        .and_then(Path::file_name)
        .expect("below the target's folder");
    name.to_string_lossy().into_owned()
}
