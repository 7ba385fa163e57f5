//! The tables of the file: sites and their rules, as written. What they mean is found out by
//! `sites`, which says where they are wrong by the spans that are kept here.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::{Deserializer, Visitor, value::SeqAccessDeserializer, value::StrDeserializer};
use toml::Spanned;
use toml::de::{DeTable, Deserializer as TomlDeserializer};

use super::mistake::{Mistake, MistakeAt};

/// A text of the file, and where it stands.
pub(crate) type Text = Spanned<String>;

/// What of the file is no setting.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct Tables {
    /// Sites by their names. What none of them is named for is the flags' site.
    #[serde(default)]
    pub(crate) site: Vec<Spanned<SiteTable>>,
    /// Rules of all sites, behind each site's own.
    #[serde(default)]
    pub(crate) rule: Vec<Spanned<RuleTable>>,
}

/// One `[[site]]`.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct SiteTable {
    /// The hosts that it answers for: `example.org`, `*.example.org` for all below it, or `*` for
    /// all that no other site has.
    pub(crate) names: Vec<Text>,
    /// The directory whose files are served.
    pub(crate) root: Spanned<PathBuf>,
    /// The name of the file that stands for its directory [default: index.html].
    pub(crate) index: Option<Text>,
    #[serde(default)]
    pub(crate) listing: bool,
    #[serde(default)]
    pub(crate) precompressed: bool,
    /// In which codings text is compressed, as in `"gzip,br"`; `true`: in all.
    pub(crate) compress: Option<Spanned<Compress>>,
    #[serde(default)]
    pub(crate) clean_urls: bool,
    pub(crate) fallback: Option<Text>,
    #[serde(default)]
    pub(crate) error_page: Vec<Text>,
    #[serde(default)]
    pub(crate) rule: Vec<Spanned<RuleTable>>,
}

/// Whether text is compressed, or how.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(untagged, expecting = "write true, or codings as in \"gzip,br\"")]
pub(crate) enum Compress {
    Whether(bool),
    In(String),
}

/// One `[[rule]]`: for which paths, and what. Of each setting the first rule counts that matches a
/// request and has it, and of each header the first that sets, adds or removes it.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct RuleTable {
    /// Patterns of paths: `*` is any part of a name, `**` any number of names, `?` one byte,
    /// `[ab]` one of these, `{a,b}` one of these texts. Without `path` and `regex`: all paths.
    pub(crate) path: Option<Texts>,
    /// A regular expression that the path has to match somewhere; `^` and `$` hold it to all of it.
    pub(crate) regex: Option<Text>,
    /// Header fields of the answer, instead of what it has of these names.
    #[serde(default)]
    pub(crate) set_headers: BTreeMap<String, Text>,
    /// Header fields beside those that the answer has.
    #[serde(default)]
    pub(crate) add_headers: BTreeMap<String, Text>,
    #[serde(default)]
    pub(crate) remove_headers: Vec<Text>,
    /// `Cache-Control` of answers with a file, whole or in part, and of those that say that it has
    /// not changed.
    pub(crate) cache_control: Option<Text>,
    /// Files with a hash in their name, as bundlers write them, are good for a year.
    pub(crate) immutable_hashes: Option<bool>,
    pub(crate) cors: Option<Spanned<CorsTable>>,
    /// Where else the client should ask. `$1` and `$name` are what the regular expression took,
    /// `$path` is the whole path.
    pub(crate) redirect: Option<Text>,
    /// The status of the redirect [default: 302].
    pub(crate) status: Option<Spanned<u16>>,
    /// Which path is served instead, without the client's knowledge.
    pub(crate) rewrite: Option<Text>,
    pub(crate) basic_auth: Option<Spanned<BasicAuthTable>>,
    /// Only clients of these networks are answered.
    pub(crate) allow: Option<Vec<Text>>,
    /// Clients of these networks are not.
    pub(crate) deny: Option<Vec<Text>>,
    pub(crate) rate: Option<Spanned<RateTable>>,
}

/// Which other sites' scripts may read the answers (Fetch Standard, 3.3).
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct CorsTable {
    /// As in `https://app.example`, or `*` for all.
    pub(crate) origins: Vec<Text>,
    /// What a preflight allows beside GET, HEAD and POST.
    #[serde(default)]
    pub(crate) methods: Vec<Text>,
    /// Request header fields that a preflight allows.
    #[serde(default)]
    pub(crate) headers: Vec<Text>,
    /// Response header fields that scripts may read.
    #[serde(default)]
    pub(crate) expose: Vec<Text>,
    /// Scripts may send the user's cookies and passwords.
    #[serde(default)]
    pub(crate) credentials: bool,
    /// How long a preflight's answer holds.
    pub(crate) max_age: Option<Text>,
}

/// Who may ask, by name and password (RFC 7617).
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct BasicAuthTable {
    /// Lines of `NAME:HASH`, with bcrypt or argon2, as `htpasswd -B` writes them.
    pub(crate) file: Spanned<PathBuf>,
    /// What the browser tells the user.
    pub(crate) realm: Option<Text>,
}

/// How often one address may ask.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct RateTable {
    pub(crate) requests: u32,
    /// [default: 1s]
    pub(crate) per: Option<Text>,
    /// How many more may come at once [default: as many as `requests`].
    pub(crate) burst: Option<u32>,
}

/// One text or an array of them.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Texts(pub(crate) Vec<Text>);

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

enum OneOrMany {
    One(String),
    Many(Vec<Text>),
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
                String::deserialize(StrDeserializer::new(text)).map(OneOrMany::One)
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
    pub(crate) const KEYS: [&'static str; 2] = ["site", "rule"];

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
