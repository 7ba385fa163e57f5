//! Content codings: what text is compressed by.
//!
//! What is kept is compressed once for each state of a file, so each level is one that takes some
//! milliseconds for 100 KiB, and not the fastest. What is too large for that, and a listing, is
//! compressed for each request, by faster ones.

use std::io::{self, Write};

use brotli::enc::BrotliEncoderParams;
use flate2::write::GzEncoder;
use plainweave_http::files::{Coding, Encoder};

/// What nginx and most others use; 9 takes twice the time for a hundredth.
const GZIP: u32 = 6;
/// Of 11, the last of which takes a hundred times as long.
const BR: i32 = 6;
/// Of 22.
const ZSTD: i32 = 9;

/// For answers that are compressed as they are sent.
const STREAMED_GZIP: u32 = 6;
const STREAMED_BR: u32 = 5;
const STREAMED_ZSTD: i32 = 5;
/// The logarithm of the bytes that each of these looks back at most; its memory grows with them.
const BR_WINDOW: u32 = 18;
const ZSTD_WINDOW: u32 = 18;

/// Compresses content. Takes long.
pub(super) fn compress(coding: Coding, content: &[u8]) -> io::Result<Vec<u8>> {
    match coding {
        Coding::Gzip => {
            let level = flate2::Compression::new(GZIP);
            let mut encoder = GzEncoder::new(Vec::with_capacity(content.len() / 2), level);
            encoder.write_all(content)?;
            encoder.finish()
        }

        Coding::Br => {
            let params = BrotliEncoderParams {
                quality: BR,
                size_hint: content.len(),
                ..Default::default()
            };
            let mut compressed = Vec::with_capacity(content.len() / 2);
            brotli::BrotliCompress(&mut &content[..], &mut compressed, &params)?;
            Ok(compressed)
        }

        Coding::Zstd => zstd::bulk::compress(content, ZSTD),
    }
}

/// Makes an encoder for one answer with content of this many bytes.
pub(super) fn encoder(coding: Coding, size: u64) -> io::Result<Box<dyn Encoder>> {
    Ok(match coding {
        Coding::Gzip => {
            let level = flate2::Compression::new(STREAMED_GZIP);
            Box::new(Writing {
                take: GzEncoder::get_mut,
                finish: GzEncoder::try_finish,
                writer: GzEncoder::new(Vec::new(), level),
            })
        }

        Coding::Br => {
            let inner = brotli::CompressorWriter::new(Vec::new(), 4096, STREAMED_BR, BR_WINDOW);
            Box::new(Writing {
                take: brotli::CompressorWriter::get_mut,
                finish: |writer| {
                    // It ends its stream when it is taken apart, and not before.
                    let empty = brotli::CompressorWriter::new(Vec::new(), 1, 0, 10);
                    let made = std::mem::replace(writer, empty).into_inner();
                    *writer.get_mut() = made;
                    Ok(())
                },
                writer: inner,
            })
        }

        Coding::Zstd => {
            let mut inner = zstd::Encoder::new(Vec::new(), STREAMED_ZSTD)?;
            inner.set_pledged_src_size(Some(size))?;
            inner.window_log(ZSTD_WINDOW)?;
            Box::new(Writing {
                take: zstd::Encoder::get_mut,
                finish: zstd::Encoder::do_finish,
                writer: inner,
            })
        }
    })
}

/// An encoder that writes to memory.
struct Writing<W> {
    writer: W,
    /// Where it writes.
    take: fn(&mut W) -> &mut Vec<u8>,
    finish: fn(&mut W) -> io::Result<()>,
}

impl<W: Write + Send> Encoder for Writing<W> {
    fn push(&mut self, content: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
        self.writer.write_all(content)?;
        out.append((self.take)(&mut self.writer));
        Ok(())
    }

    fn finish(&mut self, out: &mut Vec<u8>) -> io::Result<()> {
        (self.finish)(&mut self.writer)?;
        out.append((self.take)(&mut self.writer));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    fn expanded(coding: Coding, content: &[u8]) -> Vec<u8> {
        let mut expanded = Vec::new();
        match coding {
            Coding::Gzip => flate2::read::GzDecoder::new(content).read_to_end(&mut expanded),
            Coding::Br => brotli::Decompressor::new(content, 4096).read_to_end(&mut expanded),
            Coding::Zstd => zstd::Decoder::new(content)
                .and_then(|mut decoder| decoder.read_to_end(&mut expanded)),
        }
        .expect("it is whole");
        expanded
    }

    /// In pieces of this many bytes.
    fn streamed(coding: Coding, content: &[u8], piece: usize) -> Vec<u8> {
        let mut encoder = encoder(coding, content.len() as u64).expect("there is memory");
        let mut made = Vec::new();
        for piece in content.chunks(piece) {
            encoder.push(piece, &mut made).expect("memory takes all");
        }
        encoder.finish(&mut made).expect("memory takes all");
        made
    }

    #[test]
    fn what_is_compressed_comes_out_again() {
        let text = "the same words again and again, and once in a while a number: ";
        let text: String = (0..2000).map(|n| format!("{text}{}\n", n * n)).collect();
        let noise: Vec<u8> = (0..5000_u32)
            .map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8)
            .collect();
        for content in [text.as_bytes(), &noise, b""] {
            for coding in Coding::ALL {
                for piece in [1000, 65_536, 1 << 20] {
                    let made = streamed(coding, content, piece);
                    assert!(expanded(coding, &made) == content, "{coding:?} of {piece}");
                    let is_smaller = made.len() < content.len() / 4;
                    assert!(is_smaller || content.len() <= 5000, "{coding:?}");
                }

                let compressed = compress(coding, content).expect("there is memory");
                assert!(expanded(coding, &compressed) == content, "{coding:?}");
                let is_smaller = compressed.len() < content.len() / 4;
                assert!(
                    is_smaller || content.len() <= 5000,
                    "{coding:?}: {}",
                    compressed.len()
                );
            }
        }
    }
}
