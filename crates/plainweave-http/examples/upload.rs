//! Uploads: `curl -T FILE http://127.0.0.1:8080/NAME` writes to a file as the bytes come in, up to
//! 1 GiB.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use plainweave::fs;
use plainweave_http::{Handler, Method, Request, Response, Server, StatusCode};

/// Names that stay in the directory, and are no hidden files.
fn is_plain(name: &str) -> bool {
    !name.starts_with('.')
        && !name.is_empty()
        && name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
}

/// Makes a file that nobody else writes to: not another upload, nor another process in the same
/// directory.
fn create_part(beside: &Path) -> io::Result<(PathBuf, fs::File)> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    loop {
        let part =
            beside.with_file_name(format!(".upload-{}", NEXT.fetch_add(1, Ordering::Relaxed)));
        match std::fs::File::create_new(&part) {
            Ok(file) => return Ok((part, fs::File::from_std(file))),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
}

/// Writes to a file beside the place, which then takes its name: nobody sees half of an upload.
fn store(request: &mut Request<'_>, path: &Path) -> io::Result<u64> {
    let place = path.to_owned();
    let (part, mut file) = plainweave::blocking(move || create_part(&place))??;
    let from = part.clone();
    let to = path.to_owned();
    let stored = io::copy(request, &mut file).and_then(|len| {
        file.sync_all()?;
        plainweave::blocking(move || std::fs::rename(from, to))??;
        Ok(len)
    });

    if stored.is_err() {
        let _ = std::fs::remove_file(part);
    }
    stored
}

pub(crate) fn server(directory: PathBuf) -> Server<impl Handler> {
    let server = Server::new(move |request: &mut Request<'_>| {
        let name = request.path().trim_start_matches('/');
        if *request.method() != Method::PUT || !is_plain(name) {
            return Response::text(
                StatusCode::BAD_REQUEST,
                "PUT /NAME, of letters, digits, '.', '_' and '-'\n",
            );
        }

        match store(request, &directory.join(name)) {
            Ok(len) => Response::text(StatusCode::CREATED, format!("{len} bytes\n")),
            Err(error) => Response::text(StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")),
        }
    });

    server.with_request_limits(|head, limits| {
        if *head.method() == Method::PUT {
            limits.body_bytes = 1 << 30;
        }
    })
}

fn main() -> io::Result<()> {
    let server = Arc::new(server(std::env::temp_dir()));
    plainweave::run(|| server.serve(plainweave::net::TcpListener::bind("127.0.0.1:8080")?))
}
