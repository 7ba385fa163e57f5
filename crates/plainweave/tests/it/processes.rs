//! Child processes: waits, streams, signals, and that none is left behind. On both drivers.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;
use std::time::Instant;

use crate::common::*;
use plainweave::process::{Child, Command, filter};
use plainweave::time::{sleep, with_timeout};
use plainweave::{Builder, is_cancelled, select, spawn};

on_every_driver!(
    many_children_are_waited_for_at_once,
    both_outputs_are_read,
    a_filter_reads_and_writes,
    a_wait_for_a_child_ends_early,
    a_child_that_ignores_sigterm_is_killed,
    a_group_is_signalled_as_a_whole,
    a_select_waits_for_a_child,
    what_cannot_be_started_is_an_error,
    dropped_children_leave_no_zombie,
    threads_wait_for_children_too,
);

/// What the script starts must not outlive it: it would hold the output of the tests.
fn shell(script: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    command
}

/// On the one worker of all fibers: the children end when the last fiber lets them.
fn many_children_are_waited_for_at_once(setup: Setup) {
    const MANY: usize = 30;
    setup.workers(1).run(|| {
        let (input, hold) = std::io::pipe().expect("a pipe");
        let children: Vec<_> = (0..MANY)
            .map(|n| {
                let input = input.try_clone().expect("cloned");
                spawn(move || {
                    let mut child = shell(&format!("cat; exit {n}"));
                    child.stdin(input).status()
                })
            })
            .collect();
        sleep(ms(50)).expect("slept");
        assert!(!children.iter().any(plainweave::JoinHandle::is_finished));
        drop(hold);
        for (n, child) in children.into_iter().enumerate() {
            let status = child.join().expect("no panic").expect("waited");
            assert_eq!(status.code(), Some(n as i32));
        }
    });
}

fn both_outputs_are_read(setup: Setup) {
    setup.runtime().run(|| {
        // More than pipes hold, in turn.
        let script = "for i in 1 2 3 4; do head -c 100000 /dev/zero
            head -c 90000 /dev/zero >&2; done; exit 3";
        let output = shell(script).output().expect("read");
        assert_eq!(output.status.code(), Some(3));
        assert_eq!(
            (output.stdout.len(), output.stderr.len()),
            (400_000, 360_000)
        );
        let output = Command::new("cat").output().expect("its input is empty");
        assert!(output.status.success() && output.stdout.is_empty());
        // What has been set stays.
        let (input, mut fill) = std::io::pipe().expect("a pipe");
        fill.write_all(b"given").expect("written");
        drop(fill);
        let mut cat = Command::new("cat");
        let output = cat.stdin(input).stderr(Stdio::null()).output();
        assert_eq!(output.expect("read").stdout, b"given");
        let variable = shell("echo $A$B; pwd")
            .env_clear()
            .env("A", "1")
            .env("B", "2")
            .env_remove("B")
            .current_dir("/")
            .output()
            .expect("read");
        assert_eq!(variable.stdout, b"1\n/\n");
    });
}

fn a_filter_reads_and_writes(setup: Setup) {
    setup.runtime().run(|| {
        let bytes: Vec<u8> = (0..500_000).map(|n| b'a' + (n % 26) as u8).collect();
        let output = filter(&mut Command::new("cat"), &bytes).expect("echoed");
        assert!(output.stdout == bytes);
        let output = filter(&mut shell("head -c 3"), &bytes).expect("it need not read all");
        assert_eq!(output.stdout, b"abc");
    });
    let output = filter(&mut Command::new("cat"), b"on a thread").expect("echoed");
    assert_eq!(output.stdout, b"on a thread");
}

fn a_wait_for_a_child_ends_early(setup: Setup) {
    setup.runtime().run(|| {
        let mut child = shell("read line; exit 7")
            .stdin(Stdio::piped())
            .spawn()
            .expect("started");
        let mut stdin = child.stdin.take();
        let late = child.wait_timeout(ms(20)).expect_err("it waits for us");
        assert_eq!(late.kind(), ErrorKind::TimedOut);
        let late = with_timeout(ms(20), || child.wait()).expect_err("so do we");
        assert_eq!(late.kind(), ErrorKind::TimedOut);
        assert!(child.try_wait().expect("asked").is_none());
        let waits = spawn(move || {
            let ended = child.wait().map_err(|error| is_cancelled(&error));
            (ended.map(|status| status.code()), child)
        });
        pause();
        waits.cancel();
        let (ended, mut child) = waits.join().expect("no panic");
        assert_eq!(ended, Err(true));
        writeln!(stdin.as_mut().expect("piped"), "go on").expect("written");
        assert_eq!(child.wait().expect("it ends").code(), Some(7));
        assert_eq!(child.wait().expect("known").code(), Some(7));
        assert!(child.kill().is_ok(), "it has ended");
    });
}

fn a_child_that_ignores_sigterm_is_killed(setup: Setup) {
    setup.runtime().run(|| {
        let script = "trap '' TERM; echo ready; while :; do sleep .05; done";
        let mut child = shell(script)
            .stdout(Stdio::piped())
            .spawn()
            .expect("started");
        let mut ready = [0; 6];
        let stdout = child.stdout.as_mut().expect("piped");
        stdout.read_exact(&mut ready).expect("it is ready");
        child.signal(libc::SIGTERM).expect("sent");
        assert!(child.wait_timeout(ms(50)).is_err(), "it goes on");
        child.kill().expect("killed");
        assert_eq!(child.wait().expect("it ends").signal(), Some(libc::SIGKILL));
        assert_eq!(
            child.signal(12345).expect_err("no signal").kind(),
            ErrorKind::InvalidInput
        );
    });
}

fn a_group_is_signalled_as_a_whole(setup: Setup) {
    setup.runtime().run(|| {
        // Its own child holds the pipe too.
        let script = "sleep 60 & echo started; wait";
        let mut child = shell(script)
            .process_group(0)
            .stdout(Stdio::piped())
            .spawn()
            .expect("started");
        let mut stdout = child.stdout.take().expect("piped");
        stdout.read_exact(&mut [0; 8]).expect("it has started");
        child.signal_group(libc::SIGKILL).expect("sent");
        let mut rest = Vec::new();
        with_timeout(HANG, || stdout.read_to_end(&mut rest)).expect("both have ended");
        assert_eq!(child.wait().expect("it ends").signal(), Some(libc::SIGKILL));
    });
}

fn a_select_waits_for_a_child(setup: Setup) {
    setup.runtime().run(|| {
        let child = shell("sleep .02; exit 5").spawn().expect("started");
        let ended = select! {
            readable(child) => true,
            after(HANG) => false,
        };
        assert!(ended.expect("not cancelled"));
        let mut child = child;
        assert_eq!(
            child.try_wait().expect("asked").and_then(|s| s.code()),
            Some(5)
        );
    });
}

fn what_cannot_be_started_is_an_error(setup: Setup) {
    setup.runtime().run(|| {
        let error = Command::new("/no/such/program")
            .spawn()
            .map(|child| child.id());
        assert_eq!(error.expect_err("no program").kind(), ErrorKind::NotFound);
        let error = Command::new("true").current_dir("/no/such/folder").status();
        assert!(error.is_err());
    });
}

/// Whether the process is there, and no zombie.
fn lives(id: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    let state = stat.rsplit(") ").next().unwrap_or_default();
    !state.is_empty() && !state.starts_with('Z')
}

fn is_there(id: u32) -> bool {
    std::path::Path::new(&format!("/proc/{id}")).exists()
}

fn dropped_children_leave_no_zombie(setup: Setup) {
    setup.runtime().run(|| {
        let ids: Vec<u32> = (0..10)
            .map(|_| {
                let mut child = shell("exec sleep 60");
                child.kill_on_drop(true).spawn().expect("started").id()
            })
            .collect();
        let gone = |id: &u32| !is_there(*id);
        until(|| ids.iter().all(gone));
        // Without it a child goes on, and is waited for when it ends.
        let mut started: Child = shell("read line")
            .stdin(Stdio::piped())
            .spawn()
            .expect("started");
        let stdin = started.stdin.take();
        let id = started.id();
        drop(started);
        sleep(ms(20)).expect("slept");
        assert!(lives(id));
        drop(stdin);
        until(|| !is_there(id));
        // A fiber that is cancelled drops what it waits for.
        let (tell, told) = plainweave::sync::channel::bounded(1);
        let waits = Builder::new().spawn(move || {
            let mut child = shell("exec sleep 60")
                .kill_on_drop(true)
                .spawn()
                .expect("started");
            tell.send(child.id()).expect("heard");
            child.wait().is_err()
        });
        let waits = waits.expect("spawned");
        let id = told.recv().expect("told");
        waits.cancel();
        assert!(waits.join().expect("no panic"));
        until(|| !is_there(id));
    });
}

fn until(mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < HANG / 2, "in vain");
        sleep(ms(2)).expect("slept");
    }
}

fn threads_wait_for_children_too(_: Setup) {
    let mut child = shell("exit 4").spawn().expect("started");
    assert_eq!(child.wait().expect("it ends").code(), Some(4));
    let output = shell("echo x").output().expect("read");
    assert_eq!(output.stdout, b"x\n");
}
