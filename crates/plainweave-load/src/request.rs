//! HTTP requests as bytes, by server.

use std::collections::HashMap;

use anyhow::{Context, bail, ensure};
use http::{HeaderName, HeaderValue, Method, Uri};

use super::data::Row;
use super::files::Files;
use super::flags::HttpFlags;
use super::session_log::Visit;
use super::target::{Target, Via, origin, path_of};

/// One request, whole.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) bytes: Box<[u8]>,
    /// Its answer has no body, whatever the head says.
    pub(super) no_body: bool,
}

/// Writes requests, and notes which servers they go to.
pub(super) struct Writer {
    method: Method,
    /// Lines, each with its end.
    fields: String,
    /// The fields name a host.
    has_host: bool,
    body: Option<Vec<u8>>,
    /// By authority, in the order in which they came.
    servers: Vec<(String, Target)>,
    /// Of sessions: path and method, and their number.
    visits: HashMap<(String, Method), usize>,
    /// The same, in order.
    order: Vec<(String, Method)>,
    /// The first method that is none.
    wrong: Option<String>,
}

impl Writer {
    /// Reads what all requests have in common.
    pub(super) fn new(flags: &HttpFlags, files: &Files) -> anyhow::Result<Self> {
        let mut given: Vec<(String, String)> = Vec::new();
        for path in &flags.header_files {
            let text = files.text(path)?;
            let lines = text
                .lines()
                .enumerate()
                .filter(|(_, line)| !line.trim().is_empty() && !line.starts_with('#'));
            given.extend(
                lines.map(|(n, line)| (line.to_owned(), format!("{}:{}", path.display(), n + 1))),
            );
        }

        given.extend(
            flags
                .headers
                .iter()
                .map(|field| (field.clone(), "--header".to_owned())),
        );
        let body = match (&flags.body, &flags.body_file) {
            (Some(text), _) => Some(text.clone().into_bytes()),
            (None, Some(path)) => Some(files.read(path)?),
            (None, None) => None,
        };

        // As curl does.
        let usual = if body.is_some() { "POST" } else { "GET" };
        let mut fields = String::new();
        for (field, place) in &given {
            fields += &line(field, place)?;
        }
        if flags.no_keep_alive {
            fields += "Connection: close\r\n";
        }

        Ok(Self {
            method: method(flags.method.as_deref().unwrap_or(usual))?,
            has_host: fields
                .lines()
                .any(|line| line.to_ascii_lowercase().starts_with("host:")),
            fields,
            body,
            servers: Vec::new(),
            visits: HashMap::new(),
            order: Vec::new(),
            wrong: None,
        })
    }

    /// Returns the number of a URL's server.
    fn server(&mut self, uri: &Uri) -> anyhow::Result<usize> {
        let authority = uri.authority().with_context(|| format!("{uri}: no host"))?;
        let (host, port, secure) = origin(uri).with_context(|| format!("{uri}: no host"))?;
        // By what is connected to, not by how it is written: two spellings of a host share its
        // connections.
        let is_it =
            |target: &Target| target.host == host && target.port == port && target.secure == secure;
        let known = self.servers.iter().position(|(_, target)| is_it(target));

        Ok(known.unwrap_or_else(|| {
            let target = Target {
                name: format!("{}://{authority}", uri.scheme_str().unwrap_or("http")),
                host: host.to_owned(),
                port,
                secure,
                via: Via::Itself,
            };

            self.servers.push((authority.to_string(), target));
            self.servers.len() - 1
        }))
    }

    /// Writes a request for each URL, by server.
    pub(super) fn urls(&mut self, urls: &[String]) -> anyhow::Result<Vec<Vec<Request>>> {
        ensure!(!urls.is_empty(), "no URL to ask for");
        let mut requests: Vec<Vec<Request>> = Vec::new();
        for url in urls {
            let uri = parse(url)?;
            let server = self.server(&uri)?;
            // A server that has just been met has none yet.
            requests.resize_with(self.servers.len(), Vec::new);
            requests[server].push(self.request(server, &self.method, path_of(&uri)));
        }

        Ok(requests)
    }

    /// Writes the requests of a file's lines, by server. A line's URL may be a path on the server
    /// of the one URL that is given, and without one that is asked for.
    pub(super) fn rows(
        &mut self,
        urls: &[String],
        rows: &[Row],
    ) -> anyhow::Result<Vec<Vec<Request>>> {
        ensure!(
            urls.len() <= 1,
            "with --data one URL at most is given: the lines name the others"
        );
        let base = urls.first().map(|url| parse(url)).transpose()?;
        let mut requests: Vec<Vec<Request>> = Vec::new();
        for row in rows {
            let place = &row.place;
            let (server, path) = self.place_of(base.as_ref(), row).context(place.clone())?;
            requests.resize_with(self.servers.len(), Vec::new);

            let method = match (&row.method, &row.body) {
                (Some(name), _) => method(name).context(place.clone())?,
                // A line with a body was not meant as a GET.
                (None, Some(_)) if self.method == Method::GET => Method::POST,
                _ => self.method.clone(),
            };

            let fields: Vec<_> = row
                .fields
                .iter()
                .map(|(name, value)| line(&format!("{name}: {value}"), place))
                .collect::<anyhow::Result<_>>()?;
            let own = row.body.as_deref().map(str::as_bytes);
            let body = own.or_else(|| self.usual_body(&method));
            requests[server].push(self.write(server, &method, &path, &fields, body));
        }
        Ok(requests)
    }

    /// Returns the number of a line's server, and the path there.
    fn place_of(&mut self, base: Option<&Uri>, row: &Row) -> anyhow::Result<(usize, String)> {
        let at_base = "a URL must be given on the command line for lines without a whole one";
        match row.url.as_deref() {
            Some(path) if path.starts_with('/') => {
                // Its own check: a path with a blank would end the request's first line.
                let path: Uri = path.parse().with_context(|| format!("'{path}'"))?;
                Ok((
                    self.server(base.context(at_base)?)?,
                    path_of(&path).to_owned(),
                ))
            }
            Some(url) => {
                let uri = parse(url)?;
                Ok((self.server(&uri)?, path_of(&uri).to_owned()))
            }
            None => {
                let base = base.context(at_base)?;
                Ok((self.server(base)?, path_of(base).to_owned()))
            }
        }
    }

    /// Notes the servers that sessions are replayed to.
    pub(super) fn servers(&mut self, urls: &[String]) -> anyhow::Result<()> {
        ensure!(!urls.is_empty(), "no URL to ask for");
        for url in urls {
            let uri = parse(url)?;
            let bare = uri.path_and_query().is_none_or(|path| path.as_str() == "/");
            ensure!(
                bare,
                "{url}: with --sessions a URL names a server, and the logs name the paths"
            );
            self.server(&uri)?;
        }
        Ok(())
    }

    /// Returns the number of a visit's request.
    pub(super) fn number(&mut self, visit: &Visit) -> usize {
        let method = visit
            .method
            .as_deref()
            .map_or(Ok(self.method.clone()), method);
        // Reported once all is read; until then any method will do.
        let method = method.unwrap_or_else(|error| {
            self.wrong.get_or_insert_with(|| error.to_string());
            Method::GET
        });

        let key = (visit.path.clone(), method);
        *self.visits.entry(key.clone()).or_insert_with(|| {
            self.order.push(key);
            self.order.len() - 1
        })
    }

    /// Writes the requests of sessions, by server.
    pub(super) fn visits(&self) -> anyhow::Result<Vec<Vec<Request>>> {
        if let Some(wrong) = &self.wrong {
            bail!("in a session log: {wrong}");
        }
        let all = |server| {
            self.order
                .iter()
                .map(move |(path, method)| self.request(server, method, path))
                .collect()
        };
        Ok((0..self.servers.len()).map(all).collect())
    }

    fn request(&self, server: usize, method: &Method, path: &str) -> Request {
        self.write(server, method, path, &[], self.usual_body(method))
    }

    /// Returns the body that requests have: GET and the like have none, if others have one.
    fn usual_body(&self, method: &Method) -> Option<&[u8]> {
        let body = self.body.as_deref();
        body.filter(|_| *method == self.method || !method.is_safe())
    }

    /// Writes a request with lines of its own, each of which stands for all of that name that
    /// requests have in common.
    fn write(
        &self,
        server: usize,
        method: &Method,
        path: &str,
        own: &[String],
        body: Option<&[u8]>,
    ) -> Request {
        let is_own = |line: &str| {
            own.iter()
                .any(|own| name_of(own).eq_ignore_ascii_case(name_of(line)))
        };

        let common = self
            .fields
            .split_inclusive('\n')
            .filter(|line| !is_own(line));
        let fields: String = common.chain(own.iter().map(String::as_str)).collect();
        let host = if self.has_host || is_own("Host:") {
            String::new()
        } else {
            format!("Host: {}\r\n", self.servers[server].0)
        };

        let length = body
            .map(|body| format!("Content-Length: {}\r\n", body.len()))
            .unwrap_or_default();
        let head = format!("{method} {path} HTTP/1.1\r\n{host}{fields}{length}\r\n");
        let bytes = [head.as_bytes(), body.unwrap_or_default()]
            .concat()
            .into_boxed_slice();
        Request {
            bytes,
            no_body: method == Method::HEAD,
        }
    }

    pub(super) fn into_targets(self) -> Vec<Target> {
        self.servers.into_iter().map(|(_, target)| target).collect()
    }
}

/// Returns the name of a field's line.
fn name_of(line: &str) -> &str {
    line.split(':').next().unwrap_or_default()
}

fn method(name: &str) -> anyhow::Result<Method> {
    let method = name
        .parse::<Method>()
        .ok()
        .filter(|method| *method != Method::CONNECT);
    method
        .with_context(|| format!("'{name}' is no method that can be asked for, as GET or POST can"))
}

fn parse(url: &str) -> anyhow::Result<Uri> {
    let remedy = if url.ends_with(".json") {
        "; a file for JSON is given as --json=FILE"
    } else {
        ""
    };

    let wrong = || format!("{url} is not a URL; write http://HOST[:PORT]/PATH or https://{remedy}");
    let uri: Uri = url.parse().with_context(wrong)?;
    match uri.scheme_str() {
        Some("http" | "https") => Ok(uri),
        _ => bail!(wrong()),
    }
}

/// Checks a header field, and writes its line.
fn line(field: &str, place: &str) -> anyhow::Result<String> {
    let (name, value) = field
        .split_once(':')
        .with_context(|| format!("{place} '{field}': write NAME: VALUE"))?;
    let valid = name.parse::<HeaderName>().is_ok() && HeaderValue::from_str(value.trim()).is_ok();
    ensure!(valid, "{place} '{field}' is no valid header field");
    let own = ["content-length", "transfer-encoding", "connection"];
    let own = own.contains(&name.to_ascii_lowercase().as_str());

    ensure!(!own, "{place} '{field}': this program sets {name} itself");
    Ok(format!("{name}: {}\r\n", value.trim()))
}
