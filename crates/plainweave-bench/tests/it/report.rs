//! `plainweave-bench report` on small results, good and bad.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::tiny::run;

const COLUMNS: &str = "experiment,case,system,workers,metric,unit,median,q1,q3,min,max,runs\n";

fn report(folder: &Path) -> (Option<i32>, String) {
    run(&["report", &folder.display().to_string()])
}

/// An empty folder of results with runs.
fn folder(name: &str, runs: &[&str]) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&dir);
    runs.iter()
        .for_each(|run| std::fs::create_dir_all(dir.join(run)).unwrap());
    dir
}

fn rows(ours: f64, theirs: f64) -> String {
    let row = |system: &str, value: f64| {
        format!("web,1k,{system},1,p99_us,us,{value},{value},{value},{value},{value},5\n")
    };
    format!("# host: lab\n# commit: abc\n# command: web --runs 5\n{COLUMNS}")
        + &row("plainweave", ours)
        + &row("nginx", theirs)
}

#[test]
fn a_page_for_each_run_and_one_for_all() {
    let dir = folder("report-good", &["2026-01-01-lab", "2026-01-02-lab"]);
    std::fs::write(dir.join("2026-01-01-lab/web.csv"), rows(5.0, 10.0)).unwrap();
    std::fs::write(
        dir.join("2026-01-01-lab/load.csv"),
        "metric,unit,value\nrequests,1,5\n",
    )
    .unwrap();
    std::fs::write(dir.join("2026-01-02-lab/web.csv"), rows(30.0, 10.0)).unwrap();
    let (code, said) = report(&dir);

    assert_eq!(code, Some(0), "{said}");
    let read = |file: &str| std::fs::read_to_string(dir.join(file)).unwrap();
    let first = read("2026-01-01-lab/index.html");
    let second = read("2026-01-02-lab/index.html");
    let all = read("index.html");

    assert!(
        first.contains("2\u{d7} better") && first.contains("plainweave bench web --runs 5"),
        "{first}"
    );
    assert!(
        second.contains("3\u{d7} worse") && second.contains("abc"),
        "{second}"
    );
    // The newest of each name.
    assert!(
        all.contains("3\u{d7} worse")
            && !all.contains("2\u{d7} better")
            && all.contains("2026-01-01-lab"),
        "{all}"
    );

    for page in [&first, &second, &all] {
        assert!(
            !page.contains("<script") && !page.contains("http://")
                || page.contains("w3.org/2000/svg"),
            "{page}"
        );
        assert!(
            page.contains("prefers-color-scheme:dark") && page.contains("width=device-width"),
            "{page}"
        );
    }

    let readme = read("2026-01-02-lab/README.md");
    assert!(
        readme.contains("worse in 1") && readme.lines().all(|line| line.chars().count() <= 120),
        "{readme}"
    );
    // A run's folder alone, and again over what is there.
    assert_eq!(report(&dir.join("2026-01-01-lab")).0, Some(0));
}

/// What `plainweave sim --csv` writes: lines over workers, marked as simulated, without a link to a
/// page of its own.
#[test]
fn simulated_figures_are_shown_as_such() {
    let dir = folder("report-simulated", &["run"]);
    let row = |policy: &str, workers: u32, rate: u32| {
        let spread = format!("{rate},{rate},{rate},{rate},{rate},1");
        format!(
            "sim,\"open on epyc at 50 %, cost group=40\",\"simulated {policy}\",{workers},throughput,1/s,{spread}\n"
        )
    };

    let rows: String = ["fifo", "lifo"]
        .iter()
        .flat_map(|p| [2, 8, 64].map(|n| row(p, n, n * 100)))
        .collect();
    let head = "# command: plainweave sim --workers 2,8,64 --csv\n# simulated: every figure; seeds from 1\n";
    std::fs::write(
        dir.join("run/sim-open.csv"),
        format!("{head}{COLUMNS}{rows}"),
    )
    .unwrap();

    // What somebody has written there is kept, which is no failure.
    std::fs::write(dir.join("run/README.md"), "my own words\n").unwrap();
    let (code, said) = report(&dir.join("run"));
    assert_eq!(code, Some(0), "{said}");
    let page = std::fs::read_to_string(dir.join("run/index.html")).unwrap();

    for part in [
        "<b>Simulated</b>: every figure; seeds from 1.",
        "<code>plainweave sim --workers 2,8,64 --csv</code></figcaption>",
        "open on epyc at 50 %, cost group=40",
        "simulated lifo",
        "sim-open.csv",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }

    assert!(
        !page.contains("sim-open.html") && page.matches("<svg").count() == 1,
        "{page}"
    );
}

/// Writes rows of `packets`, of the case `base`: throughputs and p99s by order and workers.
fn packets() -> String {
    let rows = [
        ("fifo", 1, 4e5, 90e3),
        ("lifo", 1, 2e5, 80e3),
        ("fifo", 2, 6e5, 50e3),
        ("lifo", 2, 8e5, 40e3),
    ];
    let row = |(order, workers, rate, p99): (&str, usize, f64, f64)| {
        let system = format!("plainweave ot-{order}-base before-start/shared");
        let line = |metric: &str, unit: &str, v: f64| {
            format!("packets,base,{system},{workers},{metric},{unit},{v},{v},{v},{v},{v},5\n")
        };
        line("throughput", "1/s", rate) + &line("p99_us", "us", p99)
    };

    let head = "# commit: abc\n# command: plainweave bench packets\n# case: base: packets=50000 spawners=1\n";
    format!("{head}{COLUMNS}{}", rows.map(row).concat())
}

#[test]
fn published_figures_stand_beside_ours() {
    let dir = folder("report-published", &["2026-01-01-lab", "2026-01-02-lab"]);
    std::fs::write(dir.join("2026-01-01-lab/packets.csv"), packets()).unwrap();
    std::fs::write(dir.join("2026-01-02-lab/web.csv"), rows(5.0, 10.0)).unwrap();
    assert_eq!(report(&dir).0, Some(0));
    let read = |file: &str| std::fs::read_to_string(dir.join(file)).unwrap();
    let index = read("index.html");
    let page = read("published.html");

    assert!(
        index.contains("<a href='published.html'>")
            && index.contains("holding here: 0, not holding: 1,"),
        "{index}"
    );

    for part in [
        "<td>FIFO</td><td>5 domains</td><td class='even'>0.33 M/s</td>",
        ">0.4 M/s<br><small>base: ot-fifo-base",
        "<span class='bad'>does not hold</span> <small>with 1 worker: LIFO 0.2 M/s, FIFO 0.4 M/s",
        "<span class='good'>holds</span> <small>with 2 workers: LIFO 0.8 M/s, FIFO 0.6 M/s",
        "left to the simulator",
        "href='2026-01-01-lab/index.html#packets'",
        "base: packets=50000 spawners=1",
        "prefers-color-scheme:dark",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }

    let fib = page.split("id='fib'").nth(1).unwrap();
    assert!(
        fib.contains("349 ms") && fib.contains("not measured"),
        "{fib}"
    );
    // A run has a page of its own if it has one of the workloads.
    assert!(read("2026-01-01-lab/published.html").contains("href='index.html#packets'"));
    assert!(read("2026-01-01-lab/index.html").contains("<a href='published.html'>"));
    assert!(!dir.join("2026-01-02-lab/published.html").exists());
}

/// What the benchmarks write has the names that the page looks for.
#[test]
fn measured_rows_find_their_published_lines() {
    let dir = folder("report-measured", &["run"]);
    let run = dir.join("run");
    let fib = [
        "fib",
        "--systems",
        "plainweave",
        "--workers",
        "1",
        "--iterations",
        "2",
    ];

    let queues = [
        "queues", "--cases", "thesis", "--items", "1000", "--runs", "1", "--far",
    ];
    for args in [&fib[..], &queues] {
        let output = Command::new(env!("CARGO_BIN_EXE_plainweave-bench"))
            .args(args)
            .arg("--out")
            .arg(&run)
            .output();
        assert!(
            output.as_ref().is_ok_and(|output| output.status.success()),
            "{output:?}"
        );
    }

    let (code, said) = report(&run);
    assert_eq!(code, Some(0), "{said}");
    let page = std::fs::read_to_string(run.join("published.html")).unwrap();
    let section = |id: &str| {
        page.split("<section ")
            .find(|part| part.starts_with(&format!("id='{id}'")))
            .unwrap()
    };

    for (id, workers) in [("fib", "1 worker"), ("queues--thesis", "2 workers")] {
        let section = section(id);
        assert!(
            section.contains(&format!("ours, {workers}")) && !section.contains("not measured"),
            "{section}"
        );
    }
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
    for part in [
        "cut.csv: skipped: line",
        "empty.csv: skipped: it has no rows",
        "unknown column 'name'",
        "binary.csv: skipped",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }

    assert!(
        said.contains("README.md: kept") && !said.contains("good.csv"),
        "{said}"
    );
    assert!(
        std::fs::read_to_string(run.join("index.html"))
            .unwrap()
            .contains("2\u{d7} better")
    );
    assert_eq!(
        std::fs::read_to_string(run.join("README.md")).unwrap(),
        "my own words\n"
    );
}

#[test]
fn a_folder_without_results_is_an_error() {
    let dir = folder("report-none", &["run"]);
    let (code, said) = report(&dir);
    assert!(
        code == Some(1) && said.contains("no results in") && said.contains("report-none"),
        "{said}"
    );
    let (code, said) = report(&dir.join("absent"));

    assert!(
        code == Some(1) && said.contains("cannot read") && said.contains("absent"),
        "{said}"
    );
}
