//! Buffers, and the pool that lends them to connections while these have a request in progress.

use crate::message::encode::Encoder;

/// Room kept behind a head for the body that follows it.
pub(crate) const BODY_ROOM: usize = 4 << 10;
/// An encoder that grew beyond this gives its memory back.
const MAX_KEPT: usize = 128 << 10;

/// What was received and not yet used: `bytes[start..end]`.
#[derive(Debug)]
pub(crate) struct Input {
    bytes: Box<[u8]>,
    start: usize,
    end: usize,
}

impl Input {
    pub(crate) fn new(head_bytes: usize) -> Self {
        Self {
            bytes: vec![0; head_bytes + BODY_ROOM].into(),
            start: 0,
            end: 0,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.start == self.end
    }

    pub(crate) fn filled(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    /// Returns where the next read goes; never empty while a head within the limit is incomplete.
    pub(crate) fn space(&mut self) -> &mut [u8] {
        if self.is_empty() {
            (self.start, self.end) = (0, 0);
        } else if self.end == self.bytes.len() {
            self.compact();
        }
        &mut self.bytes[self.end..]
    }

    /// Notes that `len` more bytes were read into `space`.
    pub(crate) fn extend(&mut self, len: usize) {
        self.end += len;
    }

    pub(crate) fn consume(&mut self, len: usize) {
        self.start += len;
    }

    /// Makes sure that a body behind a head of `head` bytes has room to be received.
    pub(crate) fn make_room(&mut self, head: usize) {
        if self.bytes.len() - (self.start + head) < BODY_ROOM {
            self.compact();
        }
    }

    fn compact(&mut self) {
        self.bytes.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
    }

    /// Returns the head, and the room behind it with what is already there of the body and of later
    /// requests.
    pub(crate) fn split(&mut self, head: usize) -> (&[u8], Room<'_>) {
        let (head, rest) = self.bytes[self.start..].split_at_mut(head);
        let end = self.end - self.start - head.len();
        (
            head,
            Room {
                bytes: rest,
                start: 0,
                end,
            },
        )
    }

    /// Ends a request: `start..end` of the room behind its head of `head` bytes is left.
    pub(crate) fn finish(&mut self, head: usize, (start, end): (usize, usize)) {
        let room = self.start + head;
        (self.start, self.end) = (room + start, room + end);
    }

    /// Drops everything; the whole buffer becomes scratch.
    pub(crate) fn discard(&mut self) -> &mut [u8] {
        (self.start, self.end) = (0, 0);
        &mut self.bytes
    }
}

/// The part of an [`Input`] behind a head that is still borrowed.
#[derive(Debug)]
pub(crate) struct Room<'a> {
    pub(crate) bytes: &'a mut [u8],
    pub(crate) start: usize,
    pub(crate) end: usize,
}

/// All that a connection holds while it is busy.
#[derive(Debug)]
pub(crate) struct Buffers {
    pub(crate) input: Input,
    pub(crate) encoder: Encoder,
}

/// Idle buffers, a few for each processor.
#[derive(Debug)]
pub(crate) struct Pool {
    idle: plainweave_serve::Pool<Buffers>,
    head_bytes: usize,
}

impl Pool {
    pub(crate) fn new(head_bytes: usize) -> Self {
        Self {
            idle: plainweave_serve::Pool::default(),
            head_bytes,
        }
    }

    /// Runs `work` with buffers of its own.
    pub(crate) fn with<T>(&self, work: impl FnOnce(&mut Buffers) -> T) -> T {
        let place = self.idle.here();
        let new = || {
            Box::new(Buffers {
                input: Input::new(self.head_bytes),
                encoder: Encoder::default(),
            })
        };

        let mut buffers = self.idle.take(place).unwrap_or_else(new);
        let result = work(&mut buffers);
        buffers.input.discard();
        buffers.encoder.out.clear();

        if buffers.encoder.out.capacity() <= MAX_KEPT {
            // Where they came from, whatever the processor by now.
            drop(self.idle.put(place, buffers));
        }

        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn input_keeps_its_bytes_when_it_makes_room() {
        let mut input = Input::new(16);
        let size = input.space().len();
        assert_eq!(size, 16 + BODY_ROOM);
        input.space()[..10].copy_from_slice(b"0123456789");
        input.extend(10);
        input.consume(4);
        input.make_room(6);
        assert_eq!(input.filled(), b"456789");
        let (head, room) = input.split(2);

        assert_eq!(
            (head, &room.bytes[room.start..room.end]),
            (&b"45"[..], &b"6789"[..])
        );
        assert!(room.bytes.len() >= BODY_ROOM);
        input.finish(2, (1, 4));
        assert_eq!(input.filled(), b"789");
    }

    #[test]
    fn buffers_come_back_empty() {
        let pool = Pool::new(64);
        pool.with(|buffers| {
            buffers.input.extend(3);
            buffers.encoder.out.push(1);
        });
        pool.with(|buffers| assert!(buffers.input.is_empty() && buffers.encoder.out.is_empty()));
    }
}
