//! Packets of the binary protocol, as clients write and read them. The program's tests have this
//! file, too.

/// A request.
pub(crate) struct RequestPacket<'a> {
    pub(crate) opcode: u8,
    pub(crate) extras: &'a [u8],
    pub(crate) key: &'a [u8],
    pub(crate) value: &'a [u8],
    pub(crate) cas: u64,
}

impl RequestPacket<'_> {
    pub(crate) fn bytes(&self, opaque: u32) -> Vec<u8> {
        let body = self.extras.len() + self.key.len() + self.value.len();
        let mut bytes = vec![0x80, self.opcode];
        bytes.extend((self.key.len() as u16).to_be_bytes());
        bytes.extend([self.extras.len() as u8, 0, 0, 0]);
        bytes.extend((body as u32).to_be_bytes());
        bytes.extend(opaque.to_be_bytes());
        bytes.extend(self.cas.to_be_bytes());
        [&bytes, self.extras, self.key, self.value].concat()
    }
}

/// A request without extras and value.
pub(crate) fn of_key(opcode: u8, key: &[u8]) -> Vec<u8> {
    let request = RequestPacket {
        opcode,
        extras: b"",
        key,
        value: b"",
        cas: 0,
    };
    request.bytes(0)
}

/// A request to store, without expiry.
pub(crate) fn store(opcode: u8, key: &[u8], value: &[u8]) -> Vec<u8> {
    let request = RequestPacket {
        opcode,
        extras: &[0; 8],
        key,
        value,
        cas: 0,
    };
    request.bytes(0)
}

/// A reply.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ReplyPacket<'a> {
    pub(crate) opcode: u8,
    pub(crate) status: u16,
    pub(crate) opaque: u32,
    pub(crate) cas: u64,
    pub(crate) extras: &'a [u8],
    pub(crate) key: &'a [u8],
    pub(crate) value: &'a [u8],
}

impl<'a> ReplyPacket<'a> {
    /// Reads one, and returns what follows it. `None`: it is not whole, or none.
    pub(crate) fn read(bytes: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let (head, rest) = bytes.split_at_checked(24)?;
        let number = |from: usize, to: usize| {
            let bytes = head[from..to].iter();
            bytes.fold(0, |all, byte| all << 8 | u64::from(*byte))
        };
        let (body, rest) = rest.split_at_checked(number(8, 12) as usize)?;
        let (extras, body) = body.split_at_checked(number(4, 5) as usize)?;
        let (key, value) = body.split_at_checked(number(2, 4) as usize)?;
        let reply = Self {
            opcode: head[1],
            status: number(6, 8) as u16,
            opaque: number(12, 16) as u32,
            cas: number(16, 24),
            extras,
            key,
            value,
        };
        (head[0] == 0x81 && head[5] == 0).then_some((reply, rest))
    }
}

/// A request that makes sense, more or less; `below` chooses a number below another one.
pub(crate) fn random(below: &mut impl FnMut(usize) -> usize) -> Vec<u8> {
    const KEYS: [&[u8]; 5] = [b"a", b"b", b"p:c", b"n", b"\x80\0\r\n \xff"];
    const VALUES: [&[u8]; 6] = [b"", b"5", b"12", b"abc", b"get a\r\n", &[b'v'; 3000]];
    const ENDS: [u32; 5] = [0, 0, 900, 2_592_001, 0xffff_fff0];

    let key = KEYS[below(KEYS.len())];
    let value = VALUES[below(VALUES.len())];
    let end = ENDS[below(ENDS.len())].to_be_bytes();
    let mut number = || ([0, 1, 9, 100][below(4)] as u64).to_be_bytes();
    let (delta, initial) = (number(), number());
    let flags = [0_u32, 7, u32::MAX][below(3)].to_be_bytes();
    let not_created = if below(3) == 0 { [0xff; 4] } else { end };
    let choice = below(14);
    let quiet = below(3) == 0;
    let (opcode, extras, value) = match choice {
        0..=2 => ([0x00, 0x09, 0x0c, 0x0d][below(4)], vec![], &b""[..]),
        3..=5 => {
            let loud = [1, 2, 3][below(3)];
            let opcode = if quiet { loud + 0x10 } else { loud };
            (opcode, [flags, end].concat(), value)
        }
        6 => ([0x0e, 0x0f, 0x19, 0x1a][below(4)], vec![], value),
        7 => (if quiet { 0x14 } else { 0x04 }, vec![], &b""[..]),
        8..=9 => {
            let opcode = [0x05, 0x06, 0x15, 0x16][below(4)];
            // Numbers that become shorter memcached may write over the old ones, or not.
            let is_down = opcode & 0xf == 0x06;
            let delta = if is_down { [0; 8] } else { delta };
            let extras = [&delta[..], &initial, &not_created].concat();
            (opcode, extras, &b""[..])
        }
        10 => ([0x1d, 0x1e, 0x23, 0x24][below(4)], end.to_vec(), &b""[..]),
        11 => (0x1c, end.to_vec(), &b""[..]),
        // No command of the protocol. Behind one with a key memcached drops the key twice.
        12 => {
            let request = RequestPacket {
                opcode: [0x1b, 0x30, 0xff][below(3)],
                extras: b"",
                key: b"",
                value,
                cas: 0,
            };
            return request.bytes(1);
        }
        _ => return of_key(0x0a, b""),
    };
    let cas = [0, 0, 0, 1, 2, 7][below(6)];
    let request = RequestPacket {
        opcode,
        extras: &extras,
        key,
        value,
        cas,
    };
    request.bytes(below(1000) as u32)
}

/// A request that ends the connection.
pub(crate) fn bad(below: &mut impl FnMut(usize) -> usize) -> Vec<u8> {
    let mut bytes = match below(6) {
        // Keys that are too long, or not there.
        0 => of_key(0x00, &[b'k'; 251]),
        1 => of_key(0x00, b""),
        2 => store(0x01, b"", b"v"),
        // Extras that are missing, or should be.
        3 => of_key(0x01, b"k"),
        4 => of_key(0x05, b"k"),
        _ => store(0x04, b"k", b""),
    };
    if below(6) == 0 {
        // The body is shorter than the key.
        bytes[11] = 0;
    }
    bytes
}
