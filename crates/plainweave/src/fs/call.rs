//! How a call on a file is made: by the ring of the caller's worker, else on the blocking pool.

#![expect(unsafe_code, reason = "paths go to the ring by their addresses")]

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::blocking;
use crate::io::file_call::FileCall;
use crate::sched::io_call::perform_on_file;
use crate::sched::wait;

/// In place of a descriptor, for calls on paths.
const NO_FD: i32 = -1;

/// A path as the kernel takes it, and as `std` does.
pub(super) struct KernelPath {
    text: CString,
    path: PathBuf,
}

impl KernelPath {
    /// # Errors
    /// The path has a zero byte.
    fn new(path: impl AsRef<Path>) -> io::Result<Self> {
        let path = path.as_ref().to_owned();
        let text = CString::new(path.as_os_str().as_bytes()).map_err(|_| {
            let text = format!("the path {path:?} has a zero byte");
            io::Error::new(io::ErrorKind::InvalidInput, text)
        })?;
        Ok(Self { text, path })
    }

    pub(super) fn as_ptr(&self) -> *const std::ffi::c_char {
        self.text.as_ptr()
    }
}

/// Has the ring make a call on a path, or `otherwise` on the blocking pool.
pub(super) fn on_path<T: Send + 'static>(
    path: impl AsRef<Path>,
    call: impl FnOnce(&KernelPath) -> FileCall,
    done: impl FnOnce(u32) -> T,
    otherwise: impl FnOnce(PathBuf) -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let path = KernelPath::new(path)?;
    let call = call(&path);

    // SAFETY: the path lives across the call.
    if let Some(result) = unsafe { perform_on_file(&call, NO_FD) } {
        return result.map(done);
    }
    blocking(move || otherwise(path.path))?
}

/// As [`on_path`], for two paths.
pub(super) fn on_paths(
    first: impl AsRef<Path>,
    second: impl AsRef<Path>,
    call: impl FnOnce(&KernelPath, &KernelPath) -> FileCall,
    otherwise: impl FnOnce(PathBuf, PathBuf) -> io::Result<()> + Send + 'static,
) -> io::Result<()> {
    let first = KernelPath::new(first)?;
    let second = KernelPath::new(second)?;
    let call = call(&first, &second);

    // SAFETY: the paths live across the call.
    if let Some(result) = unsafe { perform_on_file(&call, NO_FD) } {
        return result.map(drop);
    }
    blocking(move || otherwise(first.path, second.path))?
}

/// Runs a call that no ring has on the blocking pool.
pub(super) fn on_pool<T: Send + 'static>(
    path: impl AsRef<Path>,
    call: impl FnOnce(PathBuf) -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let path = path.as_ref().to_owned();
    blocking(move || call(path))?
}

/// # Errors
/// The caller is cancelled or late, so nothing is to begin.
pub(super) fn check_interrupted() -> io::Result<()> {
    match wait::interrupted() {
        Some(interrupt) => Err(wait::failed_at_once(interrupt.into())),
        None => Ok(()),
    }
}

/// Returns whether the caller is a fiber that may suspend; if not, calls are `std`'s.
pub(super) fn is_on_fiber() -> bool {
    wait::suspendable().is_some()
}
