//! Following a redirect (RFC 9110, 15.4): the request that comes next, on the same server.

use http::Uri;

use super::target::{self, Target, origin};

/// Returns whether an answer of this status leads to another URL by its `Location`.
pub(super) fn is_redirect(status: u16) -> bool {
    matches!(status, 301 | 302 | 303 | 307 | 308)
}

/// Returns the request that a redirect asks for in place of `request`, and whether its answer has
/// no body; `None` where it leads to another server, or nowhere.
pub(super) fn follow(
    request: &[u8],
    status: u16,
    location: &str,
    server: &Target,
) -> Option<(Vec<u8>, bool)> {
    let head_len = request.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
    let (head, body) = request.split_at(head_len);
    let (first, fields) = str::from_utf8(head).ok()?.split_once("\r\n")?;
    let mut words = first.split(' ');
    let method = words.next()?;
    let path = words.next()?;

    let path = path_of(location, path, server)?;
    // As browsers do: what was posted has arrived.
    let becomes_get = match status {
        303 => method != "HEAD",
        301 | 302 => method == "POST",
        _ => false,
    };

    if !becomes_get {
        let head = format!("{method} {path} HTTP/1.1\r\n{fields}");
        return Some(([head.as_bytes(), body].concat(), method == "HEAD"));
    }

    let of_body = |line: &&str| {
        let name = line.split(':').next().unwrap_or_default();
        ["content-length", "content-type"]
            .iter()
            .any(|own| name.eq_ignore_ascii_case(own))
    };

    let fields: String = fields
        .split_inclusive("\r\n")
        .filter(|line| !of_body(line))
        .collect();
    Some((
        format!("GET {path} HTTP/1.1\r\n{fields}").into_bytes(),
        false,
    ))
}

/// Resolves `location`, found in the answer to a request for `base`, to a path on the same server.
fn path_of(location: &str, base: &str, server: &Target) -> Option<String> {
    let location = location.split('#').next().unwrap_or_default();
    let base_path = base.split('?').next().unwrap_or_default();
    let resolved = if location.contains("://") {
        let uri: Uri = location.parse().ok()?;
        let (host, port, secure) = origin(&uri)?;
        let is_same = secure == server.secure
            && port == server.port
            && host.eq_ignore_ascii_case(&server.host);
        return is_same.then(|| target::path_of(&uri).to_owned());
    } else if location.starts_with("//") {
        return path_of(
            &format!(
                "{}:{location}",
                if server.secure { "https" } else { "http" }
            ),
            base,
            server,
        );
    } else if location.starts_with('/') {
        location.to_owned()
    } else if location.is_empty() || location.starts_with('?') {
        format!("{base_path}{location}")
    } else {
        let folder = &base_path[..=base_path.rfind('/')?];
        format!("{folder}{location}")
    };

    // A server may send what is no path, with blanks in it, say.
    resolved.parse::<Uri>().ok()?;
    Some(without_dots(&resolved))
}

/// Removes the segments `.` and `..` (RFC 3986, 5.2.4).
fn without_dots(path: &str) -> String {
    let (path, query) = path.split_at(path.find('?').unwrap_or(path.len()));
    let mut kept: Vec<&str> = Vec::new();

    let mut segments = path.split('/').skip(1).peekable();
    while let Some(segment) = segments.next() {
        let is_last = segments.peek().is_none();
        match segment {
            "." | ".." => {
                if segment == ".." {
                    kept.pop();
                }
                if is_last {
                    kept.push("");
                }
            }
            _ => kept.push(segment),
        }
    }

    format!("/{}{query}", kept.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::Via;

    fn server() -> Target {
        Target {
            name: "http://h:81".to_owned(),
            host: "h".to_owned(),
            port: 81,
            secure: false,
            via: Via::Itself,
        }
    }

    #[test]
    fn locations_are_resolved() {
        for (location, path) in [
            ("/b", Some("/b")),
            ("b", Some("/x/b")),
            ("../b?c=d", Some("/b?c=d")),
            ("../../b/.", Some("/b/")),
            ("?c", Some("/x/a?c")),
            ("#part", Some("/x/a")),
            ("http://h:81/b#part", Some("/b")),
            ("http://H:81", Some("/")),
            ("//h:81/b", Some("/b")),
            ("http://h/b", None),
            ("https://h:81/b", None),
            ("http://other:81/b", None),
            ("/b c", None),
        ] {
            assert_eq!(
                path_of(location, "/x/a?q", &server()).as_deref(),
                path,
                "{location}"
            );
        }
    }

    #[test]
    fn methods_change_as_in_browsers() {
        let post = "POST /a HTTP/1.1\r\nHost: h:81\r\nContent-Type: t\r\nX: 1\r\nContent-Length: 2\r\n\r\nhi";
        let get = "GET /b HTTP/1.1\r\nHost: h:81\r\nX: 1\r\n\r\n";
        let next = |request: &str, status| {
            let (bytes, no_body) = follow(request.as_bytes(), status, "/b", &server()).unwrap();
            (String::from_utf8(bytes).unwrap(), no_body)
        };

        for status in [301, 302, 303] {
            assert_eq!(next(post, status), (get.to_owned(), false));
        }
        for status in [307, 308] {
            assert_eq!(next(post, status), (post.replace("/a", "/b"), false));
        }
        let head = get.replace("GET /b", "HEAD /a");
        assert_eq!(next(&head, 303), (head.replace("/a", "/b"), true));
    }
}
