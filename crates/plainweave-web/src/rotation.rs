//! Rotation of log files by size: `log` becomes `log.1`, that `log.2`, and so on; the oldest goes.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

/// How large a file may get, and how many earlier ones stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rotation {
    pub(super) most_bytes: u64,
    pub(super) kept: u32,
}

impl Rotation {
    /// Returns how many of these bytes, which begin with a line, a file of `len` bytes may still
    /// take: whole lines. `None`: not even one, so the file is to be rotated. An empty file takes
    /// one, however long it is.
    pub(super) fn share(self, len: u64, bytes: &[u8]) -> Option<usize> {
        let room = self.most_bytes.saturating_sub(len);
        let room = usize::try_from(room).unwrap_or(usize::MAX);
        if bytes.len() <= room {
            return Some(bytes.len());
        }
        let whole = memchr::memrchr(b'\n', &bytes[..room]).map(|end| end + 1);
        whole.or_else(|| (len == 0).then(|| first_line(bytes)))
    }

    /// Moves the file away, unless somebody else has done that, so that its path can be opened
    /// again.
    ///
    /// # Errors
    /// A file cannot be moved: all are still there.
    pub(super) fn turn(self, file: &File, path: &Path) -> io::Result<()> {
        // Others that have the file open, in this process or the next one, wait here until it is
        // closed, and find another at its path.
        flock(file, FlockOperation::LockExclusive)?;
        let ours = file.metadata()?;
        match fs::metadata(path) {
            Ok(there) if (there.dev(), there.ino()) == (ours.dev(), ours.ino()) => {}
            Ok(_) => return Ok(()),
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        }
        if self.kept == 0 {
            return fs::remove_file(path);
        }

        // From the oldest that is without a gap before it: a gap is where moving can begin.
        let first_gap = (1..self.kept).find(|n| !earlier(path, *n).exists());
        for n in (1..first_gap.unwrap_or(self.kept)).rev() {
            fs::rename(earlier(path, n), earlier(path, n + 1))?;
        }
        fs::rename(path, earlier(path, 1))
    }
}

/// Returns the bytes up to the end of the first line.
pub(super) fn first_line(bytes: &[u8]) -> usize {
    memchr::memchr(b'\n', bytes).map_or(bytes.len(), |end| end + 1)
}

/// Returns the name of the `n`th file before this one.
fn earlier(path: &Path, n: u32) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{n}"));
    PathBuf::from(name)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn whole_lines_fit() {
        let rotation = Rotation {
            most_bytes: 10,
            kept: 1,
        };
        assert_eq!(rotation.share(0, b"abc\ndef\n"), Some(8));
        assert_eq!(rotation.share(0, b"abc\ndef\nghi\n"), Some(8));
        assert_eq!(rotation.share(4, b"abc\ndef\n"), Some(4));
        assert_eq!(rotation.share(8, b"abc\n"), None);
        assert_eq!(rotation.share(20, b"abc\n"), None);
        assert_eq!(rotation.share(0, b"a line of many bytes\nb\n"), Some(21));
        assert_eq!(rotation.share(3, b"a line of many bytes\nb\n"), None);
    }

    #[test]
    fn earlier_files_move_up_and_the_oldest_goes() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let rotation = Rotation {
            most_bytes: 1,
            kept: 3,
        };
        for n in 0..6 {
            fs::write(&path, n.to_string()).unwrap();
            rotation.turn(&File::open(&path).unwrap(), &path).unwrap();
            assert!(!path.exists());
        }
        let read = |n| fs::read_to_string(earlier(&path, n)).ok();
        let texts = [1, 2, 3, 4].map(read);
        let expected = [Some("5"), Some("4"), Some("3"), None];
        assert_eq!(texts.each_ref().map(Option::as_deref), expected);

        // Where one is missing, those behind it stay.
        fs::remove_file(earlier(&path, 1)).unwrap();
        fs::write(&path, "6").unwrap();
        rotation.turn(&File::open(&path).unwrap(), &path).unwrap();
        let texts = [1, 2, 3].map(read);
        let expected = [Some("6"), Some("4"), Some("3")];
        assert_eq!(texts.each_ref().map(Option::as_deref), expected);
    }

    #[test]
    fn a_file_that_was_moved_away_is_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        fs::write(&path, "ours").unwrap();
        let ours = File::open(&path).unwrap();
        fs::rename(&path, directory.path().join("log.old")).unwrap();
        fs::write(&path, "another's").unwrap();
        let rotation = Rotation {
            most_bytes: 1,
            kept: 3,
        };
        rotation.turn(&ours, &path).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "another's");

        let none = Rotation {
            kept: 0,
            ..rotation
        };
        none.turn(&File::open(&path).unwrap(), &path).unwrap();
        assert!(!path.exists() && !earlier(&path, 1).exists());
    }

    /// As the server's log and a site's that are one file, or two servers, one of which replaces
    /// the other.
    #[test]
    fn two_writers_of_one_file_lose_nothing() {
        const LINES: usize = 1000;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let rotation = Rotation {
            most_bytes: 200,
            kept: 999,
        };
        let open = || {
            let mut options = File::options();
            options.create(true).append(true).open(&path).unwrap()
        };
        let write = |name: &str| {
            let mut file = open();
            for n in 0..LINES {
                let line = format!("{name} {n}\n");
                if rotation
                    .share(file.metadata().unwrap().len(), line.as_bytes())
                    .is_none()
                {
                    rotation.turn(&file, &path).unwrap();
                    file = open();
                }
                file.write_all(line.as_bytes()).unwrap();
            }
        };

        std::thread::scope(|scope| {
            scope.spawn(|| write("a"));
            scope.spawn(|| write("b"));
        });
        let files = fs::read_dir(directory.path()).unwrap();
        let texts = files.map(|file| fs::read_to_string(file.unwrap().path()).unwrap());
        let lines: usize = texts.map(|text| text.lines().count()).sum();
        assert_eq!(lines, 2 * LINES);
    }
}
