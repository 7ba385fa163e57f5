//! Calls on files: rings make them, and the other drivers say that they do not.

use std::ffi::CString;
use std::io::Write as _;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::ffi::OsStrExt;
use std::ptr::NonNull;

use super::super::file_call::FileCall;
use super::*;

/// The kernel's own position, which a pipe needs.
const OWN: u64 = u64::MAX;

fn read(buf: &mut [u8], offset: u64) -> FileCall {
    FileCall::Read {
        buf: buf.as_mut_ptr(),
        len: buf.len() as u32,
        offset,
    }
}

/// Returns false, having seen that it says so, for a driver that makes no such calls.
fn has_calls(rig: &mut Rig) -> bool {
    let call = FileCall::Sync { data_only: true };
    let file = tempfile::tempfile().expect("a file");
    let op = Operation::on_file(NonNull::from(&call), file.as_raw_fd());
    let result = rig.finish(&op);
    match rig.driver.name() {
        "uring" => assert_eq!(result, 0),
        _ => assert_eq!(result, -libc::ENOSYS),
    }
    result == 0
}

pub(super) fn a_file_is_opened_written_and_read(make: &Make) {
    let mut rig = Rig::new(make);
    if !has_calls(&mut rig) {
        return;
    }

    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("file");
    let text = CString::new(path.as_os_str().as_bytes()).expect("no zero byte");
    let call = FileCall::Open {
        path: text.as_ptr(),
        flags: libc::O_RDWR | libc::O_CREAT | libc::O_EXCL | libc::O_CLOEXEC,
        mode: 0o600,
    };
    let open = || Operation::on_file(NonNull::from(&call), -1);
    // What has no descriptor borrows none.
    // SAFETY: the path lives as long as the call.
    assert_eq!(unsafe { open().attempt() }, -libc::EAGAIN);
    let fd = rig.finish(&open());
    assert!(fd > 0, "{fd}");
    // SAFETY: a new descriptor.
    let file = unsafe { std::fs::File::from_raw_fd(fd) };
    assert_eq!(rig.finish(&open()), -libc::EEXIST);

    let write = FileCall::Write {
        buf: b"contents".as_ptr(),
        len: 8,
        offset: 2,
    };
    let on_file = |call: &FileCall| Operation::on_file(NonNull::from(call), file.as_raw_fd());
    assert_eq!(rig.finish(&on_file(&write)), 8);
    let mut buf = [1; 16];
    let call = read(&mut buf, 0);
    assert_eq!(rig.finish(&on_file(&call)), 10);
    assert_eq!(&buf[..11], b"\0\0contents\x01");
    assert_eq!(rig.driver.in_flight(), 0);
}

pub(super) fn a_call_on_a_file_ends_early(make: &Make) {
    let mut rig = Rig::new(make);
    if !has_calls(&mut rig) {
        return;
    }

    let (reader, mut writer) = std::io::pipe().expect("a pipe");
    let mut buf = [0; 8];
    for submitted_to_the_kernel in [false, true] {
        let call = read(&mut buf, OWN);
        let op = Operation::on_file(NonNull::from(&call), reader.as_raw_fd());
        rig.pending(&op);
        if submitted_to_the_kernel {
            rig.settle();
        }

        rig.cancel(&op);
        assert_eq!(rig.wait_for(&op), -libc::ECANCELED);
    }

    // What has come is delivered, though the cancellation came first.
    let call = read(&mut buf, OWN);
    let op = Operation::on_file(NonNull::from(&call), reader.as_raw_fd());
    rig.pending(&op);
    rig.settle();
    writer.write_all(b"late").expect("room");
    rig.cancel(&op);
    let result = rig.wait_for(&op);
    if result == -libc::ECANCELED {
        let again = Operation::on_file(NonNull::from(&call), reader.as_raw_fd());
        assert_eq!(rig.finish(&again), 4);
    } else {
        assert_eq!(result, 4);
    }

    assert_eq!(&buf[..4], b"late");
    assert_eq!(rig.driver.in_flight(), 0);
}
