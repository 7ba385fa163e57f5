//! Files sent from the page cache, and what that does when the peer is slow or gone.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::common::*;
use plainweave::fs::is_resident;
use plainweave::is_cancelled;

on_every_setup!(
    whole_and_in_order,
    a_slow_reader_makes_it_wait,
    ends_with_the_file,
    time_out,
    cancelled,
    vanished
);

/// A file without a name, filled with a pattern.
fn file(len: usize) -> File {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let unique = format!(
        "plainweave-send-{}-{}",
        std::process::id(),
        COUNT.fetch_add(1, Ordering::Relaxed)
    );
    let path = std::env::temp_dir().join(unique);
    let file = File::options()
        .create_new(true)
        .read(true)
        .write(true)
        .open(&path)
        .expect("a file");
    std::fs::remove_file(path).expect("remove");
    let bytes: Vec<u8> = (0..len).map(|n| (n % 251) as u8).collect();

    file.write_all_at(&bytes, 0).expect("write");
    file
}

const LEN: usize = 3 << 20;

/// Sends all of the file behind a head.
fn send(conn: &plainweave::net::TcpStream, file: &File) -> std::io::Result<()> {
    let mut head = &b"head"[..];
    while !head.is_empty() {
        head = &head[conn.write_more(head)?..];
    }
    let mut offset = 0;
    while offset < LEN {
        offset += conn.send_file(file, offset as u64, LEN - offset)?;
    }
    Ok(())
}

fn whole_and_in_order(setup: Setup) {
    let runtime = setup.runtime();
    let (conn, mut theirs) = connected();
    let reader = std::thread::spawn(move || {
        let mut got = Vec::new();
        theirs.read_to_end(&mut got).map(|_| got)
    });

    let sent = runtime.spawn(move || send(&conn, &file(LEN)));
    sent.join().expect("no panic").expect("sent");
    let got = reader.join().expect("no panic").expect("read");
    assert_eq!((&got[..4], got.len()), (&b"head"[..], LEN + 4));

    assert!(
        got[4..]
            .iter()
            .enumerate()
            .all(|(n, &byte)| byte == (n % 251) as u8)
    );
}

fn a_slow_reader_makes_it_wait(setup: Setup) {
    let runtime = setup.runtime();
    let (conn, mut theirs) = connected();
    let sending = runtime.spawn(move || send(&conn, &file(LEN)));

    // Others run on the same worker meanwhile.
    assert_eq!(runtime.spawn(|| 7).join().expect("no panic"), 7);
    let mut got = 0;
    let mut buf = vec![0; 10_000];
    while got < LEN + 4 {
        got += theirs.read(&mut buf).expect("read");
    }
    sending.join().expect("no panic").expect("sent");
}

fn ends_with_the_file(setup: Setup) {
    let runtime = setup.runtime();
    let (conn, _theirs) = connected();
    let sent = runtime.run(move || {
        let file = file(1000);
        (
            conn.send_file(&file, 900, 4096),
            conn.send_file(&file, 1000, 4096),
            conn.send_file(&file, 5000, 1),
        )
    });

    assert_eq!(
        (
            sent.0.expect("the rest"),
            sent.1.expect("none"),
            sent.2.expect("none")
        ),
        (100, 0, 0)
    );
}

fn time_out(setup: Setup) {
    let runtime = setup.runtime();
    let (conn, _theirs) = connected();
    conn.set_write_timeout(Some(ms(50))).expect("a limit");
    let file = file(LEN);
    let error = runtime.run(move || {
        (0..100)
            .find_map(|_| send(&conn, &file).err())
            .expect("nobody reads")
    });

    assert_eq!(error.kind(), ErrorKind::TimedOut);
}

fn cancelled(setup: Setup) {
    let runtime = setup.runtime();
    let (conn, _theirs) = connected();
    let file = file(LEN);
    let sending = runtime.spawn(move || {
        (0..100)
            .find_map(|_| send(&conn, &file).err())
            .expect("nobody reads")
    });

    std::thread::sleep(ms(50));
    sending.cancel();
    assert!(is_cancelled(&sending.join().expect("no panic")));
}

fn vanished(setup: Setup) {
    let runtime = setup.runtime();
    let (conn, mut theirs) = connected();
    let file = file(LEN);
    let sending = runtime.spawn(move || {
        (0..100)
            .find_map(|_| send(&conn, &file).err())
            .expect("the peer has gone")
    });

    theirs.read_exact(&mut [0; 1000]).expect("some");
    theirs.write_all(b"x").expect("write");
    drop(theirs);
    let kind = sending.join().expect("no panic").kind();

    assert!(
        matches!(kind, ErrorKind::BrokenPipe | ErrorKind::ConnectionReset),
        "{kind}"
    );
}

#[test]
fn what_was_just_written_is_in_memory() {
    let file = file(100_000);
    match is_resident(&file, 0..100_000) {
        Ok(resident) => {
            assert!(resident);
            assert!(is_resident(&file, 5..5).expect("nothing is always there"));
            assert!(
                !is_resident(&file, 0..10_000_000).expect("asked"),
                "what lies behind the end is not"
            );
        }
        Err(error) => assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}"),
    }
}
