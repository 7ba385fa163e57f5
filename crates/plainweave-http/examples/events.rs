//! Server-sent events: what is posted to `/publish` reaches everybody at `/events`. A fiber waits
//! for each listener, and each event is flushed.

use std::io::{self, Write};
use std::time::Duration;

use plainweave::sync::broadcast;
use plainweave::time::with_timeout;
use plainweave_http::header::{CACHE_CONTROL, CONTENT_TYPE};
use plainweave_http::{
    Body, BodyWriter, Handler, HeaderValue, Request, Response, Server, StatusCode,
};

/// Bytes of a message.
const LONGEST: usize = 16 << 10;
/// After a silence this long a comment shows whether the client is still there.
const SILENCE: Duration = Duration::from_secs(15);

/// Writes events until the client has left (then a write fails) or there is nobody to publish.
fn follow(messages: &mut broadcast::Receiver<String>, out: &mut BodyWriter<'_>) -> io::Result<()> {
    loop {
        // At first this sends the head.
        out.flush()?;
        match with_timeout(SILENCE, || messages.recv()) {
            Ok(message) => {
                message
                    .lines()
                    .try_for_each(|line| writeln!(out, "data: {line}"))?;
                writeln!(out)?;
            }
            Err(error) if error.is_timed_out() => write!(out, ": still there\n\n")?,
            Err(error) if error.lagged().is_some() => write!(out, "event: lost\ndata:\n\n")?,
            Err(_) => return Ok(()),
        }
    }
}

pub(crate) fn handler() -> impl Handler {
    let (sender, _) = broadcast::channel(64);
    move |request: &mut Request<'_>| match request.path() {
        "/publish" => match request.read_body(LONGEST).map(String::from_utf8) {
            Ok(Ok(message)) => Response::ok(format!("{} listeners\n", sender.send(message))),
            _ => Response::plain(StatusCode::BAD_REQUEST),
        },
        "/events" => {
            let mut messages = sender.subscribe();
            Response::ok(Body::writer(move |out| follow(&mut messages, out)))
                .with_header(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"))
                .with_header(CACHE_CONTROL, HeaderValue::from_static("no-store"))
        }
        _ => Response::plain(StatusCode::NOT_FOUND),
    }
}

fn main() -> io::Result<()> {
    Server::run("127.0.0.1:8080", handler())
}
