//! The tables of the file: sites and their rules, as written. What they mean is found out by
//! `sites`, which says where they are wrong by the spans that are kept here.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::{Deserializer, Visitor, value::SeqAccessDeserializer};
use toml::Spanned;
use toml::de::{DeTable, Deserializer as TomlDeserializer};

use super::mistake::{Mistake, MistakeAt};

/// A text of the file, and where it stands.
pub(crate) type Text = Spanned<String>;

/// What of the file is no setting.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct Tables {
    /// Sites by their names. What none of them is named for is the flags' site.
    #[serde(default)]
    #[schemars(with = "Vec<SiteTable>")]
    pub(crate) site: Vec<Spanned<SiteTable>>,
    /// Applications that requests are passed on to.
    #[serde(default)]
    #[schemars(with = "Vec<UpstreamTable>")]
    pub(crate) upstream: Vec<Spanned<UpstreamTable>>,
    /// Rules of all sites, behind each site's own.
    #[serde(default)]
    #[schemars(with = "Vec<RuleTable>")]
    pub(crate) rule: Vec<Spanned<RuleTable>>,
}

/// One `[[site]]`: a directory, and the hosts that it answers for.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct SiteTable {
    /// The hosts that it answers for: `example.org`, `*.example.org` for all below it, or `*` for
    /// all that no other site has.
    #[schemars(with = "Vec<String>")]
    pub(crate) names: Vec<Text>,
    /// The directory whose files are served. A site whose requests are all passed on needs none.
    #[schemars(with = "Option<PathBuf>")]
    pub(crate) root: Option<Spanned<PathBuf>>,
    /// The upstream that all requests are passed on to which no rule says anything else of.
    #[schemars(with = "Option<String>")]
    pub(crate) proxy: Option<Text>,
    /// The name of the file that stands for its directory [default: index.html].
    #[schemars(with = "Option<String>")]
    pub(crate) index: Option<Text>,
    /// Directories without an index file are listed.
    #[serde(default)]
    pub(crate) listing: bool,
    /// `NAME.br`, `NAME.zst` or `NAME.gz` is sent for `NAME` where there is such a file.
    #[serde(default)]
    pub(crate) precompressed: bool,
    /// In which codings text is compressed, as in `"gzip,br"`; `true`: in all.
    #[schemars(with = "Option<Compress>")]
    pub(crate) compress: Option<Spanned<Compress>>,
    /// `NAME.html` is served for `NAME`.
    #[serde(default)]
    pub(crate) clean_urls: bool,
    /// The file that is sent instead of 404 for paths without an extension, as in `/index.html`.
    #[schemars(with = "Option<String>")]
    pub(crate) fallback: Option<Text>,
    /// Files that are sent with errors, as in `404=/404.html`.
    #[serde(default)]
    #[schemars(with = "Vec<String>")]
    pub(crate) error_page: Vec<Text>,
    /// The path beneath which the files are served, as in `/docs` [default: /]. Sites of one name
    /// differ in it.
    #[schemars(with = "Option<String>")]
    pub(crate) prefix: Option<Text>,
    /// A log of this site's own, as `access-log` is one of the others.
    #[schemars(with = "Option<PathBuf>")]
    pub(crate) access_log: Option<Spanned<PathBuf>>,
    /// The format of its lines, `combined` or `json` [default: that of `log-format`].
    #[schemars(with = "Option<String>")]
    pub(crate) log_format: Option<Text>,
    /// Requests in progress; others are answered 503.
    #[schemars(with = "Option<NonZeroU32>")]
    pub(crate) max_in_progress: Option<NonZeroU32>,
    /// Rules of this site.
    #[serde(default)]
    #[schemars(with = "Vec<RuleTable>")]
    pub(crate) rule: Vec<Spanned<RuleTable>>,
}

/// One `[[upstream]]`: the servers of an application.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct UpstreamTable {
    /// The name by which `proxy` means it.
    #[schemars(with = "String")]
    pub(crate) name: Text,
    /// As in `127.0.0.1:3000`, `app.internal:8080` (looked up for each connection) or
    /// `unix:/run/app.sock`; HTTP/1.1.
    #[schemars(with = "Vec<String>")]
    pub(crate) servers: Vec<Text>,
    /// `least`: the server with the fewest requests in progress; `two-choices`: the better of two
    /// that are drawn; `hash`: one for each client's address [default: least].
    #[schemars(with = "Option<String>")]
    pub(crate) balance: Option<Text>,
    /// Time for a connection to come about [default: 5s].
    #[schemars(with = "Option<String>")]
    pub(crate) connect_timeout: Option<Text>,
    /// Time for an answer to begin, and of silence within it [default: 60s].
    #[schemars(with = "Option<String>")]
    pub(crate) answer_timeout: Option<Text>,
    /// Time for a server to take any byte of a request [default: 60s].
    #[schemars(with = "Option<String>")]
    pub(crate) send_timeout: Option<Text>,
    /// Silence after which an upgraded connection, as of a WebSocket, ends [default: 1h].
    #[schemars(with = "Option<String>")]
    pub(crate) tunnel_timeout: Option<Text>,
    /// Idle connections that are kept for each server [default: 64].
    pub(crate) keep_alive: Option<usize>,
    /// Requests in progress at each server; others are answered 503 [default: 1024].
    pub(crate) max_connections: Option<NonZeroU32>,
    /// Failures in a row after which a server gets no requests [default: 3].
    pub(crate) max_fails: Option<NonZeroU32>,
    /// For how long; then one request is let through [default: 2s].
    #[schemars(with = "Option<String>")]
    pub(crate) fail_time: Option<Text>,
}

/// Whether text is compressed, or how.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "write true, or codings as in \"gzip,br\"")]
pub(crate) enum Compress {
    Whether(bool),
    In(String),
}

/// One `[[rule]]`: for which paths, and what. Of each setting the first rule counts that matches a
/// request and has it, and of each header the first that sets, adds or removes it.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct RuleTable {
    /// Patterns of paths: `*` is any part of a name, `**` any number of names, `?` one byte,
    /// `[ab]` one of these, `{a,b}` one of these texts. Without `path` and `regex`: all paths.
    #[schemars(with = "Option<OneOrMany>")]
    pub(crate) path: Option<Texts>,
    /// A regular expression that the path has to match somewhere; `^` and `$` hold it to all of it.
    #[schemars(with = "Option<String>")]
    pub(crate) regex: Option<Text>,
    /// Header fields of the answer, instead of what it has of these names.
    #[serde(default)]
    #[schemars(with = "BTreeMap<String, String>")]
    pub(crate) set_headers: BTreeMap<String, Text>,
    /// Header fields beside those that the answer has.
    #[serde(default)]
    #[schemars(with = "BTreeMap<String, String>")]
    pub(crate) add_headers: BTreeMap<String, Text>,
    /// Header fields that are not sent.
    #[serde(default)]
    #[schemars(with = "Vec<String>")]
    pub(crate) remove_headers: Vec<Text>,
    /// `Cache-Control` of answers with a file, whole or in part, and of those that say that it has
    /// not changed.
    #[schemars(with = "Option<String>")]
    pub(crate) cache_control: Option<Text>,
    /// Files with a hash in their name, as bundlers write them, are good for a year.
    pub(crate) immutable_hashes: Option<bool>,
    /// Which other sites' scripts may read the answers.
    #[schemars(with = "Option<CorsTable>")]
    pub(crate) cors: Option<Spanned<CorsTable>>,
    /// Where else the client should ask. `$1` and `$name` are what the regular expression took,
    /// `$path` is the whole path.
    #[schemars(with = "Option<String>")]
    pub(crate) redirect: Option<Text>,
    /// The status of the redirect [default: 302].
    #[schemars(with = "Option<u16>")]
    pub(crate) status: Option<Spanned<u16>>,
    /// Which path is served instead, without the client's knowledge.
    #[schemars(with = "Option<String>")]
    pub(crate) rewrite: Option<Text>,
    /// The upstream that requests are passed on to, by the path that `rewrite` makes of theirs.
    #[schemars(with = "Option<String>")]
    pub(crate) proxy: Option<Text>,
    /// Who may ask, by name and password.
    #[schemars(with = "Option<BasicAuthTable>")]
    pub(crate) basic_auth: Option<Spanned<BasicAuthTable>>,
    /// Only clients of these networks are answered.
    #[schemars(with = "Option<Vec<String>>")]
    pub(crate) allow: Option<Vec<Text>>,
    /// Clients of these networks are not.
    #[schemars(with = "Option<Vec<String>>")]
    pub(crate) deny: Option<Vec<Text>>,
    /// The longest body of a request, as in `64k`; longer ones are answered 413 [default: 16m].
    #[schemars(with = "Option<String>")]
    pub(crate) max_body: Option<Text>,
    /// How often one address may ask.
    #[schemars(with = "Option<RateTable>")]
    pub(crate) rate: Option<Spanned<RateTable>>,
}

/// Which other sites' scripts may read the answers (Fetch Standard, 3.3).
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct CorsTable {
    /// As in `https://app.example`, or `*` for all.
    #[schemars(with = "Vec<String>")]
    pub(crate) origins: Vec<Text>,
    /// What a preflight allows beside GET, HEAD and POST.
    #[serde(default)]
    #[schemars(with = "Vec<String>")]
    pub(crate) methods: Vec<Text>,
    /// Request header fields that a preflight allows.
    #[serde(default)]
    #[schemars(with = "Vec<String>")]
    pub(crate) headers: Vec<Text>,
    /// Response header fields that scripts may read.
    #[serde(default)]
    #[schemars(with = "Vec<String>")]
    pub(crate) expose: Vec<Text>,
    /// Scripts may send the user's cookies and passwords.
    #[serde(default)]
    pub(crate) credentials: bool,
    /// How long a preflight's answer holds.
    #[schemars(with = "Option<String>")]
    pub(crate) max_age: Option<Text>,
}

/// Who may ask, by name and password (RFC 7617).
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct BasicAuthTable {
    /// Lines of `NAME:HASH`, with bcrypt or argon2, as `htpasswd -B` writes them.
    #[schemars(with = "PathBuf")]
    pub(crate) file: Spanned<PathBuf>,
    /// What the browser tells the user.
    #[schemars(with = "Option<String>")]
    pub(crate) realm: Option<Text>,
}

/// How often one address may ask.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct RateTable {
    /// How many in each `per`.
    pub(crate) requests: u32,
    /// As in `500ms` or `1m` [default: 1s].
    #[schemars(with = "Option<String>")]
    pub(crate) per: Option<Text>,
    /// How many may come at once [default: as many as `requests`].
    pub(crate) burst: Option<u32>,
}

/// One text or an array of them.
#[derive(Clone, Debug)]
pub(crate) struct Texts(pub(crate) Vec<Text>);

#[cfg(any(test, feature = "fuzzing"))]
impl From<Vec<Text>> for Texts {
    fn from(texts: Vec<Text>) -> Self {
        Self(texts)
    }
}

impl<'de> Deserialize<'de> for Texts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let one = Spanned::<OneOrMany>::deserialize(deserializer)?;
        let span = one.span();
        Ok(Self(match one.into_inner() {
            OneOrMany::One(text) => vec![Spanned::new(span, text)],
            OneOrMany::Many(texts) => texts,
        }))
    }
}

#[derive(JsonSchema)]
#[schemars(untagged)]
enum OneOrMany {
    One(String),
    Many(#[schemars(with = "Vec<String>")] Vec<Text>),
}

impl<'de> Deserialize<'de> for OneOrMany {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;

        impl<'de> Visitor<'de> for Either {
            type Value = OneOrMany;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a string or an array of strings")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<OneOrMany, E> {
                Ok(OneOrMany::One(text.to_owned()))
            }

            fn visit_seq<A: serde::de::SeqAccess<'de>>(
                self,
                texts: A,
            ) -> Result<OneOrMany, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(texts)).map(OneOrMany::Many)
            }
        }

        deserializer.deserialize_any(Either)
    }
}

impl Tables {
    /// The keys at the top of the file that are tables.
    pub(crate) const KEYS: [&'static str; 3] = ["site", "rule", "upstream"];

    /// Returns how many rules there are.
    pub(crate) fn rules(&self) -> usize {
        let own = self.site.iter().map(|site| site.get_ref().rule.len());
        self.rule.len() + own.sum::<usize>()
    }

    /// Reads the tables of a file's text; its settings are not looked at.
    pub(crate) fn of(file: &Path, text: &str) -> Result<Self, MistakeAt> {
        let parse = || -> Result<Self, toml::de::Error> {
            let mut top = DeTable::parse(text)?;
            let settings = top.get_ref().keys();
            let settings = settings.filter(|key| !Self::KEYS.contains(&key.get_ref().as_ref()));
            for setting in settings.cloned().collect::<Vec<_>>() {
                top.get_mut().remove(&setting);
            }
            Self::deserialize(TomlDeserializer::from(top))
        };

        parse().map_err(|error| Mistake::from(error).of(file, text))
    }
}

/// Returns a path of the file as it is meant: from the file's directory.
pub(crate) fn beside(file: &Path, path: &Path) -> PathBuf {
    file.parent().unwrap_or(Path::new("")).join(path)
}

/// Returns a log as it is meant: standard output (`-`), or a path as in [`beside`].
pub(crate) fn log_beside(file: &Path, log: &Path) -> PathBuf {
    match log == Path::new("-") {
        true => log.to_owned(),
        false => beside(file, log),
    }
}
