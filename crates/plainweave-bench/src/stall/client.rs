//! The clients: a thread a connection, a request at a time.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};

/// Silence after which a server is given up.
const PATIENCE: Duration = Duration::from_secs(20);

/// One turn of a server.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turn {
    pub(super) connections: usize,
    /// Of each connection.
    pub(super) requests: usize,
    pub(super) think: Duration,
    /// One request in so many is slow; 0 for none.
    pub(super) one_in: u32,
}

impl Turn {
    /// Microseconds that a request took which was not slow: p50, p99 and the greatest.
    pub(super) fn run(self, address: SocketAddr, seed: u64) -> anyhow::Result<[f64; 3]> {
        let threads: Vec<_> = (0..self.connections as u64)
            .map(|n| std::thread::spawn(move || self.one(address, seed << 32 | (n + 1))))
            .collect();
        let mut times = Vec::new();
        for thread in threads {
            times.extend(thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?);
        }
        times.sort_by(f64::total_cmp);
        ensure!(!times.is_empty(), "every request was slow: more requests, please");
        let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
        Ok([at(0.5), at(0.99), at(1.0)])
    }

    fn one(self, address: SocketAddr, seed: u64) -> anyhow::Result<Vec<f64>> {
        let mut stream = TcpStream::connect(address).context("no connection")?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let mut times = Vec::with_capacity(self.requests);
        for _ in 0..self.requests {
            std::thread::sleep(self.think / 2 + self.think.mul_f64(draw(&mut state)));
            let slow = self.one_in > 0 && draw(&mut state) * f64::from(self.one_in) < 1.0;
            let sent = if slow { b'S' } else { b'F' };
            let mut answer = [0];
            let start = Instant::now();
            stream.write_all(&[sent])?;
            stream.read_exact(&mut answer).context("no answer")?;
            ensure!(answer[0] == sent, "another byte came back");
            if !slow {
                times.push(start.elapsed().as_secs_f64() * 1e6);
            }
        }
        Ok(times)
    }
}

/// Uniform from 0 to 1: xorshift64*, by Vigna ("An experimental exploration of Marsaglia's xorshift generators").
fn draw(state: &mut u64) -> f64 {
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    (state.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 11) as f64 / (1u64 << 53) as f64
}
