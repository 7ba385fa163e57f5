//! A room by tungstenite, a synchronous crate: what one member says, all hear. The handler takes
//! the stream over. It listens to its client and to the others at once, on one fiber.

use std::io::{self, ErrorKind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use plainweave::select;
use plainweave::sync::{Receiver, Sender, channel};
use plainweave_http::header::{SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY};
use plainweave_http::{Handler, HeaderValue, Request, Response, Server, StatusCode, Upgraded};
use tungstenite::handshake::derive_accept_key;
use tungstenite::protocol::Role;
use tungstenite::{Error, Message, WebSocket};

/// Messages that a slow member may have before it; it misses those beyond.
const BACKLOG: usize = 64;
/// After a silence this long a ping shows whether the client is still there.
const SILENCE: Duration = Duration::from_secs(20);

/// What leads to each member.
#[derive(Clone, Default)]
pub(crate) struct Room(Arc<Mutex<Vec<Sender<String>>>>);

impl Room {
    fn members(&self) -> MutexGuard<'_, Vec<Sender<String>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn join(&self) -> Receiver<String> {
        let (sender, said) = channel::bounded(BACKLOG);
        self.members().push(sender);
        said
    }

    fn say(&self, text: &str) {
        let mut members = self.members();
        members.retain(|member| member.try_send(text.to_owned()).is_ok() || !member.is_closed());
    }
}

/// Goes on until the client has left, or is silent after a ping.
fn talk(stream: &mut Upgraded<'_>, room: &Room, said: &Receiver<String>) -> Result<(), Error> {
    stream.set_nonblocking_reads(true)?;
    let mut socket = WebSocket::from_raw_socket(stream, Role::Server, None);
    let mut pinged = false;
    loop {
        match socket.read() {
            Ok(message) => {
                pinged = false;
                if let Message::Text(text) = message {
                    room.say(&text);
                }
                // Pings and the end are answered by the crate.
                socket.flush()?;
                continue;
            }
            Err(Error::Io(error)) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        // Nothing more is there: wait for whatever comes first.
        select! {
            readable(socket.get_ref()) => Ok(()),
            recv(said) -> text => match text {
                Ok(text) => socket.send(Message::text(text)),
                Err(_) => socket.close(None),
            },
            after(SILENCE) => match std::mem::replace(&mut pinged, true) {
                true => Err(Error::Io(ErrorKind::TimedOut.into())),
                false => socket.send(Message::Ping(Vec::new().into())),
            },
        }??;
    }
}

pub(crate) fn handler(room: Room) -> impl Handler {
    move |request: &mut Request<'_>| {
        let wants = |name, value: &str| {
            request.header_all(name).any(|field| {
                field
                    .split(|byte| *byte == b',')
                    .any(|word| word.trim_ascii().eq_ignore_ascii_case(value.as_bytes()))
            })
        };

        let asked = wants("connection", "upgrade")
            && wants("upgrade", "websocket")
            && wants("sec-websocket-version", "13");
        let key = request.header(SEC_WEBSOCKET_KEY.as_str()).filter(|_| asked);
        match key.map(|key| HeaderValue::from_str(&derive_accept_key(key))) {
            Some(Ok(accept)) => {
                // Before the client has the answer: from then on it hears all.
                let (room, said) = (room.clone(), room.join());
                // How the conversation has ended is nobody's concern.
                let talk = move |stream: &mut Upgraded<'_>| drop(talk(stream, &room, &said));
                Response::upgrade(HeaderValue::from_static("websocket"), talk)
                    .with_header(SEC_WEBSOCKET_ACCEPT, accept)
            }
            _ => Response::plain(StatusCode::UPGRADE_REQUIRED),
        }
    }
}

fn main() -> io::Result<()> {
    Server::run("127.0.0.1:8080", handler(Room::default()))
}
