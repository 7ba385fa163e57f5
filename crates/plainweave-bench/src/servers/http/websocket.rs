//! An echo by WebSocket: tungstenite, a synchronous crate, through the HTTP library on fibers and
//! on threads, beside tungstenite alone on a thread for each connection.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use anyhow::{Context, ensure};
use tungstenite::handshake::derive_accept_key;

use super::bench::{Bench, Others};
use super::kind::Kind;
use crate::harness::report;
use crate::servers::echo::client::Client;
use crate::serving::process::Process;
use crate::serving::rounds::Costs;
use crate::serving::site::SILENCE_LIMIT;

const CASE: &str = "websocket";
/// Bytes of a message.
const SIZE: usize = 64;
const PEER: &str = "tungstenite on threads";
const SYSTEMS: [(&str, Kind); 6] = [
    (PEER, Kind::Tungstenite),
    ("plainweave epoll", Kind::Epoll),
    ("plainweave uring", Kind::Uring),
    ("plainweave epoll before-start/shared", Kind::EpollShared),
    ("plainweave uring before-start/shared", Kind::UringShared),
    ("plainweave threads", Kind::Threads),
];
const OTHERS: &Others = &[(PEER, "ratio_to_threads")];

pub(super) fn run(bench: &mut Bench) -> anyhow::Result<()> {
    let mut servers = Vec::new();
    for (name, kind) in SYSTEMS {
        let started = Process::start(name, &kind.command(&["--websocket"])?, None, 1, None);
        match started {
            Ok(server) => {
                let client = connect(server.address, bench.sizes.connections).context(name)?;
                servers.push((name, server, client, Costs::default()));
            }
            Err(error) if matches!(kind, Kind::Uring | Kind::UringShared) => {
                bench.findings.missing(name, format!("{error:#}"));
            }
            Err(error) => return Err(error),
        }
    }

    for round in 0..=bench.runs {
        report::progress(&format!(
            "{}: {CASE}, round {round} of {}",
            bench.findings.origin().name(),
            bench.runs
        ));
        for (name, server, client, costs) in &mut servers {
            let before = server.cpu_ns()?;
            let start = std::time::Instant::now();
            let echoed = client.drive(bench.sizes.messages).context(*name)? as f64;

            // The first round warms up.
            if round > 0 {
                costs
                    .cpu
                    .push((server.cpu_ns()? - before) as f64 / 1e3 / echoed);
                costs.rate.push(echoed / start.elapsed().as_secs_f64());
            }
        }
    }

    let costs: Vec<_> = servers
        .into_iter()
        .map(|(name, _, _, costs)| (name, costs))
        .collect();
    bench.compare(
        CASE,
        ["cpu_us_per_message", "messages_per_second"],
        &costs,
        OTHERS,
    );
    bench.findings.facts.push((
        "messages",
        format!(
            "{CASE}: {SIZE} bytes, {} a turn, every answer checked",
            bench.sizes.messages
        ),
    ));
    Ok(())
}

/// Opens WebSockets, and hands them to a client that knows one frame and the one that answers it.
fn connect(address: SocketAddr, connections: usize) -> anyhow::Result<Client> {
    let streams = (0..connections)
        .map(|_| open(address))
        .collect::<Result<Vec<_>, _>>()?;
    let payload: Vec<u8> = (0..SIZE).map(|i| i as u8).collect();
    let mask = [0x3c, 0x5a, 0x96, 0xc3];
    let length = SIZE as u8;

    // A binary message in one frame, from the client with a mask: RFC 6455, section 5.2.
    let masked = payload
        .iter()
        .zip(mask.iter().cycle())
        .map(|(byte, mask)| byte ^ mask);
    let message = [0x82, 0x80 | length]
        .into_iter()
        .chain(mask)
        .chain(masked)
        .collect();
    let answer = [&[0x82, length], &payload[..]].concat();
    Client::over(streams, message, answer)
}

fn open(address: SocketAddr) -> anyhow::Result<TcpStream> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(SILENCE_LIMIT))?;
    let key = "dGhlIHNhbXBsZSBub25jZQ==";
    let request = format!(
        "GET / HTTP/1.1\r\nHost: {address}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n"
    );
    stream.write_all(request.as_bytes())?;

    // Byte by byte: what follows the head is not the handshake's.
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        stream
            .read_exact(&mut byte)
            .context("the server ended the handshake of a WebSocket")?;
        head.push(byte[0]);
    }

    let head = String::from_utf8_lossy(&head).into_owned();
    let accepted =
        head.starts_with("HTTP/1.1 101 ") && head.contains(&derive_accept_key(key.as_bytes()));
    ensure!(accepted, "no WebSocket: {head}");
    Ok(stream)
}
