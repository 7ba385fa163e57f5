//! `plainweave-bench seeds`, and C∀'s programs beside ours, of which scripts stand in here.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::skip;
use super::tiny::{folder, run};

#[test]
fn what_will_run_is_listed_with_its_time() {
    let (code, said) = run(&["seeds", "--list"]);
    assert_eq!(code, Some(0), "{said}");
    for part in [
        "Thierry Delisle: The C∀ Scheduler.",
        "Bartosz Modelski: Using effect handlers",
        "cache-sweep --updates 3,50 --steps 7 --runs 3 (about 60 min)",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }

    let (code, said) = run(&["--quick", "seeds", "--seeds", "warp", "--list"]);
    assert!(code == Some(0) && said.contains("http --cases seed --runs 3 ("));
    assert!(!said.contains("micro"), "{said}");
    let (code, said) = run(&["seeds", "--seeds", "go"]);
    assert!(
        code == Some(1) && said.contains("cforall, ocaml, warp"),
        "{said}"
    );
    let (code, said) = run(&["seeds", "--seeds", "ocaml", "--cfa", "/tmp"]);
    assert!(
        code == Some(1) && said.contains("--cfa: no chosen seed has micro-benchmarks"),
        "{said}"
    );
    let (code, said) = run(&["seeds", "--cfa", "/nowhere"]);
    assert!(
        code == Some(1) && said.contains("--cfa /nowhere: no such folder"),
        "{said}"
    );
}

#[test]
fn a_seed_is_measured_once_and_gets_its_page() {
    let ours = Path::new(env!("CARGO_BIN_EXE_plainweave-bench")).with_file_name("plainweave");
    if !ours.exists() {
        return skip::skip("bench seeds: the program plainweave is not built");
    }
    let dir = folder("seeds");
    let out = dir.display().to_string();
    let size = ["--more=--requests=100", "--more=--crowd=10"];
    let flags = [&["--seeds", "warp", "--out", &out], &size[..]].concat();
    let args = [&["seeds", "--quick", "--resume"], &flags[..]].concat();
    let (code, said) = run(&args);
    assert_eq!(code, Some(0), "{said}");
    let plan = "1 experiment, about 2 minutes in all";
    assert!(said.contains(plan), "{said}");

    let page = fs::read_to_string(dir.join("published.html")).unwrap();
    let section = page.split("id='hello--fibers-and-threads'").nth(1).unwrap();
    // Ours and theirs; what becomes of it is the machine's.
    assert!(
        section.contains("1,216/s") && section.contains("<small>seed: plainweave threads</small>"),
        "{section}"
    );
    assert!(page.contains("<cite>ouromoros: High Performance Web Server with Fibers"));

    let (code, said) = run(&args);
    // A tree with changes is another one each time.
    let csv = fs::read_to_string(dir.join("http.csv")).unwrap();
    let is_clean = !csv.contains("with changes");
    let kept = said.contains("1 of 1: http: kept");
    assert!(code == Some(0) && kept == is_clean, "{said}");
    // What is there would be lost.
    let (code, said) = run(&[&["seeds"], &flags[..]].concat());
    let refused = said.contains("http.csv: name another folder by --out, or go on by --resume");
    assert!(code == Some(1) && refused, "{said}");
}

/// Writes programs that print what C∀'s would.
fn stand_ins(dir: &Path) {
    let usual = "echo 'Total Operations(ops):   1000'\n\
                 echo 'ns per ops           :     41.50'\n\
                 echo 'ns per ops/procs     :     83.00'\n";
    let starved = "echo 'Programs has been blocked for more than 5 secs' >&2\n";
    let programs = [
        ("yield", usual),
        ("cycle", usual),
        ("churn", "exit 3\n"),
        ("locality", usual),
        ("transfer", starved),
    ];

    for (name, body) in programs {
        let path = dir.join(name);
        fs::write(&path, format!("#!/bin/sh\n{body}")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    fs::write(dir.join("VERSION"), "cfa 1.0.0\nbuilt here\n").unwrap();
}

#[test]
fn programs_of_another_system_stand_beside_ours() {
    let dir = folder("cfa");
    let [there, out] = ["programs", "out"].map(|name| dir.join(name));
    fs::create_dir_all(&there).unwrap();
    let cfa = there.display().to_string();
    let out = out.display().to_string();
    let size = [
        "--modes",
        "anytime/own",
        "--workers",
        "2",
        "--runs",
        "1",
        "--seconds",
        "0.02",
    ];
    let cases = [
        "--cases",
        "yield,churn,transfer-park,mutex",
        "--systems",
        "threads",
    ];
    let args = [
        &["micro", "--cfa", &cfa, "--out", &out],
        &size[..],
        &cases[..],
    ]
    .concat();

    let (code, said) = run(&args);
    assert_eq!(code, Some(1), "{said}");
    assert!(
        said.contains("not there: yield, cycle, churn, locality, transfer"),
        "{said}"
    );

    stand_ins(&there);
    let (code, said) = run(&args);
    assert_eq!(code, Some(0), "{said}");
    let csv = fs::read_to_string(Path::new(&out).join("micro.csv")).unwrap();
    for part in [
        "# cfa: cfa 1.0.0\n",
        "micro,yield,cfa,2,ns_per_op,ns,41.500,",
        "micro,yield,cfa,2,ns_per_op_per_worker,ns,83.000,",
        "micro,transfer-park,cfa,2,starved,1,1.000,",
        "# not measured: cfa churn (exit status: 3)",
        "micro,mutex,threads,2,ns_per_op",
    ] {
        assert!(csv.contains(part), "{part}: {csv}");
    }
    assert!(!csv.contains("mutex,cfa"), "{csv}");
}
