//! A WebSocket echo by tungstenite, a synchronous crate: the handler takes the stream over, and waits on it like any
//! other code on a fiber.

use std::io;

use plainweave_http::header::{SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY};
use plainweave_http::{HeaderValue, Request, Response, Server, StatusCode, Upgraded};
use tungstenite::handshake::derive_accept_key;
use tungstenite::protocol::Role;
use tungstenite::{Message, WebSocket};

/// Sends back what comes, until the client closes the connection or says nothing for a minute.
fn echo(stream: &mut Upgraded<'_>) {
    let mut socket = WebSocket::from_raw_socket(stream, Role::Server, None);
    while let Ok(message) = socket.read() {
        let sent = match message {
            message @ (Message::Text(_) | Message::Binary(_)) => socket.send(message),
            // Pings and the end are answered by the crate.
            _ => socket.flush(),
        };
        if sent.is_err() {
            break;
        }
    }
}

pub(crate) fn handle(request: &mut Request<'_>) -> Response {
    let wants = |name, value: &str| {
        request.header_all(name).any(|field| {
            field.split(|byte| *byte == b',').any(|word| word.trim_ascii().eq_ignore_ascii_case(value.as_bytes()))
        })
    };
    let asked = wants("connection", "upgrade") && wants("upgrade", "websocket") && wants("sec-websocket-version", "13");
    let key = request.header(SEC_WEBSOCKET_KEY.as_str()).filter(|_| asked);
    match key.map(|key| HeaderValue::from_str(&derive_accept_key(key))) {
        Some(Ok(accept)) => {
            Response::upgrade(HeaderValue::from_static("websocket"), echo).with_header(SEC_WEBSOCKET_ACCEPT, accept)
        }
        _ => Response::plain(StatusCode::UPGRADE_REQUIRED),
    }
}

fn main() -> io::Result<()> {
    Server::run("127.0.0.1:8080", handle)
}
