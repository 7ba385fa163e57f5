//! Copying a file.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::copy_file_range;
use rustix::io::Errno;

use crate::blocking;

/// Bytes between two looks at whether anybody waits for the rest.
const PIECE: usize = 8 << 20;
/// Bytes read and written at a time where the kernel cannot copy.
const BUFFER: usize = 128 << 10;

/// Copies the contents and permissions of a file, in the kernel where it can
/// (`copy_file_range(2)`), and returns the number of bytes. What the target had is lost. A caller
/// that is cancelled meanwhile leaves part of the target.
///
/// # Errors
/// As for [`File::open`](super::File::open); the source is not a file, or is the target.
///
/// ```
/// # let path = std::env::temp_dir().join(format!("plainweave-doc-copy-{}", std::process::id()));
/// plainweave::run(|| {
///     let bytes = plainweave::fs::copy("/proc/self/status", &path).unwrap();
///     assert_eq!(plainweave::fs::metadata(&path).unwrap().len(), bytes);
/// });
/// # std::fs::remove_file(path).unwrap();
/// ```
pub fn copy(from: impl AsRef<Path>, to: impl AsRef<Path>) -> io::Result<u64> {
    /// Tells the job that nobody waits any more.
    struct Leaves(Arc<AtomicBool>);
    impl Drop for Leaves {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    let from = from.as_ref().to_owned();
    let to = to.as_ref().to_owned();
    let caller = Leaves(Arc::default());
    let left = Arc::clone(&caller.0);
    blocking(move || {
        let (source, target) = open(&from, &to, &left)?;
        contents(&source, &target, &left)
    })?
}

fn open(from: &Path, to: &Path, left: &AtomicBool) -> io::Result<(File, File)> {
    let source = File::open(from)?;
    let of_source = source.metadata()?;
    if !of_source.is_file() {
        let text = format!("{} is not a file", from.display());
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }

    // Before it is truncated: it may be the source.
    let mode = of_source.permissions().mode();
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(mode);
    let target = options.open(to)?;
    let of_target = target.metadata()?;
    if (of_source.dev(), of_source.ino()) == (of_target.dev(), of_target.ino()) {
        let text = format!("{} and {} are one file", from.display(), to.display());
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }

    if left.load(Ordering::Relaxed) {
        return Err(io::ErrorKind::Interrupted.into());
    }
    // A device has neither a length nor permissions to be changed.
    if of_target.is_file() {
        target.set_len(0)?;
        target.set_permissions(of_source.permissions())?;
    }
    Ok((source, target))
}

/// Copies from one file's position to the other's, until the end or until nobody waits.
fn contents(mut source: &File, mut target: &File, left: &AtomicBool) -> io::Result<u64> {
    let mut copied = 0;
    while !left.load(Ordering::Relaxed) {
        match copy_file_range(source, None, target, None, PIECE) {
            // The files of /proc say this of all they have.
            Ok(0) if copied == 0 => break,
            Ok(0) => return Ok(copied),
            Ok(n) => copied += n as u64,
            Err(Errno::INTR) => {}
            // File systems that differ, or that cannot; a filter.
            Err(
                Errno::XDEV
                | Errno::INVAL
                | Errno::OPNOTSUPP
                | Errno::NOSYS
                | Errno::PERM
                | Errno::BADF,
            ) if copied == 0 => break,
            Err(error) => return Err(error.into()),
        }
    }

    let mut buffer = vec![0; BUFFER];
    while !left.load(Ordering::Relaxed) {
        let n = match source.read(&mut buffer) {
            Ok(0) => break,
            Ok(n) => n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };

        target.write_all(&buffer[..n])?;
        copied += n as u64;
    }
    Ok(copied)
}
