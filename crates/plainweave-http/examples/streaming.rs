//! Bodies that nobody holds in memory: read from somewhere, written by a function, counted as they
//! come in.

use std::io::{self, BufRead, BufReader, Read, Write};

use plainweave_http::{
    Body, HeaderName, HeaderValue, Method, Request, Response, Server, StatusCode,
};

/// Any reader is a body; with its length, if that is known.
fn zeros(len: u64) -> Response {
    Response::ok(Body::reader(io::repeat(0).take(len), Some(len)))
}

/// A function writes the body, at the pace of the client, and says at its end what it was.
fn numbers(count: u64) -> Response {
    let write = move |out: &mut plainweave_http::BodyWriter<'_>| {
        let mut sum = 0;
        for n in 1..=count {
            writeln!(out, "{n}")?;
            sum += n;
        }

        out.add_trailer(HeaderName::from_static("x-sum"), HeaderValue::from(sum));
        Ok(())
    };
    Response::ok(Body::writer(write))
}

/// The request is a reader. Its client sends as fast as the lines are counted.
fn count_lines(request: &mut Request<'_>) -> io::Result<Response> {
    let mut lines = 0;
    let mut line = Vec::new();
    let mut body = BufReader::new(request.take(1 << 30));
    while body.read_until(b'\n', &mut line)? > 0 {
        lines += 1;
        line.clear();
    }

    Ok(Response::ok(format!("{lines} lines\n")))
}

pub(crate) fn handle(request: &mut Request<'_>) -> Response {
    let number = |prefix| {
        request
            .path()
            .strip_prefix(prefix)
            .and_then(|text| text.parse().ok())
    };

    if *request.method() == Method::POST {
        // What goes wrong with the body is the client's doing; the server answers 408, 413 or 400.
        return count_lines(request).unwrap_or_else(|_| Response::plain(StatusCode::BAD_REQUEST));
    }

    match (number("/zeros/"), number("/numbers/")) {
        (Some(len), _) => zeros(len),
        (_, Some(count)) => numbers(count),
        _ => Response::plain(StatusCode::NOT_FOUND),
    }
}

fn main() -> io::Result<()> {
    Server::run("127.0.0.1:8080", handle)
}
