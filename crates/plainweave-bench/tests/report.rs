//! `plainweave-bench report` on small results, good and bad.

use std::path::{Path, PathBuf};
use std::process::Command;

const COLUMNS: &str = "experiment,case,system,workers,metric,unit,median,q1,q3,min,max,runs\n";

fn report(folder: &Path) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plainweave-bench"));
    let output = command.arg("report").arg(folder).output().unwrap();
    (output.status.code(), String::from_utf8([output.stdout, output.stderr].concat()).unwrap())
}

/// An empty folder of results with runs.
fn folder(name: &str, runs: &[&str]) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&dir);
    runs.iter().for_each(|run| std::fs::create_dir_all(dir.join(run)).unwrap());
    dir
}

fn rows(ours: f64, theirs: f64) -> String {
    let row =
        |system: &str, value: f64| format!("web,1k,{system},1,p99_us,us,{value},{value},{value},{value},{value},5\n");
    format!("# host: lab\n# commit: abc\n# command: web --runs 5\n{COLUMNS}")
        + &row("plainweave", ours)
        + &row("nginx", theirs)
}

#[test]
fn a_page_for_each_run_and_one_for_all() {
    let dir = folder("report-good", &["2026-01-01-lab", "2026-01-02-lab"]);
    std::fs::write(dir.join("2026-01-01-lab/web.csv"), rows(5.0, 10.0)).unwrap();
    std::fs::write(dir.join("2026-01-01-lab/load.csv"), "metric,unit,value\nrequests,1,5\n").unwrap();
    std::fs::write(dir.join("2026-01-02-lab/web.csv"), rows(30.0, 10.0)).unwrap();
    let (code, said) = report(&dir);
    assert_eq!(code, Some(0), "{said}");
    let read = |file: &str| std::fs::read_to_string(dir.join(file)).unwrap();
    let (first, second, all) =
        (read("2026-01-01-lab/index.html"), read("2026-01-02-lab/index.html"), read("index.html"));
    assert!(first.contains("2\u{d7} better") && first.contains("plainweave bench web --runs 5"), "{first}");
    assert!(second.contains("3\u{d7} worse") && second.contains("abc"), "{second}");
    // The newest of each name.
    assert!(
        all.contains("3\u{d7} worse") && !all.contains("2\u{d7} better") && all.contains("2026-01-01-lab"),
        "{all}"
    );
    for page in [&first, &second, &all] {
        assert!(!page.contains("<script") && !page.contains("http://") || page.contains("w3.org/2000/svg"), "{page}");
        assert!(page.contains("prefers-color-scheme:dark") && page.contains("width=device-width"), "{page}");
    }
    let readme = read("2026-01-02-lab/README.md");
    assert!(readme.contains("worse in 1") && readme.lines().all(|line| line.chars().count() <= 120), "{readme}");
    // A run's folder alone, and again over what is there.
    assert_eq!(report(&dir.join("2026-01-01-lab")).0, Some(0));
}

#[test]
fn bad_files_are_named_and_the_others_shown() {
    let dir = folder("report-bad", &["run"]);
    let run = dir.join("run");
    std::fs::write(run.join("good.csv"), rows(5.0, 10.0)).unwrap();
    std::fs::write(run.join("cut.csv"), &rows(5.0, 10.0)[..120]).unwrap();
    std::fs::write(run.join("empty.csv"), COLUMNS).unwrap();
    std::fs::write(run.join("strange.csv"), "name,colour\nx,red\n").unwrap();
    std::fs::write(run.join("binary.csv"), [0xff, 0xfe, 0x00]).unwrap();
    std::fs::write(run.join("README.md"), "my own words\n").unwrap();
    let (code, said) = report(&run);
    assert_eq!(code, Some(1), "{said}");
    for part in
        ["cut.csv: skipped: line", "empty.csv: skipped: it has no rows", "unknown column 'name'", "binary.csv: skipped"]
    {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert!(said.contains("README.md: kept") && !said.contains("good.csv"), "{said}");
    assert!(std::fs::read_to_string(run.join("index.html")).unwrap().contains("2\u{d7} better"));
    assert_eq!(std::fs::read_to_string(run.join("README.md")).unwrap(), "my own words\n");
}

#[test]
fn a_folder_without_results_is_an_error() {
    let dir = folder("report-none", &["run"]);
    let (code, said) = report(&dir);
    assert!(code == Some(1) && said.contains("no results in") && said.contains("report-none"), "{said}");
    let (code, said) = report(&dir.join("absent"));
    assert!(code == Some(1) && said.contains("cannot read") && said.contains("absent"), "{said}");
}
