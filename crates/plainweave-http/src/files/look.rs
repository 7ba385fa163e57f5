//! A look at what stands behind a name: the system calls of a cache miss, and of a cached entry
//! that has grown old.

use std::borrow::Cow;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::SystemTime;

use http::StatusCode;
use rustix::fs::{FileType, fstat};
use rustix::io::Errno;

use super::coding::{Coding, Codings};
use super::compress::Making;
use super::condition::{Identity, Tagged, Validators, Version};
use super::open::Root;
use super::path;
use super::pieces::{Opened, read_resident};
use crate::message::header_lines::HeaderLines;
use bytes::Bytes;

/// Attempts at reading a file that changes meanwhile.
const ATTEMPTS: usize = 3;

/// What was found behind a path.
#[derive(Debug)]
pub(super) enum Found {
    File(FoundFile),
    Directory,
    /// Nothing to be served; the answer's status.
    Nothing(StatusCode),
    /// A link that leads out of the root, as if there were nothing.
    Outside,
}

/// A regular file, and all of its answer that can be made in advance.
#[derive(Debug)]
pub(super) struct FoundFile {
    pub(super) identity: Identity,
    tagged: Tagged,
    /// A change since may have left the same identity.
    recent: bool,
    /// `Content-Type`, then what other answers have too, then what a 304 has too.
    lines: HeaderLines,
    type_bytes: usize,
    validators_at: usize,
    /// This is a compressed twin of another file.
    coding: Option<Coding>,
    /// The compressed twins that stand beside it.
    pub(super) twins: Codings,
    pub(super) content: Content,
}

#[derive(Clone, Debug)]
pub(super) enum Content {
    Whole(Bytes),
    Open(Arc<Opened>),
}

impl Found {
    pub(super) fn file(&self) -> Option<&FoundFile> {
        if let Self::File(file) = self {
            Some(file)
        } else {
            None
        }
    }

    /// Returns a copy that shares nothing with it; `None`: an open file.
    pub(super) fn copied(&self) -> Option<Self> {
        Some(match self {
            Self::File(file) => Self::File(file.copied()?),
            Self::Directory => Self::Directory,
            Self::Nothing(status) => Self::Nothing(*status),
            Self::Outside => Self::Outside,
        })
    }

    /// In which state a file is known, if it is one, and a change would have shown.
    pub(super) fn known(&self) -> Option<Known> {
        self.file().filter(|file| !file.recent).map(|file| Known {
            identity: file.identity,
            twins: file.twins,
        })
    }

    /// Returns whether both say the same, where there is no content to compare.
    pub(super) fn is_same_absence(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Directory, Self::Directory) | (Self::Outside, Self::Outside) => true,
            (Self::Nothing(one), Self::Nothing(two)) => one == two,
            _ => false,
        }
    }
}

/// The state of a file and of what stands beside it, as far as its answers depend on them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Known {
    pub(super) identity: Identity,
    twins: Codings,
}

impl FoundFile {
    /// `name` is that of the file itself, for a twin too.
    fn new(
        name: &[u8],
        coding: Option<Coding>,
        Known { identity, twins }: Known,
        content: Content,
    ) -> Self {
        let content_type = content_type(path::extension(name));
        let now = SystemTime::now();
        let tagged = match &content {
            Content::Whole(bytes) => Tagged::content(bytes),
            Content::Open(_) => Tagged::time(&identity.version, now),
        };

        let bare = Self {
            identity,
            tagged,
            recent: identity.is_recent(now),
            lines: HeaderLines::default(),
            type_bytes: 0,
            validators_at: 0,
            coding,
            twins,
            content,
        };
        bare.with_lines(&content_type.into(), true)
    }

    /// Makes the lines of the answers.
    fn with_lines(self, content_type: &[&str; 2], has_ranges: bool) -> Self {
        let mut lines = HeaderLines::default();
        // Only names and values that are known to be valid: nothing here is the client's.
        lines.push_known("Content-Type", content_type);
        let type_bytes = lines.as_bytes().len();
        if let Some(coding) = self.coding {
            lines.push_known("Content-Encoding", &[coding.name()]);
        }
        if has_ranges {
            lines.push_known("Accept-Ranges", &["bytes"]);
        }
        let validators_at = lines.as_bytes().len();

        if self.coding.is_some() || !self.twins.is_empty() {
            lines.push_known("Vary", &["Accept-Encoding"]);
        }
        let version = self.version();
        lines.push_known("Last-Modified", &[&version.last_modified()]);
        let weak = if self.tagged.is_weak() { "W/" } else { "" };
        lines.push_known("ETag", &[weak, &self.tagged.opaque(version, self.coding)]);
        Self {
            lines: lines.shared(),
            type_bytes,
            validators_at,
            ..self
        }
    }

    /// Returns what this file is when it is compressed as it is sent. Its tag is weak: another
    /// release of an encoder may write other bytes, and so no range goes on with them.
    pub(super) fn streamed(&self, coding: Coding) -> Self {
        let bare = Self {
            tagged: Tagged::Time { weak: true },
            coding: Some(coding),
            lines: HeaderLines::default(),
            content: self.content.clone(),
            ..*self
        };
        bare.with_lines(&[self.content_type(), ""], false)
    }

    fn copied(&self) -> Option<Self> {
        let Content::Whole(content) = &self.content else {
            return None;
        };
        let content = Content::Whole(Bytes::copy_from_slice(content));
        Some(Self {
            lines: self.lines.copied(),
            content,
            ..*self
        })
    }

    pub(super) fn version(&self) -> &Version {
        &self.identity.version
    }

    /// Returns the number of bytes of the content.
    pub(super) fn size(&self) -> u64 {
        match &self.content {
            Content::Whole(bytes) => bytes.len() as u64,
            Content::Open(_) => self.version().size,
        }
    }

    /// Returns the fields of an answer with content.
    pub(super) fn lines(&self) -> HeaderLines {
        self.lines.clone()
    }

    /// Returns the same without `Content-Type`.
    pub(super) fn lines_but_type(&self) -> HeaderLines {
        self.lines.tail(self.type_bytes)
    }

    /// Returns the fields of a 304.
    pub(super) fn validator_lines(&self) -> HeaderLines {
        self.lines.tail(self.validators_at)
    }

    /// Returns what the preconditions of a request are compared with.
    pub(super) fn validators(&self) -> Validators {
        let etag = self.tagged.opaque(self.version(), self.coding);
        let weak = self.tagged.is_weak();
        Validators {
            etag,
            weak,
            modified: self.version().modified(),
        }
    }

    /// Returns the value of `Content-Type`.
    pub(super) fn content_type(&self) -> &str {
        let line = &self.lines.as_bytes()["Content-Type: ".len()..self.type_bytes - 2];
        str::from_utf8(line).expect("it was made of text")
    }

    /// Returns the number of bytes in memory.
    pub(super) fn weight(&self) -> usize {
        let content = if let Content::Whole(bytes) = &self.content {
            bytes.len()
        } else {
            0
        };
        content + self.lines.as_bytes().len()
    }
}

/// What a look has brought.
#[derive(Debug)]
pub(super) enum Look {
    New(Found),
    /// The entry that was there before still holds.
    Same,
    /// Not to be remembered: it says something of this moment or of this server, not of the path.
    Failed(StatusCode),
}

impl Look {
    /// Returns whether it says that nothing is there.
    pub(super) fn is_absence(&self) -> bool {
        match self {
            Self::New(Found::Nothing(status)) => *status == StatusCode::NOT_FOUND,
            Self::New(Found::Outside) => true,
            Self::Failed(status) => *status == StatusCode::SERVICE_UNAVAILABLE,
            _ => false,
        }
    }
}

/// The work of a look.
#[derive(Clone, Debug)]
pub(super) struct Job {
    pub(super) root: Arc<Root>,
    /// Beneath the root.
    pub(super) name: Vec<u8>,
    /// The file's compressed twin is meant.
    pub(super) coding: Option<Coding>,
    /// Whether to look for twins of the file.
    pub(super) with_twins: bool,
    /// The state in which the file is known already.
    pub(super) known: Option<Known>,
    /// By what twins are made that do not stand there.
    pub(super) making: Option<Arc<Making>>,
    /// Files up to this size are read.
    pub(super) whole_up_to: u64,
}

impl Job {
    /// Looks without waiting for a disk; `None` if that takes one.
    pub(super) fn try_now(&self) -> Option<Look> {
        if let Some((_, known)) = self.made_of(|name| self.root.read_cached(name))? {
            // Only that it is there already is found out so soon.
            return (self.known == Some(known)).then_some(Look::Same);
        }
        let file = match self.root.read_cached(&self.file_name(self.coding))? {
            Ok(file) => file,
            Err(error) => return Some(self.failed(error)),
        };

        let twins = self.twins(|name| self.root.read_cached(name).map(|opened| opened.is_ok()))?;
        self.examine(file, twins, read_resident)
            .unwrap_or_else(|error| Some(self.failed(error)))
    }

    /// Looks the file up. May wait for a disk.
    pub(super) fn run(&self) -> Look {
        match self.made_of(|name| Some(self.root.read(name))) {
            Some(Some((_, known))) if self.known == Some(known) => return Look::Same,
            Some(Some((file, known))) => return self.make(&file, known),
            _ => {}
        }
        let file = match self.root.read(&self.file_name(self.coding)) {
            Ok(file) => file,
            Err(error) => return self.failed(error),
        };

        let twins = self
            .twins(|name| Some(self.root.read(name).is_ok()))
            .unwrap_or_default();
        let mut failure = Errno::IO;
        let read = |file: &File, buf: &mut [u8], offset| {
            let read = file.read_at(buf, offset);
            read.map_err(|error| failure = Errno::from_io_error(&error).unwrap_or(Errno::IO))
                .ok()
        };

        let examined = self.examine(file, twins, read);
        match examined {
            Ok(Some(look)) => look,
            Ok(None) => self.failed(failure),
            Err(error) => self.failed(error),
        }
    }

    /// Returns the file that the twin is to be made of, and its state. The inner `None`: no twin is
    /// meant, or one that stands there; the outer one: `open` would have to wait.
    fn made_of(
        &self,
        open: impl Fn(&[u8]) -> Option<Result<File, Errno>>,
    ) -> Option<Option<(File, Known)>> {
        let Some((coding, making)) = self.coding.zip(self.making.as_ref()) else {
            return Some(None);
        };
        if self.with_twins && open(&self.file_name(Some(coding)))?.is_ok() {
            return Some(None);
        }
        let Ok(file) = open(&self.name)? else {
            return Some(None);
        };
        let Ok(stat) = fstat(&file) else {
            return Some(None);
        };

        let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        let identity = Identity::of(&stat);
        let size = identity.version.size;
        let made = making.of(content_type_of(&self.name), size);
        let known = Known {
            identity,
            twins: Codings::default(),
        };
        let is_made = is_file && making.keeps(size) && made.contains(coding);
        Some(is_made.then_some((file, known)))
    }

    /// Makes the twin of a file in this state.
    fn make(&self, file: &File, known: Known) -> Look {
        let Some((coding, making)) = self.coding.zip(self.making.as_ref()) else {
            return Look::Failed(StatusCode::INTERNAL_SERVER_ERROR);
        };
        let size = known.identity.version.size;
        let mut read = |file: &File, buf: &mut [u8], offset| file.read_at(buf, offset).ok();
        let content = read_whole(file, size as usize, &mut read);
        let content = content.filter(|content| content.len() as u64 == size);
        let is_same = fstat(file).is_ok_and(|stat| Identity::of(&stat) == known.identity);
        let made = content
            .filter(|_| is_same)
            .and_then(|content| making.compress(coding, &content).ok());

        match made {
            Some(made) => {
                let content = Content::Whole(made.into());
                let mut file = FoundFile::new(&self.name, self.coding, known, content);
                // It is dear to make: a time in the future is no reason to do it again.
                file.recent = known.identity.has_just_changed(SystemTime::now());
                Look::New(Found::File(file))
            }
            // The file is there as it is.
            None => Look::Failed(StatusCode::INTERNAL_SERVER_ERROR),
        }
    }

    /// Returns the name with the coding's suffix.
    fn file_name(&self, coding: Option<Coding>) -> Cow<'_, [u8]> {
        match coding {
            Some(coding) => Cow::Owned([&self.name, coding.suffix().as_bytes()].concat()),
            None => Cow::Borrowed(&self.name),
        }
    }

    /// Returns which twins there are. `exists` gives `None` where it would have to wait. What they
    /// are is found when they are asked for.
    fn twins(&self, exists: impl Fn(&[u8]) -> Option<bool>) -> Option<Codings> {
        let mut twins = Codings::default();
        if self.with_twins && self.coding.is_none() {
            for coding in Coding::ALL {
                if exists(&self.file_name(Some(coding)))? {
                    twins.insert(coding);
                }
            }
        }
        Some(twins)
    }

    /// `read` gives `None` where it would have to wait, or has failed.
    fn examine(
        &self,
        file: File,
        twins: Codings,
        mut read: impl FnMut(&File, &mut [u8], u64) -> Option<usize>,
    ) -> Result<Option<Look>, Errno> {
        let mut stat = fstat(&file)?;
        for attempt in 1..=ATTEMPTS {
            match FileType::from_raw_mode(stat.st_mode) {
                FileType::RegularFile => {}
                FileType::Directory => return Ok(Some(Look::New(Found::Directory))),
                _ => return Ok(Some(Look::New(Found::Nothing(StatusCode::NOT_FOUND)))),
            }
            let identity = Identity::of(&stat);
            let mut twins = twins;
            if self.coding.is_none()
                && let Some(making) = &self.making
            {
                let content_type = content_type_of(&self.name);
                twins.insert_all(making.of(content_type, identity.version.size));
            }
            let known = Known { identity, twins };
            if self.known == Some(known) {
                return Ok(Some(Look::Same));
            }
            let size = identity.version.size;
            if size > self.whole_up_to {
                return Ok(Some(
                    self.file(known, Content::Open(Arc::new(Opened::new(file)))),
                ));
            }
            let Some(content) = read_whole(&file, size as usize, &mut read) else {
                return Ok(None);
            };
            // Only what was the same before and after is a state that its validators name.
            stat = fstat(&file)?;
            let after = Identity::of(&stat);
            // A rename or a new link is a change too, though not of the content: a file that meets
            // them all the time is still served, and read again the next time.
            let same =
                after == identity || (attempt == ATTEMPTS && after.version == identity.version);
            if same && content.len() as u64 == size {
                return Ok(Some(self.file(known, Content::Whole(content.into()))));
            }
        }
        Err(Errno::IO)
    }

    fn file(&self, known: Known, content: Content) -> Look {
        Look::New(Found::File(FoundFile::new(
            &self.name,
            self.coding,
            known,
            content,
        )))
    }

    fn failed(&self, error: Errno) -> Look {
        match error {
            Errno::NOENT if self.root.is_gone() => Look::Failed(StatusCode::SERVICE_UNAVAILABLE),
            // What openat2(2) says of a link that led out of the root.
            Errno::XDEV => Look::New(Found::Outside),
            // LOOP: too many links, or one where none is followed.
            Errno::NOENT | Errno::NOTDIR | Errno::NAMETOOLONG | Errno::LOOP | Errno::NXIO => {
                Look::New(Found::Nothing(StatusCode::NOT_FOUND))
            }
            Errno::ACCESS | Errno::PERM => Look::New(Found::Nothing(StatusCode::FORBIDDEN)),
            Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::AGAIN => {
                Look::Failed(StatusCode::SERVICE_UNAVAILABLE)
            }
            _ => Look::Failed(StatusCode::INTERNAL_SERVER_ERROR),
        }
    }
}

/// Returns the first `size` bytes, or fewer at the end of the file.
fn read_whole(
    file: &File,
    size: usize,
    read: &mut impl FnMut(&File, &mut [u8], u64) -> Option<usize>,
) -> Option<Vec<u8>> {
    let mut content = vec![0; size];
    let mut done = 0;
    while done < size {
        match read(file, &mut content[done..], done as u64)? {
            0 => break,
            len => done += len,
        }
    }

    content.truncate(done);
    Some(content)
}

/// Extensions that `mime_guess` does not know, or for which it has another than the registered type
/// (RFC 9239, 3555, 6713, 8878). A `.ts` is a piece of a video here, as with nginx and Apache:
/// browsers do not run TypeScript.
const TYPES: [(&str, &str); 6] = [
    ("cjs", "text/javascript"),
    ("mjs", "text/javascript"),
    ("mts", "video/mp2t"),
    ("tgz", "application/gzip"),
    ("ts", "video/mp2t"),
    ("zst", "application/zstd"),
];

/// Returns the type of a file by its name, without parameters.
fn content_type_of(name: &[u8]) -> &'static str {
    content_type(path::extension(name)).0
}

/// By the extension alone; text is taken for UTF-8, as everything that is written today.
fn content_type(extension: Option<&str>) -> (&'static str, &'static str) {
    let registered = |extension: &str| {
        TYPES
            .iter()
            .find(|(known, _)| known.eq_ignore_ascii_case(extension))
    };

    let essence = extension.and_then(|extension| match registered(extension) {
        Some((_, essence)) => Some(*essence),
        None => mime_guess::from_ext(extension).first_raw(),
    });

    let essence = essence.unwrap_or("application/octet-stream");
    (
        essence,
        if essence.starts_with("text/") {
            "; charset=utf-8"
        } else {
            ""
        },
    )
}

#[cfg(test)]
mod tests {
    use super::content_type;

    #[test]
    fn types_that_browsers_know() {
        for (extension, expected) in [
            ("js", "text/javascript; charset=utf-8"),
            ("mjs", "text/javascript; charset=utf-8"),
            ("CJS", "text/javascript; charset=utf-8"),
            ("ts", "video/mp2t"),
            ("tgz", "application/gzip"),
            ("gz", "application/gzip"),
            ("zst", "application/zstd"),
            ("wasm", "application/wasm"),
            ("unheard-of", "application/octet-stream"),
        ] {
            let (essence, parameters) = content_type(Some(extension));
            assert_eq!(format!("{essence}{parameters}"), expected, "{extension}");
        }
        assert_eq!(content_type(None).0, "application/octet-stream");
    }
}
