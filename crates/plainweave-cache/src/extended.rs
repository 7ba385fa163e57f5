//! memcached's extended options, `-o a,b=1`.

use std::str::FromStr;
use std::time::Duration;

use super::certificates::Certificates;

/// Options of memcached's about parts that do not exist here: slab classes, its threads and its
/// external storage.
const MEANINGLESS: &[&str] = &[
    "drop_privileges",
    "hash_algorithm",
    "hashpower",
    "hot_max_factor",
    "inline_ascii_resp",
    "lru_crawler",
    "lru_crawler_sleep",
    "lru_crawler_tocrawl",
    "lru_maintainer",
    "modern",
    "no_chunked_items",
    "no_hashexpand",
    "read_buf_mem_limit",
    "relaxed_privileges",
    "resp_obj_mem_limit",
    "slab_automove",
    "slab_automove_freeratio",
    "slab_automove_ratio",
    "slab_automove_window",
    "slab_chunk_max",
    "slab_reassign",
    "slab_sizes",
    "ssl_ciphers",
    "ssl_kernel_tls",
    "ssl_wbuf_size",
    "tail_repair_time",
    "temporary_ttl",
    "track_sizes",
    "warm_lru_pct",
    "warm_max_factor",
    "watcher_logbuf_size",
    "worker_logbuf_size",
];

/// The options given.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Extended {
    /// Silence after which a connection is closed.
    pub(crate) idle_timeout: Option<Duration>,
    /// Refuse connections above the limit at once, or not.
    maxconns_fast: Option<bool>,
    /// The part of new items, in percent.
    pub(crate) hot_lru_pct: Option<usize>,
    /// What TLS is made from.
    pub(crate) certificates: Certificates,
    /// Options that ask for nothing here.
    pub(crate) meaningless: Vec<String>,
}

impl Extended {
    /// Returns whether connections above the limit are refused at once.
    pub(crate) fn maxconns_fast(&self) -> bool {
        self.maxconns_fast.unwrap_or(false)
    }

    /// Applies what a later list changes.
    pub(crate) fn and(mut self, later: &Self) -> Self {
        self.idle_timeout = later.idle_timeout.or(self.idle_timeout);
        self.hot_lru_pct = later.hot_lru_pct.or(self.hot_lru_pct);
        self.maxconns_fast = later.maxconns_fast.or(self.maxconns_fast);
        self.certificates = self.certificates.and(&later.certificates);
        self.meaningless.extend_from_slice(&later.meaningless);
        self
    }
}

impl FromStr for Extended {
    type Err = String;

    fn from_str(list: &str) -> Result<Self, String> {
        let mut options = Self::default();
        for option in list.split(',').filter(|option| !option.is_empty()) {
            let (name, value) = option.split_once('=').unwrap_or((option, ""));
            match name {
                "idle_timeout" => {
                    let seconds = value
                        .parse::<u32>()
                        .map_err(|_| "idle_timeout needs a number of seconds")?;
                    options.idle_timeout =
                        (seconds > 0).then(|| Duration::from_secs(seconds.into()));
                }
                "hot_lru_pct" => {
                    let percent = value
                        .parse()
                        .ok()
                        .filter(|percent| (1..=90).contains(percent));
                    options.hot_lru_pct =
                        Some(percent.ok_or("hot_lru_pct needs a number from 1 to 90")?);
                }
                "maxconns_fast" => options.maxconns_fast = Some(true),
                "no_maxconns_fast" => options.maxconns_fast = Some(false),
                _ if options.certificates.take(name, value)? => {}
                _ if MEANINGLESS.contains(&name)
                    || name
                        .strip_prefix("no_")
                        .is_some_and(|it| MEANINGLESS.contains(&it)) =>
                {
                    options.meaningless.push(name.to_owned());
                }
                _ => {
                    return Err(format!(
                        "there is no option {name}: idle_timeout=SECONDS, maxconns_fast, \
                         hot_lru_pct=PERCENT and those of TLS (ssl_chain_cert=FILE) are known"
                    ));
                }
            }
        }
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options() {
        let options: Extended =
            "idle_timeout=60,maxconns_fast,no_lru_crawler,slab_chunk_max=16384,no_hashexpand,slab_sizes=96-120"
                .parse()
                .unwrap();
        assert_eq!(options.idle_timeout, Some(Duration::from_secs(60)));
        assert_eq!(
            (options.maxconns_fast(), options.meaningless.len()),
            (true, 4)
        );
        let later: Extended = "no_maxconns_fast".parse().unwrap();
        assert!(
            !options.clone().and(&later).maxconns_fast()
                && options.and(&Extended::default()).maxconns_fast()
        );
        assert_eq!("".parse(), Ok(Extended::default()));

        let small: Extended = "hot_lru_pct=20".parse().unwrap();
        assert_eq!(small.hot_lru_pct, Some(20));
        assert_eq!(small.and(&Extended::default()).hot_lru_pct, Some(20));
        for wrong in [
            "hot_lru_pct",
            "hot_lru_pct=0",
            "hot_lru_pct=91",
            "hot_lru_pct=x",
        ] {
            assert!(wrong.parse::<Extended>().is_err(), "{wrong}");
        }

        assert!(
            "idle_timeout".parse::<Extended>().is_err()
                && "ext_path=/x".parse::<Extended>().is_err()
        );
    }
}
