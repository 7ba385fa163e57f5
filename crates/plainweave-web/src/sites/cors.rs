//! Cross-origin resource sharing: which other sites' scripts may read answers (Fetch Standard,
//! 3.3).

use plainweave_http::{HeaderLines, HeaderName, Method, RequestHead, Response, StatusCode, header};

use crate::config::{CorsTable, Mistake};
use plainweave_daemon::flag::time_or_none;
use toml::Spanned;

/// What a rule says of other sites' scripts, as header lines.
#[derive(Debug)]
pub(super) struct Cors {
    origins: Origins,
    /// Of answers for all of the origins; what names one comes before them.
    answer: HeaderLines,
    /// Of a preflight's besides.
    preflight: HeaderLines,
}

#[derive(Debug)]
enum Origins {
    All,
    Of(Vec<String>),
}

impl Cors {
    pub(super) fn of(table: &Spanned<CorsTable>) -> Result<Self, Mistake> {
        let span = table.span();
        let table = table.get_ref();
        let origins = origins(table, span.clone())?;
        let mut answer = HeaderLines::default();
        let mut preflight = HeaderLines::default();
        let push = |lines: &mut HeaderLines, name: &str, value: &str| {
            let pushed = lines.push(name, value);
            pushed.map_err(|error| Mistake::new(span.clone(), format!("{name}: {error}")))
        };

        if table.credentials {
            push(&mut answer, "Access-Control-Allow-Credentials", "true")?;
        }

        if !table.expose.is_empty() {
            let names = names(&table.expose)?;
            push(&mut answer, "Access-Control-Expose-Headers", &names)?;
        }

        if !table.methods.is_empty() {
            let methods: Result<Vec<_>, _> = table.methods.iter().map(method).collect();
            let methods = methods?.join(", ");
            push(&mut preflight, "Access-Control-Allow-Methods", &methods)?;
        }

        if !table.headers.is_empty() {
            let names = names(&table.headers)?;
            push(&mut preflight, "Access-Control-Allow-Headers", &names)?;
        }

        if let Some(age) = &table.max_age {
            let time =
                time_or_none(age.get_ref()).map_err(|what| Mistake::new(age.span(), what))?;
            let seconds = time.as_secs().to_string();
            push(&mut preflight, "Access-Control-Max-Age", &seconds)?;
        }

        Ok(Self {
            origins,
            answer,
            preflight,
        })
    }

    /// Returns the answer to a preflight: no method of ours would see it otherwise. To an origin
    /// that may not read, too: then without the fields, by which the browser knows.
    pub(super) fn preflight(&self, head: &RequestHead<'_>) -> Option<Response> {
        head.header("access-control-request-method")
            .filter(|_| *head.method() == Method::OPTIONS && head.header("origin").is_some())?;
        let mut lines = HeaderLines::default();
        if self.mark(head, &mut lines) {
            lines.append(&self.preflight);
        }

        Some(Response::new(StatusCode::NO_CONTENT).with_added_lines(lines))
    }

    /// Adds to an answer's lines what its origin may do with it. False: nothing.
    pub(super) fn mark(&self, head: &RequestHead<'_>, lines: &mut HeaderLines) -> bool {
        const ALLOW: &str = "Access-Control-Allow-Origin";
        let origin = head.header("origin");
        let known = match &self.origins {
            Origins::All => {
                let _ = lines.push(ALLOW, "*");
                true
            }
            Origins::Of(origins) => {
                let known = origins
                    .iter()
                    .find(|known| origin.is_some_and(|origin| origin == known.as_bytes()));
                // Also without one: a cache must not give one origin what was for another.
                let _ = lines.push(header::VARY.as_str(), "Origin");
                if let Some(known) = known {
                    let _ = lines.push(ALLOW, known);
                }
                known.is_some()
            }
        };

        if known {
            lines.append(&self.answer);
        }

        known
    }
}

fn origins(table: &CorsTable, span: std::ops::Range<usize>) -> Result<Origins, Mistake> {
    let mut exact = Vec::new();
    let mut all = false;
    for origin in &table.origins {
        match origin.get_ref().as_str() {
            "*" => all = true,
            text if is_origin(text) => exact.push(text.to_owned()),
            _ => {
                let what = "write an origin as browsers do, as in https://app.example:8443 \
                            (no path, no slash at its end), or *";
                return Err(Mistake::new(origin.span(), what));
            }
        }
    }

    match (all, exact.is_empty()) {
        (true, _) if table.credentials => Err(Mistake::new(
            span,
            "with credentials = true, name the origins: browsers refuse * then",
        )),
        (true, true) => Ok(Origins::All),
        (true, false) => Err(Mistake::new(span, "* is all origins; leave the others out")),
        (false, true) => Err(Mistake::new(span, "origins has none")),
        (false, false) => Ok(Origins::Of(exact)),
    }
}

fn is_origin(text: &str) -> bool {
    let Some((scheme, host)) = text.split_once("://") else {
        return text == "null";
    };

    let plain = |byte: u8| byte.is_ascii_graphic() && !b"/?#@*\"\\".contains(&byte);
    !scheme.is_empty()
        && !host.is_empty()
        && scheme.bytes().all(|byte| byte.is_ascii_lowercase())
        && host.bytes().all(plain)
        && !host.bytes().any(|byte| byte.is_ascii_uppercase())
}

fn names(texts: &[Spanned<String>]) -> Result<String, Mistake> {
    let mut names = Vec::new();
    for text in texts {
        let name = text.get_ref();
        if name != "*" && HeaderName::from_bytes(name.as_bytes()).is_err() {
            return Err(Mistake::new(text.span(), "not the name of a header field"));
        }

        names.push(name.as_str());
    }

    Ok(names.join(", "))
}

fn method(text: &Spanned<String>) -> Result<&str, Mistake> {
    let method = text.get_ref().as_str();
    match Method::from_bytes(method.as_bytes()) {
        Ok(_) => Ok(method),
        Err(_) => Err(Mistake::new(text.span(), "not a method, as in PUT")),
    }
}
