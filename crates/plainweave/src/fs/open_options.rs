//! How a file is opened.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use super::call::{KernelPath, is_on_fiber, on_path};
use super::file::File;
use crate::io::file_call::FileCall;

/// How to open a file, as `std`'s type of that name with what `OpenOptionsExt` adds.
///
/// ```
/// use std::io::Write;
/// use plainweave::fs::OpenOptions;
///
/// # let path = std::env::temp_dir().join(format!("plainweave-doc-opt-{}", std::process::id()));
/// plainweave::run(|| {
///     let mut log = OpenOptions::new().append(true).create(true).open(&path).unwrap();
///     log.write_all(b"a line\n").unwrap();
/// });
/// # std::fs::remove_file(path).unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct OpenOptions {
    read: bool,
    write: bool,
    append: bool,
    truncate: bool,
    create: bool,
    create_new: bool,
    mode: u32,
    custom_flags: i32,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl OpenOptions {
    /// Begins with nothing allowed.
    #[must_use]
    pub fn new() -> Self {
        Self {
            read: false,
            write: false,
            append: false,
            truncate: false,
            create: false,
            create_new: false,
            mode: 0o666,
            custom_flags: 0,
        }
    }

    /// Sets whether the file can be read.
    pub fn read(&mut self, on: bool) -> &mut Self {
        self.read = on;
        self
    }

    /// Sets whether the file can be written.
    pub fn write(&mut self, on: bool) -> &mut Self {
        self.write = on;
        self
    }

    /// Sets whether each write goes to the end of the file, wherever that is by then.
    pub fn append(&mut self, on: bool) -> &mut Self {
        self.append = on;
        self
    }

    /// Sets whether the file loses what it has. Needs `write`.
    pub fn truncate(&mut self, on: bool) -> &mut Self {
        self.truncate = on;
        self
    }

    /// Sets whether the file is created if there is none. Needs `write` or `append`.
    pub fn create(&mut self, on: bool) -> &mut Self {
        self.create = on;
        self
    }

    /// Sets whether the file must be created: one that is there is an error. `create` and
    /// `truncate` have no effect then.
    pub fn create_new(&mut self, on: bool) -> &mut Self {
        self.create_new = on;
        self
    }

    /// Sets the permissions of a file that is created, less the process's umask. Default: 0o666.
    pub fn mode(&mut self, mode: u32) -> &mut Self {
        self.mode = mode;
        self
    }

    /// Adds flags of `open(2)`, `libc::O_DIRECT` say; the access mode cannot be set by them.
    pub fn custom_flags(&mut self, flags: i32) -> &mut Self {
        self.custom_flags = flags;
        self
    }

    /// Opens the file.
    ///
    /// # Errors
    /// As for `std`'s; the caller was cancelled or ran into its deadline.
    ///
    /// Context: any thread or fiber; may suspend.
    #[expect(unsafe_code, reason = "takes the descriptor that the ring gives")]
    pub fn open(&self, path: impl AsRef<Path>) -> io::Result<File> {
        let options = self.as_std();
        let Some(flags) = self.flags().filter(|_| is_on_fiber()) else {
            return options.open(path).map(File::from_std);
        };

        let call = |path: &KernelPath| FileCall::Open {
            path: path.as_ptr(),
            flags,
            mode: self.mode,
        };

        // SAFETY: a result that is no error is a new descriptor, which nobody else has.
        let opened = |fd: u32| unsafe { OwnedFd::from_raw_fd(fd.cast_signed()) }.into();
        let file = on_path(path, call, opened, move |path| options.open(path))?;
        Ok(File::from_std(file))
    }

    /// Returns the flags for `open(2)`, if `std` would allow the options.
    fn flags(&self) -> Option<i32> {
        let access = match (self.read, self.write, self.append) {
            (true, false, false) => libc::O_RDONLY,
            (false, true, false) => libc::O_WRONLY,
            (true, true, false) => libc::O_RDWR,
            (false, _, true) => libc::O_WRONLY | libc::O_APPEND,
            (true, _, true) => libc::O_RDWR | libc::O_APPEND,
            (false, false, false) => return None,
        };

        let allowed = match (self.write, self.append) {
            (_, true) => !self.truncate || self.create_new,
            (true, false) => true,
            (false, false) => !self.truncate && !self.create && !self.create_new,
        };

        if !allowed {
            return None;
        }

        let creation = match (self.create_new, self.create, self.truncate) {
            (true, _, _) => libc::O_CREAT | libc::O_EXCL,
            (false, true, true) => libc::O_CREAT | libc::O_TRUNC,
            (false, true, false) => libc::O_CREAT,
            (false, false, true) => libc::O_TRUNC,
            (false, false, false) => 0,
        };

        let custom = self.custom_flags & !libc::O_ACCMODE;
        Some(libc::O_CLOEXEC | access | creation | custom)
    }

    fn as_std(&self) -> std::fs::OpenOptions {
        let mut options = std::fs::OpenOptions::new();
        options
            .read(self.read)
            .write(self.write)
            .append(self.append)
            .truncate(self.truncate)
            .create(self.create)
            .create_new(self.create_new)
            .mode(self.mode)
            .custom_flags(self.custom_flags);
        options
    }
}
