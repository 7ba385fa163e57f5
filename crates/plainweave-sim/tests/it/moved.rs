//! The simulator's figures at sizes that take no time, for each file of simulated results that a
//! page cites. A run repeats bit for bit, so what fails here is no chance: the model has changed,
//! and with it the figures of the pages.
//!
//! `PLAINWEAVE_MOVED=1` writes the new figures. The files of the table below are then to be made
//! again by the command in their heads, and the pages to be brought up to date.

use std::path::Path;
use std::process::Command;

/// A kept file and its page, and what makes a small one of it.
const CITED: [(&str, &str, &str); 12] = [
    (
        "sim-packets.csv",
        "docs/simulator.md",
        "packets ot-fifo-base,ot-lifo-base 2,7 --size 400 --idle spin --cost look=700",
    ),
    (
        "sim-delay-spin.csv",
        "docs/simulator.md",
        "delay-spin ot-fifo-base,ot-lifo-base 2,7 --size 400 --idle spin --cost look=700",
    ),
    (
        "sim-spawners.csv",
        "docs/simulator.md",
        "spawners ot-fifo-base,ot-lifo-base 2,7 --size 400 --idle spin --cost look=700",
    ),
    (
        "sim-steals.csv",
        "docs/simulator.md",
        "packets ot-fifo-base,ot-lifo-base 12 --size 400 --idle spin --cost look=700",
    ),
    (
        "sim-nearest.csv",
        "docs/simulator.md",
        "packets ot-fifo-base:victim=only:3,ot-lifo-base:victim=only:3 12 --size 400 --idle spin --cost look=700",
    ),
    (
        "sim-bimodal.csv",
        "docs/simulator.md",
        "bimodal ot-fifo,ot-lifo 4 --size 200",
    ),
    (
        "sim-staged.csv",
        "docs/simulator.md",
        "bimodal ot-fifo,ot-lifo 4 --size 200 --param pools=staged",
    ),
    (
        "sim-options.csv",
        "published.html",
        "options ot-fifo-base,ot-lifo-base 4 --size 20 --cost node=26",
    ),
    (
        "sim-fib.csv",
        "docs/simulator.md",
        "fib ot-fifo-base,ot-lifo-base 4 --size 10 --idle spin --cost look=700",
    ),
    (
        "sim-10m.csv",
        "published.html",
        "10m ot-fifo-base,ot-lifo-base 7 --size 400 --idle spin --cost look=700",
    ),
    (
        "sim-mixer-staged.csv",
        "docs/simulator.md",
        "mixer ot-fifo 5 --case staged --size 5 --idle spin",
    ),
    (
        "sim-mixer.csv",
        "docs/simulator.md",
        "mixer ot-fifo,ot-lifo 4 --size 5",
    ),
];

/// What stands in a CSV without its head, where host and date are.
fn rows(arguments: &str) -> String {
    let words: Vec<&str> = arguments.split(' ').collect();
    let [workload, policies, workers, rest @ ..] = &words[..] else {
        panic!("{arguments}")
    };
    let mut command = Command::new(env!("CARGO_BIN_EXE_plainweave-sim"));
    match *workload {
        "delay-spin" | "spawners" | "10m" => command.args(["--case", workload]),
        _ => command.args(["--workload", workload]),
    };

    policies
        .split(',')
        .for_each(|policy| _ = command.args(["--policy", policy]));
    let output = command
        .args(["--workers", workers, "--runs", "2", "--csv"])
        .args(rest)
        .output()
        .expect("run");
    assert!(
        output.status.success(),
        "{arguments}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let text = String::from_utf8(output.stdout).expect("text");

    text.lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| format!("{line}\n"))
        .collect()
}

#[test]
fn figures_that_pages_cite_have_not_moved() {
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/moved");
    let write = std::env::var_os("PLAINWEAVE_MOVED").is_some();
    let mut moved = Vec::new();

    for (file, page, arguments) in CITED {
        let now = rows(arguments);
        let path = kept.join(file);
        assert!(now.lines().count() > 2, "{file}: {now}");
        if write {
            std::fs::create_dir_all(&kept).expect("a folder");
            std::fs::write(&path, &now).expect("written");
        }

        if std::fs::read_to_string(&path).unwrap_or_default() != now {
            moved.push(format!("{file}, cited by {page}"));
        }
    }

    assert!(
        moved.is_empty(),
        "the model has changed, and these figures with it: {}",
        moved.join("; ")
    );
}
