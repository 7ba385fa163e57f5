//! `stats`, in memcached's names. What has no meaning here is left out rather than made up:
//! docs/cache-compat.md has the list.

use std::fmt::Display;
use std::path::PathBuf;
use std::sync::atomic::Ordering::Relaxed;

use super::number;
use super::proto::{BAD_FORMAT, Protocol, Tokens};
use super::reply::Replies;
use super::shared::Cache;
use super::store::{CLASSES, Record, Time, class_size};
use super::tally::{KINDS, NAMES};
use super::tls::Tls;
use super::version::VERSION;
use super::watch::Escaped;

/// Hot keys that are listed.
const HOT: usize = 20;
/// Items that are looked at in a row, under a lock; and the most that `stats cachedump` lists.
const LIMIT: usize = 1000;
/// Items that one answer looks at.
const LOOK: usize = 16 * LIMIT;

/// Answers `stats` and its kinds. An answer that is long (there are many connections, or prefixes)
/// must find room.
pub(super) fn answer(cache: &Cache, words: &[u8], now: Time, out: &mut Replies) {
    let from = out.bytes_mut().len();
    list(cache, words, now, out);
    if !out.account(from, &cache.memory_budget) {
        out.line("SERVER_ERROR out of memory writing stats");
    }
}

fn list(cache: &Cache, words: &[u8], now: Time, out: &mut Replies) {
    let words = Tokens::cut(words);
    let mut list = List(out.bytes_mut());
    match words.word(0) {
        b"" => general(cache, &mut list),
        b"settings" => settings(cache, &mut list),
        b"items" => items(cache, now, &mut list),
        b"slabs" => slabs(cache, &mut list),
        b"sizes" => sizes(cache, &mut list),
        b"conns" => conns(cache, &mut list),
        b"hotkeys" => hot_keys(cache, &mut list),
        b"latency" => latency(cache, &mut list),
        b"detail" => return detail(cache, words.word(1), out),
        b"cachedump" => return cache_dump(cache, &words, now, out),
        b"reset" => {
            cache.scratch.reset();
            cache.store.reset_stats();
            cache.details.clear();
            return out.line("RESET");
        }
        _ => return out.line("ERROR"),
    }

    out.push(b"END\r\n");
}

/// Lines of `STAT name value`.
pub(super) struct List<'a>(&'a mut Vec<u8>);

impl List<'_> {
    fn add(&mut self, name: impl Display, value: impl Display) {
        use std::io::Write;
        // Writing into memory does not fail.
        let _ = write!(self.0, "STAT {name} {value}\r\n");
    }
}

fn general(cache: &Cache, list: &mut List<'_>) {
    let now = cache.clock.now();
    let clients = &cache.clients;
    let usage = cpu_seconds();
    list.add("pid", std::process::id());
    list.add("uptime", now.since(super::store::Time::START));
    list.add("time", cache.clock.unix(now));
    list.add("version", VERSION);
    list.add("pointer_size", usize::BITS);
    list.add("rusage_user", format_args!("{:.6}", usage.0));
    list.add("rusage_system", format_args!("{:.6}", usage.1));
    list.add("max_connections", cache.settings.connections);
    list.add("curr_connections", cache.connections());
    list.add("total_connections", clients.total.load(Relaxed));
    list.add("rejected_connections", clients.rejected.load(Relaxed));
    list.add("shed_connections", clients.shed.load(Relaxed));
    list.add("cut_connections", clients.cut.load(Relaxed));
    list.add("long_lines", clients.long_lines.load(Relaxed));
    let sums = cache.scratch.sums();

    for (name, count) in NAMES.iter().zip(sums.counts) {
        list.add(name, count);
    }
    list.add("limit_maxbytes", cache.store.config().memory);
    list.add(
        "accepting_conns",
        u8::from(cache.settings.maxconns_fast || !cache.is_full()),
    );
    let accepting = cache.connection_limit.counts();
    list.add("listen_disabled_num", accepting.pauses);
    list.add("time_in_listen_disabled_us", accepting.paused.as_micros());
    list.add("threads", cache.settings.threads);
    let stored = cache.store.stats();

    list.add("hash_power_level", stored.table_power);
    list.add("hash_bytes", stored.table_bytes);
    let (watchers, skipped) = cache.watchers.figures();
    list.add("log_watcher_skipped", skipped);
    list.add("log_watchers", watchers);
    list.add("bytes", stored.bytes);
    list.add("memory_used", stored.memory_used);
    list.add("memory_budget_used", cache.memory_budget.used());
    list.add("unread_replies_pin", cache.pinned.used());
    list.add("curr_items", stored.items);
    list.add("total_items", stored.total_items);
    list.add("get_expired", stored.get_expired);
    list.add("get_flushed", stored.get_flushed);
    list.add("expired_unfetched", stored.expired_unfetched);
    list.add("evicted_unfetched", stored.evicted_unfetched);
    list.add("evictions", stored.evictions);
    list.add("reclaimed", stored.reclaimed);
    list.add("crawler_reclaimed", stored.crawler_reclaimed);
    if let Some(tls) = &cache.tls {
        let [completed, resumed, failed] = tls.handshakes();
        list.add("ssl_handshakes", completed);
        list.add("ssl_new_sessions", completed.saturating_sub(resumed));
        list.add("ssl_handshake_errors", failed);
        let since = cache.clock.now().since(tls.refreshed());
        list.add("time_since_server_cert_refresh", since);
    }
}

/// User and system time of the process, from the kernel's counters of hundredths of seconds.
pub(super) fn cpu_seconds() -> (f64, f64) {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = text
        .rsplit(')')
        .next()
        .unwrap_or_default()
        .split_whitespace();
    let mut ticks = fields
        .skip(11)
        .map(|field| field.parse::<f64>().unwrap_or(0.0) / 100.0);
    (ticks.next().unwrap_or(0.0), ticks.next().unwrap_or(0.0))
}

fn settings(cache: &Cache, list: &mut List<'_>) {
    let settings = &cache.settings;
    let config = cache.store.config();
    let yes = |on: bool| if on { "yes" } else { "no" };
    list.add("maxbytes", config.memory);
    list.add("maxconns", settings.connections);
    list.add("tcpport", settings.port);
    list.add("udpport", 0);
    list.add("inter", &settings.listen);
    list.add("verbosity", cache.verbosity());
    list.add("evictions", if config.evict { "on" } else { "off" });
    list.add("domain_socket", &settings.unix_socket);
    list.add("umask", format_args!("{:o}", settings.unix_mask));
    list.add("shutdown_command", yes(settings.shutdown));
    list.add("num_threads", settings.threads);
    list.add("stat_key_prefix", cache.details.delimiter());
    list.add("detail_enabled", yes(cache.details.is_on()));
    list.add("reqs_per_event", settings.commands);
    list.add("cas_enabled", "yes");
    list.add("tcp_backlog", settings.backlog);
    let protocol = match settings.protocol {
        None => "auto-negotiate",
        Some(Protocol::Text) => "ascii",
        Some(Protocol::Binary) => "binary",
    };
    list.add("binding_protocol", protocol);
    let users = cache.users.as_ref();
    list.add("auth_enabled_sasl", yes(users.is_some()));
    match users {
        Some(users) if settings.protocol != Some(Protocol::Binary) => {
            list.add("auth_enabled_ascii", users.path().display());
        }
        _ => list.add("auth_enabled_ascii", "no"),
    }
    list.add("item_size_max", config.item_max);
    list.add("hot_lru_pct", config.small_percent);
    list.add("maxconns_fast", yes(settings.maxconns_fast));
    list.add("flush_enabled", yes(settings.flush));
    list.add("dump_enabled", yes(settings.dump));
    list.add(
        "idle_timeout",
        settings.idle_timeout.map_or(0, |time| time.as_secs()),
    );
    list.add("write_timeout", settings.write_timeout.as_secs());
    secured(cache.tls.as_ref(), list);
}

fn secured(tls: Option<&Tls>, list: &mut List<'_>) {
    let certificates = tls.map(|tls| tls.certificates().clone());
    let certificates = certificates.unwrap_or_default();
    let file = |file: Option<PathBuf>| match file {
        Some(file) => file.display().to_string(),
        None => "NULL".to_owned(),
    };
    let oldest = if certificates.only_tls13() { 3 } else { 2 };
    list.add("ssl_enabled", if tls.is_some() { "yes" } else { "no" });
    list.add("ssl_verify_mode", certificates.mode.unwrap_or(0));
    list.add("ssl_chain_cert", file(certificates.chain));
    list.add("ssl_key", file(certificates.key));
    list.add("ssl_ca_cert", file(certificates.authorities));
    list.add("ssl_keyformat", 1);
    let resumes = tls.is_some_and(Tls::resumes);
    list.add("ssl_session_cache", if resumes { "yes" } else { "no" });
    list.add("ssl_kernel_tls", "no");
    list.add("ssl_min_version", format_args!("tlsv1.{oldest}"));
}

/// By size, for there are no slab classes: class `n` holds items of up to `stats slabs`'
/// `n:chunk_size` bytes.
fn items(cache: &Cache, now: Time, list: &mut List<'_>) {
    let stats = cache.store.stats();
    let ages = ages(cache, now);
    for (n, class) in (0..CLASSES)
        .map(|n| (n + 1, stats.classes[n]))
        .filter(|(_, class)| class.items > 0)
    {
        list.add(format_args!("items:{n}:number"), class.items);
        if let Some(age) = ages[n - 1] {
            list.add(format_args!("items:{n}:age"), age);
        }
        list.add(format_args!("items:{n}:mem_requested"), class.bytes);
        list.add(format_args!("items:{n}:evicted"), class.evicted);
        list.add(
            format_args!("items:{n}:evicted_nonzero"),
            class.evicted_nonzero,
        );
        list.add(format_args!("items:{n}:evicted_time"), class.evicted_time);
        list.add(
            format_args!("items:{n}:evicted_unfetched"),
            class.evicted_unfetched,
        );
        list.add(format_args!("items:{n}:outofmemory"), class.out_of_memory);
        list.add(format_args!("items:{n}:reclaimed"), class.reclaimed);
        list.add(
            format_args!("items:{n}:expired_unfetched"),
            class.expired_unfetched,
        );
        list.add(
            format_args!("items:{n}:crawler_reclaimed"),
            class.crawler_reclaimed,
        );
    }
}

/// Returns the time since the last access of the item of each class that has waited longest, among
/// the first of the index: those of a small cache, a sample of those of a large one, since the
/// index is in the order of hashes.
fn ages(cache: &Cache, now: Time) -> [Option<u32>; CLASSES] {
    let mut ages = [None; CLASSES];
    look(cache, now, |record| {
        let age = &mut ages[record.class];
        *age = (*age).max(Some(now.since(record.access)));
        true
    });
    ages
}

/// A class is not memory that was set aside but a range of sizes. A page is a megabyte, as there:
/// `total_pages` says how many the items of the class would fill, the last one in part.
fn slabs(cache: &Cache, list: &mut List<'_>) {
    const PAGE: u64 = 1 << 20;
    let stats = cache.store.stats();
    let hits = cache.scratch.sums().hits;

    let used =
        (0..CLASSES).filter(|n| stats.classes[*n].items + stats.classes[*n].cmd_set + hits[*n] > 0);
    for n in used.clone() {
        let class = &stats.classes[n];
        for (name, value) in [
            ("chunk_size", class_size(n) as u64),
            ("total_pages", class.bytes.div_ceil(PAGE)),
            ("used_chunks", class.items),
            ("get_hits", hits[n]),
            ("cmd_set", class.cmd_set),
            ("delete_hits", class.delete_hits),
            ("incr_hits", class.incr_hits),
            ("decr_hits", class.decr_hits),
            ("cas_hits", class.cas_hits),
            ("cas_badval", class.cas_badval),
            ("touch_hits", class.touch_hits),
        ] {
            list.add(format_args!("{}:{name}", n + 1), value);
        }
    }

    list.add("active_slabs", used.count());
    list.add("total_malloced", stats.memory_used);
}

fn sizes(cache: &Cache, list: &mut List<'_>) {
    let stats = cache.store.stats();
    for n in (0..CLASSES).filter(|n| stats.classes[*n].items > 0) {
        list.add(class_size(n), stats.classes[n].items);
    }
}

fn conns(cache: &Cache, list: &mut List<'_>) {
    let now = cache.clock.now();
    cache.clients.each(|client| {
        let id = client.id;
        let address = |address| match address {
            Some(address) => format!("tcp:{address}"),
            None => format!("unix:{}", cache.settings.unix_socket),
        };

        list.add(format_args!("{id}:addr"), address(client.peer));
        list.add(format_args!("{id}:listen_addr"), address(client.local));
        let unread = client.unread.load(Relaxed);
        list.add(
            format_args!("{id}:state"),
            if unread > 0 {
                "conn_mwrite"
            } else {
                "conn_read"
            },
        );
        list.add(
            format_args!("{id}:secs_since_last_cmd"),
            now.0.saturating_sub(client.last.load(Relaxed)),
        );
        if unread > 0 {
            list.add(format_args!("{id}:unread_bytes"), unread);
        }
    });
}

/// Our own: the keys asked for most, as shares of the commands, each with the most by which it may
/// be too high.
fn hot_keys(cache: &Cache, list: &mut List<'_>) {
    let (keys, samples) = cache.hot.top(HOT);
    list.add("samples", samples);
    for (n, hot) in keys.iter().enumerate() {
        list.add(format_args!("{}:key", n + 1), Escaped(&hot.key));
        list.add(
            format_args!("{}:share", n + 1),
            format_args!("{:.5}", hot.share),
        );
        list.add(
            format_args!("{}:error", n + 1),
            format_args!("{:.5}", hot.error),
        );
    }
}

/// Our own: microseconds from the receipt of a command to the sending of its reply.
fn latency(cache: &Cache, list: &mut List<'_>) {
    let sums = cache.scratch.sums();
    for (name, latency) in KINDS
        .iter()
        .zip(&sums.latency)
        .filter(|(_, latency)| latency.count() > 0)
    {
        list.add(format_args!("{name}:samples"), latency.count());
        for (quantile, share) in [
            ("p50", 0.5),
            ("p90", 0.9),
            ("p99", 0.99),
            ("p999", 0.999),
            ("max", 1.0),
        ] {
            list.add(
                format_args!("{name}:{quantile}_us"),
                latency.quantile_us(share),
            );
        }
    }
}

fn detail(cache: &Cache, what: &[u8], out: &mut Replies) {
    match what {
        b"on" | b"off" => {
            cache.details.switch(what == b"on");
            out.line("OK");
        }
        b"dump" => cache.details.dump(out.bytes_mut()),
        _ => out.line("CLIENT_ERROR usage: stats detail on|off|dump"),
    }
}

/// What memcached lists by slab class is here by size; like there, it is a look at some items, not
/// a full list.
fn cache_dump(cache: &Cache, words: &Tokens<'_>, now: Time, out: &mut Replies) {
    const BYTES: usize = 2 << 20;
    if !cache.settings.dump {
        return out.line("CLIENT_ERROR stats cachedump not allowed");
    }
    if words.len() < 3 {
        return out.line("CLIENT_ERROR bad command line");
    }
    let numbers = (
        number::unsigned32(words.word(1)),
        number::unsigned32(words.word(2)),
    );
    let (Some(class), Some(limit)) = numbers else {
        return out.line(BAD_FORMAT);
    };

    if class >= 64 {
        return out.line("CLIENT_ERROR Illegal slab id");
    }
    let limit = if limit == 0 {
        LIMIT
    } else {
        (limit as usize).min(LIMIT)
    };

    let mut left = limit;
    let text = out.bytes_mut();
    look(cache, now, |record| {
        use std::io::Write;
        if record.class + 1 == class as usize && left > 0 && text.len() <= BYTES {
            left -= 1;
            let end = record.expiry.time().map_or(0, |end| cache.clock.unix(end));
            text.extend_from_slice(b"ITEM ");
            text.extend_from_slice(record.key);
            let _ = write!(text, " [{} b; {end} s]\r\n", record.size);
        }
        left > 0 && text.len() <= BYTES
    });
    out.push(b"END\r\n");
}

/// Has `visit` look at items until it returns `false`, at about [`LOOK`] at most: others wait.
fn look(cache: &Cache, now: Time, mut visit: impl FnMut(&Record<'_>) -> bool) {
    let mut cursor = super::store::Cursor::default();
    let mut wants = true;
    let mut seen = 0;

    let mut more = true;
    while more && wants && seen < LOOK {
        more = cache.store.dump(&mut cursor, LIMIT, now, |record| {
            seen += 1;
            wants = wants && visit(record);
        });
    }
}
