//! Base64 for binary keys, as lenient as memcached's decoder: foreign characters are skipped, what
//! follows the padding is ignored.

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Decodes into `out`; the number of bytes, or `None` for nothing, a wrong count of characters or
/// wrong padding.
pub(crate) fn decode(text: &[u8], out: &mut [u8]) -> Option<usize> {
    let known = |byte: &u8| value(*byte).map(|value| (*byte, value));
    let count = text.iter().filter_map(known).count();
    if count == 0 || !count.is_multiple_of(4) || count / 4 * 3 > out.len().max(text.len()) {
        return None;
    }
    let mut len = 0;
    let mut block = 0u32;
    let mut filled = 0;
    let mut padding = 0;

    for (byte, value) in text.iter().filter_map(known) {
        padding += usize::from(byte == b'=');
        block = block << 6 | u32::from(value);
        filled += 1;
        if filled < 4 {
            continue;
        }
        let bytes = &block.to_be_bytes()[1..];
        let keep = 3usize.checked_sub(padding).filter(|keep| *keep > 0)?;

        out.get_mut(len..len + keep)?
            .copy_from_slice(&bytes[..keep]);
        len += keep;
        if padding > 0 {
            break;
        }
        (block, filled) = (0, 0);
    }

    Some(len)
}

/// Appends the encoding, padded, in one line.
pub(crate) fn encode(bytes: &[u8], out: &mut Vec<u8>) {
    for chunk in bytes.chunks(3) {
        let mut block = [0; 4];
        block[1..=chunk.len()].copy_from_slice(chunk);
        let block = u32::from_be_bytes(block);
        for i in 0..4 {
            let digit = ALPHABET[(block >> (18 - 6 * i)) as usize & 63];
            out.push(if i <= chunk.len() { digit } else { b'=' });
        }
    }
}

fn value(byte: u8) -> Option<u8> {
    Some(match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        b'=' => 0,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_and_back() {
        for len in 0..70usize {
            let bytes: Vec<u8> = (0..len).map(|i| (i * 37 + 200) as u8).collect();
            let mut text = Vec::new();
            encode(&bytes, &mut text);
            let mut out = [0; 100];
            assert_eq!(decode(&text, &mut out).unwrap_or(0), len);
            assert_eq!(&out[..len], bytes);
        }
    }

    #[test]
    fn bad_text() {
        let mut out = [0; 16];
        for text in ["", "A", "AB", "ABC", "A===", "!!!!", "====", "Zm9v="] {
            assert_eq!(decode(text.as_bytes(), &mut out), None, "{text}");
        }
        assert_eq!(decode(b"Zm\t9v", &mut out), Some(3));
        assert_eq!(&out[..3], b"foo");
    }
}
