//! Compression on the fly: CPU per request and bytes of an answer, beside nginx and Caddy.
//!
//! JSON of records, 100 KiB, which our server keeps compressed, and 4 MiB, which it compresses for
//! each answer as the others do. nginx has gzip at its level 6; Caddy has gzip at the same level,
//! and zstd.

use std::io::Read;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, bail, ensure};

use super::bench::Bench;
use crate::harness::machine;
use crate::serving::nginx;
use crate::serving::process::{Conditions, Process, free_address};
use crate::serving::rounds::{Costs, Rounds};
use crate::serving::site::SILENCE_LIMIT;
use crate::serving::web::{Kind, Server};
use crate::serving::wrk;

pub(super) const KEPT: &str = "gzip-100k";
pub(super) const STREAMED: &str = "gzip-4m";

/// Each of them, and a check beside them, has its encoder.
const CONNECTIONS: usize = 6;

/// Those that ours has.
const CODINGS: [&str; 3] = ["gzip", "br", "zstd"];

/// A server, and the coding that it is asked for.
struct System {
    name: String,
    coding: &'static str,
    process: Process,
}

pub(super) fn kept(bench: &mut Bench) -> anyhow::Result<()> {
    run(bench, KEPT, 100 << 10)
}

pub(super) fn streamed(bench: &mut Bench) -> anyhow::Result<()> {
    run(bench, STREAMED, 4 << 20)
}

fn run(bench: &mut Bench, case: &'static str, bytes: usize) -> anyhow::Result<()> {
    if !machine::installed("wrk") {
        bench.findings.missing(case, "wrk is not installed");
        return Ok(());
    }

    let content = records(bytes);
    let path = format!("/{case}.json");
    std::fs::write(bench.site.root().join(&path[1..]), &content)?;
    let mut systems = Vec::new();
    match Kind::Uring.absence() {
        Some(why) => bench.findings.missing(Kind::Uring.name(), why),
        None => {
            for coding in CODINGS {
                let under = Conditions {
                    arguments: &["--compress"],
                    ..Conditions::default()
                };
                systems.push(System {
                    name: format!("{} {coding}", Kind::Uring.name()),
                    coding,
                    process: Server::start(Kind::Uring, &bench.site, under)?.into_process(),
                });
            }
        }
    }

    match nginx::absence() {
        Some(why) => bench.findings.missing("nginx", why),
        None => systems.push(System {
            name: "nginx gzip".to_owned(),
            coding: "gzip",
            process: nginx_with_gzip(bench)?,
        }),
    }

    if machine::installed("caddy") {
        for coding in ["gzip", "zstd"] {
            systems.push(System {
                name: format!("caddy {coding}"),
                coding,
                process: caddy(bench.site.dir(), &bench.site.root())?,
            });
        }
    } else {
        bench.findings.missing("caddy", "not installed");
    }

    let costs = measure(bench, case, &systems, (&path, content.as_bytes()))?;
    let nginx = systems
        .iter()
        .position(|system| system.name == "nginx gzip");
    let nginx = nginx.map(|place| costs[place].cpu.clone());
    for (system, Costs { cpu, rate }) in systems.iter().zip(costs) {
        let name = &system.name;
        let sent = answer(system, &path)?.len() as f64;
        let findings = &mut bench.findings;
        findings.row(case, name, "bytes_per_answer", "B", vec![sent]);
        findings.row(case, name, "requests_per_second", "1/s", rate);
        if name != "nginx gzip" {
            findings.ratio(case, name, ("ratio_to_nginx", nginx.as_ref()), &cpu);
        }
        findings.row(case, name, "cpu_us_per_request", "us", cpu);
    }

    Ok(())
}

/// Returns JSON of this many bytes, with numbers and words as such files have them.
fn records(bytes: usize) -> String {
    let words = [
        "alpha", "bravo", "charlie", "delta", "echo", "foxtrot", "golf", "hotel",
    ];
    let mut text = String::from("[\n");
    let mut state = 1_u64;
    while text.len() < bytes {
        // As C's rand was (ISO C, 7.22.2.2).
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let number = state >> 33;
        let word = words[(number % 8) as usize];
        let other = words[(number / 8 % 8) as usize];
        let active = number.is_multiple_of(3);
        let score = number % 1000;
        let part = number % 97;
        let names = format!("\"id\": {number}, \"name\": \"{word} {other}\"");
        let rest = format!("\"active\": {active}, \"score\": {score}.{part}");
        text.push_str(&format!("  {{{names}, {rest}}},\n"));
    }

    text.truncate(bytes);
    text
}

fn nginx_with_gzip(bench: &Bench) -> anyhow::Result<Process> {
    let root = format!("root {};", bench.site.root().display());
    let settings = nginx::Settings {
        workers: 1,
        http: "gzip on; gzip_comp_level 6; gzip_types application/octet-stream;",
        server: &root,
        ..Default::default()
    };
    let (command, address) = nginx::command(bench.site.dir(), &settings)?;
    Process::start("nginx", &command, Some(address), 1, None)
}

/// Caddy with one thread for Go's code, and without its log and its admin address.
fn caddy(dir: &Path, root: &Path) -> anyhow::Result<Process> {
    let address = free_address()?;
    let own = dir.join(format!("caddy-{}", address.port()));
    std::fs::create_dir_all(&own)?;
    let file = own.join("Caddyfile");
    let port = address.port();
    let root = root.display();
    let types = "match {\n header Content-Type application/json*\n }";
    let encode = format!("encode {{\n gzip 6\n zstd\n {types}\n }}");
    let site = format!("bind 127.0.0.1\n root * {root}\n {encode}\n file_server");
    let own_settings = "admin off\n auto_https off";
    let text = format!("{{\n {own_settings}\n}}\nhttp://:{port} {{\n {site}\n}}\n");
    std::fs::write(&file, text)?;
    let mut command = Command::new("caddy");
    command
        .args(["run", "--adapter", "caddyfile", "--config"])
        .arg(file)
        .env("HOME", own)
        .env("GOMAXPROCS", "1");
    Process::start("caddy", &command, Some(address), 1, None)
}

fn measure(
    bench: &Bench,
    case: &str,
    systems: &[System],
    (path, content): (&str, &[u8]),
) -> anyhow::Result<Vec<Costs>> {
    for system in systems {
        check(system, path, content)?;
    }

    let rounds = Rounds {
        name: &format!("web: {case}"),
        runs: bench.runs,
        turn: bench.turn,
    };
    let processes: Vec<_> = systems.iter().map(|system| &system.process).collect();
    let coding_of = |address: SocketAddr| {
        let mut all = systems.iter();
        let system = all.find(|system| system.process.address == address);
        system.map_or("identity", |system| system.coding)
    };
    let command = |server: &Process, length: Duration| {
        let url = format!("http://{}{path}", server.address);
        let mut command = wrk::command(&url, CONNECTIONS, length);
        let field = format!("Accept-Encoding: {}", coding_of(server.address));
        command.args(["-H", &field]);
        command
    };

    rounds.run(&processes, command, wrk::requests, |count| {
        check(&systems[count % systems.len()], path, content)
    })
}

/// Asks for the file in the system's coding, and compares what comes.
fn check(system: &System, path: &str, content: &[u8]) -> anyhow::Result<()> {
    let sent = answer(system, path)?;
    let mut got = Vec::new();
    match system.coding {
        "gzip" => flate2::read::GzDecoder::new(&sent[..]).read_to_end(&mut got),
        "br" => brotli::Decompressor::new(&sent[..], 4096).read_to_end(&mut got),
        "zstd" => zstd::Decoder::new(&sent[..])?.read_to_end(&mut got),
        other => bail!("no such coding: {other}"),
    }
    .with_context(|| format!("{path} of {}", system.name))?;
    ensure!(
        got == content,
        "{path} of {} came with another content",
        system.name
    );
    Ok(())
}

/// Returns the content of an answer as it is sent.
fn answer(system: &System, path: &str) -> anyhow::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(system.process.address)?;
    stream.set_read_timeout(Some(SILENCE_LIMIT))?;
    let coding = system.coding;
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: h\r\nAccept-Encoding: {coding}\r\nConnection: close\r\n\r\n"
    );
    std::io::Write::write_all(&mut stream, request.as_bytes())?;
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes)?;
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n");
    let body = bytes.split_off(end.context("no head")? + 4);
    let head = String::from_utf8_lossy(&bytes).to_lowercase();
    let coded = format!("\r\ncontent-encoding: {coding}\r\n");
    ensure!(
        head.contains(&coded),
        "{}: not {coding}: {head}",
        system.name
    );
    match head.contains("\r\ntransfer-encoding: chunked\r\n") {
        true => chunks(&body),
        false => Ok(body),
    }
}

/// Returns the content of a body in chunks that has come as a whole.
fn chunks(mut rest: &[u8]) -> anyhow::Result<Vec<u8>> {
    let mut content = Vec::new();
    loop {
        let end = rest
            .windows(2)
            .position(|two| two == b"\r\n")
            .context("no chunk")?;
        let size = usize::from_str_radix(str::from_utf8(&rest[..end])?, 16)?;
        let data = rest
            .get(end + 2..end + 2 + size)
            .context("a chunk is cut off")?;
        if size == 0 {
            return Ok(content);
        }
        content.extend_from_slice(data);
        rest = rest.get(end + 4 + size..).context("a chunk is cut off")?;
    }
}
