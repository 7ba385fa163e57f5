//! Sites and rules beside nginx and Caddy, which are configured alike: the same requests, and where
//! the answers differ, why.

use crate::common::scratch::Scratch;
use crate::common::skip;
use crate::differential::peers::{self, Answer, Peer};

/// The fields that are compared.
const FIELDS: [&str; 10] = [
    "content-encoding",
    "vary",
    "allow",
    "location",
    "cache-control",
    "x-a",
    "x-b",
    "www-authenticate",
    "content-type",
    "content-length",
];

/// `eve:geheim`, by bcrypt with 16 rounds.
const USERS: &str = "eve:$2b$04$abcdefghijklmnopqrstuuPWRtT5yx7FBi4dcf6ROhboeNunUrLQ.\n";
const EVE: &str = "Authorization: Basic ZXZlOmdlaGVpbQ==\r\n";
const WRONG: &str = "Authorization: Basic ZXZlOnNlc2Ft\r\n";

const OURS: &str = r#"
[[site]]
names = ["a.example", "*.a.example"]
root = "www"
error-page = ["404=/lost.html", "403=/lost.html"]

[[site.rule]]
path = "/assets/**"
cache-control = "max-age=60"
set-headers = { X-B = "assets" }

[[site.rule]]
path = "/private/**"
basic-auth = { file = "users", realm = "Staff" }

[[site.rule]]
path = "/closed/**"
deny = ["127.0.0.1"]

[[site.rule]]
path = "/inside/**"
allow = ["10.0.0.0/8"]

[[site.rule]]
path = "/old/**"
redirect = "/new$path"
status = 301

[[site.rule]]
regex = "^/y([0-9]+)/(.*)$"
redirect = "https://a.example/$1?to=$2"

[[site.rule]]
path = "/app/**"
rewrite = "/index.html"

[[site]]
names = ["b.example"]
root = "other"
index = "start.html"

[[site]]
names = ["c.example"]
root = "www"
clean-urls = true
compress = "gzip"

[[site.rule]]
path = "/small/**"
max-body = "10"

[[site]]
names = ["c.example"]
root = "other"
index = "start.html"
prefix = "/docs"

[[site]]
names = ["*"]
root = "www"

[[rule]]
set-headers = { X-A = "1" }
"#;

/// The same. Where a location adds a field, nginx forgets those around it.
const THEIRS: &str = r#"
server {
    listen ADDRESS default_server; server_name _; root ROOT/www; include /etc/nginx/mime.types;
    charset utf-8; add_header X-A 1 always;
}
server {
    listen ADDRESS; server_name a.example *.a.example; root ROOT/www; absolute_redirect off;
    include /etc/nginx/mime.types; charset utf-8;
    error_page 404 403 /lost.html; add_header X-A 1 always;
    location /assets/ {
        add_header Cache-Control max-age=60; add_header X-B assets always; add_header X-A 1 always;
    }
    location /private/ { auth_basic Staff; auth_basic_user_file ROOT/users; }
    location /closed/ { deny 127.0.0.1; }
    location /inside/ { allow 10.0.0.0/8; deny all; }
    location /old/ { return 301 /new$uri$is_args$args; }
    location ~ ^/y([0-9]+)/(.*)$ { return 302 https://a.example/$1?to=$2; }
    location /app/ { rewrite ^ /index.html break; }
}
server {
    listen ADDRESS; server_name b.example; root ROOT/other; index start.html;
    include /etc/nginx/mime.types; charset utf-8; add_header X-A 1 always;
}
server {
    listen ADDRESS; server_name c.example; root ROOT/www; absolute_redirect off;
    include /etc/nginx/mime.types; charset utf-8; add_header X-A 1 always;
    gzip on; gzip_vary on; gzip_min_length 1024; gzip_types text/plain;
    location / { try_files $uri $uri/ $uri.html =404; }
    location /docs/ { alias ROOT/other/; index start.html; }
    location /small/ { client_max_body_size 10; }
}
"#;

/// The same for Caddy, whose `*` in a name is one label.
const CADDY: &str = r#"
{
    admin off
    auto_https off
    storage file_system ROOT/caddy
    log {
        output file ROOT/caddy.log
    }
}
http://b.example:PORT {
    bind 127.0.0.1
    root * ROOT/other
    header X-A 1
    file_server {
        index start.html
    }
}
http://a.example:PORT, http://*.a.example:PORT, http://*.*.a.example:PORT {
    bind 127.0.0.1
    root * ROOT/www
    header X-A 1
    header /assets/* Cache-Control max-age=60
    header /assets/* X-B assets
    basicauth /private/* bcrypt Staff {
        eve JDJiJDA0JGFiY2RlZmdoaWprbG1ub3BxcnN0dXVQV1J0VDV5eDdGQmk0ZGNmNlJPaGJvZU51blVyTFEu
    }
    @closed {
        path /closed/*
        remote_ip 127.0.0.1
    }
    error @closed 403
    @inside {
        path /inside/*
        not remote_ip 10.0.0.0/8
    }
    error @inside 403
    redir /old/* /new{uri} 301
    @year path_regexp year ^/y([0-9]+)/(.*)$
    redir @year https://a.example/{re.year.1}?to={re.year.2}
    rewrite /app/* /index.html
    handle_errors {
        @paged expression {err.status_code} in [403, 404]
        rewrite @paged /lost.html
        file_server @paged
    }
    file_server
}
http://c.example:PORT {
    bind 127.0.0.1
    root * ROOT/www
    header X-A 1
    encode gzip {
        minimum_length 1024
    }
    redir /docs /docs/ 301
    handle_path /docs/* {
        root * ROOT/other
        file_server {
            index start.html
        }
    }
    request_body /small/* {
        max_size 10
    }
    try_files {path} {path}/ {path}.html
    file_server
}
http://:PORT {
    bind 127.0.0.1
    root * ROOT/www
    header X-A 1
    file_server
}
"#;

/// A request, and the fields of which nginx, and Caddy, answer otherwise.
struct Case {
    request: &'static str,
    host: &'static str,
    fields: &'static str,
    nginx: &'static [&'static str],
    caddy: &'static [&'static str],
}

const fn case(request: &'static str, host: &'static str) -> Case {
    Case {
        request,
        host,
        fields: "",
        nginx: &[],
        caddy: &[],
    }
}

const fn with(fields: &'static str, case: Case) -> Case {
    Case { fields, ..case }
}

/// Error pages of nginx's own are HTML, Caddy's are empty, ours are a line of text.
const PLAIN: &[&str] = &["content-type", "content-length"];
/// A challenge of ours tells that names and passwords are UTF-8 (RFC 7617, 2.1).
const CHALLENGE: &[&str] = &["www-authenticate", "content-type", "content-length"];

/// With nginx an error page has the fields of its own path.
const ERROR_PAGE: &[&str] = &["x-b"];

/// With Caddy errors have the fields of files, too: one that comes to exist is not seen at once.
const CACHED: &[&str] = &["cache-control"];
/// A folder without an index file is none there.
const FOLDER: &[&str] = &[
    "status",
    "location",
    "x-b",
    "content-type",
    "content-length",
];
/// Ours takes `/assets/**` to be for the folder itself, too.
const ITSELF: &[&str] = &["x-b", "content-type", "content-length"];

/// nginx looks for a file of that name where a location ends with a slash.
const NO_PREFIX: &[&str] = &["status", "location", "content-type", "content-length"];
/// Caddy's redirect is a 308.
const PERMANENT: &[&str] = &["status", "content-type", "content-length"];
const GZIP: &str = "Accept-Encoding: gzip\r\n";
const GZIP_RANGE: &str = "Accept-Encoding: gzip\r\nRange: bytes=2-5\r\n";
/// nginx compresses for each answer, and so in chunks.
const CODED: &[&str] = &["content-length"];
/// Caddy compresses to another size; where it does not it says nothing of codings.
const UNVARIED: &[&str] = &["vary"];
/// Where nginx compresses there are no ranges.
const UNRANGED: &[&str] = &["status", "content-encoding", "content-length"];
const ELEVEN: &str = "Content-Length: 11\r\n\r\n01234567890";
/// Caddy looks for the file before the body.
const UNREAD: &[&str] = &["status", "content-type", "content-length"];
/// Both look for the file before the method.
const NO_FILE: &[&str] = &["status", "allow", "content-type", "content-length"];

const fn both(differs: &'static [&'static str], case: Case) -> Case {
    nginx(differs, caddy(differs, case))
}

const fn nginx(nginx: &'static [&'static str], case: Case) -> Case {
    Case { nginx, ..case }
}

const fn caddy(caddy: &'static [&'static str], case: Case) -> Case {
    Case { caddy, ..case }
}

const CASES: [Case; 37] = [
    case("GET /", "a.example"),
    case("GET /", "x.y.a.example"),
    case("GET /", "A.EXAMPLE"),
    case("GET /", "other.example"),
    case("GET /", "b.example"),
    case("HEAD /", "b.example"),
    case("GET /assets/app.js", "a.example"),
    case("HEAD /assets/app.js", "a.example"),
    case("GET //assets/%61pp.js", "a.example"),
    nginx(
        ERROR_PAGE,
        caddy(CACHED, case("GET /assets/none.js", "a.example")),
    ),
    case("GET /none", "a.example"),
    both(PLAIN, case("GET /none", "b.example")),
    both(CHALLENGE, case("GET /private/", "a.example")),
    with(EVE, case("GET /private/", "a.example")),
    both(CHALLENGE, with(WRONG, case("GET /private/", "a.example"))),
    both(CHALLENGE, case("GET //privat%65/", "a.example")),
    case("GET /closed/x.txt", "a.example"),
    case("GET /inside/x.txt", "a.example"),
    both(PLAIN, case("GET /old/x?q=1", "a.example")),
    both(PLAIN, case("GET /old/", "a.example")),
    both(PLAIN, case("GET /y2026/file", "a.example")),
    case("GET /app/any/thing", "a.example"),
    case("GET /app/any/thing?q", "a.example"),
    nginx(ITSELF, caddy(FOLDER, case("GET /assets", "a.example"))),
    case("GET /about", "c.example"),
    case("GET /docs/", "c.example"),
    case("GET /docs/start.html", "c.example"),
    nginx(NO_PREFIX, caddy(PLAIN, case("GET /docs", "c.example"))),
    nginx(PLAIN, caddy(PERMANENT, case("GET /docs/sub", "c.example"))),
    both(PLAIN, case("GET /docs/none", "c.example")),
    nginx(
        CODED,
        caddy(CODED, with(GZIP, case("GET /large.txt", "c.example"))),
    ),
    caddy(
        UNVARIED,
        with(
            "Accept-Encoding: identity\r\n",
            case("GET /large.txt", "c.example"),
        ),
    ),
    caddy(
        UNVARIED,
        with(
            "Accept-Encoding: gzip;q=0\r\n",
            case("GET /large.txt", "c.example"),
        ),
    ),
    nginx(
        UNRANGED,
        caddy(
            UNVARIED,
            with(GZIP_RANGE, case("GET /large.txt", "c.example")),
        ),
    ),
    with(GZIP, case("GET /about", "c.example")),
    nginx(
        PLAIN,
        caddy(UNREAD, with(ELEVEN, case("POST /small/a", "c.example"))),
    ),
    both(
        NO_FILE,
        with("Content-Length: 0\r\n", case("POST /small/a", "c.example")),
    ),
];

fn compared(answer: &Answer) -> Vec<(String, String)> {
    let mut compared = vec![("status".to_owned(), answer.status.to_string())];
    for field in FIELDS {
        // A type is one however it is spelled.
        let value = answer.field(field).unwrap_or("-").to_lowercase();
        let value = value.replace("application/javascript", "text/javascript");
        compared.push((field.to_owned(), value));
    }
    compared
}

/// The files, and the configurations, of all of them.
fn site() -> Scratch {
    let scratch = Scratch::new();
    for (name, content) in [
        ("www/index.html", "start"),
        ("www/lost.html", "lost"),
        ("www/assets/app.js", "code"),
        ("www/private/index.html", "secret"),
        ("www/closed/x.txt", "closed"),
        ("www/inside/x.txt", "inside"),
        ("www/about.html", "about"),
        ("www/large.txt", &"a line\n".repeat(1000)),
        ("other/start.html", "another start"),
        ("other/sub/start.html", "beneath"),
        ("users", USERS),
        ("web.toml", OURS),
    ] {
        let path = scratch.root().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }

    scratch
}

/// Asks both, and asserts that they differ where a case says so and nowhere else.
fn compare(
    scratch: &Scratch,
    name: &str,
    mut theirs: Peer,
    differs: fn(&Case) -> &'static [&'static str],
) {
    let mut ours = peers::plainweave_by(&scratch.path("web.toml"));
    let mut wrong = Vec::new();
    for case in &CASES {
        let Case {
            request,
            host,
            fields,
            ..
        } = case;
        let mut text = format!("{request} HTTP/1.1\r\nHost: {host}\r\n{fields}");
        // Unless there is a body.
        if !fields.contains("\r\n\r\n") {
            text.push_str("\r\n");
        }
        let ours = compared(&ours.ask(&text));
        let theirs = compared(&theirs.ask(&text));
        for ((field, ours), (_, theirs)) in ours.iter().zip(&theirs) {
            let may_differ = differs(case).contains(&field.as_str());
            // What differs no more is explained wrongly.
            if (ours != theirs) != may_differ {
                wrong.push(format!("{request} {host} {field}: {ours}, {name} {theirs}"));
            }
        }
    }

    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn rules_beside_nginx() {
    let scratch = site();
    let root = scratch.root().to_str().unwrap();
    let servers = |address: std::net::SocketAddr| {
        let theirs = THEIRS.replace("ADDRESS", &address.to_string());
        theirs.replace("ROOT", root)
    };
    match peers::nginx_of(servers, scratch.root()) {
        Some(theirs) => compare(&scratch, "nginx", theirs, |case| case.nginx),
        None => skip::skip("nginx is not installed"),
    }
}

#[test]
fn rules_beside_caddy() {
    let scratch = site();
    let root = scratch.root().to_str().unwrap();
    let sites = |address: std::net::SocketAddr| {
        let theirs = CADDY.replace("PORT", &address.port().to_string());
        theirs.replace("ROOT", root)
    };
    match peers::caddy_of(sites, scratch.root()) {
        Some(theirs) => compare(&scratch, "caddy", theirs, |case| case.caddy),
        None => skip::skip("caddy is not installed"),
    }
}
