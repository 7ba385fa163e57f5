//! Four HTTP requests by hyper, an async crate, at once on one worker. The server answers none of
//! them before all four have arrived, so a client that made one after another would wait for ever.
//!
//! hyper reads and writes through tokio's traits (the cargo feature `tokio-io`); tokio's runtime is
//! not involved.

use std::error::Error;
use std::io::{self, BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::sync::Arc;

use futures_util::future::try_join_all;
use http_body_util::{BodyExt, Empty};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use plainweave::net::{AsyncTcpStream, TcpListener, TcpStream};
use plainweave::sync::{Condvar, Mutex};
use plainweave::{JoinHandle, block_on, spawn, spawn_future};

type Failure = Box<dyn Error + Send + Sync>;

const REQUESTS: usize = 4;

/// Fetches one page, on a connection of its own.
async fn fetch(address: SocketAddr, path: String) -> Result<Bytes, Failure> {
    let stream = AsyncTcpStream::connect(address).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    // hyper wants its connection to be polled beside the request: where tokio programs call
    // `tokio::spawn`.
    let connection = spawn_future(connection);
    let request = Request::get(&path)
        .header("host", address.to_string())
        .body(Empty::<Bytes>::new())?;
    let response = sender.send_request(request).await?;
    if response.status() != StatusCode::OK {
        return Err(format!("{path}: {}", response.status()).into());
    }
    let body = response.into_body().collect().await?.to_bytes();
    drop(sender);
    connection.await???;
    Ok(body)
}

/// Answers one request with its path, once all have arrived.
fn answer(stream: TcpStream, arrived: &(Mutex<usize>, Condvar)) -> io::Result<()> {
    let mut lines = BufReader::new(&stream).lines();
    let request = lines.next().ok_or(io::ErrorKind::UnexpectedEof)??;
    while lines
        .next()
        .transpose()?
        .is_some_and(|line| !line.is_empty())
    {}
    let mut count = arrived.0.lock()?;

    *count += 1;
    arrived.1.notify_all();
    while *count < REQUESTS {
        arrived.1.wait(&mut count)?;
    }
    drop(count);
    let path = request.split(' ').nth(1).unwrap_or("?");

    write!(
        &stream,
        "HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{path}",
        path.len()
    )
}

fn serve(listener: TcpListener) -> JoinHandle<io::Result<()>> {
    spawn(move || {
        let arrived = Arc::new((Mutex::new(0), Condvar::new()));
        for stream in listener.incoming().take(REQUESTS) {
            let stream = stream?;
            let arrived = arrived.clone();
            spawn(move || answer(stream, &arrived));
        }
        Ok(())
    })
}

/// Fetches four pages at once, on the calling fiber.
pub(crate) fn run() -> Result<(), Failure> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let server = serve(listener);
    let pages = block_on(try_join_all(
        (0..REQUESTS).map(|n| fetch(address, format!("/page/{n}"))),
    ))??;
    for (n, page) in pages.iter().enumerate() {
        assert_eq!(*page, format!("/page/{n}"));
    }
    server.join()??;
    Ok(())
}

fn main() -> Result<(), Failure> {
    plainweave::Runtime::builder().workers(1).build()?.run(run)
}
