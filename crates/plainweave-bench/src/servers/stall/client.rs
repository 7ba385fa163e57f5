//! The clients: a thread a connection, a request at a time.
//!
//! A client that shares the server's processors waits for the slow request as well, if it is woken
//! on its processor: two in three of the late answers had arrived long before they were seen. So
//! the kernel says when an answer came (`SO_TIMESTAMPNS`), as if the client were elsewhere.

use std::io::{IoSliceMut, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, ensure};
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg, setsockopt, sockopt};
use nix::sys::time::TimeSpec;

use super::case::Case;

/// Silence after which a server is given up.
const SILENCE_LIMIT: Duration = Duration::from_secs(20);

/// One turn of a server.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turn {
    pub(super) case: Case,
    pub(super) connections: usize,
    /// Of each connection.
    pub(super) requests: usize,
    /// Between an answer and the next request of a connection, in the mean.
    pub(super) think: Duration,
    /// One request in this many is slow; 0 for none.
    pub(super) one_in: u32,
}

/// What a turn gives: the latencies in microseconds of requests that were not slow, and the rate of
/// all requests.
#[derive(Clone, Copy, Debug)]
pub(super) struct Figures {
    pub(super) p50: f64,
    pub(super) p99: f64,
    pub(super) max: f64,
    /// The median of the slow requests, if there were to be any.
    pub(super) slow_p50: Option<f64>,
    /// A second, the sum over the connections. It is lower than what was asked for if answers were
    /// late: a connection waits for its answer.
    pub(super) rate: f64,
}

impl Turn {
    pub(super) fn run(self, address: SocketAddr, seed: u64) -> anyhow::Result<Figures> {
        let threads: Vec<_> = (0..self.connections as u64)
            .map(|n| std::thread::spawn(move || self.one(address, seed << 32 | (n + 1))))
            .collect();
        let mut times = Vec::new();
        let mut slow_times = Vec::new();
        let mut rate = 0.0;

        for thread in threads {
            let (length, [others, slow]) = thread
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            rate += self.requests as f64 / length.as_secs_f64();
            times.extend(others);
            slow_times.extend(slow);
        }

        ensure!(
            !times.is_empty(),
            "every request was slow: more requests, please"
        );
        ensure!(
            self.one_in == 0 || !slow_times.is_empty(),
            "no request was slow: more requests, please"
        );
        times.sort_by(f64::total_cmp);
        slow_times.sort_by(f64::total_cmp);
        let slow_p50 = (!slow_times.is_empty()).then(|| quantile(&slow_times, 0.5));

        Ok(Figures {
            p50: quantile(&times, 0.5),
            p99: quantile(&times, 0.99),
            max: quantile(&times, 1.0),
            slow_p50,
            rate,
        })
    }

    /// Runs a connection. Returns how long it took, and the microseconds of ordinary requests and
    /// of slow ones.
    fn one(self, address: SocketAddr, seed: u64) -> anyhow::Result<(Duration, [Vec<f64>; 2])> {
        let opened = Instant::now();
        let mut stream = TcpStream::connect(address).context("no connection")?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(SILENCE_LIMIT))?;
        setsockopt(&stream, sockopt::ReceiveTimestampns, &true)?;
        let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let mut times = [Vec::with_capacity(self.requests), Vec::new()];

        for _ in 0..self.requests {
            std::thread::sleep(self.think / 2 + self.think.mul_f64(draw(&mut state)));
            let slow = self.one_in > 0 && draw(&mut state) * f64::from(self.one_in) < 1.0;
            let start = SystemTime::now().duration_since(UNIX_EPOCH)?;
            stream.write_all(self.case.request(slow))?;
            let came = self.receive(&stream, slow).context("no answer")?;
            times[usize::from(slow)].push(came.saturating_sub(start).as_secs_f64() * 1e6);
        }

        Ok((opened.elapsed(), times))
    }

    /// Reads an answer. Returns when its last byte came: since 1970.
    fn receive(self, stream: &TcpStream, slow: bool) -> anyhow::Result<Duration> {
        let mut answer = Vec::new();
        loop {
            let mut bytes = [0; 512];
            let mut space = nix::cmsg_space!(TimeSpec);
            let mut parts = [IoSliceMut::new(&mut bytes)];
            let message = recvmsg::<()>(
                stream.as_raw_fd(),
                &mut parts,
                Some(&mut space),
                MsgFlags::empty(),
            )?;
            let length = message.bytes;

            ensure!(length > 0, "the server has closed the connection");
            let came = message.cmsgs()?.find_map(|control| match control {
                ControlMessageOwned::ScmTimestampns(time) => Some(Duration::from(time)),
                _ => None,
            });

            answer.extend_from_slice(&bytes[..length]);
            if self.case.is_answered(slow, &answer)? {
                // The kernel takes a moment to begin with it.
                return Ok(came.map_or_else(|| SystemTime::now().duration_since(UNIX_EPOCH), Ok)?);
            }
        }
    }
}

/// Returns what this share of the sorted times does not exceed.
fn quantile(times: &[f64], share: f64) -> f64 {
    times[((times.len() - 1) as f64 * share) as usize]
}

/// Uniform from 0 to 1: xorshift64*, by Vigna ("An experimental exploration of Marsaglia's xorshift
/// generators").
fn draw(state: &mut u64) -> f64 {
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    (state.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 11) as f64 / (1u64 << 53) as f64
}
