//! A chat server. One fiber, the hub, knows all members and owns the sending ends of their
//! mailboxes, so there is nothing to lock. Each connection has two fibers: one reads lines for the
//! hub, one writes what is in the mailbox.
//!
//! `cargo run -p plainweave --example chat`, then `nc 127.0.0.1 7000` in two terminals.

use std::collections::HashMap;
use std::io::{self, BufRead, BufReader, Write};
use std::net::Shutdown;
use std::sync::Arc;
use std::time::Duration;

use plainweave::net::{TcpListener, TcpStream};
use plainweave::sync::channel::{self, Receiver, Sender};
use plainweave::time::with_timeout;

/// Lines kept for a client that reads slowly. One that falls further behind is disconnected.
const MAILBOX: usize = 64;
/// How long one write may take.
const PATIENCE: Duration = Duration::from_secs(10);

enum Event {
    Joined(u64, Sender<Arc<str>>),
    Said(u64, String),
    Left(u64),
}

/// Passes on what happens until all connections and the listener are gone.
fn hub(events: &Receiver<Event>) {
    let mut members: HashMap<u64, Sender<Arc<str>>> = HashMap::new();
    for event in events.iter() {
        match event {
            Event::Joined(id, mailbox) => {
                if mailbox.try_send(format!("you are {id}\n").into()).is_ok() {
                    members.insert(id, mailbox);
                }
            }
            Event::Said(id, line) => {
                let line: Arc<str> = format!("{id}: {line}\n").into();
                // A full mailbox is dropped, which ends its connection.
                members.retain(|member, mailbox| {
                    *member == id || mailbox.try_send(line.clone()).is_ok()
                });
            }
            Event::Left(id) => drop(members.remove(&id)),
        }
    }
}

/// Writes the lines of a mailbox until the hub drops it; then ends the connection.
fn write(stream: &TcpStream, mailbox: &Receiver<Arc<str>>) {
    let mut stream_out = stream;
    for line in mailbox.iter() {
        if with_timeout(PATIENCE, || stream_out.write_all(line.as_bytes())).is_err() {
            break;
        }
    }
    // The reader may be waiting for a line.
    let _ = stream.shutdown(Shutdown::Both);
}

fn connection(id: u64, stream: &TcpStream, events: &Sender<Event>) {
    let (mailbox, mail) = channel::bounded(MAILBOX);
    if events.send(Event::Joined(id, mailbox)).is_err() {
        return;
    }
    plainweave::scope(|scope| {
        scope.spawn(|| write(stream, &mail));
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            if events.send(Event::Said(id, line)).is_err() {
                break;
            }
        }
        // The hub drops the mailbox, which ends the writer, and so the scope.
        let _ = events.send(Event::Left(id));
    });
}

/// Serves until the listener is closed.
pub(crate) fn serve(listener: &TcpListener) -> io::Result<()> {
    let (events, inbox) = channel::bounded(1024);
    plainweave::spawn(move || hub(&inbox));
    for (id, stream) in (1..).zip(listener.incoming()) {
        let stream = stream?;
        let events = events.clone();
        plainweave::spawn(move || connection(id, &stream, &events));
    }

    Ok(())
}

fn main() -> io::Result<()> {
    plainweave::run(|| serve(&TcpListener::bind("127.0.0.1:7000")?))
}
