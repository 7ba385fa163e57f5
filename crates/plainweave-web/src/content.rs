//! What is sent beside the files as they are: the flags, and what they make of the library's
//! handler.

use anyhow::Context;
use clap::Args;
use plainweave_http::StatusCode;
use plainweave_http::files::{Blocking, PAGED, StaticFiles};

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

    /// Instead of 404, send this file, as in /index.html, for paths without an extension, unless
    /// the client refuses text/html; for others to clients that name text/html in Accept
    #[arg(long, value_name = "PATH")]
    fallback: Option<String>,

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

    /// Fails when a page is not there.
    pub(super) fn apply<B: Blocking>(
        &self,
        mut files: StaticFiles<B>,
        private: bool,
    ) -> anyhow::Result<StaticFiles<B>> {
        if self.lists(private) {
            files = files.with_listings();
        }
        if self.precompressed {
            files = files.with_precompressed();
        }
        if let Some(path) = &self.fallback {
            files = files
                .with_fallback(path)
                .context("--fallback cannot be sent (give a file of the directory)")?;
        }

        for (status, path) in &self.error_page {
            let remedy = "--error-page cannot be sent (give a file of the directory)";
            files = files.with_error_page(*status, path).context(remedy)?;
        }

        Ok(files)
    }
}

fn error_page(text: &str) -> Result<(StatusCode, String), String> {
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
