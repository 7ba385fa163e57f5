//! Pipes, FIFOs and standard input. On both drivers.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::process::{Command, Stdio};

use crate::common::*;
use plainweave::pipe::{PipeReader, PipeWriter, pipe, stdin};
use plainweave::time::{sleep, with_timeout};
use plainweave::{is_cancelled, select, spawn};

on_every_driver!(
    more_than_a_pipe_holds_goes_through,
    ends_are_heard,
    waits_for_a_pipe_end_early,
    a_fifo_waits_for_its_other_end,
    standard_input_is_waited_for,
);

fn more_than_a_pipe_holds_goes_through(setup: Setup) {
    const LEN: usize = 1 << 20;
    setup.runtime().run(|| {
        let (mut reader, mut writer) = pipe().expect("a pipe");
        let bytes: Vec<u8> = (0..LEN).map(|n| n as u8).collect();
        let expected = bytes.clone();
        let writes = spawn(move || writer.write_all(&bytes));
        let mut read = Vec::new();
        reader.read_to_end(&mut read).expect("read");
        assert!(read == expected);
        writes.join().expect("no panic").expect("written");
    });
}

fn ends_are_heard(setup: Setup) {
    setup.runtime().run(|| {
        let (mut reader, writer) = pipe().expect("a pipe");
        let other = writer.try_clone().expect("cloned");
        let waits = spawn(move || reader.read(&mut [0]).map(|len| (len, reader)));
        drop(writer);
        pause();
        assert!(!waits.is_finished(), "a writer is left");
        drop(other);
        let (len, reader) = waits.join().expect("no panic").expect("the end");
        assert_eq!(len, 0);
        drop(reader);
        let (reader, mut writer) = pipe().expect("a pipe");
        drop(reader);
        let error = writer.write(b"x").expect_err("nobody reads");
        assert_eq!(error.kind(), ErrorKind::BrokenPipe);
    });
}

fn waits_for_a_pipe_end_early(setup: Setup) {
    setup.runtime().run(|| {
        let (mut reader, mut writer) = pipe().expect("a pipe");
        let late = with_timeout(ms(3), || reader.read(&mut [0])).expect_err("nothing comes");
        assert_eq!(late.kind(), ErrorKind::TimedOut);
        assert!(!reader.is_readable());
        writer.write_all(b"x").expect("room");
        let full = with_timeout(ms(30), || writer.write_all(&vec![0; 1 << 20]));
        assert_eq!(full.expect_err("nobody reads").kind(), ErrorKind::TimedOut);
        let branch = select! {
            readable(reader) => 1,
            writable(writer) => 2,
        };
        assert_eq!(branch.expect("not cancelled"), 1);
        let waits = spawn(move || {
            let end = writer.write_all(&vec![0; 1 << 20]);
            end.map_err(|error| is_cancelled(&error))
        });
        pause();
        waits.cancel();
        assert_eq!(waits.join().expect("no panic"), Err(true));
    });
}

fn a_fifo_waits_for_its_other_end(setup: Setup) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("fifo");
    let made = Command::new("mkfifo").arg(&path).status().expect("mkfifo");
    assert!(made.success());
    setup.runtime().run(|| {
        let late = PipeWriter::open(&path, Some(ms(20))).expect_err("nobody reads");
        assert_eq!(late.kind(), ErrorKind::TimedOut);
        let theirs = path.clone();
        let reads = spawn(move || {
            let mut text = String::new();
            PipeReader::open(theirs)?.read_to_string(&mut text)?;
            std::io::Result::Ok(text)
        });
        sleep(ms(5)).expect("slept");
        let mut writer = PipeWriter::open(&path, Some(HANG)).expect("it is read");
        writer.write_all(b"hello").expect("written");
        drop(writer);
        assert_eq!(reads.join().expect("no panic").expect("read"), "hello");
        assert!(PipeReader::open(folder.path().join("none")).is_err());
    });
}

/// The child echoes, and ticks while it waits. Its input is a pipe, to which nothing is written
/// before it has ticked, and then a file.
fn standard_input_is_waited_for(setup: Setup) {
    if is_child("stdin") {
        setup.workers(1).run(|| {
            let ticks = spawn(|| {
                for _ in 0..5 {
                    sleep(ms(1))?;
                }
                std::io::stderr().write_all(b"ticked\n")
            });
            let mut text = String::new();
            stdin()
                .expect("open")
                .read_to_string(&mut text)
                .expect("read");
            ticks.join().expect("no panic").expect("told");
            std::io::stderr()
                .write_all(format!("<{text}>").as_bytes())
                .expect("told");
        });
        return;
    }
    let thread = std::thread::current();
    let name = thread.name().expect("a test's thread").to_owned();
    let child = |stdin: Stdio| {
        let mut command = Command::new(std::env::current_exe().expect("this test"));
        command.args(["--exact", &name, "--nocapture"]);
        command.env("PLAINWEAVE_TEST_CHILD", "stdin");
        command
            .stdin(stdin)
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        command.spawn().expect("it starts")
    };
    let mut reads = child(Stdio::piped());
    let mut input = reads.stdin.take().expect("piped");
    let mut output = BufReader::new(reads.stderr.take().expect("piped"));
    let mut text = String::new();
    while !text.ends_with("ticked\n") {
        let len = output.read_line(&mut text).expect("read");
        assert!(len > 0, "{text}");
    }

    for part in ["he", "llo"] {
        input.write_all(part.as_bytes()).expect("written");
        std::thread::sleep(ms(30));
    }
    drop(input);
    output.read_to_string(&mut text).expect("read");
    reads.wait().expect("it ends");
    assert!(text.contains("<hello>"), "{text}");
    let mut file = tempfile::tempfile().expect("a file");
    file.write_all(b"of a file").expect("written");
    std::io::Seek::rewind(&mut file).expect("rewound");
    let text = stderr_of(&child(file.into()).wait_with_output().expect("it ends"));
    assert!(text.contains("<of a file>"), "{text}");
}
