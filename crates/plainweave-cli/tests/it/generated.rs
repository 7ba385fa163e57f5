//! What is made of the flags for an installation: manual pages, completions.

use std::fs;
use std::process::Command;

use crate::common::child;
use crate::common::scratch::Scratch;
use crate::common::skip::skip;

fn output(args: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plainweave"));
    let done = child::output(command.args(args)).unwrap();
    let text = [done.stdout, done.stderr].concat();
    (done.status.code(), String::from_utf8(text).unwrap())
}

#[test]
fn every_subcommand_has_a_page() {
    let scratch = Scratch::new();
    let directory = scratch.path("man/man1");
    let (code, said) = output(&["generate", "manual", &directory]);
    assert_eq!(code, Some(0), "{said}");
    let page = |name: &str| fs::read_to_string(format!("{directory}/{name}.1")).expect(name);
    for name in [
        "web",
        "cache",
        "load",
        "load-http",
        "policies",
        "sim",
        "bench",
    ] {
        let page = page(&format!("plainweave-{name}"));
        assert!(page.contains(".SH SYNOPSIS"), "{page}");
    }
    let cache = page("plainweave-cache");
    assert!(cache.contains("\\-\\-replace") && cache.contains("MEMCACHED_PORT_FILENAME"));
    assert!(page("plainweave").contains("plainweave\\-web(1)"));

    let (code, said) = output(&["generate", "manual", "/proc/none"]);
    assert_eq!(code, Some(1));
    assert!(said.contains("cannot write to /proc/none"), "{said}");
}

#[test]
fn shells_complete_flags() {
    for shell in ["bash", "zsh", "fish"] {
        let (code, script) = output(&["generate", "completions", shell]);
        assert_eq!(code, Some(0), "{script}");
        assert!(
            script.contains("tls-listen") && script.contains("auth-file"),
            "{shell}"
        );
    }
    let (_, script) = output(&["generate", "completions", "bash"]);
    let ask = format!(
        "{script}\nCOMP_WORDS=(plainweave cache --rep) COMP_CWORD=2\n\
         _plainweave plainweave --rep cache\n\
         echo \"${{COMPREPLY[@]}}\""
    );
    let Ok(done) = child::output(Command::new("bash").args(["-c", &ask])) else {
        return skip("there is no bash");
    };
    let offered = String::from_utf8_lossy(&done.stdout);
    assert!(
        offered.contains("--replace") && offered.contains("--report-stalls"),
        "{offered}"
    );

    let (code, said) = output(&["generate", "completions", "tcsh"]);
    assert!(
        code == Some(2) && said.contains("possible values"),
        "{said}"
    );
}
