//! The benchmark `std-io`, tiny.

use crate::tiny::{rows, run};

/// Readers look at the blocks, and peers at the datagrams.
#[test]
fn every_system_reads_and_answers() {
    let cases = "cached-1,cached-16,uncached-1,uncached-64,direct-1,direct-64,datagrams,children,\
                 look-alike";
    let args = [
        "--runs",
        "2",
        "--blocks",
        "300",
        "--datagrams",
        "300",
        "--children",
        "20",
        "--cases",
        cases,
    ];
    let rows = rows("std-io", &args);
    let has = |case: &str, system: &str, metric: &str| {
        rows.iter().any(|row| {
            (&*row[1], &*row[2], &*row[4]) == (case, system, metric)
                && row[6].parse::<f64>().unwrap() > 0.0
        })
    };
    for case in cases.split(',') {
        // Not every file system has O_DIRECT.
        if case.starts_with("direct") && !rows.iter().any(|row| row[1] == case) {
            continue;
        }
        let systems: &[_] = match case {
            "look-alike" => &["again"],
            "children" => &["plainweave", "plainweave-epoll", "again", "limit"],
            "datagrams" => &[
                "plainweave",
                "plainweave-epoll",
                "plainweave-many",
                "tokio",
                "thread",
                "limit",
            ],
            _ => &[
                "plainweave",
                "plainweave-epoll",
                "tokio",
                "threads",
                "limit",
            ],
        };
        for system in systems {
            assert!(
                has(case, system, "ratio_to_limit"),
                "{case} {system}: {rows:?}"
            );
        }
    }
    let (code, text) = run(&["std-io", "--cases", "nonsense"]);
    assert!(code == Some(1) && text.contains("uncached-64"), "{text}");
}
