//! memcached's text protocol: `get` and `set` of keys whose sizes, and whose values' sizes, follow distributions.
//!
//! Key and size of a value are functions of the key's number and the seed, so that every reply can be checked,
//! whichever worker stored the value. In the load phase each worker stores its share of the keys on every server.

use std::cell::RefCell;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, ensure};
use plainweave::net::TcpStream;
use plainweave::time;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::distribution::Distribution;
use super::engine::{Broken, Next, Protocol, Reply};
use super::flags::CacheFlags;
use super::popularity::{Picker, Popularity};
use super::reply::{self, Expected};
use super::tally::Failure;
use super::target::Target;

/// memcached's longest key.
const KEY: usize = 250;
/// Longest value: what fits an item of 1 MB with its head.
const VALUE: usize = 1_000_000;
/// A connection's buffer at first, and room behind a value for the lines around it.
const BUFFER: usize = 4096;
/// Values stored together in the load phase.
const BATCH: usize = 32;
const PORT: u16 = 11211;

/// The keys and how they are asked for.
#[derive(Debug)]
pub(super) struct Cache {
    /// All keys, one behind the other.
    text: Vec<u8>,
    /// Where each key ends, and its value's size.
    keys: Vec<(u64, u32)>,
    /// A value is a beginning of this.
    value: Vec<u8>,
    set_ratio: f64,
    depth: usize,
    zipf: Option<f64>,
    load: Option<Duration>,
}

impl Cache {
    /// Makes the keys.
    pub(super) fn prepare(flags: &CacheFlags) -> anyhow::Result<(Vec<Target>, Self)> {
        let targets = flags.servers.iter().map(|server| target(server)).collect::<anyhow::Result<_>>()?;
        let mut random = SmallRng::seed_from_u64(flags.common.seed);
        let mut draw = |distribution: Distribution| distribution.at(random.random(), random.random()).max(0.0) as usize;
        let (mut text, mut keys) = (Vec::new(), Vec::with_capacity(flags.keys.get() as usize));
        for number in 0..flags.keys.get() {
            let width = draw(flags.key_size).min(KEY);
            write!(text, "{number:0width$}")?;
            keys.push((text.len() as u64, draw(flags.value_size).min(VALUE) as u32));
        }
        let longest = keys.iter().map(|(_, size)| *size).max().unwrap_or(0) as usize;
        let cache = Self {
            text,
            keys,
            // Printable, and not the same over and over.
            value: (0..longest).map(|n| b'a' + (n * 7 % 26) as u8).collect(),
            set_ratio: flags.set_ratio,
            depth: flags.depth.get(),
            // Without a distribution of popularity all keys are alike.
            zipf: Some(flags.zipf.unwrap_or(0.0)),
            load: (!flags.no_load).then_some(flags.common.timeout),
        };
        Ok((targets, cache))
    }

    fn key(&self, number: usize) -> &[u8] {
        let start = number.checked_sub(1).map_or(0, |before| self.keys[before].0);
        &self.text[start as usize..self.keys[number].0 as usize]
    }

    fn size(&self, number: usize) -> usize {
        self.keys[number].1 as usize
    }

    fn write(&self, out: &mut Vec<u8>, Asked { number, set }: Asked) {
        let (key, size) = (self.key(number), self.size(number));
        out.extend_from_slice(if set { b"set " } else { b"get " });
        out.extend_from_slice(key);
        if set {
            // Writing to memory does not fail.
            let _ = write!(out, " 0 0 {size}\r\n");
            out.extend_from_slice(&self.value[..size]);
        }
        out.extend_from_slice(b"\r\n");
    }

    /// Sends what is asked and reads the replies.
    fn ask(&self, connection: &mut Connection, done: &mut dyn FnMut(Reply)) -> Result<(), Broken> {
        connection.out.clear();
        for asked in &connection.asked {
            self.write(&mut connection.out, *asked);
        }
        connection.stream.write_all(&connection.out).map_err(Broken::before)?;
        let Connection { stream, buffer, asked, .. } = connection;
        let (mut start, mut filled) = (0, 0);
        for (n, Asked { number, set }) in asked.iter().enumerate() {
            let (key, len) = (self.key(*number), self.size(*number));
            let expected = if *set { Expected::Stored } else { Expected::Value { key, len } };
            let (used, outcome) = loop {
                if start < filled
                    && let Some(whole) = reply::parse(&buffer[start..filled], expected).map_err(Broken::within)?
                {
                    break whole;
                }
                if start > 0 {
                    buffer.copy_within(start..filled, 0);
                    (start, filled) = (0, filled - start);
                }
                if filled == buffer.len() {
                    buffer.resize((len + BUFFER).max(buffer.len() * 2), 0);
                }
                let broken =
                    |failure| if filled == 0 && n == 0 { Broken::silent(failure) } else { Broken::within(failure) };
                match stream.read(&mut buffer[filled..]) {
                    Ok(0) => return Err(broken(if filled == 0 { Failure::Closed } else { Failure::Short })),
                    Ok(n) => filled += n,
                    Err(error) => return Err(broken(error.into())),
                }
            };
            start += used;
            done(Reply { bytes: used as u64, status: 0, outcome });
        }
        if start < filled {
            return Err(Broken::within(Failure::Garbage));
        }
        Ok(())
    }
}

fn target(server: &str) -> anyhow::Result<Target> {
    let (host, port) = match server.rsplit_once(':') {
        Some((host, port)) if !host.contains(':') || host.ends_with(']') => {
            (host, port.parse().ok().with_context(|| format!("{server}: write HOST:PORT"))?)
        }
        _ => (server, PORT),
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    ensure!(!host.is_empty() && !host.contains('/'), "{server}: write HOST:PORT");
    Ok(Target { name: server.to_owned(), host: host.to_owned(), port })
}

/// One request.
#[derive(Clone, Copy, Debug)]
struct Asked {
    number: usize,
    set: bool,
}

/// A connection, what was asked on it, and the buffers for that.
#[derive(Debug)]
pub(super) struct Connection {
    stream: TcpStream,
    asked: Vec<Asked>,
    out: Vec<u8>,
    buffer: Vec<u8>,
}

impl Protocol for Cache {
    type Connection = Connection;

    fn depth(&self) -> usize {
        self.depth
    }

    fn picker(&self, _worker: usize, _workers: usize, seed: u64) -> Picker {
        Picker::new(seed, Popularity::new(self.keys.len(), self.zipf, 0))
    }

    fn load(&self, addresses: &[SocketAddr], worker: usize, workers: usize) -> Result<(), Failure> {
        let Some(timeout) = self.load else { return Ok(()) };
        for address in addresses {
            let mut connection = time::with_timeout(timeout, || self.connect(*address))?;
            let mut numbers = (worker..self.keys.len()).step_by(workers).peekable();
            while numbers.peek().is_some() {
                let batch = numbers.by_ref().take(BATCH).map(|number| Asked { number, set: true });
                connection.asked.clear();
                connection.asked.extend(batch);
                let mut refused = None;
                let mut done = |reply: Reply| refused = refused.or(reply.outcome.err());
                let asked = time::with_timeout(timeout, || self.ask(&mut connection, &mut done));
                asked.map_err(|broken| broken.failure)?;
                refused.map_or(Ok(()), Err)?;
            }
        }
        Ok(())
    }

    fn connect(&self, address: SocketAddr) -> Result<Connection, Failure> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        Ok(Connection { stream, asked: Vec::new(), out: Vec::new(), buffer: vec![0; BUFFER] })
    }

    fn exchange(
        &self,
        connection: &mut Connection,
        picker: &RefCell<Picker>,
        depth: usize,
        done: &mut dyn FnMut(Reply),
    ) -> Result<Next, Broken> {
        connection.asked.clear();
        {
            let Picker { random, popularity } = &mut *picker.borrow_mut();
            let picked = (0..depth).map(|_| {
                let number = popularity.pick(random);
                Asked { number, set: self.set_ratio > 0.0 && random.random::<f64>() < self.set_ratio }
            });
            connection.asked.extend(picked);
        }
        self.ask(connection, done).map(|()| Next::Keep)
    }
}
