//! A directory of files that goes away with its test, and requests to a handler on it.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime};

use plainweave_http::files::{Blocking, Caching, StaticFiles};
use plainweave_http::{Handler, Server};

use crate::support::{Answer, Script, play, read_answers};

/// The time of all files of a site, since 1970: `Sun, 06 Nov 1994 08:49:37 GMT` and a half.
pub(crate) const TIME: Duration = Duration::from_millis(784_111_777_500);

pub(crate) struct Site(PathBuf);

impl Site {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let unique = format!(
            "plainweave-site-{}-{}",
            std::process::id(),
            COUNT.fetch_add(1, Ordering::Relaxed)
        );
        let site = Self(std::env::temp_dir().join(unique));
        fs::create_dir_all(&site.0).unwrap();
        site
    }

    pub(crate) fn root(&self) -> &Path {
        &self.0
    }

    /// Writes a file, and the directories above it.
    pub(crate) fn with(self, name: &str, content: impl AsRef<[u8]>) -> Self {
        let path = self.0.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        fs::File::options()
            .write(true)
            .open(&path)
            .unwrap()
            .set_modified(SystemTime::UNIX_EPOCH + TIME)
            .unwrap();

        self
    }

    pub(crate) fn files(&self) -> StaticFiles {
        StaticFiles::new(&self.0).unwrap()
    }

    /// Keeps small files whole, or (`open`) keeps every file open and streams it.
    pub(crate) fn server(&self, open: bool) -> Server<StaticFiles> {
        let file_bytes = if open { 0 } else { 1 << 20 };
        Server::new(self.files().with_caching(Caching {
            file_bytes,
            bytes: 256 << 20,
            ..Caching::default()
        }))
    }

    /// The same on a pool.
    pub(crate) fn server_on<B: Blocking>(
        &self,
        blocking: B,
        caching: Caching,
    ) -> Server<StaticFiles<B>> {
        Server::new(
            StaticFiles::with_blocking(&self.0, blocking)
                .unwrap()
                .with_caching(caching),
        )
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The answer to `request`, a method and a target, with these fields (each with its line end).
pub(crate) fn ask<H: Handler>(server: &Server<H>, request: &str, fields: &str) -> Answer {
    let mut script = Script::of(format!("{request} HTTP/1.1\r\nHost: h\r\n{fields}\r\n"));
    play(server, &mut script);
    if request.starts_with("HEAD") {
        assert!(
            script.out.ends_with(b"\r\n\r\n"),
            "an answer to HEAD has no body"
        );
        // As if it had none: `read_answers` would wait for it.
        let text = String::from_utf8(script.out)
            .unwrap()
            .replace("\r\nContent-Length: ", "\r\nX-Length: ");
        return read_answers(text.as_bytes()).remove(0);
    }

    read_answers(&script.out).remove(0)
}
