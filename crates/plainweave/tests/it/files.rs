//! Files and directories. On both drivers, beside `std::fs` on the same.

use std::fs;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use tempfile::{TempDir, tempdir};

use crate::common::*;
use plainweave::fs::{self as fibers, File, OpenOptions, TryLockError};
use plainweave::time::{sleep, with_timeout};
use plainweave::{Io, Runtime, is_cancelled, spawn};

on_every_driver!(
    options_are_those_of_std,
    a_file_does_what_one_of_std_does,
    clones_share_a_position,
    nothing_appended_moves_nothing,
    a_file_goes_to_std_and_back,
    vectored_calls_use_all_buffers,
    paths_are_handled_as_by_std,
    all_entries_are_read,
    copies_are_whole,
    a_copy_onto_itself_loses_nothing,
    a_lock_keeps_others_out,
    errors_are_those_of_std,
    what_has_no_position_says_so,
    a_cancelled_caller_begins_nothing,
    what_waits_is_not_done_later,
    what_has_no_position_is_read_whole,
    many_read_what_no_page_has,
    what_bypasses_the_cache,
    what_runs_out_is_said,
);

fn on(setup: Setup, test: impl FnOnce(&Path) + Send + 'static) {
    let directory: TempDir = tempdir().expect("a directory");
    let path = directory.path().to_owned();
    setup.runtime().run(move || test(&path));
}

/// What a test compares of an outcome.
fn seen<T>(result: io::Result<T>) -> Result<T, (ErrorKind, Option<i32>)> {
    result.map_err(|error| (error.kind(), error.raw_os_error()))
}

fn options_are_those_of_std(setup: Setup) {
    on(setup, |directory| {
        for (bits, exists) in (0..64).flat_map(|bits| [(bits, false), (bits, true)]) {
            let is = |bit: u32| bits & 1 << bit != 0;
            let outcomes = ["ours", "theirs"].map(|whose| {
                let path = directory.join(format!("{whose}-{bits}-{exists}"));
                if exists {
                    fs::write(&path, "before").expect("written");
                }

                let opened = match whose {
                    "ours" => OpenOptions::new()
                        .read(is(0))
                        .write(is(1))
                        .append(is(2))
                        .truncate(is(3))
                        .create(is(4))
                        .create_new(is(5))
                        .mode(0o640)
                        .open(&path)
                        .map(|mut file| (file.write(b"new").is_ok(), file.metadata())),
                    _ => fs::OpenOptions::new()
                        .read(is(0))
                        .write(is(1))
                        .append(is(2))
                        .truncate(is(3))
                        .create(is(4))
                        .create_new(is(5))
                        .mode(0o640)
                        .open(&path)
                        .map(|mut file| (file.write(b"new").is_ok(), file.metadata())),
                };

                let opened = opened.map(|(written, metadata)| {
                    let metadata = metadata.expect("of an open file");
                    (written, metadata.permissions().mode(), metadata.len())
                });

                (seen(opened), fs::read(&path).ok())
            });

            assert_eq!(outcomes[0], outcomes[1], "{bits:06b}, {exists}");
        }
    });
}

#[derive(Clone, Debug)]
enum Step {
    Read(usize),
    Write(Vec<u8>),
    ReadAt(usize, u64),
    WriteAt(Vec<u8>, u64),
    Start(u64),
    Current(i64),
    End(i64),
    SetLen(u64),
    ToEnd,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        (0..3000usize).prop_map(Step::Read),
        vec(any::<u8>(), 0..3000).prop_map(Step::Write),
        (0..3000usize, 0..9000u64).prop_map(|(len, at)| Step::ReadAt(len, at)),
        (vec(any::<u8>(), 0..3000), 0..9000u64).prop_map(|(bytes, at)| Step::WriteAt(bytes, at)),
        (0..9000u64).prop_map(Step::Start),
        (-5000..5000i64).prop_map(Step::Current),
        (-5000..5000i64).prop_map(Step::End),
        (0..9000u64).prop_map(Step::SetLen),
        Just(Step::ToEnd),
    ];
    vec(step, 1..40)
}

/// Reads until `buf` is full or the file ends: a read may give less, where a page is not cached
/// say.
fn filled(
    buf: &mut [u8],
    mut read: impl FnMut(&mut [u8], u64) -> io::Result<usize>,
) -> io::Result<u64> {
    let mut len = 0;
    while len < buf.len() {
        match read(&mut buf[len..], len as u64)? {
            0 => break,
            n => len += n,
        }
    }
    Ok(len as u64)
}

/// Does the steps on a file; what `at` does, which is no trait's, comes from the caller.
fn walk<F: Read + Write + Seek>(
    file: &mut F,
    steps: &[Step],
    read_at: impl Fn(&F, &mut [u8], u64) -> io::Result<usize>,
    write_at: impl Fn(&F, &[u8], u64) -> io::Result<usize>,
    set_len: impl Fn(&F, u64) -> io::Result<()>,
) -> Vec<String> {
    let step = |step: &Step| {
        let mut buf = Vec::new();
        let outcome = match step {
            Step::Read(len) => {
                buf.resize(*len, 0);
                seen(filled(&mut buf, |buf, _| file.read(buf)))
            }
            Step::Write(bytes) => seen(file.write(bytes).map(|n| n as u64)),
            Step::ReadAt(len, at) => {
                buf.resize(*len, 0);
                seen(filled(&mut buf, |buf, n| read_at(file, buf, at + n)))
            }
            Step::WriteAt(bytes, at) => seen(write_at(file, bytes, *at).map(|n| n as u64)),
            Step::Start(at) => seen(file.seek(SeekFrom::Start(*at))),
            // The kernel gives EINVAL, and its number, where we find the fault before.
            Step::Current(by) => {
                seen(file.seek(SeekFrom::Current(*by))).map_err(|(kind, _)| (kind, None))
            }
            Step::End(by) => seen(file.seek(SeekFrom::End(*by))).map_err(|(kind, _)| (kind, None)),
            Step::SetLen(len) => seen(set_len(file, *len).map(|()| 0)),
            Step::ToEnd => seen(file.read_to_end(&mut buf).map(|n| n as u64)),
        };

        let at = file.stream_position().expect("a position");
        format!("{step:?}: {outcome:?}, at {at}, {buf:?}")
    };
    steps.iter().map(step).collect()
}

fn a_file_does_what_one_of_std_does(setup: Setup) {
    let runtime = Arc::new(setup.runtime());
    let mut runner = TestRunner::new(Config::with_cases(40));
    let test = |(steps, appends): (Vec<Step>, bool)| {
        let directory = tempdir().expect("a directory");
        let ours = directory.path().join("ours");
        let theirs = directory.path().join("theirs");

        let expected = {
            let mut options = fs::OpenOptions::new();
            options.read(true).append(appends).write(true).create(true);
            let mut file = options.open(&theirs).expect("opened");
            walk(
                &mut file,
                &steps,
                |file, buf, at| file.read_at(buf, at),
                |file, bytes, at| file.write_at(bytes, at),
                |file, len| file.set_len(len),
            )
        };

        let path = ours.clone();
        let found = runtime.run(move || {
            let mut options = OpenOptions::new();
            options.read(true).append(appends).write(true).create(true);
            let mut file = options.open(&path).expect("opened");
            walk(
                &mut file,
                &steps,
                File::read_at,
                File::write_at,
                File::set_len,
            )
        });

        prop_assert_eq!(found, expected);
        prop_assert_eq!(
            fs::read(ours).expect("read"),
            fs::read(theirs).expect("read")
        );
        Ok(())
    };
    runner
        .run(&(steps(), any::<bool>()), test)
        .expect("the same");
}

fn clones_share_a_position(setup: Setup) {
    on(setup, |directory| {
        let path = directory.join("file");
        fibers::write(&path, "0123456789").expect("written");
        let one = File::open(&path).expect("opened");
        let other = one.try_clone().expect("cloned");
        let mut buf = [0; 4];
        (&one).read_exact(&mut buf).expect("read");
        assert_eq!((&other).stream_position().expect("a position"), 4);
        (&other).read_exact(&mut buf).expect("read");
        assert_eq!(&buf, b"4567");

        // Readers beside each other get each byte once.
        let bytes: Vec<u8> = (0..200_000u32).map(|n| (n % 251) as u8).collect();
        fibers::write(&path, &bytes).expect("written");
        let file = Arc::new(File::open(&path).expect("opened"));
        let reads = |_| {
            let file = Arc::clone(&file);
            spawn(move || {
                let mut sum = 0;
                let mut buf = [0; 777];
                loop {
                    match (&*file).read(&mut buf).expect("read") {
                        0 => return sum,
                        n => sum += buf[..n].iter().map(|&byte| u64::from(byte)).sum::<u64>(),
                    }
                }
            })
        };

        let readers: Vec<_> = (0..8).map(reads).collect();
        let sums = readers
            .into_iter()
            .map(|reader| reader.join().expect("no panic"));
        let expected: u64 = bytes.iter().map(|&byte| u64::from(byte)).sum();
        assert_eq!(sums.sum::<u64>(), expected);
    });
}

fn nothing_appended_moves_nothing(setup: Setup) {
    on(setup, |directory| {
        let path = directory.join("file");
        fs::write(&path, "0123456789").expect("written");
        let mut options = OpenOptions::new();
        let mut file = options.read(true).append(true).open(&path).expect("opened");
        file.read_exact(&mut [0; 4]).expect("read");
        assert_eq!(file.write(b"").expect("nothing"), 0);
        assert_eq!(file.stream_position().expect("a position"), 4);
    });
}

fn a_file_goes_to_std_and_back(setup: Setup) {
    on(setup, |directory| {
        let path = directory.join("file");
        fs::write(&path, "0123456789").expect("written");
        let mut theirs = fs::File::open(&path).expect("opened");
        theirs.seek(SeekFrom::Start(3)).expect("sought");
        let mut ours = File::from(theirs);
        let mut buf = [0; 2];
        ours.read_exact(&mut buf).expect("read");
        assert_eq!(&buf, b"34");

        let clone = ours.try_clone().expect("cloned");
        let mut theirs = clone.into_std().expect("another descriptor");
        theirs.read_exact(&mut buf).expect("read");
        assert_eq!(&buf, b"56");
        let mut theirs = ours.into_std().expect("the last");
        theirs.read_exact(&mut buf).expect("read");
        assert_eq!(&buf, b"56", "ours was there");
    });
}

fn vectored_calls_use_all_buffers(setup: Setup) {
    on(setup, |directory| {
        let mut options = File::options();
        let mut file = options
            .read(true)
            .write(true)
            .create_new(true)
            .open(directory.join("file"))
            .expect("created");
        let parts = [
            IoSlice::new(b"one"),
            IoSlice::new(b""),
            IoSlice::new(b"three"),
        ];

        assert_eq!(file.write_vectored(&parts).expect("written"), 8);
        assert_eq!(file.write_vectored_at(&parts, 8).expect("written"), 8);

        let (mut first, mut second) = ([0; 5], [0; 20]);
        let mut bufs = [IoSliceMut::new(&mut first), IoSliceMut::new(&mut second)];
        assert_eq!(file.read_vectored_at(&mut bufs, 1).expect("read"), 15);
        assert_eq!(&first, b"nethr");
        assert_eq!(&second[..10], b"eeonethree");

        // More than one call moves, and more buffers than the kernel takes.
        let large = vec![7; 3 << 20];
        let many: Vec<_> = large.chunks(1 << 10).map(IoSlice::new).collect();
        let n = file.write_vectored_at(&many, 0).expect("written");
        assert!((1..=1 << 20).contains(&n), "{n}");
        assert_eq!(file.write_vectored_at(&[], 0).expect("nothing"), 0);
        file.write_all_at(&large, 100).expect("written");
        let mut back = vec![0; large.len()];
        file.read_exact_at(&mut back, 100).expect("read");
        assert!(back == large);
        let error = file
            .read_exact_at(&mut back, 101)
            .expect_err("one byte is missing");
        assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
    });
}

/// One call on paths, by fibers and by `std`.
type OnPath = (
    &'static str,
    fn(&Path) -> io::Result<String>,
    fn(&Path) -> io::Result<String>,
);

macro_rules! on_path {
    ($($name:ident ($($to:literal)?)),+ $(,)?) => {
        [$((
            stringify!($name),
            |path| said!(fibers::$name(path $(, path.with_file_name($to))?)),
            |path| said!(fs::$name(path $(, path.with_file_name($to))?)),
        )),+]
    };
}

macro_rules! said {
    ($call:expr) => {{
        let result = $call;
        result.map(|value| format!("{value:?}"))
    }};
}

fn paths_are_handled_as_by_std(setup: Setup) {
    let calls: [OnPath; 14] = on_path![
        create_dir(),
        create_dir_all(),
        remove_file(),
        remove_dir(),
        remove_dir_all(),
        rename("other"),
        rename("directory"),
        rename("missing-directory/x"),
        hard_link("other"),
        hard_link("new"),
        read_link(),
        read_to_string(),
        exists(),
        read(),
    ];
    let prepare = |directory: &Path| {
        fs::create_dir_all(directory.join("directory/inner")).expect("created");
        fs::create_dir(directory.join("empty")).expect("created");
        for name in ["file", "other"] {
            fs::write(directory.join(name), name).expect("written");
        }

        fs::write(directory.join("binary"), [0xff, 0xfe]).expect("written");
        std::os::unix::fs::symlink("file", directory.join("link")).expect("linked");
        std::os::unix::fs::symlink("nowhere", directory.join("dangling")).expect("linked");
    };
    /// What is left of a directory.
    fn left(directory: &Path) -> Vec<String> {
        let mut all = Vec::new();
        let Ok(entries) = fs::read_dir(directory) else {
            return vec!["it has gone".into()];
        };

        for entry in entries {
            let entry = entry.expect("an entry");
            let kind = entry.file_type().expect("a kind");
            all.push(format!("{:?} {kind:?}", entry.file_name()));
            if kind.is_dir() {
                all.extend(left(&entry.path()));
            }
        }

        all.sort();
        all
    }

    on(setup, move |root| {
        let names = [
            "file",
            "directory",
            "empty",
            "missing",
            "link",
            "dangling",
            "binary",
            "file/below",
            "no/parent",
            "zero\0byte",
            "",
        ];

        for (name, (call, ours, theirs)) in names
            .iter()
            .flat_map(|name| calls.iter().map(move |call| (name, call)))
        {
            let outcomes = [ours, theirs].map(|function| {
                let all = root.join("all");
                _ = fs::remove_dir_all(&all);
                let directory = all.join("tree");
                prepare(&directory);
                let outcome = function(&directory.join(name));
                // Ours says which path it is that has a zero byte.
                (seen(outcome), left(&all))
            });

            assert_eq!(outcomes[0], outcomes[1], "{call} {name:?}");
        }

        prepare(root);
        let file = root.join("file");
        fibers::symlink("file", root.join("new")).expect("linked");
        assert_eq!(fs::read(root.join("new")).expect("read"), b"file");
        assert_eq!(
            fibers::canonicalize(root.join("new")).ok(),
            fs::canonicalize(&file).ok()
        );

        assert!(
            fibers::symlink_metadata(root.join("new"))
                .expect("there")
                .is_symlink()
        );

        assert!(fibers::metadata(root.join("new")).expect("there").is_file());
        fibers::set_permissions(&file, fs::Permissions::from_mode(0o604)).expect("set");
        let mode = File::open(&file)
            .and_then(|file| file.metadata())
            .expect("there");
        assert_eq!(mode.permissions().mode() & 0o777, 0o604);
    });
}

fn all_entries_are_read(setup: Setup) {
    on(setup, |directory| {
        for n in 0..1000 {
            fs::write(directory.join(format!("file-{n}")), "").expect("written");
        }

        fs::create_dir(directory.join("directory")).expect("created");
        let mut names: Vec<_> = fibers::read_dir(directory)
            .expect("opened")
            .map(|entry| {
                let entry = entry.expect("read");
                assert_eq!(entry.path().parent(), Some(directory));
                let name = entry.file_name();
                let is_dir = entry.file_type().expect("a kind").is_dir();
                assert_eq!(is_dir, name == "directory");
                assert_eq!(entry.metadata().expect("there").is_dir(), is_dir);
                name
            })
            .collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), 1001);

        // A caller that is late hears of it once: who goes over errors does so to an end.
        let mut entries = fibers::read_dir(directory).expect("opened");
        let late = with_timeout(ms(0), || entries.by_ref().find_map(Result::err));
        assert_eq!(late.expect("the time was up").kind(), ErrorKind::TimedOut);
        assert!(entries.next().is_none());
    });
}

fn copies_are_whole(setup: Setup) {
    on(setup, |directory| {
        let from = directory.join("from");
        let to = directory.join("to");
        let bytes: Vec<u8> = (0..20_000_000u32).map(|n| (n % 253) as u8).collect();
        fs::write(&from, &bytes).expect("written");
        fs::set_permissions(&from, fs::Permissions::from_mode(0o751)).expect("set");
        fs::write(&to, "what was there before").expect("written");
        assert_eq!(
            fibers::copy(&from, &to).expect("copied"),
            bytes.len() as u64
        );

        assert!(fs::read(&to).expect("read") == bytes);
        let mode = fs::metadata(&to).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o751);

        // What says that it has no length, and what cannot be copied.
        let n = fibers::copy("/proc/self/status", &to).expect("copied");
        assert_eq!(fs::metadata(&to).expect("there").len(), n);
        assert!(n > 100);
        let error = fibers::copy(directory, &to).expect_err("a directory");
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.to_string().contains("is not a file"), "{error}");
        let full = fibers::copy(&from, "/dev/full").expect_err("no room");
        assert_eq!(full.kind(), ErrorKind::StorageFull);
    });
}

fn a_copy_onto_itself_loses_nothing(setup: Setup) {
    on(setup, |directory| {
        let path = directory.join("file");
        let link = directory.join("link");
        fs::write(&path, "precious").expect("written");
        fibers::symlink(&path, &link).expect("linked");
        for to in [&path, &link] {
            let error = fibers::copy(&path, to).expect_err("refused");
            assert!(error.to_string().contains("one file"), "{error}");
            assert_eq!(fs::read(&path).expect("read"), b"precious");
        }
    });
}

fn a_lock_keeps_others_out(setup: Setup) {
    on(setup, |directory| {
        let path = directory.join("file");
        let one = File::create(&path).expect("created");
        let other = File::open(&path).expect("opened");
        one.lock().expect("free");
        assert!(matches!(other.try_lock(), Err(TryLockError::WouldBlock)));
        assert!(matches!(
            other.try_lock_shared(),
            Err(TryLockError::WouldBlock)
        ));
        let late = with_timeout(ms(20), || other.lock()).expect_err("it is locked");
        assert_eq!(late.kind(), ErrorKind::TimedOut);

        let waits = spawn(move || other.lock_shared().map(|()| other));
        sleep(ms(20)).expect("not cancelled");
        assert!(!waits.is_finished());
        one.unlock().expect("unlocked");
        let other = waits.join().expect("no panic").expect("free");
        one.try_lock_shared().expect("shared");
        assert!(matches!(one.try_lock(), Err(TryLockError::WouldBlock)));
        drop(other);
        one.lock().expect("free");
    });
}

fn errors_are_those_of_std(setup: Setup) {
    on(setup, |directory| {
        let path = directory.join("file");
        fs::write(&path, "some").expect("written");
        let mut reads = File::open(&path).expect("opened");
        let mut theirs = fs::File::open(&path).expect("opened");
        assert_eq!(seen(reads.write(b"x")), seen(theirs.write(b"x")));
        assert_eq!(seen(reads.set_len(1)), seen(theirs.set_len(1)));
        assert_eq!(
            seen(reads.set_len(u64::MAX)).is_err(),
            theirs.set_len(u64::MAX).is_err()
        );

        let mut writes = OpenOptions::new().write(true).open(&path).expect("opened");
        let mut buf = [0; 4];
        assert_eq!(
            writes
                .read(&mut buf)
                .expect_err("not for reading")
                .raw_os_error(),
            Some(9)
        );

        let error = File::open(directory).and_then(|mut file| file.read(&mut buf));
        assert_eq!(
            error.expect_err("a directory").kind(),
            ErrorKind::IsADirectory
        );

        let mut full = OpenOptions::new()
            .write(true)
            .open("/dev/full")
            .expect("opened");
        assert_eq!(
            full.write(&buf).expect_err("no room").kind(),
            ErrorKind::StorageFull
        );

        let mut zeros = File::open("/dev/zero").expect("opened");
        zeros.read_exact(&mut buf).expect("for ever");
        let error = reads
            .seek(SeekFrom::Current(-5))
            .expect_err("before the start");
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert_eq!(reads.seek(SeekFrom::End(-1)).expect("the last"), 3);
        for far in [u64::MAX, 1 << 63] {
            let bytes = [IoSlice::new(b"x")];
            let expected = seen(theirs.read_at(&mut buf, far));
            assert_eq!(seen(reads.read_at(&mut buf, far)), expected);
            assert_eq!(seen(writes.write_at(b"x", far)), expected);
            assert_eq!(seen(writes.write_vectored_at(&bytes, far)), expected);
            let mut bufs = [IoSliceMut::new(&mut buf)];
            assert_eq!(seen(reads.read_vectored_at(&mut bufs, far)), expected);
        }
        reads.sync_all().expect("synced");
        reads.sync_data().expect("synced");
    });
}

fn what_has_no_position_says_so(setup: Setup) {
    on(setup, |_| {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        let mut file = File::from(std::os::fd::OwnedFd::from(reader));
        let error = file.read(&mut [0]).expect_err("no position");
        assert_eq!(error.kind(), ErrorKind::NotSeekable);
        assert!(error.to_string().contains("PipeReader"), "{error}");
        let mut file = File::from(std::os::fd::OwnedFd::from(writer));
        assert_eq!(
            file.write(&[0]).expect_err("no position").kind(),
            ErrorKind::NotSeekable
        );
    });
}

/// As a shell's `<(command)` is.
fn what_has_no_position_is_read_whole(setup: Setup) {
    on(setup, |_| {
        let (reader, mut writer) = std::io::pipe().expect("a pipe");
        writer.write_all(b"from a command").expect("room");
        drop(writer);
        let path = format!("/proc/self/fd/{}", reader.as_raw_fd());
        assert_eq!(
            fibers::read_to_string(path).expect("read"),
            "from a command"
        );
        let (mut reader, writer) = std::io::pipe().expect("a pipe");
        let path = format!("/proc/self/fd/{}", writer.as_raw_fd());
        fibers::write(path, "to a command").expect("written");
        drop(writer);
        let mut text = String::new();
        reader.read_to_string(&mut text).expect("read");
        assert_eq!(text, "to a command");
    });
}

fn a_cancelled_caller_begins_nothing(setup: Setup) {
    on(setup, |directory| {
        let path = directory.join("file");
        let target = path.clone();
        let file = File::create(&path).expect("created");
        let fiber = spawn(move || {
            plainweave::park().expect_err("cancelled");
            assert!(is_cancelled(&file.write_at(b"x", 0).expect_err("nothing")));
            assert!(is_cancelled(
                &file.read_at(&mut [0], 0).expect_err("nothing")
            ));
            assert!(is_cancelled(&file.sync_all().expect_err("nothing")));
            assert!(is_cancelled(
                &fibers::remove_file(&target).expect_err("nothing")
            ));
            assert!(is_cancelled(&fibers::read_dir("/").expect_err("nothing")));
            assert!(is_cancelled(
                &fibers::copy("/proc/self/status", &target).expect_err("nothing")
            ));
            assert!(is_cancelled(&file.lock().expect_err("nothing")));
        });

        fiber.cancel();
        fiber.join().expect("no panic");
        assert_eq!(fs::metadata(&path).expect("it is there").len(), 0);

        let late = with_timeout(ms(0), || File::open(&path)).expect_err("late");
        assert_eq!(late.kind(), ErrorKind::TimedOut);
    });
}

/// A job that has not begun when its caller leaves does not run.
fn what_waits_is_not_done_later(setup: Setup) {
    let directory = tempdir().expect("a directory");
    let kept = directory.path().join("kept");
    fs::create_dir(&kept).expect("created");
    let builder = setup.builder().blocking_threads(1);
    let runtime = setup.check(builder.build().expect("a runtime"));
    let (finish, finished) = std::sync::mpsc::channel::<()>();
    let held = runtime.spawn(move || plainweave::blocking(move || finished.recv().is_err()));
    eventually("it has the only thread", || {
        runtime.metrics().blocking_threads == 1
    });

    let target = kept.clone();
    let has_run = Arc::new(AtomicBool::new(false));
    let runs = has_run.clone();
    runtime.run(move || {
        let late = with_timeout(ms(20), || fibers::remove_dir_all(&target));
        assert_eq!(late.expect_err("no thread").kind(), ErrorKind::TimedOut);
        let job = move || runs.store(true, Ordering::SeqCst);
        let late = with_timeout(ms(20), || plainweave::blocking(job));
        assert_eq!(late.expect_err("no thread").kind(), ErrorKind::TimedOut);
    });

    drop(finish);
    assert!(held.join().expect("no panic").expect("not cancelled"));
    // A later job has seen the others go.
    let last = runtime.run(|| plainweave::blocking(|| 1));
    assert_eq!(last.expect("not cancelled"), 1);
    assert!(kept.exists() && !has_run.load(Ordering::SeqCst));
}

/// Reads beside each other, of pages that the kernel has to fetch.
fn many_read_what_no_page_has(setup: Setup) {
    const BLOCK: usize = 4096;
    const BLOCKS: usize = 2048;
    on(setup, |directory| {
        let path = directory.join("file");
        let bytes: Vec<u8> = (0..BLOCK * BLOCKS).map(|n| (n / 16) as u8).collect();
        fibers::write(&path, &bytes).expect("written");
        let file = File::open(&path).expect("opened");
        file.sync_all().expect("synced");
        let dropped = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed);
        dropped.expect("advice");

        let file = Arc::new(file);
        let bytes = Arc::new(bytes);
        let reads = |at: usize| {
            let file = Arc::clone(&file);
            let bytes = Arc::clone(&bytes);
            spawn(move || {
                let mut buf = [0; BLOCK];
                let start = at * BLOCK;
                file.read_exact_at(&mut buf, start as u64).expect("read");
                assert!(buf == bytes[start..start + BLOCK], "{at}");
            })
        };

        let order = (0..BLOCKS).map(|n| n * 1021 % BLOCKS);
        let readers: Vec<_> = order.map(reads).collect();
        for reader in readers {
            reader.join().expect("no panic");
        }
    });
}

/// A block as `O_DIRECT` wants it.
#[repr(align(4096))]
struct Aligned([u8; 8192]);

fn what_bypasses_the_cache(setup: Setup) {
    on(setup, |directory| {
        let path = directory.join("direct");
        fs::write(&path, [7; 16384]).expect("written");
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        let file = match options.custom_flags(libc::O_DIRECT).open(&path) {
            // A file system in memory may have no such thing.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => return,
            opened => opened.expect("opened"),
        };

        let mut block = Box::new(Aligned([0; 8192]));
        block.0[..4096].fill(1);
        assert_eq!(
            file.write_at(&block.0[..4096], 4096).expect("written"),
            4096
        );
        assert_eq!(file.read_at(&mut block.0, 4096).expect("read"), 8192);
        assert_eq!(
            [block.0[0], block.0[4095], block.0[4096], block.0[8191]],
            [1, 1, 7, 7]
        );
        let (first, second) = block.0.split_at_mut(4096);
        let mut both = [
            IoSliceMut::new(&mut []),
            IoSliceMut::new(first),
            IoSliceMut::new(second),
        ];
        assert_eq!(file.read_vectored_at(&mut both, 0).expect("read"), 8192);
        assert_eq!([block.0[0], block.0[4096]], [7, 1]);

        // Of one buffer the kernel sees the same alignment on each way, so errors are std's, too.
        let std = fs::File::options()
            .read(true)
            .custom_flags(libc::O_DIRECT)
            .open(&path);
        let std = std.expect("opened");
        for (start, offset) in [(1, 0), (0, 1), (512, 0), (256, 0), (512, 4096)] {
            let buf = &mut block.0[start..start + 4096];
            let theirs = seen(std.read_at(buf, offset));
            assert_eq!(seen(file.read_at(buf, offset)), theirs, "{start}, {offset}");
        }
    });
}

fn what_runs_out_is_said(setup: Setup) {
    if apart() {
        return;
    }
    let runtime = setup.without_spares();
    runtime.run(|| {
        fibers::metadata("/proc").expect("the pool has its thread");
        let most = rustix::process::Resource::Nofile;
        let before = rustix::process::getrlimit(most);
        let few = rustix::process::Rlimit {
            current: Some(descriptors() as u64),
            maximum: before.maximum,
        };

        rustix::process::setrlimit(most, few).expect("fewer");
        let held: Vec<_> = std::iter::from_fn(|| fs::File::open("/dev/null").ok()).collect();
        let error = File::open("/proc/self/status").expect_err("no descriptor");
        assert_eq!(error.raw_os_error(), Some(24), "{error}");
        drop(held);
        rustix::process::setrlimit(most, before).expect("as before");
        File::open("/proc/self/status").expect("there is one again");
    });
}

/// A plain thread has the same calls.
#[test]
fn on_a_plain_thread() {
    let directory = tempdir().expect("a directory");
    let path = directory.path().join("file");
    fibers::write(&path, "contents").expect("written");
    assert_eq!(fibers::read_to_string(&path).expect("read"), "contents");
    let mut options = OpenOptions::new();
    let mut file = options.read(true).append(true).open(&path).expect("opened");
    file.write_all(b" and more").expect("written");
    file.seek(SeekFrom::Start(9)).expect("sought");
    let mut rest = String::new();
    file.read_to_string(&mut rest).expect("read");
    assert_eq!(rest, "and more");
    file.lock().expect("free");
    assert_eq!(
        fibers::copy(&path, directory.path().join("copy")).expect("copied"),
        17
    );
    assert_eq!(
        fibers::read_dir(directory.path()).expect("opened").count(),
        2
    );
    fibers::remove_file(&path).expect("removed");
}

/// The simulated driver has no files of its own; the pool serves them.
#[test]
fn on_the_simulated_driver() {
    unless_it_hangs("files, simulated", || {
        let runtime = Runtime::builder().io(Io::Sim { seed: 1 }).workers(1);
        runtime.build().expect("a runtime").run(|| {
            let status = fibers::read_to_string("/proc/self/status").expect("read");
            assert!(status.contains("Name:"));
        });
    });
}
