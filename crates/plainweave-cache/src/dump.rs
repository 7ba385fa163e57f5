//! `lru_crawler metadump` and `mgdump`: a line for each item.

use std::io::{self, Write as _};

use super::proto::{Listing, base64};
use super::shared::Cache;
use super::store::{Cursor, Record};
use super::stream::Stream;
use super::watch::Escaped;

/// Items between two writes. A line has 850 bytes at most, for each byte of a key may take three.
const ITEMS: usize = 100;

/// Sends the list; items that come and go meanwhile may be on it or not.
pub(super) fn send(cache: &Cache, listing: Listing, stream: &mut Stream) -> io::Result<()> {
    let mut cursor = Cursor::default();
    let mut more = true;
    let mut lines = Vec::new();

    while more {
        lines.clear();
        more = cache.store.dump(
            &mut cursor,
            ITEMS,
            cache.clock.now(),
            |record| match listing {
                Listing::Facts => facts(cache, record, &mut lines),
                Listing::Commands => command(record.key, &mut lines),
            },
        );
        if !more {
            lines.extend_from_slice(match listing {
                Listing::Facts => b"END\r\n",
                Listing::Commands => b"EN\r\n",
            });
        }
        stream.write_all(&lines)?;
        plainweave::yield_now();
    }

    stream.flush()
}

/// A key that the text protocol cannot have is in base64.
fn command(key: &[u8], lines: &mut Vec<u8>) {
    let is_text = key.iter().all(|byte| byte.is_ascii_graphic());
    lines.extend_from_slice(b"mg ");
    if is_text {
        lines.extend_from_slice(key);
    } else {
        base64::encode(key, lines);
        lines.extend_from_slice(b" b");
    }
    lines.extend_from_slice(b"\r\n");
}

fn facts(cache: &Cache, record: &Record<'_>, lines: &mut Vec<u8>) {
    let exp = record
        .expiry
        .time()
        .map_or(-1, |end| cache.clock.unix(end) as i64);
    // Writing into memory does not fail.
    let _ = writeln!(
        lines,
        "key={} exp={exp} la={} cas={} fetch={} cls={} size={}",
        Escaped(record.key),
        cache.clock.unix(record.access),
        record.cas,
        if record.fetched { "yes" } else { "no" },
        record.class + 1,
        record.size,
    );
}
