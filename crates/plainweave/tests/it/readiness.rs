//! Any descriptor, waited for as sockets are. On both drivers, and on threads.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream as OsStream;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use crate::common::*;
use plainweave::net::Readiness;
use plainweave::time::{sleep, with_timeout};
use plainweave::{is_cancelled, select, spawn};
use rustix::event::{EventfdFlags, eventfd};

on_every_driver!(
    an_eventfd_is_waited_for,
    a_call_is_made_until_it_finds_something,
    waits_end_early,
    urgent_data_is_a_priority,
    what_cannot_be_polled_is_an_error,
    a_borrowed_descriptor_will_do,
    threads_wait_too,
);

fn counter() -> File {
    let flags = EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC;
    File::from(eventfd(0, flags).expect("an eventfd"))
}

fn add(counter: &File) {
    (&*counter).write_all(&1u64.to_ne_bytes()).expect("added");
}

fn taken(mut counter: &File) -> std::io::Result<u64> {
    let mut sum = [0; 8];
    counter
        .read_exact(&mut sum)
        .map(|()| u64::from_ne_bytes(sum))
}

fn an_eventfd_is_waited_for(setup: Setup) {
    setup.runtime().run(|| {
        let ready = Readiness::of(counter()).expect("it can be polled");
        let adds = ready.get_ref().try_clone().expect("cloned");
        let adding = spawn(move || {
            for _ in 0..20 {
                sleep(ms(1)).expect("slept");
                add(&adds);
            }
        });
        let mut sum = 0;
        while sum < 20 {
            ready.wait_readable(Some(HANG)).expect("it comes");
            // Ready until it is taken, however often it is asked.
            ready.wait_readable(None).expect("still there");
            sum += taken(ready.get_ref()).expect("there");
        }
        ready.wait_writable(None).expect("there is room");
        adding.join().expect("no panic");
        let branch = select! {
            readable(ready) => 1,
            writable(ready) => 2,
        };
        assert_eq!(branch.expect("not cancelled"), 2);
    });
}

fn a_call_is_made_until_it_finds_something(setup: Setup) {
    setup.runtime().run(|| {
        let ready = Readiness::of(counter()).expect("it can be polled");
        let adds = ready.get_ref().try_clone().expect("cloned");
        let adding = spawn(move || {
            pause();
            add(&adds);
        });
        assert_eq!(ready.until_readable(taken).expect("it comes"), 1);
        let error = ready
            .until_readable(|_| Err::<(), _>(ErrorKind::InvalidData.into()))
            .expect_err("the call's own");
        assert_eq!(error.kind(), ErrorKind::InvalidData);
        assert!(ready.until_writable(|_| Ok(())).is_ok());
        adding.join().expect("no panic");
        assert!(ready.into_inner().as_raw_fd() >= 0);
    });
}

fn waits_end_early(setup: Setup) {
    setup.runtime().run(|| {
        let ready = Readiness::of(counter()).expect("it can be polled");
        let late = ready.wait_readable(Some(ms(3))).expect_err("nothing comes");
        assert_eq!(late.kind(), ErrorKind::TimedOut);
        let late = with_timeout(ms(3), || ready.until_readable(taken)).expect_err("nothing");
        assert_eq!(late.kind(), ErrorKind::TimedOut);
        let waits = spawn(move || ready.wait_readable(None).map_err(|e| is_cancelled(&e)));
        pause();
        waits.cancel();
        assert_eq!(waits.join().expect("no panic"), Err(true));
    });
}

fn urgent_data_is_a_priority(setup: Setup) {
    setup.runtime().run(|| {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let client = OsStream::connect(listener.local_addr().unwrap()).expect("connected");
        let (server, _) = listener.accept().expect("accepted");
        let ready = Readiness::of(server).expect("it can be polled");
        let late = ready.wait_priority(Some(ms(3))).expect_err("nothing comes");
        assert_eq!(late.kind(), ErrorKind::TimedOut);
        let sends = spawn(move || {
            pause();
            (&client).write_all(b"plain").expect("written");
            pause();
            let flags = rustix::net::SendFlags::OOB;
            rustix::net::send(&client, b"!", flags).expect("sent");
            client
        });
        ready.wait_readable(Some(HANG)).expect("plain data");
        ready.wait_priority(Some(HANG)).expect("urgent data");
        drop(sends.join().expect("no panic"));
    });
}

fn what_cannot_be_polled_is_an_error(setup: Setup) {
    setup.runtime().run(|| {
        for path in ["Cargo.toml", "."] {
            let error = Readiness::of(File::open(path).expect("there")).expect_err("always ready");
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
        }
    });
}

fn a_borrowed_descriptor_will_do(setup: Setup) {
    setup.runtime().run(|| {
        let own = counter();
        add(&own);
        let ready = Readiness::of(own.as_fd()).expect("it can be polled");
        ready.wait_readable(None).expect("there");
        drop(ready);
        assert_eq!(taken(&own).expect("still open"), 1);
        let owned: OwnedFd = own.into();
        assert!(
            Readiness::of(owned)
                .expect("it can be polled")
                .wait_writable(None)
                .is_ok()
        );
    });
}

fn threads_wait_too(_: Setup) {
    let ready = Readiness::of(counter()).expect("it can be polled");
    let late = ready.wait_readable(Some(ms(3))).expect_err("nothing comes");
    assert_eq!(late.kind(), ErrorKind::TimedOut);
    let adds = ready.get_ref().try_clone().expect("cloned");
    let adding = std::thread::spawn(move || add(&adds));
    assert_eq!(ready.until_readable(taken).expect("it comes"), 1);
    adding.join().expect("no panic");
}
