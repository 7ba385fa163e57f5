//! HTTPS on fibers: a fiber per connection, the handshake in it, and one listener without TLS that
//! points to the other.
//!
//!     cargo run -p plainweave-http --features tls --example https 127.0.0.1:8080 127.0.0.1:8443 chain.pem key.pem

use std::error::Error;
use std::sync::Arc;

use plainweave::net::TcpListener;
use plainweave_http::tls::{Acceptor, Config};
use plainweave_http::{HeaderValue, Request, Response, Server, StatusCode, header};

type Failure = Box<dyn Error + Send + Sync>;

/// Says how the request has come.
fn hello(request: &mut Request<'_>) -> Response {
    match request.tls() {
        Some(tls) => Response::ok(format!(
            "{} by {}, {}\n",
            request.path(),
            tls.version,
            tls.cipher_suite
        )),
        None => Response::text(StatusCode::IM_A_TEAPOT, "this handler is for TLS\n"),
    }
}

/// Middleware: sends what comes without TLS to the address that has it.
fn secure(
    to: String,
    next: fn(&mut Request<'_>) -> Response,
) -> impl Fn(&mut Request<'_>) -> Response {
    move |request| match request.tls() {
        Some(_) => next(request),
        None => match HeaderValue::from_str(&format!("https://{to}{}", request.path())) {
            Ok(url) => {
                Response::plain(StatusCode::PERMANENT_REDIRECT).with_header(header::LOCATION, url)
            }
            Err(_) => Response::plain(StatusCode::BAD_REQUEST),
        },
    }
}

/// Serves both listeners until the one with TLS is closed. Each connection's handshake runs on the
/// fiber that serves it.
pub(crate) fn serve(
    plain: TcpListener,
    tls: TcpListener,
    acceptor: &Acceptor,
) -> Result<(), Failure> {
    let to = tls.local_addr()?.to_string();
    let server = Arc::new(Server::new(secure(to, hello)));
    server.start(plain)?;
    server.serve(acceptor.listen(tls))?;
    server.stop();
    Ok(())
}

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [plain, tls, chain, key] = &arguments[..] else {
        return Err(
            "give an address without TLS, one with it, and the files of a certificate and its key"
                .into(),
        );
    };
    let acceptor = Acceptor::new(Config::new(chain, key))?;
    let plain = plain.clone();
    let tls = tls.clone();
    plainweave::run(move || {
        serve(
            TcpListener::bind(plain.as_str())?,
            TcpListener::bind(tls.as_str())?,
            &acceptor,
        )
    })
}
