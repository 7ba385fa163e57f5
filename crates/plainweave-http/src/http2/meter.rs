//! What both ends' frames are, read along as they pass: a client's, so that those that cost and ask
//! for nothing are bounded, and ours, since a client answers our data with window updates.
//!
//! # What a window update costs
//! Clients give a window back as they take data: some after half of it, some for every frame, for
//! the stream and for the connection. So each frame of data that we send pays for two window
//! updates, if the client's windows are no smaller than [`SMALL_WINDOW`]: with windows of a few
//! bytes a client could have a large answer in as many frames as it has bytes (CVE-2019-9511), and
//! there only bytes pay. What nothing has paid for counts as any other frame that asks for nothing.
//!
//! # The least piece
//! A window that comes back in small parts must not be used in small parts, or the parts stay small
//! for ever: the client gives back what it got (the silly window syndrome, RFC 9293, 3.8.6.2). So
//! an answer that has more to send waits until there is room for [`Meter::least_piece`], or for
//! twice as much where less would be left over. Twice that is never more than half of what a
//! stream's window begins with, nor more than the stream's part of half of the connection's: what
//! all streams hold back together leaves the client with half of its window to give back, which is
//! when most clients do. For those that wait longer, `outgoing` does not.

use std::time::{Duration, Instant};

use crate::limits::Http2Limits;

/// What a client sends first (RFC 9113, 3.4).
pub(super) const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Bytes of a frame's header.
const HEADER: usize = 9;
/// Data that pays for one frame without any.
const DATA_PER_FRAME: u64 = 1 << 10;
/// Window updates that a frame of our data pays for: the stream's and the connection's.
const UPDATES_PER_FRAME: u64 = 2;
/// Streams' first windows below this are not what a client has that wants its answers.
const SMALL_WINDOW: u32 = 1 << 10;
/// What both kinds of windows begin with (RFC 9113, 6.9.2).
const FIRST_WINDOW: u32 = 65_535;
/// Bounds of the least piece, unless a stream's window is smaller.
const LEAST_PIECE: (u64, u64) = (256, 4 << 10);

/// Types of frames (RFC 9113, 6).
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;
/// The flag of the two that carry fields.
const END_HEADERS: u8 = 4;
/// The flag of SETTINGS that has no parameters.
const ACK: u8 = 1;
/// A parameter of SETTINGS takes this many bytes, a window's increment the last four of them.
const PARAMETER: usize = 6;
/// The parameter that is the first window of streams.
const INITIAL_WINDOW_SIZE: u16 = 4;

/// Reads along with the engine.
#[derive(Debug)]
pub(super) struct Meter {
    from_client: Frames,
    to_client: Frames,
    /// A request's fields go on in the next frame.
    open_block: bool,
    resets: Budget,
    control: Budget,
    /// Data in either direction that has paid for nothing yet.
    data: u64,
    /// Window updates that our data has paid for.
    updates: u64,
    windows: Windows,
    /// Streams that the client has reset.
    reset: Vec<u32>,
}

/// The client's windows, as far as they can be known from its frames and ours.
#[derive(Debug)]
struct Windows {
    /// What a stream's begins with.
    initial: u32,
    /// What the client has allowed on the whole connection so far, and what of it was used.
    granted: u64,
    used: u64,
    /// The most that there was at a time.
    widest: u64,
}

/// A frame whose header has come.
#[derive(Clone, Copy, Debug)]
struct Frame {
    len: u32,
    kind: u8,
    flags: u8,
    stream: u32,
}

/// What [`Frames::next`] finds.
enum Found {
    Header(Frame),
    /// A parameter of SETTINGS.
    Parameter(u16, u32),
    /// The increment of a WINDOW_UPDATE, and the stream.
    Increment(u32, u32),
}

/// Finds the frames in a stream of bytes, however it is split.
#[derive(Debug)]
struct Frames {
    header: [u8; HEADER],
    filled: usize,
    /// Bytes to come of the frame at hand, or of the preface.
    rest: usize,
    /// The frame at hand, if something in it is of interest.
    inside: Option<Frame>,
    parameter: [u8; PARAMETER],
    parameter_filled: usize,
}

impl Frames {
    /// Begins behind `rest` bytes that are no frame.
    fn behind(rest: usize) -> Self {
        Self {
            header: [0; HEADER],
            filled: 0,
            rest,
            inside: None,
            parameter: [0; PARAMETER],
            parameter_filled: 0,
        }
    }

    /// Reads on until something is found; `None`: all bytes are read.
    fn next(&mut self, bytes: &mut &[u8]) -> Option<Found> {
        while !bytes.is_empty() {
            if self.rest == 0 {
                let len = (HEADER - self.filled).min(bytes.len());
                self.header[self.filled..self.filled + len].copy_from_slice(&bytes[..len]);
                self.filled += len;
                *bytes = &bytes[len..];
                if self.filled == HEADER {
                    return Some(Found::Header(self.begin()));
                }
                continue;
            }

            let Some(frame) = self.inside else {
                let len = self.rest.min(bytes.len());
                self.rest -= len;
                *bytes = &bytes[len..];
                continue;
            };

            let wanted = if frame.kind == SETTINGS {
                PARAMETER
            } else {
                size_of::<u32>()
            };

            self.parameter[self.parameter_filled] = bytes[0];
            self.parameter_filled += 1;
            self.rest -= 1;
            *bytes = &bytes[1..];
            if self.parameter_filled == wanted {
                self.parameter_filled = 0;
                return Some(self.found(frame));
            }
        }
        None
    }

    fn begin(&mut self) -> Frame {
        let [high, middle, low, kind, flags, id @ ..] = self.header;
        let len = u32::from_be_bytes([0, high, middle, low]);
        let frame = Frame {
            len,
            kind,
            flags,
            stream: u32::from_be_bytes(id) & 0x7fff_ffff,
        };

        self.filled = 0;
        self.rest = len as usize;
        self.parameter_filled = 0;

        // One of another length than the rules say is the engine's to refuse.
        let is_whole = match kind {
            SETTINGS => flags & ACK == 0 && self.rest.is_multiple_of(PARAMETER),
            WINDOW_UPDATE => self.rest == size_of::<u32>(),
            _ => false,
        };

        self.inside = is_whole.then_some(frame);
        frame
    }

    fn found(&self, frame: Frame) -> Found {
        let [a, b, c, d, e, f] = self.parameter;
        match frame.kind {
            SETTINGS => {
                Found::Parameter(u16::from_be_bytes([a, b]), u32::from_be_bytes([c, d, e, f]))
            }
            _ => Found::Increment(u32::from_be_bytes([a, b, c, d]) & 0x7fff_ffff, frame.stream),
        }
    }

    /// Returns whether the rest of a frame is to come.
    fn is_in_the_middle(&self) -> bool {
        self.rest > 0 || self.filled > 0
    }
}

impl Meter {
    pub(super) fn new(limits: &Http2Limits) -> Self {
        let granted = u64::from(FIRST_WINDOW);
        Self {
            from_client: Frames::behind(PREFACE.len()),
            to_client: Frames::behind(0),
            open_block: false,
            resets: Budget::new(limits.resets),
            control: Budget::new(limits.control_frames),
            data: 0,
            updates: 0,
            windows: Windows {
                initial: FIRST_WINDOW,
                granted,
                used: 0,
                widest: granted,
            },
            reset: Vec::new(),
        }
    }

    /// Takes note of what has come.
    pub(super) fn received(&mut self, mut bytes: &[u8]) {
        while let Some(found) = self.from_client.next(&mut bytes) {
            match found {
                Found::Header(frame) => self.frame(frame),
                Found::Parameter(INITIAL_WINDOW_SIZE, window) => self.windows.initial = window,
                Found::Increment(increment, 0) => self.windows.grant(increment),
                Found::Parameter(..) | Found::Increment(..) => {}
            }
        }
    }

    fn frame(&mut self, frame: Frame) {
        if matches!(frame.kind, HEADERS | CONTINUATION) {
            self.open_block = frame.flags & END_HEADERS == 0;
        }
        match frame.kind {
            // The engine bounds small ones.
            DATA => self.data += u64::from(frame.len),
            HEADERS => {}
            RST_STREAM => {
                self.resets.spend();
                self.reset.push(frame.stream);
            }
            WINDOW_UPDATE if self.updates > 0 => self.updates -= 1,
            _ => {
                self.control.earn(self.data / DATA_PER_FRAME);
                self.data %= DATA_PER_FRAME;
                self.control.spend();
            }
        }
    }

    /// Takes note of what the engine has written.
    pub(super) fn written(&mut self, mut bytes: &[u8]) {
        while let Some(found) = self.to_client.next(&mut bytes) {
            let Found::Header(frame) = found else {
                continue;
            };
            if frame.kind == DATA {
                self.windows.used += u64::from(frame.len);
                if self.windows.initial >= SMALL_WINDOW {
                    self.updates += UPDATES_PER_FRAME;
                }
            }
        }
    }

    /// Takes note of bytes that were sent.
    pub(super) fn sent(&mut self, len: usize) {
        self.data += len as u64;
    }

    /// Returns for how much room an answer waits that has more to send, while `streams` have: at
    /// least a byte.
    pub(super) fn least_piece(&self, streams: usize) -> usize {
        let Windows {
            initial, widest, ..
        } = self.windows;
        let (least, most) = LEAST_PIECE;
        let part = widest / 4 / streams.max(1) as u64;
        let piece = part
            .clamp(least, most)
            .min(u64::from(initial).div_ceil(4))
            .max(1);

        piece as usize
    }

    /// Returns whether the client has sent more of what asks for nothing than it may.
    pub(super) fn is_flooded(&mut self) -> bool {
        self.resets.is_spent() || self.control.is_spent()
    }

    /// Returns whether the rest of a frame, or of a request's fields, is to come.
    pub(super) fn is_in_the_middle(&self) -> bool {
        self.from_client.is_in_the_middle() || self.open_block
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

impl Windows {
    fn grant(&mut self, increment: u32) {
        self.granted += u64::from(increment);
        self.widest = self.widest.max(self.granted.saturating_sub(self.used));
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
        Self {
            most,
            left: i64::from(most),
            paid: Instant::now(),
        }
    }

    fn spend(&mut self) {
        self.left -= 1;
    }

    fn earn(&mut self, count: u64) {
        self.left = self
            .left
            .saturating_add_unsigned(count)
            .min(i64::from(self.most));
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
        let mut meter = Meter::new(&Http2Limits {
            resets,
            control_frames,
            ..Http2Limits::default()
        });

        meter.received(PREFACE);
        meter
    }

    #[test]
    fn frames_are_found_however_they_are_split() {
        let bytes = [
            frame(0, 4, 0, 0),
            frame(5, HEADERS, 0, 1),
            frame(3, CONTINUATION, 4, 1),
            frame(4, RST_STREAM, 0, 1),
        ];
        let bytes = [&PREFACE[..], &bytes.concat()].concat();
        for step in 1..bytes.len() {
            let mut meter = Meter::new(&Http2Limits::default());
            bytes.chunks(step).for_each(|piece| meter.received(piece));
            assert!(!meter.is_in_the_middle(), "pieces of {step}");
            assert_eq!(
                (meter.take_reset(), meter.resets.left, meter.control.left),
                (vec![1], 199, 998),
                "{step}"
            );
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

    fn with_payload(kind: u8, id: u32, payload: &[u8]) -> Vec<u8> {
        let mut bytes = frame(payload.len() as u32, kind, 0, id);
        bytes[HEADER..].copy_from_slice(payload);
        bytes
    }

    #[test]
    fn windows_are_known_however_their_frames_are_split() {
        let settings = [[0, 3, 0, 0, 0, 9], [0, 4, 0, 1, 0, 0]].concat();
        let frames = [
            with_payload(SETTINGS, 0, &settings),
            with_payload(WINDOW_UPDATE, 0, &1_000_000_u32.to_be_bytes()),
            with_payload(WINDOW_UPDATE, 7, &9_000_000_u32.to_be_bytes()),
            // Of wrong lengths: the engine refuses them.
            with_payload(SETTINGS, 0, &[0, 4, 0]),
            with_payload(WINDOW_UPDATE, 0, &[0, 1]),
            frame(3, HEADERS, END_HEADERS, 1),
        ];

        let bytes = [&PREFACE[..], &frames.concat()].concat();
        for step in 1..bytes.len() {
            let mut meter = Meter::new(&Http2Limits::default());
            bytes.chunks(step).for_each(|piece| meter.received(piece));
            assert_eq!(
                (meter.windows.initial, meter.windows.widest),
                (1 << 16, 1_065_535),
                "{step}"
            );
            assert!(!meter.is_in_the_middle(), "{step}");
        }
    }

    #[test]
    fn a_piece_is_no_more_than_windows_allow() {
        let mut meter = self::meter(1, 100);
        for (streams, piece) in [
            (0, 4096),
            (1, 4096),
            (4, 4095),
            (50, 327),
            (100, 256),
            (1000, 256),
        ] {
            assert_eq!(meter.least_piece(streams), piece, "{streams}");
        }

        for (window, piece) in [
            (0, 1),
            (1, 1),
            (2, 1),
            (100, 25),
            (1024, 256),
            (1 << 20, 4096),
        ] {
            let parameter = [&[0, 4][..], &u32::to_be_bytes(window)].concat();
            meter.received(&with_payload(SETTINGS, 0, &parameter));
            assert_eq!(meter.least_piece(1), piece, "{window}");
        }

        meter.received(&with_payload(
            WINDOW_UPDATE,
            0,
            &10_000_000_u32.to_be_bytes(),
        ));
        assert_eq!(meter.least_piece(100), 4096);
    }

    #[test]
    fn data_pays_for_the_updates_that_answer_it() {
        let update = with_payload(WINDOW_UPDATE, 0, &1_u32.to_be_bytes());
        let mut meter = self::meter(1, 2);
        meter.written(&frame(5, DATA, 1, 1).repeat(50));
        (0..102).for_each(|_| meter.received(&update));
        assert!(!meter.is_flooded());
        meter.received(&update);
        assert!(meter.is_flooded());

        // Windows of a few bytes: a frame pays by its bytes alone.
        let mut meter = self::meter(1, 2);
        meter.received(&with_payload(SETTINGS, 0, &[0, 4, 0, 0, 0, 9]));
        meter.written(&frame(5, DATA, 1, 1).repeat(50));
        (0..2).for_each(|_| meter.received(&update));
        assert!(meter.is_flooded());
    }

    #[test]
    fn what_asks_for_nothing_is_bounded_and_data_pays_for_it() {
        let ping = frame(8, 6, 0, 0);
        let reset = frame(4, RST_STREAM, 0, 1);
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
