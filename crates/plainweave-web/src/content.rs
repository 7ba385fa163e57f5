//! What is sent beside the files as they are: the flags, and what they make of the library's
//! handler.

use std::error::Error;
use std::{fmt, io};

use clap::Args;
use plainweave_http::files::{Blocking, Coding, PAGED, StaticFiles, decoded, push_encoded};
use plainweave_http::{HeaderValue, Response, StatusCode, header};

/// Those that text is compressed in unless some are named.
pub(super) const ALL_CODINGS: &str = "br,zstd,gzip";

/// Listings, compressed twins, pages for what is not there.
#[derive(Args, Debug)]
#[command(next_help_heading = "What to serve")]
pub(super) struct ContentFlags {
    /// List directories without an index.html: as a page, or as JSON (?format=json, or by Accept);
    /// the default on loopback addresses without --fallback
    #[arg(long, conflicts_with = "no_listing")]
    listing: bool,

    /// Do not list directories, behind a proxy on this machine for instance
    #[arg(long)]
    no_listing: bool,

    /// For NAME, send NAME.br, NAME.zst or NAME.gz where there is such a file and the client
    /// accepts it
    #[arg(long)]
    precompressed: bool,

    /// Compress text when it is first asked for, in one or more of br, zstd and gzip, with commas
    /// between, and keep that in the cache [default without a value: br,zstd,gzip]
    #[arg(long, value_name = "CODINGS", value_parser = codings)]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = ALL_CODINGS)]
    compress: Option<Codings>,

    /// Name of the file that stands for its directory
    #[arg(long, value_name = "NAME", default_value = "index.html", value_parser = file_name)]
    index: String,

    /// Serve NAME.html for NAME, and redirect requests for NAME.html, or for the index file, to the
    /// URL without
    #[arg(long)]
    clean_urls: bool,

    /// Instead of 404, send this file, as in /index.html, for paths without an extension, unless
    /// the client refuses text/html; for others to clients that name text/html in Accept
    #[arg(long, value_name = "PATH")]
    fallback: Option<String>,

    /// Path beneath which the files are served, as in /docs, for /docs/a.html of a.html; others are
    /// answered 404
    #[arg(long, value_name = "PATH", value_parser = prefix, default_value = "/")]
    prefix: Prefix,

    /// Send this file with errors of this status, as in 404=/404.html; may be repeated. For 400,
    /// 403, 404, 405, 406, 412, 416, 500, 501 and 503; requests that are not HTTP, panics and
    /// unknown transfer codings are answered plainly
    #[arg(long, value_name = "STATUS=PATH", value_parser = error_page)]
    error_page: Vec<(StatusCode, String)>,
}

impl ContentFlags {
    /// Returns whether directories are listed; `private`: only this machine's programs ask.
    pub(super) fn lists(&self, private: bool) -> bool {
        self.listing || (!self.no_listing && self.fallback.is_none() && private)
    }

    /// Returns what the flags say.
    pub(super) fn content(&self, private: bool) -> Content {
        Content {
            listing: self.lists(private),
            precompressed: self.precompressed,
            compress: self.compress.clone(),
            index: self.index.clone(),
            clean_urls: self.clean_urls,
            fallback: self.fallback.clone(),
            error_pages: self.error_page.clone(),
            prefix: self.prefix.clone(),
        }
    }
}

/// What is sent of a site beside its files as they are, whoever says it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Content {
    pub(super) listing: bool,
    pub(super) precompressed: bool,
    pub(super) compress: Option<Codings>,
    pub(super) index: String,
    pub(super) clean_urls: bool,
    pub(super) fallback: Option<String>,
    pub(super) error_pages: Vec<(StatusCode, String)>,
    pub(super) prefix: Prefix,
}

/// A page that cannot be sent.
#[derive(Debug)]
pub(super) enum MissingPage {
    Fallback(io::Error),
    /// The number of the error page.
    Error(usize, io::Error),
}

impl Content {
    pub(super) fn apply<B: Blocking>(
        &self,
        files: StaticFiles<B>,
    ) -> Result<StaticFiles<B>, MissingPage> {
        let mut files = files.with_index(&self.index);
        if self.listing {
            files = files.with_listings();
        }

        if self.precompressed {
            files = files.with_precompressed();
        }

        if self.clean_urls {
            files = files.with_clean_urls();
        }

        if let Some(path) = &self.fallback {
            files = files.with_fallback(path).map_err(MissingPage::Fallback)?;
        }

        for (number, (status, path)) in self.error_pages.iter().enumerate() {
            let with_page = files.with_error_page(*status, path);
            files = with_page.map_err(|error| MissingPage::Error(number, error))?;
        }

        Ok(files)
    }
}

impl fmt::Display for MissingPage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let remedy = "cannot be sent (give a file of the directory)";
        match self {
            Self::Fallback(error) => write!(f, "--fallback {remedy}: {error}"),
            Self::Error(_, error) => write!(f, "--error-page {remedy}: {error}"),
        }
    }
}

impl Error for MissingPage {}

/// A path beneath which files are served.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Prefix {
    /// Begins with a slash and does not end with one; empty: the root.
    decoded: Vec<u8>,
    encoded: String,
}

impl Prefix {
    pub(super) fn decoded(&self) -> &[u8] {
        &self.decoded
    }

    pub(super) fn encoded(&self) -> &str {
        &self.encoded
    }

    /// Returns what of a decoded path stands behind the prefix; `None`: it is another one.
    pub(super) fn inside<'p>(&self, path: &'p [u8]) -> Option<&'p [u8]> {
        let inside = path.strip_prefix(&*self.decoded)?;
        (inside.is_empty() || inside.starts_with(b"/")).then_some(inside)
    }

    /// Makes a redirect within the files one beneath the prefix.
    pub(super) fn put_before_location(&self, mut response: Response) -> Response {
        if let Some(location) = response.headers_mut().get_mut(header::LOCATION) {
            let beneath = [self.encoded.as_bytes(), location.as_bytes()].concat();
            if let Ok(beneath) = HeaderValue::from_bytes(&beneath) {
                *location = beneath;
            }
        }

        response
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.encoded.is_empty() {
            "/"
        } else {
            &self.encoded
        })
    }
}

/// Parses a prefix; a slash at its end says nothing.
pub(super) fn prefix(text: &str) -> Result<Prefix, String> {
    let wrong = || "write a path, as in /docs".to_owned();
    let path = text.strip_suffix('/').unwrap_or(text);
    let is_path = text.starts_with('/') && !text.contains(['?', '#']);
    if is_path && path.is_empty() {
        return Ok(Prefix::default());
    }

    let known = decoded(path).ok().filter(|_| is_path).ok_or_else(wrong)?;
    let mut encoded = String::new();
    push_encoded(&mut encoded, &known);
    Ok(Prefix {
        decoded: known.into_owned(),
        encoded,
    })
}

/// Content codings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Codings(pub(super) Vec<Coding>);

/// Parses names of codings, with commas between.
pub(super) fn codings(text: &str) -> Result<Codings, String> {
    let named = |name: &str| {
        let mut known = Coding::ALL.into_iter();
        let known = known.find(|coding| coding.name() == name.trim());
        known.ok_or_else(|| "write br, zstd or gzip, with commas between".to_owned())
    };

    Ok(Codings(
        text.split(',').map(named).collect::<Result<_, _>>()?,
    ))
}

/// Parses the name of a file in its directory.
pub(super) fn file_name(text: &str) -> Result<String, String> {
    match text {
        "" | "." | ".." => Err("write the name of a file, as in index.html".to_owned()),
        _ if text.contains(['/', '\0']) => Err("write a name without a slash".to_owned()),
        _ => Ok(text.to_owned()),
    }
}

pub(super) fn error_page(text: &str) -> Result<(StatusCode, String), String> {
    let (status, path) = text.split_once('=').unwrap_or_default();
    let status = status
        .parse::<StatusCode>()
        .ok()
        .filter(|s| s.is_client_error() || s.is_server_error());
    match status.filter(|_| path.starts_with('/')) {
        Some(status) if PAGED.contains(&status) => Ok((status, path.to_owned())),
        Some(status) => {
            let paged = PAGED.map(|status| status.as_str().to_owned()).join(", ");
            Err(format!(
                "no error page is ever sent with {}; give one of {paged}",
                status.as_str()
            ))
        }

        None => Err("write an error status and a path, as in 404=/404.html".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes() {
        for (text, encoded) in [
            ("/", ""),
            ("/docs", "/docs"),
            ("/docs/", "/docs"),
            ("/a//b", "/a/b"),
            ("/a b/\u{e4}", "/a%20b/%C3%A4"),
            ("/%61", "/a"),
        ] {
            assert_eq!(
                prefix(text).map(|prefix| prefix.encoded),
                Ok(encoded.to_owned())
            );
        }

        for text in [
            "",
            "docs",
            "/..",
            "/.git",
            "/a?b",
            "/%",
            "/a#b",
            "https://a/b",
        ] {
            assert!(prefix(text).is_err(), "{text}");
        }

        let docs = prefix("/docs").unwrap();
        for (path, inside) in [
            ("/docs", Some("")),
            ("/docs/", Some("/")),
            ("/docs/a", Some("/a")),
            ("/docsa", None),
            ("/", None),
        ] {
            let inside = inside.map(str::as_bytes);
            assert_eq!(docs.inside(path.as_bytes()), inside, "{path}");
        }
    }

    #[test]
    fn error_pages() {
        assert_eq!(
            error_page("404=/a=b.html"),
            Ok((StatusCode::NOT_FOUND, "/a=b.html".to_owned()))
        );

        for text in [
            "",
            "404",
            "404=",
            "404=x.html",
            "/404.html",
            "200=/a",
            "4040=/a",
            "x=/a",
        ] {
            assert!(error_page(text).is_err(), "{text}");
        }

        for status in [408, 413, 414, 417, 431, 505, 418, 599] {
            let error = error_page(&format!("{status}=/e.html")).unwrap_err();
            assert!(
                error.contains(&format!("with {status}; give one of 400, 403")),
                "{error}"
            );
        }
    }
}
