//! One site: its files and its rules.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use plainweave_daemon::architecture::Handling;
use plainweave_http::files::{Caching, Coding, Passed, ServedRoot, StaticFiles, decoded};
use plainweave_http::{Request, Response, StatusCode};

use super::rule::Rule;
use super::rules::Rules;
use crate::content::Content;
use crate::https::Https;
use crate::pool::Pool;

/// The files of a site.
pub(crate) type Files = StaticFiles<Pool>;

/// Files, and what is made of requests for them.
pub(crate) struct Site {
    files: Arc<Files>,
    origin: Origin,
    rules: Rules,
}

/// What a site's files were made of. Those of the same need not be made again.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Origin {
    pub(crate) root: PathBuf,
    pub(crate) content: Content,
    pub(crate) caching: Caching,
}

impl Site {
    /// Makes a site of files and of rules in this order.
    pub(crate) fn new(
        files: Arc<Files>,
        origin: Origin,
        rules: Vec<Arc<Rule>>,
    ) -> anyhow::Result<Self> {
        Ok(Self {
            files,
            origin,
            rules: Rules::new(rules)?,
        })
    }

    pub(crate) fn files(&self) -> &Arc<Files> {
        &self.files
    }

    pub(super) fn origin(&self) -> &Origin {
        &self.origin
    }

    pub(super) fn root(&self) -> &Arc<ServedRoot> {
        self.files.root()
    }

    /// Answers a request.
    pub(crate) fn answer(
        &self,
        request: &Request<'_>,
        handling: &Handling,
        https: &Https,
    ) -> Response {
        let head = request.head();
        if self.rules.is_empty() {
            let response = available(handling.call(|| self.files.respond(head)));
            return https.marked(request, response);
        }

        // One that does not decode gets the files' own refusal, and what rules for all paths say.
        let path = decoded(head.path()).ok();
        let path = path.as_deref();
        let others = |path: &[u8]| self.others(path);
        let treatment = self.rules.treatment(path, others);
        let mut passed = Passed {
            inside: false,
            untransformed: treatment.untransformed,
        };

        let response = match treatment.instead(request, path) {
            Some(response) if response.status() == StatusCode::FORBIDDEN => {
                available(handling.call(|| self.files.with_page(response, head)))
            }
            Some(response) => response,
            None => match (&treatment.rewrite, path) {
                (Some(rewrite), Some(path)) => {
                    passed.inside = true;
                    let place = rewrite.place(path, head.query());
                    let inside = head.at(&place);
                    available(handling.call(|| self.files.respond_passed(&inside, passed)))
                }
                _ => available(handling.call(|| self.files.respond_passed(head, passed))),
            },
        };

        let response = https.marked(request, response);
        treatment.finish(response, head, path.unwrap_or_default())
    }

    /// Returns the paths by which the same file could be asked for, too: the index file of a
    /// directory, the page of a clean URL, the file of a compressed twin.
    fn others(&self, path: &[u8]) -> Vec<Vec<u8>> {
        let content = &self.origin.content;
        let mut others = Vec::new();
        if path.ends_with(b"/") {
            others.push([path, content.index.as_bytes()].concat());
        } else if content.clean_urls {
            others.push([path, b".html"].concat());
        }

        if content.precompressed {
            let suffixes = Coding::ALL.iter().map(|coding| coding.suffix());
            let mut files = suffixes.filter_map(|suffix| path.strip_suffix(suffix.as_bytes()));
            others.extend(files.next().map(<[u8]>::to_vec));
        }

        others
    }
}

/// What there is no worker for is not available.
fn available(response: io::Result<Response>) -> Response {
    response.unwrap_or_else(|_| Response::plain(StatusCode::SERVICE_UNAVAILABLE))
}

impl fmt::Debug for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Site")
            .field("origin", &self.origin)
            .finish_non_exhaustive()
    }
}
