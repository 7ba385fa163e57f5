//! The benchmark `cache`, its case `tls`, tiny.

use std::path::PathBuf;

use crate::tiny::rows;

/// Its client checks certificate and values.
#[test]
fn every_value_comes_over_tls() {
    let args = ["--runs", "2", "--iterations", "300", "--cases", "tls"];
    let program = PathBuf::from(env!("CARGO_BIN_EXE_plainweave-bench"));
    if !program.with_file_name("plainweave").exists() {
        return; // As in `tiny::cache`.
    }
    let rows = rows("cache", &args);
    for case in ["tls", "tls-10000", "tls-x16"] {
        for system in ["plainweave epoll", "plainweave epoll again"] {
            let found = rows
                .iter()
                .find(|row| row[1] == case && row[2] == system && row[4] == "cpu_us_per_request");
            let cost: f64 = found.expect(case)[6].parse().unwrap();
            assert!(cost > 0.0, "{rows:?}");
        }
    }
}
