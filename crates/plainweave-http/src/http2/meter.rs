//! What a client's frames are, without their content: they are counted as they pass, so that those that cost and ask
//! for nothing are bounded.

use std::time::{Duration, Instant};

use super::Http2Limits;

/// What a client sends first (RFC 9113, 3.4).
pub(super) const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Bytes of a frame's header.
const HEADER: usize = 9;
/// Data that pays for one frame without any.
const DATA_PER_FRAME: u64 = 1 << 10;

/// Types of frames (RFC 9113, 6).
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const CONTINUATION: u8 = 9;
/// The flag of the two that carry fields.
const END_HEADERS: u8 = 4;

/// Reads along with the engine.
#[derive(Debug)]
pub(super) struct Meter {
    header: [u8; HEADER],
    filled: usize,
    /// Bytes to come of the frame at hand, or of the preface.
    rest: usize,
    /// Its fields go on in the next frame.
    open_block: bool,
    resets: Budget,
    control: Budget,
    /// Data in either direction that has paid for nothing yet.
    data: u64,
    /// Streams that the client has reset.
    reset: Vec<u32>,
}

impl Meter {
    pub(super) fn new(limits: &Http2Limits) -> Self {
        Self {
            header: [0; HEADER],
            filled: 0,
            rest: PREFACE.len(),
            open_block: false,
            resets: Budget::new(limits.resets),
            control: Budget::new(limits.control_frames),
            data: 0,
            reset: Vec::new(),
        }
    }

    /// Takes note of what has come.
    pub(super) fn received(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if self.rest > 0 {
                let len = self.rest.min(bytes.len());
                self.rest -= len;
                bytes = &bytes[len..];
                continue;
            }
            let len = (HEADER - self.filled).min(bytes.len());
            self.header[self.filled..self.filled + len].copy_from_slice(&bytes[..len]);
            self.filled += len;
            bytes = &bytes[len..];
            if self.filled == HEADER {
                self.filled = 0;
                self.frame();
            }
        }
    }

    fn frame(&mut self) {
        let [high, middle, low, kind, flags, id @ ..] = self.header;
        self.rest = u32::from_be_bytes([0, high, middle, low]) as usize;
        if matches!(kind, HEADERS | CONTINUATION) {
            self.open_block = flags & END_HEADERS == 0;
        }
        match kind {
            // The engine bounds small ones.
            DATA => self.data += self.rest as u64,
            HEADERS => {}
            RST_STREAM => {
                self.resets.spend();
                self.reset.push(u32::from_be_bytes(id) & 0x7fff_ffff);
            }
            _ => {
                self.control.earn(self.data / DATA_PER_FRAME);
                self.data %= DATA_PER_FRAME;
                self.control.spend();
            }
        }
    }

    /// Takes note of bytes that were sent.
    pub(super) fn sent(&mut self, len: usize) {
        self.data += len as u64;
    }

    /// Returns whether the client has sent more of what asks for nothing than it may.
    pub(super) fn is_flooded(&mut self) -> bool {
        self.resets.is_spent() || self.control.is_spent()
    }

    /// Returns whether the rest of a frame, or of a request's fields, is to come.
    pub(super) fn is_in_the_middle(&self) -> bool {
        self.rest > 0 || self.filled > 0 || self.open_block
    }

    /// Returns whether a request's fields are to come: no other stream's frames come before them.
    pub(super) fn is_in_a_block(&self) -> bool {
        self.open_block
    }

    /// Returns the streams that the client has reset since the last call.
    pub(super) fn take_reset(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.reset)
    }
}

/// What may be spent at once, of which a tenth comes back each second.
#[derive(Debug)]
struct Budget {
    most: u32,
    /// Negative: more was spent than there was.
    left: i64,
    /// Until when time has been paid for.
    paid: Instant,
}

impl Budget {
    fn new(most: u32) -> Self {
        Self { most, left: i64::from(most), paid: Instant::now() }
    }

    fn spend(&mut self) {
        self.left -= 1;
    }

    fn earn(&mut self, count: u64) {
        self.left = self.left.saturating_add_unsigned(count).min(i64::from(self.most));
    }

    /// Returns whether more was spent than there is. The clock is asked for only then.
    fn is_spent(&mut self) -> bool {
        if self.left < 0 {
            self.earn_by_time(Instant::now());
        }
        self.left < 0
    }

    fn earn_by_time(&mut self, now: Instant) {
        let seconds = now.saturating_duration_since(self.paid).as_secs();
        self.paid += Duration::from_secs(seconds);
        self.earn(seconds.saturating_mul(u64::from(self.most.div_ceil(10))));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(len: u32, kind: u8, flags: u8, id: u32) -> Vec<u8> {
        let mut bytes = len.to_be_bytes()[1..].to_vec();
        bytes.extend([kind, flags]);
        bytes.extend(id.to_be_bytes());
        bytes.resize(HEADER + len as usize, 0);
        bytes
    }

    fn meter(resets: u32, control_frames: u32) -> Meter {
        let mut meter = Meter::new(&Http2Limits { resets, control_frames, ..Http2Limits::default() });
        meter.received(PREFACE);
        meter
    }

    #[test]
    fn frames_are_found_however_they_are_split() {
        let bytes =
            [frame(0, 4, 0, 0), frame(5, HEADERS, 0, 1), frame(3, CONTINUATION, 4, 1), frame(4, RST_STREAM, 0, 1)];
        let bytes = [&PREFACE[..], &bytes.concat()].concat();
        for step in 1..bytes.len() {
            let mut meter = Meter::new(&Http2Limits::default());
            bytes.chunks(step).for_each(|piece| meter.received(piece));
            assert!(!meter.is_in_the_middle(), "pieces of {step}");
            assert_eq!((meter.take_reset(), meter.resets.left, meter.control.left), (vec![1], 199, 998), "{step}");
        }
    }

    #[test]
    fn the_middle_of_a_frame_and_of_a_block_of_fields_is_known() {
        let mut meter = self::meter(1, 1);
        assert!(!meter.is_in_the_middle());
        meter.received(&frame(2, HEADERS, 0, 1));
        assert!(meter.is_in_the_middle() && meter.is_in_a_block());
        meter.received(&frame(2, CONTINUATION, END_HEADERS, 1));
        assert!(!meter.is_in_the_middle());
        meter.received(&frame(2, DATA, 0, 1)[..10]);
        assert!(meter.is_in_the_middle() && !meter.is_in_a_block());
    }

    #[test]
    fn what_asks_for_nothing_is_bounded_and_data_pays_for_it() {
        let (ping, reset) = (frame(8, 6, 0, 0), frame(4, RST_STREAM, 0, 1));
        let mut meter = self::meter(2, 2);
        (0..2).for_each(|_| meter.received(&ping));
        assert!(!meter.is_flooded());
        meter.sent(3 << 10);
        (0..2).for_each(|_| meter.received(&ping));
        assert!(!meter.is_flooded());
        (0..2).for_each(|_| meter.received(&ping));
        assert!(meter.is_flooded());

        let mut meter = self::meter(2, 2);
        (0..2).for_each(|_| meter.received(&reset));
        assert!(!meter.is_flooded());
        meter.received(&reset);
        assert!(meter.is_flooded());
    }

    #[test]
    fn a_tenth_comes_back_each_second() {
        let mut budget = Budget::new(20);
        budget.left = -1;
        budget.earn_by_time(budget.paid + Duration::from_millis(1500));
        assert_eq!(budget.left, 1);
        budget.earn_by_time(budget.paid + Duration::from_millis(500));
        assert_eq!(budget.left, 1);
        budget.earn_by_time(budget.paid + Duration::from_secs(1000));
        assert_eq!(budget.left, 20);
    }
}
