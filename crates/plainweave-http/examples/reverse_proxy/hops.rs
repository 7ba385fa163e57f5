//! The fields of a head that a proxy does not pass on.

use plainweave_http::HeaderName;
use plainweave_http::header::{
    CONNECTION, EXPECT, HeaderMap, TE, TRAILER, TRANSFER_ENCODING, UPGRADE, VIA,
};

/// Drops the fields that are between two neighbours (RFC 9110, 7.6.1), also because `Connection`
/// names them.
pub(crate) fn drop_hops(fields: &mut HeaderMap) {
    const HOPS: [HeaderName; 7] = [
        CONNECTION,
        TE,
        TRAILER,
        TRANSFER_ENCODING,
        UPGRADE,
        EXPECT,
        VIA,
    ];
    let listed = fields
        .get_all(CONNECTION)
        .iter()
        .flat_map(|list| list.as_bytes().split(|byte| *byte == b','));
    let named = listed.filter_map(|name| HeaderName::from_bytes(name.trim_ascii()).ok());
    let unlisted =
        |name: &&HeaderName| name.as_str().starts_with("proxy-") || *name == "keep-alive";
    let hops: Vec<_> = named
        .chain(fields.keys().filter(unlisted).cloned())
        .chain(HOPS)
        .collect();

    hops.iter().for_each(|name| drop(fields.remove(name)));
}
