//! The caches that are compared, behind one small trait.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io::{BufRead, BufReader, Read, Write as _};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use plainweave_cache::store::{Store, Stored, Time, Write};

/// Nothing expires: the time stands still.
pub(super) const NOW: Time = Time(100);

/// A cache. Values are recognised by their length; their content does not matter.
pub(super) trait Cache {
    fn name(&self) -> &'static str;
    /// Returns which of these keys are there.
    fn get(&mut self, keys: &[&[u8]]) -> anyhow::Result<Vec<bool>>;
    /// Stores values of these lengths.
    fn set(&mut self, items: &[(&[u8], usize)]) -> anyhow::Result<()>;
    /// Returns how many items there are.
    fn items(&mut self) -> anyhow::Result<u64>;
}

/// The small queue's part in the paper on S3-FIFO, in percent.
pub(super) const PUBLISHED: usize = 10;

/// The longest value.
static BYTES: [u8; 1 << 16] = [b'v'; 1 << 16];

impl Cache for Store {
    fn name(&self) -> &'static str {
        match self.config().small_percent {
            PUBLISHED => "plainweave with a small queue of 10 %",
            _ => "plainweave",
        }
    }

    fn get(&mut self, keys: &[&[u8]]) -> anyhow::Result<Vec<bool>> {
        Ok(keys
            .iter()
            .map(|key| Store::get(self, key, NOW).is_some())
            .collect())
    }

    fn set(&mut self, items: &[(&[u8], usize)]) -> anyhow::Result<()> {
        for (key, len) in items {
            let stored = self.write(&Write::new(key, &BYTES[..*len]), NOW);
            ensure!(
                matches!(stored, Stored::Stored { .. }),
                "a set of {len} B: {stored:?}"
            );
        }
        Ok(())
    }

    fn items(&mut self) -> anyhow::Result<u64> {
        Ok(self.stats().items)
    }
}

/// memcached in a process of its own, on a Unix socket; ends with this value.
pub(super) struct Memcached {
    child: Child,
    socket: PathBuf,
    stream: BufReader<UnixStream>,
}

impl Memcached {
    pub(super) fn start(megabytes: usize) -> anyhow::Result<Self> {
        let socket =
            std::env::temp_dir().join(format!("plainweave-bench-{}.sock", std::process::id()));
        let mut command = Command::new("taskset");
        command.args([
            "-c",
            "0",
            "memcached",
            "-u",
            "nobody",
            "-t",
            "1",
            "-m",
            &megabytes.to_string(),
            "-a",
            "777",
        ]);
        let child = command.arg("-s").arg(&socket).stderr(Stdio::null()).spawn();
        let child = child.context("cannot start memcached: install memcached and taskset")?;
        let start = Instant::now();
        let stream = loop {
            match UnixStream::connect(&socket) {
                Ok(stream) => break BufReader::new(stream),
                Err(_) if start.elapsed() < Duration::from_secs(10) => {
                    std::thread::sleep(Duration::from_millis(20))
                }
                Err(error) => return Err(error).context("memcached does not listen"),
            }
        };

        Ok(Self {
            child,
            socket,
            stream,
        })
    }

    fn line(&mut self) -> anyhow::Result<String> {
        let mut line = String::new();
        ensure!(self.stream.read_line(&mut line)? > 0, "memcached has gone");
        line.truncate(line.trim_end().len());
        Ok(line)
    }
}

impl Cache for Memcached {
    fn name(&self) -> &'static str {
        "memcached"
    }

    fn get(&mut self, keys: &[&[u8]]) -> anyhow::Result<Vec<bool>> {
        let request: Vec<u8> = keys
            .iter()
            .flat_map(|key| [b"get ", *key, b"\r\n"].concat())
            .collect();
        self.stream.get_mut().write_all(&request)?;
        let mut found = Vec::with_capacity(keys.len());
        let mut value = Vec::new();

        for _ in keys {
            let line = self.line()?;
            found.push(line != "END");
            if let Some(len) = line
                .strip_prefix("VALUE ")
                .and_then(|rest| rest.rsplit(' ').next())
            {
                value.resize(len.parse::<usize>()? + 2, 0);
                self.stream.read_exact(&mut value)?;
                ensure!(self.line()? == "END", "memcached answers out of turn");
            }
        }

        Ok(found)
    }

    fn set(&mut self, items: &[(&[u8], usize)]) -> anyhow::Result<()> {
        let mut request = Vec::new();
        for (key, len) in items {
            request.extend_from_slice(
                &[b"set ", *key, format!(" 0 0 {len} noreply\r\n").as_bytes()].concat(),
            );
            request.extend_from_slice(&BYTES[..*len]);
            request.extend_from_slice(b"\r\n");
        }

        self.stream.get_mut().write_all(&request)?;
        Ok(())
    }

    fn items(&mut self) -> anyhow::Result<u64> {
        self.stream.get_mut().write_all(b"stats\r\n")?;
        let mut items = None;
        loop {
            let line = self.line()?;
            if let Some(count) = line.strip_prefix("STAT curr_items ") {
                items = Some(count.parse()?);
            }
            match line.as_str() {
                "END" => return items.context("no curr_items"),
                line if line.starts_with("STAT") => {}
                line => bail!("memcached says '{line}'"),
            }
        }
    }
}

impl Drop for Memcached {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_file(&self.socket);
    }
}

/// Bytes of an item in memcached beside key and value: header, CAS value, the key's end and the
/// line's.
const OVERHEAD: usize = 48 + 8 + 1 + 2;

/// Which list of the model an item is in.
#[derive(Clone, Copy, PartialEq, Eq)]
enum List {
    Hot,
    Warm,
    Cold,
}

struct Node {
    list: List,
    size: usize,
    active: bool,
    /// The youngest ticket; older ones in the list are void.
    ticket: u64,
}

/// memcached's segmented LRU (its `doc/new_lru.txt`) over bytes, as if slabs cost nothing: new
/// items enter HOT, a fifth of the bytes; what was read there or in COLD goes to WARM, two fifths;
/// the rest goes to COLD, whose end is evicted.
pub(super) struct SegmentedLru {
    memory: usize,
    nodes: HashMap<Box<[u8]>, Node>,
    lists: [VecDeque<(Box<[u8]>, u64)>; 3],
    bytes: [usize; 3],
    ticket: u64,
}

impl SegmentedLru {
    pub(super) fn new(memory: usize) -> Self {
        Self {
            memory,
            nodes: HashMap::new(),
            lists: Default::default(),
            bytes: [0; 3],
            ticket: 0,
        }
    }

    /// Puts an item at the beginning of a list.
    fn push(&mut self, key: Box<[u8]>, list: List, mut node: Node) {
        self.ticket += 1;
        (node.list, node.ticket, node.active) = (list, self.ticket, false);
        self.bytes[list as usize] += node.size;
        self.lists[list as usize].push_front((key.clone(), self.ticket));
        self.nodes.insert(key, node);
    }

    /// Takes the item at the end of a list.
    fn pop(&mut self, list: List) -> Option<(Box<[u8]>, Node)> {
        while let Some((key, ticket)) = self.lists[list as usize].pop_back() {
            if self
                .nodes
                .get(&key)
                .is_some_and(|node| node.ticket == ticket)
            {
                let node = self.nodes.remove(&key)?;
                self.bytes[list as usize] -= node.size;
                return Some((key, node));
            }
        }
        None
    }

    fn balance(&mut self) {
        for (list, percent) in [(List::Hot, 20), (List::Warm, 40)] {
            while self.bytes[list as usize] > self.memory / 100 * percent {
                let Some((key, node)) = self.pop(list) else {
                    break;
                };
                let to = if node.active { List::Warm } else { List::Cold };
                self.push(key, to, node);
            }
        }

        while self.bytes.iter().sum::<usize>() > self.memory {
            let Some((key, node)) = self.pop(List::Cold) else {
                break;
            };
            if node.active {
                self.push(key, List::Warm, node);
            }
        }
    }
}

impl Cache for SegmentedLru {
    fn name(&self) -> &'static str {
        "segmented LRU"
    }

    fn get(&mut self, keys: &[&[u8]]) -> anyhow::Result<Vec<bool>> {
        let found = keys.iter().map(|&key| {
            self.nodes
                .get_mut(key)
                .map(|node| node.active = true)
                .is_some()
        });
        Ok(found.collect())
    }

    fn set(&mut self, items: &[(&[u8], usize)]) -> anyhow::Result<()> {
        for &(key, len) in items {
            if let Some(old) = self.nodes.remove(key) {
                self.bytes[old.list as usize] -= old.size;
            }
            let size = OVERHEAD + key.len() + len;
            self.push(
                key.into(),
                List::Hot,
                Node {
                    list: List::Hot,
                    size,
                    active: false,
                    ticket: 0,
                },
            );
            self.balance();
        }
        Ok(())
    }

    fn items(&mut self) -> anyhow::Result<u64> {
        Ok(self.nodes.len() as u64)
    }
}

/// A queue from which the oldest go, over bytes, as if slabs cost nothing.
pub(super) struct OneList {
    memory: usize,
    /// Whether what was read goes round again in its place (SIEVE), or is the youngest (LRU).
    sieve: bool,
    nodes: HashMap<Box<[u8]>, Queued>,
    /// By age: the youngest has the highest number.
    order: BTreeMap<u64, Box<[u8]>>,
    next: u64,
    bytes: usize,
    /// Where the search for who goes continues.
    hand: u64,
}

struct Queued {
    number: u64,
    size: usize,
    visited: bool,
}

impl OneList {
    /// Makes an LRU: what was read or written last stays.
    pub(super) fn lru(memory: usize) -> Self {
        Self {
            memory,
            sieve: false,
            nodes: HashMap::new(),
            order: BTreeMap::new(),
            next: 0,
            bytes: 0,
            hand: 0,
        }
    }

    /// Makes a SIEVE (Zhang, Yang, Yue, Vigfusson, Rashmi: SIEVE is simpler than LRU, NSDI 2024): a
    /// hand passes from the oldest to the youngest, and who was not read since it passed goes.
    pub(super) fn sieve(memory: usize) -> Self {
        Self {
            sieve: true,
            ..Self::lru(memory)
        }
    }

    fn evict(&mut self) {
        loop {
            let from = self.order.range(self.hand..).next();
            let Some((&number, key)) = from.or_else(|| self.order.first_key_value()) else {
                return;
            };
            self.hand = number + 1;
            let Some(node) = self.nodes.get_mut(key) else {
                return;
            };
            if self.sieve && std::mem::take(&mut node.visited) {
                continue;
            }
            let key = key.clone();
            self.remove(&key);
            return;
        }
    }

    fn remove(&mut self, key: &[u8]) {
        if let Some(node) = self.nodes.remove(key) {
            self.order.remove(&node.number);
            self.bytes -= node.size;
        }
    }
}

impl Cache for OneList {
    fn name(&self) -> &'static str {
        if self.sieve { "SIEVE" } else { "LRU" }
    }

    fn get(&mut self, keys: &[&[u8]]) -> anyhow::Result<Vec<bool>> {
        let found = keys.iter().map(|&key| {
            let Some(node) = self.nodes.get_mut(key) else {
                return false;
            };
            node.visited = true;
            if !self.sieve {
                self.next += 1;
                self.order.remove(&node.number);
                self.order.insert(self.next, key.into());
                node.number = self.next;
            }
            true
        });
        Ok(found.collect())
    }

    fn set(&mut self, items: &[(&[u8], usize)]) -> anyhow::Result<()> {
        for &(key, len) in items {
            self.remove(key);
            let size = OVERHEAD + key.len() + len;
            self.next += 1;
            self.order.insert(self.next, key.into());
            let node = Queued {
                number: self.next,
                size,
                visited: false,
            };
            self.nodes.insert(key.into(), node);
            self.bytes += size;
            while self.bytes > self.memory {
                // The oldest of an LRU is the first always.
                if !self.sieve {
                    self.hand = 0;
                }
                self.evict();
            }
        }
        Ok(())
    }

    fn items(&mut self) -> anyhow::Result<u64> {
        Ok(self.nodes.len() as u64)
    }
}
