//! What a cache keeps: the hit ratio of a skewed trace, and how many small items fit.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};

use anyhow::{Context, ensure};

use crate::serving::cache_client::Random;

/// Requests sent together.
const BATCH: usize = 200;

/// A connection that waits for its replies.
struct Caller {
    reader: BufReader<TcpStream>,
    text: Vec<u8>,
    line: String,
}

impl Caller {
    fn to(address: SocketAddr) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        Ok(Self {
            reader: BufReader::with_capacity(1 << 20, stream),
            text: Vec::new(),
            line: String::new(),
        })
    }

    fn send(&mut self) -> anyhow::Result<()> {
        self.reader.get_mut().write_all(&self.text)?;
        self.text.clear();
        Ok(())
    }

    fn read_line(&mut self) -> anyhow::Result<&str> {
        self.line.clear();
        ensure!(
            self.reader.read_line(&mut self.line)? > 0,
            "the server closed the connection"
        );
        Ok(self.line.trim_end())
    }

    /// Reads the reply to a get of one key.
    fn found(&mut self) -> anyhow::Result<bool> {
        let line = self.read_line()?;
        if line == "END" {
            return Ok(false);
        }
        let len = line
            .strip_prefix("VALUE ")
            .and_then(|rest| rest.rsplit(' ').next()?.parse::<u64>().ok());
        let len = len.with_context(|| format!("unexpected reply {line:?}"))?;
        std::io::copy(&mut (&mut self.reader).take(len + 2), &mut std::io::sink())?;
        ensure!(self.read_line()? == "END", "a reply does not end");

        Ok(true)
    }
}

/// Returns the number of bytes of a key's value: sizes from 32 to 4096, the small ones frequent.
fn size(key: usize) -> usize {
    let hash = (key as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    32 << (hash.trailing_ones().min(7))
}

/// Zipf's law with exponent `s`, by the inverse of its distribution.
pub(super) struct Zipf(Vec<f64>);

impl Zipf {
    pub(super) fn new(keys: usize, s: f64) -> Self {
        let mut sum = 0.0;
        let mut sums: Vec<f64> = (1..=keys)
            .map(|rank| {
                sum += (rank as f64).powf(-s);
                sum
            })
            .collect();
        sums.iter_mut().for_each(|part| *part /= sum);
        Self(sums)
    }

    fn draw(&self, random: &mut Random) -> usize {
        let unit = random.unit();
        self.0.partition_point(|part| *part < unit)
    }
}

/// Gets along the trace, a set after each miss; the share of hits in the second half.
pub(super) fn hit_ratio(address: SocketAddr, zipf: &Zipf, requests: usize) -> anyhow::Result<f64> {
    let mut caller = Caller::to(address)?;
    let mut random = Random(0x0123_4567_89ab_cdef);
    let value = vec![b'v'; 4096];
    let mut hits = 0usize;
    let mut asked = 0usize;

    let mut done = 0;
    while done < requests {
        let keys: Vec<usize> = (0..BATCH).map(|_| zipf.draw(&mut random)).collect();
        for key in &keys {
            write!(caller.text, "get key{key:08}\r\n")?;
        }
        caller.send()?;

        for key in keys {
            let found = caller.found()?;
            if done >= requests / 2 {
                asked += 1;
                hits += usize::from(found);
            }

            if !found {
                write!(caller.text, "set key{key:08} 0 0 {} noreply\r\n", size(key))?;
                caller.text.extend_from_slice(&value[..size(key)]);
                caller.text.extend_from_slice(b"\r\n");
            }
        }

        done += BATCH;
    }

    Ok(hits as f64 / asked.max(1) as f64)
}

/// Stores more small items than fit; how many there are in the end.
pub(super) fn items(address: SocketAddr, attempts: usize) -> anyhow::Result<f64> {
    let mut caller = Caller::to(address)?;
    for key in 0..attempts {
        write!(
            caller.text,
            "set key{key:08} 0 0 32 noreply\r\n01234567890123456789012345678901\r\n"
        )?;
        if caller.text.len() > 1 << 18 {
            caller.send()?;
        }
    }

    caller.text.extend_from_slice(b"stats\r\n");
    caller.send()?;
    let mut items = None;

    loop {
        let line = caller.read_line()?;
        if let Some(number) = line.strip_prefix("STAT curr_items ") {
            items = Some(number.parse::<f64>()?);
        }
        if line == "END" {
            return items.context("no curr_items among the figures");
        }
    }
}
