//! Runs of the schedulers' thesis that were interrupted go on with `--resume`.

use std::path::PathBuf;

use super::tiny::run;

#[test]
fn a_run_of_the_thesis_goes_on_where_it_was_cut() {
    let out = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("thesis-resume");
    let _ = std::fs::remove_dir_all(&out);
    let small = [
        "fib",
        "--systems",
        "plainweave",
        "--workers",
        "1",
        "--policy",
        "fifo,lifo",
        "--iterations",
        "2",
    ];
    let go = |more: &[&str]| run(&[&small[..], &["--out", out.to_str().unwrap()], more].concat());
    let (code, text) = go(&[]);

    assert_eq!(code, Some(0), "{text}");
    let turns = out.join("raw/fib-turns.csv");
    let whole = std::fs::read_to_string(&turns).unwrap();

    // A head, and for each policy a repetition and one with an observer.
    assert_eq!(whole.lines().count(), 5, "{whole}");
    let csv = || {
        let text = std::fs::read_to_string(out.join("fib.csv")).unwrap();
        text.lines()
            .filter(|line| !line.starts_with("# "))
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };

    let rows = csv();
    // Cut within the last turn, which alone is measured again.
    std::fs::write(&turns, &whole[..whole.len() - 4]).unwrap();
    let (code, text) = go(&["--resume"]);
    assert_eq!(code, Some(0), "{text}");
    let again = std::fs::read_to_string(&turns).unwrap();
    let kept = whole[..whole.trim_end().rfind('\n').unwrap()].len();

    assert!(
        again.lines().count() == 5 && again[..kept] == whole[..kept],
        "{again}"
    );
    assert_eq!(csv().len(), rows.len());
    let (code, text) = go(&["--resume", "--dropped", "0"]);
    let refused = text.contains("(there: 1 dropped, now: 0 dropped)") && text.contains("--resume");
    assert!(code == Some(1) && refused, "{text}");
}
