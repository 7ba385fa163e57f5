//! The gdb script, `tools/gdb/plainweave.py`, on a process and on its core file. Skipped, with a
//! word, without gdb.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;

use crate::common::*;
use plainweave::sync::Mutex;
use plainweave::{Builder, Movement, Runtime};

const NAME: &str = "fibers_are_found_in_a_process_and_in_its_core_file";
const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tools/gdb/plainweave.py");

/// A directory that goes away with the test.
struct Scratch(std::path::PathBuf);

impl Scratch {
    fn new() -> Self {
        let dir = std::env::temp_dir().join(format!("plainweave-gdb-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a directory");
        Self(dir)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A caller to be found.
#[inline(never)]
fn weave_patiently(depth: u32) -> u32 {
    if depth == 0 {
        return u32::from(plainweave::park().is_err());
    }
    std::hint::black_box(weave_patiently(depth - 1)) + 1
}

/// A fiber that computes, to be found on a thread.
#[inline(never)]
fn weave_eagerly() {
    loop {
        std::hint::spin_loop();
    }
}

/// Fibers that wait, movable and pinned, one that runs, and one that has ended; until the process
/// is killed.
fn be_debugged() {
    let builder = |movement| {
        Runtime::builder()
            .workers(2)
            .report_stalls(false)
            .max_workers(2)
            .movement(movement)
    };

    let movable = builder(Movement::Anytime).build().expect("a runtime");
    let pinned = builder(Movement::BeforeStart).build().expect("a runtime");
    let lock = Arc::new(Mutex::new(()));
    let guard = lock.lock().expect("free");

    for (runtime, name) in [(&movable, "movable\n"), (&pinned, "pinned")] {
        drop(
            runtime
                .spawn_with(Builder::new().name(name), || weave_patiently(3))
                .expect("valid"),
        );
        let lock = lock.clone();
        drop(
            runtime
                .spawn_with(Builder::new().name("locker"), move || drop(lock.lock()))
                .expect("valid"),
        );
        runtime.run(|| ());
        eventually("both to wait", || {
            runtime.metrics().live_fibers == 2 && runtime.metrics().sleeping_workers == 2
        });
    }

    drop(
        movable
            .spawn_with(Builder::new().name("eager"), weave_eagerly)
            .expect("valid"),
    );
    eventually("it to run", || {
        movable.dump().to_string().contains("\"eager\": running")
    });
    let _ = writeln!(std::io::stderr(), "ready");
    std::thread::sleep(HANG);
    drop(guard);
}

fn gdb(args: &[&str], commands: &[&str]) -> Output {
    let mut command = Command::new("timeout");
    command.args([
        "80",
        "gdb",
        "-nx",
        "-batch",
        "-iex",
        "set debuginfod enabled off",
        "-iex",
        "set pagination off",
    ]);
    command.args(args);
    for one in commands {
        command.args(["-ex", one]);
    }
    command.stdin(Stdio::null());

    command.output().expect("timeout(1) is there")
}

/// What the script must have said, of a process and of its core file.
fn check(what: &str, output: &Output) {
    let text = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        stderr_of(output)
    );
    for line in [
        " \"movable\\n\": waits for unpark, worker ",
        " \"pinned\": waits for unpark, worker ",
        " \"locker\": waits for a lock or channel, worker ",
        " \"eager\": runs on thread ",
        "5 fibers\n",
    ] {
        assert!(text.contains(line), "{what}: no {line:?} in {text}");
    }

    assert!(!text.contains("\"main\""), "{what}: it has ended: {text}");
    let start = text
        .find("APPLY ALL")
        .unwrap_or_else(|| panic!("{what}: {text}"));
    let (list, stacks) = text.split_at(start);
    assert_eq!(
        list.matches(" in weave_patiently at ").count(),
        2,
        "{what}: {list}"
    );

    // Four frames of each of the two.
    assert_eq!(
        stacks.matches("in weave_patiently at ").count(),
        8,
        "{what}: {stacks}"
    );
    assert!(
        stacks.contains("it/gdb.rs:") && stacks.contains("in weave_eagerly at "),
        "{what}: {stacks}"
    );
    assert!(
        !stacks.contains("stack_init_trampoline"),
        "{what}: {stacks}"
    );
}

#[test]
fn fibers_are_found_in_a_process_and_in_its_core_file() {
    if is_child("debugged") {
        return be_debugged();
    }
    if Command::new("gdb")
        .arg("--version")
        .stdout(Stdio::null())
        .status()
        .is_err()
    {
        return skip("there is no gdb; apt-get install gdb");
    }
    let program = std::env::current_exe().expect("this binary");
    let dir = Scratch::new();

    // The kernel writes a core file to the working directory, if it is not told to do something
    // else.
    let path = format!("gdb::{NAME}");
    let mut command = Command::new("sh");
    command
        .args(["-c", "ulimit -c unlimited; exec \"$0\" \"$@\""])
        .arg(&program)
        .current_dir(&dir.0);
    command
        .args(["--exact", &path, "--nocapture", "--test-threads=1"])
        .env("PLAINWEAVE_TEST_CHILD", "debugged");
    let child = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("starts");
    let mut debugged = OwnChild(child);
    let mut line = String::new();
    let stderr = debugged.0.stderr.take().expect("piped");

    BufReader::new(stderr)
        .read_line(&mut line)
        .expect("it says that it is ready");
    assert_eq!(line, "ready\n");
    let source = format!("source {SCRIPT}");
    let show = [
        &source[..],
        "info fibers",
        "echo APPLY ALL\\n",
        "fiber apply all bt",
    ];
    let live = gdb(
        &["-p", &debugged.0.id().to_string()],
        &[&show[..], &["fiber 999999 bt"]].concat(),
    );

    if stderr_of(&live).contains("ptrace: Operation not permitted") {
        return skip("gdb may not attach to a process here (ptrace)");
    }
    check("the process", &live);
    assert!(
        stderr_of(&live).contains("there is no fiber 999999"),
        "{}",
        stderr_of(&live)
    );

    // A program without fibers says so.
    let other = gdb(&["/bin/true"], &[&source, "info fibers"]);
    assert!(
        stderr_of(&other).contains("no PLAINWEAVE_FIBERS"),
        "{}",
        stderr_of(&other)
    );

    let pid = rustix::process::Pid::from_child(&debugged.0);
    rustix::process::kill_process(pid, rustix::process::Signal::QUIT).expect("it runs");
    debugged.0.wait().expect("it ends");
    let mut files = std::fs::read_dir(&dir.0)
        .expect("its directory")
        .filter_map(Result::ok);
    let Some(core) = files.find(|file| file.file_name().to_string_lossy().starts_with("core"))
    else {
        return skip("the kernel writes no core file here (/proc/sys/kernel/core_pattern)");
    };

    let later = gdb(
        &[
            program.to_str().expect("a path"),
            core.path().to_str().expect("a path"),
        ],
        &show,
    );
    check("the core file", &later);
}
