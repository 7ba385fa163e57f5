//! The files that all servers serve, and the requests for them.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, ensure};
use rustix::fs::{Advice, fadvise};

/// Files that load asks for.
pub(crate) const FILES: usize = 1000;
/// Bytes of each.
pub(crate) const SIZE: usize = 1024;
/// Silence on a checking connection after which it fails.
pub(crate) const SILENCE_LIMIT: Duration = Duration::from_secs(20);
/// More than any answer has.
const LONGEST_CHUNK: usize = 1 << 20;

/// The fields of a request head beside `Host`.
pub(crate) type Fields = &'static [(&'static str, &'static str)];

/// Three sets of header fields: as curl, a browser and a proxy send them.
pub(crate) const FIELDS: [Fields; 3] = [
    &[("User-Agent", "curl/8.5.0"), ("Accept", "*/*")],
    &[
        (
            "User-Agent",
            "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0",
        ),
        (
            "Accept",
            "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8",
        ),
        ("Accept-Language", "en-US,en;q=0.5"),
        ("Accept-Encoding", "gzip, deflate, br, zstd"),
        ("Referer", "http://www.example.com/list/of/things?page=4"),
        (
            "Cookie",
            "session=5f2b6c1e9a7d4830; theme=dark; consent=all",
        ),
        ("Sec-Fetch-Mode", "navigate"),
        ("Priority", "u=0, i"),
    ],
    &[
        ("X-Forwarded-For", "203.0.113.77, 198.51.100.9"),
        ("X-Forwarded-Proto", "https"),
        ("X-Request-Id", "0af7651916cd43dd8448eb211c80319c"),
        ("User-Agent", "proxy-check/2.1"),
        ("Accept", "text/plain"),
    ],
];

/// A fresh directory of files, removed at the end.
#[derive(Debug)]
pub(crate) struct Site {
    dir: PathBuf,
}

impl Site {
    pub(crate) fn new() -> anyhow::Result<Self> {
        let dir = std::env::temp_dir().join(format!("plainweave-bench-{}", std::process::id()));
        let site = Self { dir };
        std::fs::create_dir_all(site.root())
            .with_context(|| format!("cannot create {}", site.root().display()))?;
        (0..FILES).try_for_each(|n| site.add(&path(n), n, SIZE))?;
        Ok(site)
    }

    /// Returns where everything lies; servers keep their own files beside the root.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.dir.join("www")
    }

    /// Writes one file.
    pub(crate) fn add(&self, path: &str, number: usize, len: usize) -> anyhow::Result<()> {
        let file = self.root().join(path.trim_start_matches('/'));
        if let Some(parent) = file.parent() {
            std::fs::create_dir_all(parent)?;
        }
        std::fs::write(&file, content(number, len))
            .with_context(|| format!("cannot write {}", file.display()))
    }

    /// Has the page cache forget a file.
    pub(crate) fn forget(&self, path: &str) -> anyhow::Result<()> {
        let file = File::open(self.root().join(path.trim_start_matches('/')))?;
        file.sync_data()?;
        fadvise(&file, 0, None, Advice::DontNeed)?;
        Ok(())
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// Returns the path of a file that load asks for.
pub(crate) fn path(number: usize) -> String {
    format!("/dir{:02}/file-{number:04}.txt", number % 20)
}

/// Returns the content of a file, which names the file in every line.
pub(crate) fn content(number: usize, len: usize) -> Vec<u8> {
    let line = format!("this is file number {number:04} of them\n");
    line.bytes().cycle().take(len).collect()
}

/// How to connect.
type Open<S> = fn(SocketAddr) -> anyhow::Result<S>;

/// A connection that asks for files and compares what comes.
#[derive(Debug)]
pub(crate) struct Checker<S = TcpStream> {
    stream: BufReader<S>,
    asked: usize,
    /// For when it ends. nginx, with its defaults, ends a connection after a thousand requests.
    again: Option<(SocketAddr, Open<S>)>,
    /// The last answer has said that no other follows.
    ended: bool,
}

impl Checker {
    pub(crate) fn connect(address: SocketAddr) -> anyhow::Result<Self> {
        Ok(Self {
            again: Some((address, open)),
            ..Self::over(open(address)?)
        })
    }

    /// Returns the connection alone, without its buffer.
    pub(crate) fn into_stream(self) -> TcpStream {
        self.stream.into_inner()
    }
}

fn open(address: SocketAddr) -> anyhow::Result<TcpStream> {
    let stream = TcpStream::connect(address).context("a checking connection")?;
    stream.set_read_timeout(Some(SILENCE_LIMIT))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

impl<S: Read + Write> Checker<S> {
    /// Makes one of a stream that is connected, and fails a read that takes too long.
    pub(crate) fn over(stream: S) -> Self {
        Self {
            stream: BufReader::with_capacity(2 * SIZE, stream),
            asked: 0,
            again: None,
            ended: false,
        }
    }

    /// Returns what it asks by.
    pub(crate) fn get_ref(&self) -> &S {
        self.stream.get_ref()
    }

    /// Asks for a path and compares the body; gives the head.
    pub(crate) fn check(&mut self, path: &str, body: &[u8]) -> anyhow::Result<String> {
        let fields = FIELDS[self.asked % FIELDS.len()];
        self.asked += 1;
        if let Some((address, open)) = self.again.filter(|_| self.ended) {
            self.stream = BufReader::with_capacity(2 * SIZE, open(address)?);
        }
        self.stream
            .get_mut()
            .write_all(request(path, fields).as_bytes())?;

        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            let read = self
                .stream
                .read_line(&mut head)
                .with_context(|| format!("the answer for {path}"))?;
            ensure!(
                read > 0,
                "the connection ended within the answer for {path}: {head}"
            );
        }

        ensure!(head.starts_with("HTTP/1.1 200 "), "{path}: {head}");
        let got = match is_chunked(&head) {
            true => self.chunks(),
            false => self.exactly(body.len()),
        };

        ensure!(
            got.with_context(|| format!("the body of {path}"))? == body,
            "{path} came with another content"
        );
        self.ended = head
            .to_ascii_lowercase()
            .contains("\r\nconnection: close\r\n");
        Ok(head)
    }

    fn exactly(&mut self, len: usize) -> anyhow::Result<Vec<u8>> {
        let mut got = vec![0; len];
        self.stream.read_exact(&mut got)?;
        Ok(got)
    }

    /// Reads a body in chunks, without extensions and trailers.
    fn chunks(&mut self) -> anyhow::Result<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let mut line = String::new();
            self.stream.read_line(&mut line)?;
            let len = usize::from_str_radix(line.trim_end(), 16)
                .with_context(|| format!("a chunk of {line:?}"))?;
            ensure!(len <= LONGEST_CHUNK, "a chunk of {len} bytes");
            let chunk = self.exactly(len + 2)?;

            ensure!(
                chunk.ends_with(b"\r\n"),
                "a chunk of {len} bytes does not end there"
            );
            if len == 0 {
                return Ok(body);
            }
            body.extend_from_slice(&chunk[..len]);
        }
    }
}

/// Returns whether the body behind this head comes in chunks.
pub(crate) fn is_chunked(head: &str) -> bool {
    head.to_ascii_lowercase()
        .contains("\r\ntransfer-encoding: chunked\r\n")
}

/// Returns a request with these fields.
pub(crate) fn request(path: &str, fields: &[(&str, &str)]) -> String {
    let fields: String = fields
        .iter()
        .map(|(name, value)| format!("{name}: {value}\r\n"))
        .collect();
    format!("GET {path} HTTP/1.1\r\nHost: www.example.com\r\n{fields}\r\n")
}
