//! Servers that send back the messages of WebSockets.

use std::io::{Read, Write};
use std::net::TcpListener;

use plainweave_http::header::{SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY};
use plainweave_http::{HeaderValue, Request, Response, StatusCode, Upgraded};
use tungstenite::handshake::derive_accept_key;
use tungstenite::protocol::Role;
use tungstenite::{Message, WebSocket};

use crate::harness::report;

/// Sends back what comes, until the client is gone.
fn echo<S: Read + Write>(mut socket: WebSocket<S>) {
    while let Ok(message) = socket.read() {
        let sent = match message {
            message @ (Message::Text(_) | Message::Binary(_)) => socket.send(message),
            _ => socket.flush(),
        };

        if sent.is_err() {
            break;
        }
    }
}

/// Takes the connection over, if a WebSocket is asked for.
pub(super) fn handle(request: &mut Request<'_>) -> Response {
    let key = request.header(SEC_WEBSOCKET_KEY.as_str());
    match key.map(|key| HeaderValue::from_str(&derive_accept_key(key))) {
        Some(Ok(accept)) => {
            let take = |stream: &mut Upgraded<'_>| {
                echo(WebSocket::from_raw_socket(stream, Role::Server, None))
            };
            Response::upgrade(HeaderValue::from_static("websocket"), take)
                .with_header(SEC_WEBSOCKET_ACCEPT, accept)
        }
        _ => Response::plain(StatusCode::UPGRADE_REQUIRED),
    }
}

/// Without a server around it.
pub(super) fn serve_threads(listener: &TcpListener) -> anyhow::Result<()> {
    report::say(&listener.local_addr()?.to_string());
    for stream in listener.incoming() {
        let stream = stream?;
        std::thread::Builder::new().spawn(move || {
            if let Ok(socket) = tungstenite::accept(stream) {
                echo(socket);
            }
        })?;
    }
    Ok(())
}
