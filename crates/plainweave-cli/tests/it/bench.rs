//! `plainweave bench` finds the program that measures, or builds it.

use crate::common::child;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

/// Makes this program appear in a folder.
fn program(folder: &Path) -> PathBuf {
    fs::create_dir_all(folder).unwrap();
    let own = env!("CARGO_BIN_EXE_plainweave");
    let program = folder.join("plainweave");

    // Without a copy where one file system will do: a file that was just written may be busy.
    if fs::hard_link(own, &program).is_err() {
        fs::copy(own, &program).unwrap();
    }
    program
}

fn script(path: &Path, text: &str) {
    fs::write(path, format!("#!/bin/sh\n{text}\n")).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

fn bench(program: &Path, cargo: &Path) -> (Option<i32>, String, String) {
    beside(program, cargo, &["bench", "micro", "--quick"])
}

fn beside(program: &Path, cargo: &Path, args: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::new(program);
    command
        .args(args)
        .env("CARGO", cargo)
        .env("PATH", "/usr/bin:/bin");
    let output = child::output(&mut command).unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();

    (
        output.status.code(),
        text(output.stdout),
        text(output.stderr),
    )
}

/// One test: a script that is written while another thread makes a process may be busy.
#[test]
fn the_program_that_measures_is_found_or_built() {
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join("bench");
    let _ = fs::remove_dir_all(&place);
    let cargo = place.join("cargo");

    // Installed without its neighbour, then with it. Nothing is built.
    let installed = program(&place.join("bin"));
    script(&cargo, "echo built; exit 1");
    let (code, out, error) = bench(&installed, &cargo);
    assert_eq!((code, out.as_str()), (Some(1), ""));
    assert!(
        error.contains("cargo install --profile dist --path crates/plainweave-bench"),
        "{error}"
    );
    script(&place.join("bin/plainweave-bench"), "echo \"measures: $*\"");
    let (code, out, error) = bench(&installed, &cargo);

    assert_eq!(
        (code, out.as_str()),
        (Some(0), "measures: micro --quick\n"),
        "{error}"
    );
    // The simulator is found in the same way; its flags are its own.
    script(&place.join("bin/plainweave-sim"), "echo \"simulates: $*\"");
    let (code, out, error) = beside(&installed, &cargo, &["sim", "--workers", "2", "--help"]);
    assert_eq!(
        (code, out.as_str()),
        (Some(0), "simulates: --workers 2 --help\n"),
        "{error}"
    );

    // In the sources: it is built by the same profile, into the same folder.
    for (folder, profile) in [("debug", "dev"), ("release", "release")] {
        let target = place.join(format!("target-{folder}"));
        let built = program(&target.join(folder));
        fs::write(target.join("CACHEDIR.TAG"), "").unwrap();
        script(&cargo, "echo \"cargo $*\"; exit 101");
        let (code, out, error) = bench(&built, &cargo);
        assert!(
            code == Some(1) && error.contains("could not be built"),
            "{error}"
        );
        let expected =
            format!("cargo build --package plainweave-bench --profile {profile} --manifest-path ");
        let ending = format!("/Cargo.toml --target-dir {}\n", target.display());

        assert!(
            out.starts_with(&expected) && out.ends_with(&ending),
            "{out}"
        );
        let neighbour = target.join(folder).join("plainweave-bench");
        script(
            &cargo,
            &format!(
                "printf '#!/bin/sh\\necho fresh' > {0}; chmod +x {0}",
                neighbour.display()
            ),
        );
        let (_, out, error) = bench(&built, &cargo);
        assert_eq!(out, "fresh\n");
        assert!(
            error.starts_with("plainweave: builds plainweave-bench first"),
            "{error}"
        );

        // It is newer than its sources now, and older again.
        script(&cargo, "echo built");
        assert_eq!(
            bench(&built, &cargo),
            (Some(0), "fresh\n".into(), String::new())
        );
        let old = fs::File::options().write(true).open(&neighbour).unwrap();
        old.set_modified(SystemTime::UNIX_EPOCH).unwrap();
        drop(old);
        assert_eq!(bench(&built, &cargo).1, "built\nfresh\n");

        // A machine without cargo has what was copied there.
        assert_eq!(bench(&built, Path::new("/no/such/cargo")).1, "fresh\n");
    }
}
