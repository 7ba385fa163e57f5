//! Content codings: what text is compressed by.
//!
//! It is done once for each state of a file, so each level is one that takes some milliseconds for
//! 100 KiB, and not the fastest.

use std::io::{self, Write};

use brotli::enc::BrotliEncoderParams;
use flate2::write::GzEncoder;
use plainweave_http::files::Coding;

/// What nginx and most others use; 9 takes twice the time for a hundredth.
const GZIP: u32 = 6;
/// Of 11, the last of which takes a hundred times as long.
const BR: i32 = 6;
/// Of 22.
const ZSTD: i32 = 9;

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

    #[test]
    fn what_is_compressed_comes_out_again() {
        let text = "the same words again and again, and once in a while a number: ";
        let text: String = (0..2000).map(|n| format!("{text}{}\n", n * n)).collect();
        let noise: Vec<u8> = (0..5000_u32)
            .map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8)
            .collect();
        for content in [text.as_bytes(), &noise, b""] {
            for coding in Coding::ALL {
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
