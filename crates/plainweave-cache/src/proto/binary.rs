//! memcached's binary protocol without I/O: a head of 24 bytes, then extras, key and value.
//!
//! The reference is memcached 1.6.18, which calls the protocol deprecated; PHP's sessions and older
//! clients of several languages have no other. Numbers are big-endian. A quiet command (its name
//! ends in `Q` there) is answered only if it fails, a quiet get only if it finds something.

use super::key::KEY_BYTES;
use super::storage::Verb;

/// The first byte of a request, and of a reply.
pub(crate) const REQUEST: u8 = 0x80;
pub(super) const REPLY: u8 = 0x81;
/// Bytes of a head.
pub(crate) const HEAD: usize = 24;
/// Bytes of the longest body, as there.
const BODY: usize = 1 << 30;
/// Bytes of the longest name of a SASL mechanism.
pub(crate) const MECHANISM: usize = 32;
/// Bytes of the longest proof of who one is.
pub(crate) const PROOF: usize = 2 << 10;
/// Instead of an expiry: a counter is not created.
const NOT_CREATED: u32 = u32::MAX;

/// What becomes of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub(crate) enum Status {
    Success = 0,
    NotFound = 1,
    Exists = 2,
    TooLarge = 3,
    Invalid = 4,
    NotStored = 5,
    NotANumber = 6,
    NotAuthenticated = 0x20,
    /// More is needed to know who the client is.
    Continue = 0x21,
    Unknown = 0x81,
    NoMemory = 0x82,
}

impl Status {
    /// Returns the body of a reply.
    pub(crate) const fn text(self) -> &'static str {
        match self {
            Self::Success | Self::Continue => "",
            Self::NotFound => "Not found",
            Self::Exists => "Data exists for key.",
            Self::TooLarge => "Too large.",
            Self::Invalid => "Invalid arguments",
            Self::NotStored => "Not stored.",
            Self::NotANumber => "Non-numeric server-side value for incr or decr",
            Self::NotAuthenticated => "Auth failure.",
            Self::Unknown => "Unknown command",
            Self::NoMemory => "Out of memory",
        }
    }
}

/// The head of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BinaryHead {
    pub(crate) opcode: u8,
    key: usize,
    extras: usize,
    body: usize,
    /// The client's, returned with the reply.
    opaque: [u8; 4],
    pub(crate) cas: u64,
}

impl BinaryHead {
    /// Reads it. `None`: it is no request.
    pub(crate) fn read(bytes: &[u8; HEAD]) -> Option<Self> {
        let [magic, opcode, k1, k0, extras, _, _, _, b3, b2, b1, b0, ..] = *bytes;
        let body = u32::from_be_bytes([b3, b2, b1, b0]);
        let (opaque, _) = bytes[12..].split_first_chunk()?;
        let (cas, _) = bytes[16..].split_first_chunk()?;
        (magic == REQUEST).then(|| Self {
            opcode,
            key: u16::from_be_bytes([k1, k0]).into(),
            extras: extras.into(),
            body: body as usize,
            opaque: *opaque,
            cas: u64::from_be_bytes(*cas),
        })
    }

    /// Refuses lengths that no request has: the connection cannot go on.
    pub(crate) const fn check(&self) -> Result<(), Status> {
        if self.key + self.extras > self.body {
            Err(Status::Unknown)
        } else if self.body > BODY || self.key > KEY_BYTES {
            Err(Status::Invalid)
        } else {
            Ok(())
        }
    }

    /// Returns the bytes of extras and key.
    pub(crate) const fn before_value(&self) -> usize {
        self.extras + self.key
    }

    /// Returns the bytes of the value.
    pub(crate) const fn value(&self) -> usize {
        self.body - self.before_value()
    }

    /// Returns the head of a reply whose body has `lens` bytes of extras, key and value.
    pub(crate) fn reply(&self, status: Status, lens: [usize; 3], cas: u64) -> [u8; HEAD] {
        let [extras, key, value] = lens;
        let mut bytes = [0; HEAD];
        (bytes[0], bytes[1]) = (REPLY, self.opcode);
        bytes[2..4].copy_from_slice(&(key as u16).to_be_bytes());
        bytes[4] = extras as u8;
        bytes[6..8].copy_from_slice(&(status as u16).to_be_bytes());
        bytes[8..12].copy_from_slice(&((extras + key + value) as u32).to_be_bytes());
        bytes[12..16].copy_from_slice(&self.opaque);
        bytes[16..].copy_from_slice(&cas.to_be_bytes());
        bytes
    }
}

/// A request, without the value that may follow it.
#[derive(Debug)]
pub(crate) struct BinaryRequest<'a> {
    pub(crate) head: BinaryHead,
    /// Success is not answered; for a get, that nothing is found.
    pub(crate) quiet: bool,
    pub(crate) command: BinaryCommand<'a>,
}

/// What of an item is sent, beside its flags.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parts {
    pub(crate) key: bool,
    pub(crate) value: bool,
}

const FLAGS_ALONE: Parts = Parts {
    key: false,
    value: false,
};
const VALUE: Parts = Parts {
    key: false,
    value: true,
};
const KEY_AND_VALUE: Parts = Parts {
    key: true,
    value: true,
};

/// What is asked for. Expiries are seconds as there, without those that are negative.
#[derive(Debug)]
pub(crate) enum BinaryCommand<'a> {
    Get {
        key: &'a [u8],
        touch: Option<u32>,
        parts: Parts,
    },
    /// A value follows.
    Store {
        verb: Verb,
        key: &'a [u8],
        flags: u32,
        exptime: u32,
    },
    Delete {
        key: &'a [u8],
    },
    Count {
        key: &'a [u8],
        up: bool,
        delta: u64,
        /// Value and expiry of one that is not there; none: it is not created.
        create: Option<(u64, u32)>,
    },
    Flush {
        delay: u32,
    },
    Noop,
    Version,
    Quit,
    Stats {
        words: &'a [u8],
    },
    Mechanisms,
    /// A client says who it is: a proof follows. `begins`: it is the first part.
    Authenticate {
        mechanism: &'a [u8],
        begins: bool,
    },
    /// Not a command of the protocol: a body is dropped.
    Unknown,
}

impl<'a> BinaryRequest<'a> {
    /// Reads extras and key, which are all of `bytes`. `head` is [checked](BinaryHead::check).
    ///
    /// # Errors
    /// The command has no such extras, key or value: the connection cannot go on.
    pub(crate) fn read(head: BinaryHead, bytes: &'a [u8]) -> Result<Self, Status> {
        let (extras, key) = bytes.split_at(head.extras);
        let (quiet, command) = Self::command(&head, extras, key).ok_or(Status::Invalid)?;

        let may_have_value = matches!(
            command,
            BinaryCommand::Store { .. }
                | BinaryCommand::Authenticate { .. }
                | BinaryCommand::Unknown
        );
        if head.value() > 0 && !may_have_value {
            return Err(Status::Invalid);
        }
        Ok(Self {
            head,
            quiet,
            command,
        })
    }

    fn command(
        head: &BinaryHead,
        extras: &'a [u8],
        key: &'a [u8],
    ) -> Option<(bool, BinaryCommand<'a>)> {
        let keyed = Some(key).filter(|key| !key.is_empty());
        let bare = extras.is_empty().then_some(());
        let alone = bare.filter(|()| key.is_empty());
        let get = |parts| {
            Some(BinaryCommand::Get {
                key: bare.and(keyed)?,
                touch: None,
                parts,
            })
        };

        let get_and_touch = |parts| {
            Some(BinaryCommand::Get {
                key: keyed?,
                touch: Some(number(extras)?),
                parts,
            })
        };

        let store = |verb| {
            let (flags, exptime) = extras.split_first_chunk()?;
            Some(BinaryCommand::Store {
                verb,
                key: keyed?,
                flags: u32::from_be_bytes(*flags),
                exptime: number(exptime)?,
            })
        };

        let join = |verb| {
            Some(BinaryCommand::Store {
                verb,
                key: bare.and(keyed)?,
                flags: 0,
                exptime: 0,
            })
        };

        let count = |up| {
            let (delta, rest) = extras.split_first_chunk()?;
            let (initial, rest) = rest.split_first_chunk()?;
            let exptime = number(rest)?;
            let initial = u64::from_be_bytes(*initial);
            Some(BinaryCommand::Count {
                key: keyed?,
                up,
                delta: u64::from_be_bytes(*delta),
                create: (exptime != NOT_CREATED).then_some((initial, exptime)),
            })
        };
        let flush = || match (key, extras) {
            ([], []) => Some(BinaryCommand::Flush { delay: 0 }),
            ([], _) => number(extras).map(|delay| BinaryCommand::Flush { delay }),
            _ => None,
        };

        let authenticate = |begins| {
            let mechanism = bare.and(keyed)?;
            Some(BinaryCommand::Authenticate { mechanism, begins })
        };

        let (opcode, quiet) = loud(head.opcode);
        let command = match opcode {
            0x00 => get(VALUE)?,
            0x0c => get(KEY_AND_VALUE)?,
            0x1d => get_and_touch(VALUE)?,
            0x23 => get_and_touch(KEY_AND_VALUE)?,
            0x1c => get_and_touch(FLAGS_ALONE)?,
            0x01 => store(Verb::Set)?,
            0x02 => store(Verb::Add)?,
            0x03 => store(Verb::Replace)?,
            0x0e => join(Verb::Append)?,
            0x0f => join(Verb::Prepend)?,
            0x04 => bare.and(keyed).map(|key| BinaryCommand::Delete { key })?,
            0x05 => count(true)?,
            0x06 => count(false)?,
            0x07 => alone.map(|()| BinaryCommand::Quit)?,
            0x08 => flush()?,
            0x0a => alone.map(|()| BinaryCommand::Noop)?,
            0x0b => alone.map(|()| BinaryCommand::Version)?,
            0x10 => bare.map(|()| BinaryCommand::Stats { words: key })?,
            0x20 => alone.map(|()| BinaryCommand::Mechanisms)?,
            0x21 => authenticate(true)?,
            0x22 => authenticate(false)?,
            _ => BinaryCommand::Unknown,
        };
        Some((quiet, command))
    }

    /// Returns whether it is for clients that have not said who they are.
    pub(crate) const fn is_for_all(&self) -> bool {
        matches!(
            self.command,
            BinaryCommand::Mechanisms | BinaryCommand::Authenticate { .. } | BinaryCommand::Version
        )
    }

    /// Returns whether what follows the key is the value of the command.
    pub(crate) const fn has_value(&self) -> bool {
        matches!(
            self.command,
            BinaryCommand::Store { .. } | BinaryCommand::Authenticate { .. }
        )
    }
}

/// Returns the command that a quiet one is like, and whether it is quiet.
const fn loud(opcode: u8) -> (u8, bool) {
    match opcode {
        0x09 => (0x00, true),
        0x0d => (0x0c, true),
        // From set to flush.
        0x11..=0x18 => (opcode - 0x10, true),
        0x19 | 0x1a => (opcode - 0x0b, true),
        0x1e | 0x24 => (opcode - 1, true),
        _ => (opcode, false),
    }
}

/// Returns the keys of the gets at the beginning of `input`, where packet follows packet.
pub(crate) fn keys(input: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = input;
    std::iter::from_fn(move || {
        let (bytes, behind) = rest.split_first_chunk()?;
        let head = BinaryHead::read(bytes).filter(|head| head.check().is_ok())?;
        let is_get = matches!(head.opcode, 0x00 | 0x09 | 0x0c | 0x0d);

        let key = behind.get(head.extras..head.before_value())?;
        rest = behind.get(head.body..)?;
        is_get.then_some(key)
    })
}

/// Reads a number of 32 bits, which is all of `bytes`.
fn number(bytes: &[u8]) -> Option<u32> {
    bytes.try_into().ok().map(u32::from_be_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a client writes is what is read, and a reply has its lengths.
    #[test]
    fn a_head_has_its_numbers() {
        let mut bytes = [0; HEAD];
        (bytes[0], bytes[1], bytes[3], bytes[4]) = (REQUEST, 0x05, 3, 20);
        bytes[8..12].copy_from_slice(&23_u32.to_be_bytes());
        bytes[12..16].copy_from_slice(b"opaq");
        bytes[16..].copy_from_slice(&u64::MAX.to_be_bytes());
        let head = BinaryHead::read(&bytes).unwrap();
        assert_eq!((head.before_value(), head.value()), (23, 0));
        assert_eq!(head.cas, u64::MAX);

        let reply = head.reply(Status::NoMemory, [4, 5, 1 << 20], 7);
        assert_eq!(reply[..8], [0x81, 0x05, 0, 5, 4, 0, 0, 0x82]);
        assert_eq!(reply[8..12], ((1_u32 << 20) + 9).to_be_bytes());
        assert_eq!(&reply[12..16], b"opaq");
        assert_eq!(reply[16..], 7_u64.to_be_bytes());
        bytes[0] = REPLY;
        assert!(BinaryHead::read(&bytes).is_none());
    }

    /// Lengths that contradict each other.
    #[test]
    fn lengths_are_checked() {
        let with = |key: u16, extras: u8, body: u32| {
            let mut bytes = [0; HEAD];
            (bytes[0], bytes[4]) = (REQUEST, extras);
            bytes[2..4].copy_from_slice(&key.to_be_bytes());
            bytes[8..12].copy_from_slice(&body.to_be_bytes());
            BinaryHead::read(&bytes).unwrap().check()
        };
        assert_eq!(with(250, 20, 270), Ok(()));
        assert_eq!(with(2, 20, 21), Err(Status::Unknown));
        assert_eq!(with(251, 0, 251), Err(Status::Invalid));
        assert_eq!(with(1, 0, u32::MAX), Err(Status::Invalid));
    }
}
