//! Handlers that compute, on a pool of their own: at most eight at a time, beside connections that
//! stay quick.

use std::error::Error;

use plainweave::pools::{Pool, PoolSpec, Pools};
use plainweave_http::{Handler, Request, Response, Server, StatusCode};

fn primes_below(n: u32) -> usize {
    (2..n)
        .filter(|n| (2..).take_while(|d| d * d <= *n).all(|d| n % d != 0))
        .count()
}

/// Middleware: has another handler run in a pool. The call may borrow the request, for the caller
/// waits.
pub(crate) fn in_pool(pool: Pool, handler: impl Handler) -> impl Handler {
    move |request: &mut Request<'_>| {
        let head = request.head();
        let path = head.path();
        if !path.starts_with("/primes/") {
            return handler.handle(request);
        }
        let answered = pool.call(|| match path["/primes/".len()..].parse() {
            Ok(n) if n <= 1_000_000 => Response::ok(format!("{}\n", primes_below(n))),
            _ => Response::text(
                StatusCode::BAD_REQUEST,
                "/primes/N, where N is at most 1000000\n",
            ),
        });

        // The pool has ended, or this fiber was cancelled.
        answered.unwrap_or_else(|_| Response::plain(StatusCode::SERVICE_UNAVAILABLE))
    }
}

pub(crate) fn pools() -> Result<Pools, Box<dyn Error + Send + Sync>> {
    let mut specs = PoolSpec::parse("web:fifo/1,compute:fifo/1")?;
    let compute = specs.pop().map(|spec| spec.max_fibers(8));
    Ok(Pools::build(specs.into_iter().chain(compute))?)
}

pub(crate) fn quick(_: &mut Request<'_>) -> Response {
    Response::ok("quick\n")
}

fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let pools = pools()?;
    let (Some(web), Some(compute)) = (pools.get("web"), pools.get("compute")) else {
        return Err("there are two pools".into());
    };
    let handler = in_pool(compute.clone(), quick);
    Ok(web.call(|| Server::run("127.0.0.1:8080", handler))??)
}
