//! Where io_uring is forbidden: epoll takes over and says why; who insists gets an error with the
//! remedy.

#![expect(
    unsafe_code,
    reason = "tests call what is unsafe, and say at each call why it is sound"
)]
// Children report on standard error.
#![allow(clippy::print_stderr)]

use std::io::{Read, Write};

use crate::common::*;
use plainweave::net::TcpStream;
use plainweave::{Io, Runtime};

fn echoes(runtime: &Runtime) {
    runtime.run(|| {
        let listener = listener();
        let address = listener.local_addr().expect("address");
        let server = plainweave::spawn(move || echo(listener.accept().expect("accept").0));
        let mut client = TcpStream::connect(address).expect("connect");

        for n in 0..100u32 {
            client.write_all(&n.to_le_bytes()).expect("write");
            let mut back = [0; 4];
            client.read_exact(&mut back).expect("read");
            assert_eq!(u32::from_le_bytes(back), n);
        }

        drop(client);
        assert_eq!(server.join().expect("no panic").expect("no error"), 400);
    });
}

#[test]
fn without_io_uring_a_runtime_falls_back() {
    let name = "without_io_uring_a_runtime_falls_back";
    let cases = [
        ("EPERM", libc::EPERM, "forbidden"),
        ("ENOSYS", libc::ENOSYS, "does not have it"),
        ("ENOMEM", libc::ENOMEM, "memory"),
    ];
    for (part, errno, why) in cases {
        if is_child(part) {
            forbid(libc::SYS_io_uring_setup, errno);
            let runtime = Runtime::new().expect("it falls back");
            assert_eq!(runtime.driver(), "epoll");
            let reason = runtime.fallback_reason().expect("a reason");
            assert!(
                reason.contains("io_uring") && reason.contains(why),
                "{reason}"
            );
            echoes(&runtime);
            let error = Runtime::builder()
                .io(Io::Uring)
                .workers(3)
                .build()
                .expect_err("it was asked for by name");
            let text = error.to_string();

            assert!(
                text.contains("io_uring") && text.contains("PLAINWEAVE_IO=epoll"),
                "{text}"
            );
            // Asked for by name, epoll is no fallback.
            let epoll = Runtime::builder().io(Io::Epoll).build().expect("a runtime");
            assert_eq!((epoll.driver(), epoll.fallback_reason()), ("epoll", None));
            eprintln!("child is content");
            return;
        }

        if is_child("forced") {
            forbid(libc::SYS_io_uring_setup, libc::EPERM);
            let error = Runtime::new().expect_err("the environment forces it");
            eprintln!("child was told: {error}");
            return;
        }
    }

    for (part, ..) in cases {
        let output = in_child(name, part, &[("PLAINWEAVE_IO", "")]);
        let text = stderr_of(&output);
        assert!(
            output.status.success() && text.contains("child is content"),
            "{text}"
        );
    }

    let text = stderr_of(&in_child(name, "forced", &[("PLAINWEAVE_IO", "uring")]));
    assert!(
        text.contains("child was told") && text.contains("seccomp"),
        "{text}"
    );
}

/// A worker whose driver fails stops the others, and leaves nothing behind.
/// What is said names the call that is forbidden, and io_uring only where it is io_uring.
#[test]
fn other_calls_that_are_forbidden_are_not_taken_for_io_uring() {
    let name = "other_calls_that_are_forbidden_are_not_taken_for_io_uring";
    if is_child("madvise") {
        forbid(libc::SYS_madvise, libc::EPERM);
        let runtime = Runtime::builder().io(Io::Uring).build();
        echoes(&runtime.expect("io_uring does without"));
        eprintln!("child is content");
        return;
    }

    if is_child("eventfd2") {
        forbid(libc::SYS_eventfd2, libc::EPERM);
        for io in [Io::Auto, Io::Uring, Io::Epoll] {
            let error = Runtime::builder().io(io).build().expect_err("no wake-ups");
            let text = error.to_string();
            let names_it = text.contains("eventfd2") && text.contains("seccomp");
            assert!(names_it && !text.contains("io_uring"), "{text}");
        }

        eprintln!("child is content");
        return;
    }

    for part in ["madvise", "eventfd2"] {
        let output = in_child(name, part, &[("PLAINWEAVE_IO", "")]);
        let text = stderr_of(&output);
        assert!(text.contains("child is content"), "{part}: {text}");
    }
}

#[test]
fn a_build_that_fails_leaves_nothing() {
    let name = "a_build_that_fails_leaves_nothing";
    if is_child("starves") {
        let _ = Runtime::new().expect("a runtime");
        let before = descriptors();
        let limit = libc::rlimit {
            rlim_cur: before as u64 + 12,
            rlim_max: before as u64 + 12,
        };

        // SAFETY: a plain call with a valid argument.
        let found = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) };
        assert_eq!(found, 0);
        for io in [Io::Epoll, Io::Uring, Io::Auto] {
            for _ in 0..3 {
                let error = Runtime::builder()
                    .io(io)
                    .workers(32)
                    .build()
                    .expect_err("no descriptors");
                assert!(!error.to_string().is_empty());
                eventually("descriptors are closed", || descriptors() <= before);
            }

            let small = Runtime::builder()
                .io(io)
                .workers(1)
                .build()
                .expect("for one worker there are enough");
            assert_eq!(small.run(|| 1), 1);
        }

        eprintln!("child is content");
        return;
    }

    let output = in_child(name, "starves", &[]);
    let text = stderr_of(&output);
    assert!(
        output.status.success() && text.contains("child is content"),
        "{text}"
    );
}
