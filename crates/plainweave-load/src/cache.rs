//! memcached's text protocol, by classic or meta commands: keys whose sizes, and whose values'
//! sizes, follow distributions are got, several at a time if asked for, stored and deleted.
//!
//! Key and size of a value are functions of the key's number and the seed, so that every reply can
//! be checked, whichever worker stored the value. In the load phase each worker stores its share of
//! the keys on every server.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io::Write;
use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::ensure;
use plainweave::time;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::distribution::Distribution;
use super::engine::{Broken, Next, Protocol, Reply};
use super::files::Files;
use super::flags::{CacheFlags, Dialect};
use super::popularity::{Picker, Popularity};
use super::reply::{self, Commands, Expected, Part};
use super::socket::Place;
use super::stream::Stream;
use super::tally::{Failure, Opening};
use super::target::Target;
use super::tls::{self, Tls};

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
    delete_ratio: f64,
    dialect: Dialect,
    /// Keys of a get.
    many: usize,
    depth: usize,
    zipf: Option<f64>,
    load: Option<Duration>,
    /// The values are somebody else's.
    any_size: bool,
    /// With the name of each server.
    tls: Option<(Tls, Vec<String>)>,
    /// The first error that a server has answered with.
    said: OnceLock<String>,
}

impl Cache {
    /// Makes the keys.
    pub(super) fn prepare(
        flags: &CacheFlags,
        files: &Files,
    ) -> anyhow::Result<(Vec<Target>, Self)> {
        let updates = flags.set_ratio + flags.delete_ratio;
        ensure!(
            updates <= 1.0,
            "--set-ratio and --delete-ratio are {updates} together, and 1 at most"
        );
        let targets = flags
            .servers
            .iter()
            .map(|server| Target::named(server, Some(PORT)))
            .collect::<anyhow::Result<Vec<_>>>()?;
        let hosts: Vec<_> = targets.iter().map(|target| target.host.clone()).collect();
        if flags.tls {
            hosts.iter().try_for_each(|host| tls::check_host(host))?;
        }
        let tls = Tls::new(&flags.trust, files, flags.tls, None)?;
        let (text, keys) = match &flags.keys_from {
            Some(file) => keys_of(file, &files.read(file)?, flags)?,
            None => numbered(flags)?,
        };

        let longest = keys.iter().map(|(_, size)| *size).max().unwrap_or(0) as usize;
        let cache = Self {
            text,
            keys,
            // Printable, and not the same over and over.
            value: (0..longest).map(|n| b'a' + (n * 7 % 26) as u8).collect(),
            set_ratio: flags.set_ratio,
            delete_ratio: flags.delete_ratio,
            dialect: flags.protocol,
            many: usize::from(flags.multi_get),
            depth: flags.depth.get(),
            // Without a distribution of popularity all keys are alike.
            zipf: Some(flags.zipf.unwrap_or(0.0)),
            load: (!flags.no_load).then_some(flags.common.timeout),
            any_size: flags.no_load && flags.keys_from.is_some(),
            tls: tls.map(|tls| (tls, hosts)),
            said: OnceLock::new(),
        };

        Ok((targets, cache))
    }

    fn key(&self, number: usize) -> &[u8] {
        let start = number
            .checked_sub(1)
            .map_or(0, |before| self.keys[before].0);
        &self.text[start as usize..self.keys[number].0 as usize]
    }

    fn size(&self, number: usize) -> usize {
        self.keys[number].1 as usize
    }

    /// Writes one request; writing to memory does not fail.
    fn write(&self, out: &mut Vec<u8>, verb: Verb, numbers: &[usize]) {
        match (self.dialect, verb) {
            (Dialect::Classic, Verb::Get) => {
                out.extend_from_slice(b"get");
                for number in numbers {
                    out.push(b' ');
                    out.extend_from_slice(self.key(*number));
                }
                out.extend_from_slice(b"\r\n");
            }
            // `k` has the key come back: it is checked, and tells which of several keys a value is
            // of.
            (Dialect::Meta, Verb::Get) => {
                for number in numbers {
                    self.line(
                        out,
                        b"mg ",
                        *number,
                        if numbers.len() > 1 {
                            b" q k v"
                        } else {
                            b" k v"
                        },
                    );
                }

                if numbers.len() > 1 {
                    // `q` keeps misses silent, so the reply to a no-op says where those of this
                    // request end.
                    out.extend_from_slice(b"mn\r\n");
                }
            }
            (dialect, Verb::Set) => {
                let size = self.size(numbers[0]);
                out.extend_from_slice(if dialect == Dialect::Classic {
                    b"set "
                } else {
                    b"ms "
                });
                out.extend_from_slice(self.key(numbers[0]));
                let _ = write!(
                    out,
                    "{} {size}\r\n",
                    if dialect == Dialect::Classic {
                        " 0 0"
                    } else {
                        ""
                    }
                );
                out.extend_from_slice(&self.value[..size]);
                out.extend_from_slice(b"\r\n");
            }
            (Dialect::Classic, Verb::Delete) => self.line(out, b"delete ", numbers[0], b""),
            (Dialect::Meta, Verb::Delete) => self.line(out, b"md ", numbers[0], b""),
        }
    }

    fn line(&self, out: &mut Vec<u8>, command: &[u8], number: usize, rest: &[u8]) {
        for part in [command, self.key(number), rest, b"\r\n"] {
            out.extend_from_slice(part);
        }
    }

    /// Sends what is asked and reads the replies.
    fn ask(&self, connection: &mut Connection, done: &mut dyn FnMut(Reply)) -> Result<(), Broken> {
        let Connection {
            stream,
            asked,
            numbers,
            out,
            buffer,
        } = connection;
        out.clear();
        let mut first = 0;
        for Asked { verb, count } in asked.iter() {
            self.write(out, *verb, &numbers[first..first + count]);
            first += count;
        }
        // One write for all: a pipeline, not a request at a time.
        stream.send(out).map_err(Broken::before)?;
        let mut input = Input {
            stream,
            buffer,
            start: 0,
            filled: 0,
            silent: true,
        };
        first = 0;
        for Asked { verb, count } in asked.iter() {
            let (bytes, outcome) = self.reply(&mut input, *verb, &numbers[first..first + count])?;
            first += count;
            done(Reply {
                bytes,
                status: 0,
                outcome,
            });
        }
        // All replies are there: bytes behind them were asked for by nobody, and the next reply
        // would be read from the middle of them.
        if input.start < input.filled {
            Err(Broken::within(Failure::Garbage))
        } else {
            Ok(())
        }
    }

    /// Reads the reply to one request: its bytes, and whether it brought all values.
    fn reply(
        &self,
        input: &mut Input<'_>,
        verb: Verb,
        numbers: &[usize],
    ) -> Result<(u64, Result<bool, Failure>), Broken> {
        let commands = match self.dialect {
            Dialect::Classic => Commands::Classic,
            Dialect::Meta if numbers.len() > 1 => Commands::MetaMany,
            Dialect::Meta => Commands::Meta,
        };
        let mut bytes = 0;
        let mut outcome = Ok(true);
        let mut found = 0;
        loop {
            // Values come in the order of the keys; those that are missing are left out.
            let keys = |n: usize| {
                numbers
                    .get(found + n)
                    .map(|number| (self.key(*number), self.size(*number)))
            };
            let expected = match verb {
                Verb::Get => Expected::Values(&keys),
                Verb::Set => Expected::Stored,
                Verb::Delete => Expected::Deleted,
            };
            let (used, part) = input.part(commands, expected)?;
            bytes += used as u64;
            if matches!(part, Part::Failed | Part::End(Err(Failure::ErrorReply))) {
                let line = input.buffer[input.start - used..input.start].trim_ascii();
                // Counts say that it refused, not why. The first refusal is shown as it came.
                self.said.get_or_init(|| line.escape_ascii().to_string());
            }
            match part {
                Part::Value { key, fits } => {
                    found += key + 1;
                    if !fits && !self.any_size {
                        outcome = Err(Failure::WrongLength);
                    // Keys were passed over, so they were missing.
                    } else if key > 0 {
                        outcome = outcome.map(|_| false);
                    }
                }
                // One key's error. The other replies to this request are still to come.
                Part::Failed => outcome = Err(Failure::ErrorReply),
                Part::End(end) => {
                    // A single meta get says by its status line whether it hit; others are short of
                    // values.
                    let all =
                        commands == Commands::Meta || verb != Verb::Get || found == numbers.len();
                    return Ok((
                        bytes,
                        outcome.and_then(|before| end.map(|end| before && end && all)),
                    ));
                }
            }
        }
    }
}

/// What has come of the replies.
struct Input<'a> {
    stream: &'a mut Stream,
    buffer: &'a mut Vec<u8>,
    /// What is filled and not yet used.
    start: usize,
    filled: usize,
    /// Nothing has come yet.
    silent: bool,
}

impl Input<'_> {
    /// Reads the next part of a reply.
    fn part(
        &mut self,
        commands: Commands,
        expected: Expected<'_>,
    ) -> Result<(usize, Part), Broken> {
        loop {
            let there = &self.buffer[self.start..self.filled];
            if !there.is_empty()
                && let Some((used, part)) =
                    reply::parse(there, commands, expected).map_err(Broken::within)?
            {
                self.start += used;
                return Ok((used, part));
            }
            // A part of a reply stays. It goes to the front, so that the buffer grows with the
            // largest reply, not with their number.
            self.buffer.copy_within(self.start..self.filled, 0);
            (self.start, self.filled) = (0, self.filled - self.start);
            if self.filled == self.buffer.len() {
                self.buffer.resize(self.buffer.len() * 2, 0);
            }
            let broken = |failure| {
                if self.silent {
                    Broken::silent(failure)
                } else {
                    Broken::within(failure)
                }
            };
            match self.stream.read(&mut self.buffer[self.filled..]) {
                Ok(0) => {
                    return Err(broken(if self.silent {
                        Failure::Closed
                    } else {
                        Failure::Short
                    }));
                }
                Ok(n) => self.filled += n,
                Err(error) => return Err(broken(error.into())),
            }
            self.silent = false;
        }
    }
}

/// The keys' bytes, one behind the other; where each ends, and its value's size.
type Keys = (Vec<u8>, Vec<(u64, u32)>);

/// Draws a size.
fn draw(random: &mut SmallRng, distribution: Distribution, most: usize) -> usize {
    let drawn = distribution.at(random.random(), random.random());
    (drawn.max(0.0) as usize).min(most)
}

/// Makes keys that are numbers.
fn numbered(flags: &CacheFlags) -> anyhow::Result<Keys> {
    let mut random = SmallRng::seed_from_u64(flags.common.seed);
    let mut text = Vec::new();

    let mut keys = Vec::with_capacity(flags.keys.get() as usize);
    for number in 0..flags.keys.get() {
        let width = draw(&mut random, flags.key_size, KEY);
        write!(text, "{number:0width$}")?;
        let size = draw(&mut random, flags.value_size, VALUE);
        keys.push((text.len() as u64, size as u32));
    }

    Ok((text, keys))
}

/// Reads the keys that a file has, one a line. All lines of one key have the size of its first.
fn keys_of(file: &Path, bytes: &[u8], flags: &CacheFlags) -> anyhow::Result<Keys> {
    let mut random = SmallRng::seed_from_u64(flags.common.seed);
    let name = file.display();
    let mut text = Vec::new();
    let mut keys = Vec::new();
    let mut sizes = HashMap::new();

    for (number, line) in (1..).zip(bytes.split(|byte| *byte == b'\n')) {
        let mut words = line
            .split(u8::is_ascii_whitespace)
            .filter(|word| !word.is_empty());
        let Some(key) = words.next() else { continue };
        ensure!(
            key.len() <= KEY && !key.iter().any(u8::is_ascii_control),
            "{name}:{number}: a key has at most {KEY} bytes, and no control characters"
        );
        let given = words.next().map(|size| {
            let size = str::from_utf8(size).ok()?.parse().ok()?;
            (size <= VALUE).then_some(size)
        });

        ensure!(
            given != Some(None) && words.next().is_none(),
            "{name}:{number}: write a key, or a key and the bytes of its value, {VALUE} at most"
        );
        let size = given
            .flatten()
            .unwrap_or_else(|| draw(&mut random, flags.value_size, VALUE));
        // A key has one value on the server, whatever sizes its lines ask for: the first counts.
        let size = *sizes.entry(key).or_insert(size);
        text.extend_from_slice(key);
        keys.push((text.len() as u64, size as u32));
    }

    ensure!(!keys.is_empty(), "{name}: there is no key in it");
    Ok((text, keys))
}

/// What is done with keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verb {
    Get,
    Set,
    Delete,
}

/// One request.
#[derive(Clone, Copy, Debug)]
struct Asked {
    verb: Verb,
    /// Keys.
    count: usize,
}

/// A connection, what was asked on it, and the buffers for that.
#[derive(Debug)]
pub(super) struct Connection {
    stream: Stream,
    asked: Vec<Asked>,
    /// The keys of all that was asked, one request's behind the other's.
    numbers: Vec<usize>,
    out: Vec<u8>,
    buffer: Vec<u8>,
}

impl Protocol for Cache {
    type Connection = Connection;
    type Memory = ();

    fn depth(&self) -> usize {
        self.depth
    }

    fn picker(&self, _worker: usize, _workers: usize, seed: u64) -> Picker {
        Picker::new(seed, vec![Popularity::new(self.keys.len(), self.zipf, 0)])
    }

    fn load(&self, addresses: &[Place], worker: usize, workers: usize) -> Result<(), Failure> {
        let Some(timeout) = self.load else {
            return Ok(());
        };
        for (server, address) in addresses.iter().enumerate() {
            let connect = || self.connect(server, address);
            let mut connection = time::with_timeout(timeout, connect)?.0;
            // Every `workers`th key, so that the shares of all workers are every key, once.
            let mut numbers = (worker..self.keys.len()).step_by(workers).peekable();
            while numbers.peek().is_some() {
                connection.numbers.clear();
                connection.numbers.extend(numbers.by_ref().take(BATCH));
                connection.asked.clear();
                connection.asked.resize(
                    connection.numbers.len(),
                    Asked {
                        verb: Verb::Set,
                        count: 1,
                    },
                );
                let mut refused = None;
                let mut done = |reply: Reply| refused = refused.or(reply.outcome.err());
                let asked = time::with_timeout(timeout, || self.ask(&mut connection, &mut done));

                asked.map_err(|broken| broken.failure)?;
                refused.map_or(Ok(()), Err)?;
            }
        }
        Ok(())
    }

    fn said(&self) -> Option<&str> {
        self.said.get().map(String::as_str)
    }

    fn connect(&self, server: usize, address: &Place) -> Result<(Connection, Opening), Failure> {
        let tls = self.tls.as_ref();
        let tls = tls.map(|(tls, hosts)| (tls, hosts[server].as_str()));
        let (stream, opening) = Stream::open(address, tls)?;
        let asked = Vec::new();
        let numbers = Vec::new();
        let out = Vec::new();
        let buffer = vec![0; BUFFER];
        Ok((
            Connection {
                stream,
                asked,
                numbers,
                out,
                buffer,
            },
            opening,
        ))
    }

    fn exchange(
        &self,
        connection: &mut Connection,
        picker: &RefCell<Picker>,
        _memory: &mut (),
        depth: usize,
        done: &mut dyn FnMut(Reply),
    ) -> Result<Next, Broken> {
        connection.asked.clear();
        connection.numbers.clear();
        {
            let picker = &mut *picker.borrow_mut();
            for _ in 0..depth {
                let verb = self.verb(picker);
                let count = if verb == Verb::Get { self.many } else { 1 };
                connection
                    .numbers
                    .extend((0..count).map(|_| picker.pick(0)));
                connection.asked.push(Asked { verb, count });
            }
        }
        self.ask(connection, done).map(|()| Next::Keep)
    }
}

impl Cache {
    /// Draws what is done next; without updates there is nothing to draw.
    fn verb(&self, picker: &mut Picker) -> Verb {
        if self.set_ratio + self.delete_ratio == 0.0 {
            return Verb::Get;
        }
        let drawn = picker.random.random::<f64>();
        if drawn < self.set_ratio {
            Verb::Set
        } else if drawn < self.set_ratio + self.delete_ratio {
            Verb::Delete
        } else {
            Verb::Get
        }
    }
}
