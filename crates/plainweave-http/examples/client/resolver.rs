//! How ureq looks up names on fibers.

use plainweave::net::ToSocketAddrs;
use ureq::Error;
use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::NextTimeout;

use super::transport::within;

/// Looks names up off the workers. ureq's own resolver would hold the worker up until its thread
/// has the answer.
#[derive(Debug)]
pub(crate) struct FiberResolver;

impl Resolver for FiberResolver {
    fn resolve(
        &self,
        uri: &Uri,
        config: &Config,
        timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, Error> {
        let parts = uri.scheme().zip(uri.authority());
        let name =
            parts.and_then(|(scheme, authority)| DefaultResolver::host_and_port(scheme, authority));
        let name = name.ok_or_else(|| Error::BadUri(uri.to_string()))?;
        let found = within(timeout, || name.resolve())?;
        let mut addrs = self.empty();
        for addr in config.ip_family().keep_wanted(found.into_iter()) {
            if addrs.try_push(addr).is_err() {
                break;
            }
        }
        if addrs.is_empty() {
            Err(Error::HostNotFound)
        } else {
            Ok(addrs)
        }
    }
}
