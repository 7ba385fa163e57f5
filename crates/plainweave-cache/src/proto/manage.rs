//! Commands about the server rather than an item.

use super::super::number;
use super::reject::{BAD_EXPTIME, BAD_FORMAT, ERROR, Reject};
use super::tokens::Tokens;

/// What is to be done with the server.
#[derive(Debug)]
pub(crate) enum Manage<'a> {
    /// Which, and its arguments.
    Stats(&'a [u8]),
    /// Everything stored until `delay` seconds from now becomes invalid then.
    FlushAll {
        delay: i32,
        quiet: bool,
    },
    Version,
    Verbosity {
        level: u32,
        quiet: bool,
    },
    Quit,
    Shutdown,
    /// Megabytes.
    MemoryLimit {
        megabytes: u32,
        quiet: bool,
    },
    /// Reclaim what has expired, soon.
    Crawl,
    /// Read the files of TLS again.
    RefreshCertificates,
    /// List all items, in this way, of these classes.
    List(Listing, &'a [u8]),
    /// Send events of these kinds: bits of [`WATCHES`]' order; `None` if one of them is unknown.
    Watch {
        kinds: Option<u16>,
        quiet: bool,
    },
    /// Accepted, for nothing is left to be done.
    Fine {
        quiet: bool,
    },
}

/// How items are listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Listing {
    /// `lru_crawler metadump`: what is known of each.
    Facts,
    /// `lru_crawler mgdump`: the command that gets it.
    Commands,
}

/// Kinds of events, in the order of their bits. memcached's others are of parts that are absent
/// here.
pub(crate) const WATCHES: [&str; 4] = ["evictions", "fetchers", "mutations", "connevents"];

/// Returns the bit of a kind of events.
pub(crate) fn watch_bit(name: &str) -> u16 {
    WATCHES
        .iter()
        .position(|known| *known == name)
        .map_or(0, |place| 1 << place)
}

pub(super) fn parse<'a>(tokens: &Tokens<'a>) -> Result<Manage<'a>, Reject> {
    let quiet = tokens.noreply();
    match tokens.word(0) {
        b"stats" => Ok(Manage::Stats(tokens.after(1).0)),
        b"flush_all" => flush_all(tokens),
        b"version" => Ok(Manage::Version),
        b"quit" => Ok(Manage::Quit),
        b"verbosity" => match tokens.len() {
            2 | 3 => {
                let level = number::unsigned32(tokens.word(1));
                level
                    .map(|level| Manage::Verbosity { level, quiet })
                    .ok_or(Reject::of(BAD_FORMAT).quiet(quiet))
            }
            _ => Err(ERROR),
        },
        b"shutdown" => match (tokens.len(), tokens.word(1)) {
            (1, _) | (2, b"graceful") => Ok(Manage::Shutdown),
            _ => Err(Reject::of("CLIENT_ERROR invalid shutdown mode")),
        },
        b"cache_memlimit" if matches!(tokens.len(), 2 | 3) => {
            let megabytes = number::unsigned32(tokens.word(1));
            megabytes
                .map(|megabytes| Manage::MemoryLimit { megabytes, quiet })
                .ok_or(ERROR.quiet(quiet))
        }
        b"slabs" => slabs(tokens),
        b"lru_crawler" => crawler(tokens),
        b"watch" => Ok(Manage::Watch {
            kinds: watch(tokens),
            quiet,
        }),
        b"refresh_certs" => Ok(Manage::RefreshCertificates),
        name => Err(unknown(name, tokens.last())),
    }
}

/// Turns away a browser that was led here, without an answer it could be made to misuse.
fn unknown(name: &[u8], last: &[u8]) -> Reject {
    let close_to_one = matches!(
        name.first(),
        Some(b'g' | b's' | b'a' | b'c' | b'i' | b'd' | b't') | None
    );
    let meta = matches!(name, [b'm', _]) || name.len() < 2;
    if !close_to_one && !meta && last.starts_with(b"HTTP/") {
        Reject::of("")
    } else {
        ERROR
    }
}

fn flush_all<'a>(tokens: &Tokens<'a>) -> Result<Manage<'a>, Reject> {
    if tokens.len() > 3 {
        return Err(ERROR);
    }
    let quiet = tokens.noreply();
    let delay = match tokens.len() == if quiet { 2 } else { 1 } {
        true => 0,
        false => number::signed32(tokens.word(1)).ok_or(Reject::of(BAD_EXPTIME).quiet(quiet))?,
    };
    Ok(Manage::FlushAll { delay, quiet })
}

/// There are no slab classes here between which memory would have to be moved: moving by hand is
/// refused in the words of a memcached that was started without it, moving by itself is always as
/// good as on.
fn slabs<'a>(tokens: &Tokens<'a>) -> Result<Manage<'a>, Reject> {
    match (tokens.word(1), tokens.len()) {
        (b"reassign", 4) => Err(Reject::of("CLIENT_ERROR slab reassignment disabled")),
        (b"automove", 3..) => {
            let quiet = tokens.noreply();
            match number::unsigned32(tokens.word(2)) {
                Some(0..=2) => Ok(Manage::Fine { quiet }),
                Some(_) => Err(ERROR.quiet(quiet)),
                None => Err(Reject::of(BAD_FORMAT).quiet(quiet)),
            }
        }
        _ => Err(ERROR),
    }
}

fn crawler<'a>(tokens: &Tokens<'a>) -> Result<Manage<'a>, Reject> {
    match (tokens.word(1), tokens.len()) {
        (b"crawl", 3) if is_class_list(tokens.word(2)) => Ok(Manage::Crawl),
        (b"crawl", 3) => Err(Reject::of("BADCLASS invalid class id")),
        (b"metadump", 3) => Ok(Manage::List(Listing::Facts, tokens.word(2))),
        (b"mgdump", 3) => Ok(Manage::List(Listing::Commands, tokens.word(2))),
        // It always runs, and memcached answers so while it does.
        (b"enable", 2) => Err(Reject::of("ERROR failed to start lru crawler thread")),
        (b"disable", 2) => Err(Reject::of("ERROR failed to stop lru crawler thread")),
        _ => Err(ERROR),
    }
}

/// Returns whether this is what memcached takes for slab classes: `all`, or numbers with commas
/// between.
fn is_class_list(text: &[u8]) -> bool {
    let is_class = |word| matches!(number::unsigned32(word), Some(1..=63));
    text == b"all" || text.split(|byte| *byte == b',').all(is_class)
}

fn watch(tokens: &Tokens<'_>) -> Option<u16> {
    let mut kinds = 0;
    for word in &tokens.words()[1..] {
        match std::str::from_utf8(word).map_or(0, watch_bit) {
            0 => return None,
            bit => kinds |= bit,
        }
    }

    Some(if kinds == 0 {
        watch_bit("fetchers")
    } else {
        kinds
    })
}
