//! A crawler with deadlines: each page has a time limit, and so has the whole crawl. At most eight
//! pages are fetched at once. A deadline covers all that a fetch does (connect, write, read), so
//! none of these calls needs its own timeout.
//!
//! `cargo run -p plainweave --example crawler 127.0.0.1:8080`

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use plainweave::net::TcpStream;
use plainweave::sync::{JoinSet, Semaphore};
use plainweave::time::with_timeout;

/// Pages fetched at once.
const AT_ONCE: usize = 8;
/// Bytes of a page that are read.
const PAGE: u64 = 1 << 20;

/// What became of each page: its size, or why there is none.
pub(crate) type Pages = BTreeMap<String, Result<usize, ErrorKind>>;

/// Fetches one page over HTTP/1.0.
fn fetch(site: SocketAddr, path: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect(site)?;
    // In one piece: `write!` straight to the socket would be a system call for each part.
    stream.write_all(format!("GET {path} HTTP/1.0\r\nHost: {site}\r\n\r\n").as_bytes())?;
    let mut answer = String::new();
    stream.take(PAGE).read_to_string(&mut answer)?;
    let (head, body) = answer
        .split_once("\r\n\r\n")
        .ok_or(ErrorKind::UnexpectedEof)?;

    if !head
        .lines()
        .next()
        .is_some_and(|line| line.contains(" 200"))
    {
        return Err(ErrorKind::NotFound.into());
    }

    Ok(body.to_owned())
}

/// Returns the links of a page that stay on its site.
fn links(page: &str) -> impl Iterator<Item = &str> {
    page.split("href=\"")
        .skip(1)
        .filter_map(|rest| rest.split('"').next())
        .filter(|link| link.starts_with('/'))
}

/// Fetches all pages that links lead to from `/`, each within `page` and all within `total`. Pages
/// not fetched by then are reported as timed out.
pub(crate) fn crawl(site: SocketAddr, page: Duration, total: Duration) -> Pages {
    let limit = Arc::new(Semaphore::new(AT_ONCE));
    let mut pages = Pages::new();
    let mut fetches = JoinSet::new();
    let mut new = vec!["/".to_owned()];
    with_timeout(total, || {
        loop {
            for path in new.drain(..) {
                // Until it has been fetched, that is what is known of it.
                pages.insert(path.clone(), Err(ErrorKind::TimedOut));
                let limit = limit.clone();
                fetches.spawn(move || {
                    let fetched = limit
                        .acquire()
                        .and_then(|_permit| with_timeout(page, || fetch(site, &path)));
                    (path, fetched)
                });
            }

            // No fetch is left, or the crawl's time is over.
            let Some(Ok((path, fetched))) = fetches.join_next() else {
                break;
            };
            if let Ok(text) = &fetched {
                new.extend(
                    links(text)
                        .filter(|link| !pages.contains_key(*link))
                        .map(str::to_owned),
                );
                new.sort();
                new.dedup();
            }

            pages.insert(
                path,
                fetched.map(|text| text.len()).map_err(|error| error.kind()),
            );
        }
    });

    // Dropping the set cancels the fetches that are left.
    pages
}

fn main() -> io::Result<()> {
    let site = std::env::args().nth(1).and_then(|text| text.parse().ok());
    let site = site.ok_or_else(|| io::Error::other("crawler ADDRESS:PORT"))?;
    let pages = plainweave::run(|| crawl(site, Duration::from_secs(2), Duration::from_secs(30)));
    pages
        .iter()
        .try_for_each(|(path, page)| writeln!(io::stdout(), "{path}: {page:?}"))
}
