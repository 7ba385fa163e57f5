//! What a handler may know of the TLS connection that its request came by. Data alone: streams fill
//! it in.

/// A TLS connection's properties, found out by its handshake. See
/// [`Request::tls`](crate::Request::tls).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TlsSession {
    /// `TLSv1.3` or `TLSv1.2`.
    pub version: &'static str,
    /// The name of the cipher suite, as in `TLS13_AES_256_GCM_SHA384`.
    pub cipher_suite: &'static str,
    /// The host that the client asked for (SNI), in lower case.
    pub server_name: Option<String>,
    /// The protocol that was agreed on (ALPN), as in `http/1.1`.
    pub alpn: Option<Vec<u8>>,
    /// The handshake took up an earlier session.
    pub resumed: bool,
    /// The client's certificate and those behind it, in DER; verified. Empty if the client has sent
    /// none.
    pub client_chain: Vec<Vec<u8>>,
    /// The subject of the client's certificate in the notation of RFC 4514, as in
    /// `CN=alice,O=Example`.
    pub client_subject: Option<String>,
}
