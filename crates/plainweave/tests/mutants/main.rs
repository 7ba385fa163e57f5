//! Plants faults in the concurrent core, one at a time, and sees whether a test fails.
//! `mutants.txt` lists the faults with the tests that must see them; docs/mutants.md says what came
//! of it. The suite only checks the list. By hand, half an hour:
//!
//!     cargo test -p plainweave --test mutants -- --ignored --nocapture
//!
//! `PLAINWEAVE_MUTANTS=sleepers` limits it to those whose file or description has that text. The
//! tree is copied to `target/mutants`, so that it can be worked on meanwhile; there each fault is
//! built and its tests are run. A fault counts as seen if a test fails, or has not ended after four
//! minutes.
#![expect(clippy::print_stdout, reason = "says how it goes")]

use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Tests of a fault that have not ended by then hang.
const PATIENCE: Duration = Duration::from_secs(240);
/// The same for all tests together, without a fault.
const LONG: Duration = Duration::from_secs(1800);

/// A fault.
#[derive(Debug)]
struct Mutant {
    /// Below the library's `src`.
    file: String,
    what: String,
    /// The tests that must see it; none if nothing can.
    by: Vec<Test>,
    /// What to replace, each found once in the file, and by what.
    hunks: Vec<(String, String)>,
}

/// Tests of one program.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Test {
    program: Program,
    /// A part of their names.
    filter: String,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Program {
    /// The library's loom models.
    Models,
    /// The library's own tests.
    Library,
    /// The tests from outside, of `tests/it`.
    Outside,
}

fn crate_dir() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn test_of(name: &str) -> Test {
    let program = if name.contains("::") {
        Program::Outside
    } else if name.starts_with("loom_") {
        Program::Models
    } else {
        Program::Library
    };

    Test {
        program,
        filter: name.to_owned(),
    }
}

/// Reads `mutants.txt`.
fn mutants() -> Vec<Mutant> {
    let mut all: Vec<Mutant> = Vec::new();
    // Whether the next line to find begins another replacement.
    let mut complete = true;
    for (number, line) in include_str!("mutants.txt").lines().enumerate() {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let number = number + 1;
        let text = line.get(2..).unwrap_or_default();
        if let Some((file, what)) = line
            .split_once(": ")
            .filter(|(file, _)| file.ends_with(".rs"))
        {
            all.push(Mutant {
                file: file.to_owned(),
                what: what.to_owned(),
                by: Vec::new(),
                hunks: Vec::new(),
            });
            complete = true;
            continue;
        }
        let mutant = all
            .last_mut()
            .unwrap_or_else(|| panic!("line {number} belongs to no file: {line}"));

        match (line.as_bytes()[0], line.strip_prefix("by ")) {
            (_, Some(nothing)) if nothing.starts_with("nothing: ") => {}
            (_, Some(tests)) => mutant.by = tests.split(", ").map(test_of).collect(),
            (b'-', _) if complete => {
                mutant.hunks.push((text.to_owned(), String::new()));
                complete = false;
            }
            (b'-', _) => mutant.hunks.last_mut().expect("one was begun").0 += &format!("\n{text}"),
            (b'+', _) => {
                let (_, new) = mutant
                    .hunks
                    .last_mut()
                    .unwrap_or_else(|| panic!("line {number} replaces nothing"));
                *new += if complete { "\n" } else { "" };
                *new += text;
                complete = true;
            }
            _ => panic!("line {number} is none of a list of mutants: {line}"),
        }
    }

    all
}

/// Returns the file's text with the fault in it.
fn planted(mutant: &Mutant, text: &str) -> Result<String, String> {
    let mut text = text.to_owned();
    for (old, new) in &mutant.hunks {
        let places: Vec<_> = places(&text, old).collect();
        let [place] = &places[..] else {
            return Err(format!(
                "{}: {}: {} places with {old:?}",
                mutant.file,
                mutant.what,
                places.len()
            ));
        };
        text.replace_range(place.clone(), new);
    }
    if mutant.hunks.is_empty() {
        Err(format!("{}: {}: no change", mutant.file, mutant.what))
    } else {
        Ok(text)
    }
}

/// Returns where the code stands in a text, whatever the line breaks, and the commas that come with
/// them.
fn places<'a>(text: &'a str, code: &'a str) -> impl Iterator<Item = Range<usize>> + 'a {
    let mut next = 0;
    std::iter::from_fn(move || {
        let (start, end) =
            (next..text.len()).find_map(|at| Some((at, end_of(text.as_bytes(), at, code)?)))?;
        next = end;
        Some(start..end)
    })
}

/// Returns where the code that begins at a place of the text ends there; `None`: other code begins
/// there.
fn end_of(text: &[u8], start: usize, code: &str) -> Option<usize> {
    let skip = |mut at: usize| {
        while text.get(at).is_some_and(u8::is_ascii_whitespace) {
            at += 1;
        }
        at
    };

    let mut at = start;
    let mut begun = false;
    for byte in code.bytes().filter(|byte| !byte.is_ascii_whitespace()) {
        let mut here = if begun { skip(at) } else { at };
        if text.get(here) == Some(&b',') && b")]}".contains(&byte) {
            here = skip(here + 1);
        }
        if text.get(here) != Some(&byte) {
            return None;
        }
        (at, begun) = (here + 1, true);
    }

    begun.then_some(at)
}

/// Returns the text of all of the library's own tests and models.
fn own_tests() -> String {
    fn all(dir: &Path, text: &mut String) {
        for entry in fs::read_dir(dir).expect("readable") {
            let path = entry.expect("readable").path();
            if path.is_dir() {
                all(&path, text);
            } else if path.extension().is_some_and(|e| e == "rs") {
                *text += &fs::read_to_string(path).expect("readable");
            }
        }
    }
    let mut text = String::new();
    all(&crate_dir().join("src"), &mut text);
    text
}

/// Whether there is a test of that name in `own`, the library's, or in the file that it names.
fn exists(test: &Test, own: &str) -> bool {
    match test.filter.split_once("::") {
        Some((file, name)) => {
            let text = fs::read_to_string(crate_dir().join(format!("tests/it/{file}.rs")));
            text.is_ok_and(|text| text.contains(&format!("fn {name}")))
        }
        None => own.contains(&format!("fn {}", test.filter)),
    }
}

#[test]
fn the_list_fits_the_code() {
    let mutants = mutants();
    assert!(mutants.len() >= 60, "only {} mutants", mutants.len());
    let own = own_tests();
    let mut faults = Vec::new();

    for mutant in &mutants {
        let text =
            fs::read_to_string(crate_dir().join("src").join(&mutant.file)).expect(&mutant.file);
        faults.extend(planted(mutant, &text).err());
        for test in &mutant.by {
            if !exists(test, &own) {
                faults.push(format!(
                    "{}: {}: there is no test {test:?}",
                    mutant.file, mutant.what
                ));
            }
        }
    }

    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// A copy of the tree, with what is built from it.
struct Copy {
    dir: PathBuf,
}

/// Ends the program that it holds, and those that it has started.
struct Guard(Child);

impl Drop for Guard {
    fn drop(&mut self) {
        let group = rustix::process::Pid::from_child(&self.0);
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        let _ = self.0.wait();
    }
}

/// How tests end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    Pass,
    Fail,
    Hang,
}

impl Copy {
    fn new() -> Self {
        let root = crate_dir()
            .parent()
            .and_then(Path::parent)
            .expect("the crate lies two below the root");
        let dir = root.join("target/mutants");
        for name in ["Cargo.toml", "Cargo.lock", "README.md", "docs", "crates"] {
            copy(&root.join(name), &dir.join("tree").join(name));
        }
        Self { dir }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.join("tree/crates/plainweave/src").join(name)
    }

    /// Builds a program of tests. Returns its path, or what the compiler said.
    fn build(&self, program: &Program) -> Result<PathBuf, String> {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.current_dir(self.dir.join("tree"));
        // The models are built again for each fault, in four seconds without optimisation, and loom
        // is not. Fibers need some, for their stacks.
        cargo.args(["--config", "profile.dev.package.\"*\".opt-level=2"]);
        let level = if *program == Program::Models {
            "0"
        } else {
            "1"
        };
        cargo.envs([
            ("CARGO_PROFILE_TEST_OPT_LEVEL", level),
            ("CARGO_PROFILE_TEST_DEBUG", "0"),
            ("CARGO_INCREMENTAL", "1"),
        ]);
        cargo.args([
            "test",
            "-p",
            "plainweave",
            "--no-run",
            "--message-format=json-render-diagnostics",
        ]);
        cargo.stdin(Stdio::null());
        let target = match program {
            Program::Models => {
                cargo.arg("--lib").env("RUSTFLAGS", "--cfg loom");
                "loom"
            }
            Program::Library => {
                cargo.arg("--lib");
                "std"
            }
            Program::Outside => {
                cargo.args(["--test", "it"]);
                "std"
            }
        };
        let output = cargo
            .env("CARGO_TARGET_DIR", self.dir.join(target))
            .output()
            .map_err(|error| error.to_string())?;
        let text = String::from_utf8_lossy(&output.stdout);
        let path = text
            .lines()
            .rev()
            .find_map(|line| Some(line.split_once("\"executable\":\"")?.1.split_once('"')?.0));
        path.filter(|_| output.status.success())
            .map(PathBuf::from)
            .ok_or_else(|| String::from_utf8_lossy(&output.stderr).into_owned())
    }

    /// Runs tests of a program. Panics if there are none.
    fn run(&self, program: &Path, filters: &[&str], patience: Duration) -> Ending {
        let log = self.dir.join("log");
        let out = fs::File::create(&log).expect("can be written");
        let mut command = Command::new(program);
        command
            .args(filters)
            .current_dir(self.dir.join("tree/crates/plainweave"))
            .env("LOOM_MAX_PREEMPTIONS", "3");
        command
            .stdin(Stdio::null())
            .stdout(out)
            .stderr(Stdio::null())
            .process_group(0);
        let mut child = Guard(command.spawn().expect("just built"));
        let start = Instant::now();
        let ending = loop {
            match child.0.try_wait().expect("ours") {
                Some(status) if status.success() => break Ending::Pass,
                Some(_) => break Ending::Fail,
                None if start.elapsed() > patience => break Ending::Hang,
                None => std::thread::sleep(Duration::from_millis(20)),
            }
        };

        drop(child);
        let said = fs::read_to_string(&log).unwrap_or_default();
        assert!(
            !said.starts_with("\nrunning 0 tests"),
            "no test is called {filters:?}"
        );
        ending
    }

    /// Runs these tests of the tree as it is, until one does not pass; an error if it cannot be
    /// built.
    fn outcome(&self, tests: &[Test], patience: Duration) -> Result<Ending, String> {
        let mut programs: BTreeMap<&Program, Vec<&str>> = BTreeMap::new();
        for test in tests {
            programs
                .entry(&test.program)
                .or_default()
                .push(&test.filter);
        }
        for (program, filters) in programs {
            let path = self.build(program)?;
            let ending = self.run(&path, &filters, patience);
            if ending != Ending::Pass {
                return Ok(ending);
            }
        }
        Ok(Ending::Pass)
    }

    /// Plants the fault, runs its tests, and takes it out again.
    fn with(&self, mutant: &Mutant) -> Result<Ending, String> {
        let path = self.file(&mutant.file);
        let text = fs::read_to_string(&path).expect("copied");
        fs::write(&path, planted(mutant, &text)?).expect("can be written");
        let ending = self.outcome(&mutant.by, PATIENCE);
        fs::write(&path, text).expect("can be written");
        ending
    }
}

/// Copies a file or a folder; leaves alone what is the same, so that it is not rebuilt, and
/// removes what is gone.
fn copy(from: &Path, to: &Path) {
    if from.is_dir() {
        if from.file_name().is_some_and(|name| name == "target") {
            return;
        }
        fs::create_dir_all(to).expect("can be written");
        for entry in fs::read_dir(to).expect("readable") {
            let path = entry.expect("readable").path();
            let gone = path
                .file_name()
                .is_some_and(|name| !from.join(name).exists());
            if gone && path.is_dir() {
                fs::remove_dir_all(path).expect("can be removed");
            } else if gone {
                fs::remove_file(path).expect("can be removed");
            }
        }

        for entry in fs::read_dir(from).expect("readable") {
            let name = entry.expect("readable").file_name();
            copy(&from.join(&name), &to.join(&name));
        }

        return;
    }

    let Ok(content) = fs::read(from) else { return };
    if fs::read(to).ok().as_ref() != Some(&content) {
        fs::create_dir_all(to.parent().expect("below the copy")).expect("can be written");
        fs::write(to, content).expect("can be written");
    }
}

#[test]
#[ignore = "half an hour: builds the library for each fault"]
fn every_fault_is_seen() {
    let wanted = std::env::var("PLAINWEAVE_MUTANTS").unwrap_or_default();
    let mut mutants = mutants();
    mutants.retain(|mutant| {
        !mutant.by.is_empty() && format!("{}: {}", mutant.file, mutant.what).contains(&wanted)
    });
    assert!(!mutants.is_empty(), "no mutant has {wanted:?}");
    let copy = Copy::new();
    let mut tests: Vec<Test> = mutants
        .iter()
        .flat_map(|mutant| mutant.by.clone())
        .collect();

    tests.sort();
    tests.dedup();
    let start = Instant::now();
    let ending = copy
        .outcome(&tests, LONG)
        .unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(
        ending,
        Ending::Pass,
        "without a fault: see {}",
        copy.dir.join("log").display()
    );
    println!(
        "without a fault the tests pass, after {} s",
        start.elapsed().as_secs()
    );
    let mut faults = Vec::new();

    for (n, mutant) in mutants.iter().enumerate() {
        let start = Instant::now();
        let outcome = match copy.with(mutant) {
            Ok(Ending::Fail) => "seen",
            Ok(Ending::Hang) => "hangs",
            Ok(Ending::Pass) => "SURVIVES",
            Err(error) => {
                println!("{error}");
                "DOES NOT BUILD"
            }
        };

        let name = format!("{}: {}", mutant.file, mutant.what);
        let took = start.elapsed().as_secs();
        println!(
            "{:3}/{} {outcome} after {took} s: {name}",
            n + 1,
            mutants.len()
        );
        if !["seen", "hangs"].contains(&outcome) {
            faults.push(format!("{outcome}: {name}"));
        }
    }

    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
