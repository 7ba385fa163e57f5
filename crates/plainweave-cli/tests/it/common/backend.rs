//! Applications behind the server, as scripts of a test.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

/// What an application makes of a connection on which a request's head has come. It reads the body
/// itself, and says whether it takes another request.
pub(crate) type Answers = dyn Fn(&str, &mut dyn Conversation) -> bool + Send + Sync;

/// A connection, for reading and writing.
pub(crate) trait Conversation: Read + Write {}
impl<S: Read + Write> Conversation for S {}

/// An application.
pub(crate) struct Backend {
    pub(crate) address: SocketAddr,
    connections: Arc<AtomicUsize>,
    heads: Arc<Mutex<Vec<String>>>,
}

impl Backend {
    pub(crate) fn start(
        answers: impl Fn(&str, &mut dyn Conversation) -> bool + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        Self::on(listener, answers)
    }

    pub(crate) fn on(
        listener: TcpListener,
        answers: impl Fn(&str, &mut dyn Conversation) -> bool + Send + Sync + 'static,
    ) -> Self {
        let backend = Self {
            address: listener.local_addr().unwrap(),
            connections: Arc::default(),
            heads: Arc::default(),
        };

        let connections = backend.connections.clone();
        let heads = backend.heads.clone();
        let answers: Arc<Answers> = Arc::new(answers);
        // It ends with the test's process.
        thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(stream) = stream else { return };
                connections.fetch_add(1, Ordering::SeqCst);
                let answers = answers.clone();
                let heads = heads.clone();
                thread::spawn(move || converse(stream, &heads, &*answers));
            }
        });

        backend
    }

    pub(crate) fn heads(&self) -> Vec<String> {
        self.heads.lock().unwrap().clone()
    }

    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

pub(crate) fn converse(
    mut stream: impl Read + Write,
    heads: &Mutex<Vec<String>>,
    answers: &Answers,
) {
    loop {
        let mut head = Vec::new();
        let mut byte = [0];
        while !head.ends_with(b"\r\n\r\n") {
            match stream.read(&mut byte) {
                Ok(1) => head.push(byte[0]),
                _ => return,
            }
        }

        let head = String::from_utf8(head).unwrap();
        heads.lock().unwrap().push(head.clone());
        if !answers(&head, &mut stream) {
            return;
        }
    }
}

/// The value of a field of a head.
pub(crate) fn field<'h>(head: &'h str, name: &str) -> Option<&'h str> {
    head.lines().find_map(|line| {
        let (found, value) = line.split_once(':')?;
        found.eq_ignore_ascii_case(name).then(|| value.trim())
    })
}

/// Reads the body that a head announces.
pub(crate) fn body(head: &str, stream: &mut dyn Conversation) -> Vec<u8> {
    let mut body = Vec::new();
    if let Some(length) = field(head, "content-length") {
        body.resize(length.parse().unwrap(), 0);
        stream.read_exact(&mut body).unwrap();
        return body;
    }
    if field(head, "transfer-encoding").is_none() {
        return body;
    }

    let mut byte = [0];
    loop {
        let mut line = Vec::new();
        while !line.ends_with(b"\r\n") {
            stream.read_exact(&mut byte).unwrap();
            line.push(byte[0]);
        }
        let size = std::str::from_utf8(&line[..line.len() - 2]).unwrap();
        let mut chunk = vec![0; usize::from_str_radix(size, 16).unwrap() + 2];
        stream.read_exact(&mut chunk).unwrap();
        if chunk.len() == 2 {
            return body;
        }
        body.extend_from_slice(&chunk[..chunk.len() - 2]);
    }
}
