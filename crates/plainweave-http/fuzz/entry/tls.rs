//! Bytes that arrive in place of a TLS handshake.

use std::sync::OnceLock;

use plainweave_http::testing::Memory;
use plainweave_http::tls::Acceptor;

#[path = "../../tests/common/self_signed.rs"]
mod self_signed;

/// Holds the claims against one input: the handshake ends, and how the bytes are split decides
/// nothing, be it in the middle of records or between them.
pub(crate) fn tls(data: &[u8]) {
    let Some((&first, input)) = data.split_first() else {
        return;
    };
    let step = 1 + usize::from(first % 17);
    assert_eq!(
        shake(input, usize::MAX),
        shake(input, step),
        "reads of {step} bytes"
    );
}

/// Returns how the handshake ends, and the type of the first record that the peer gets.
fn shake(input: &[u8], step: usize) -> (String, Option<u8>) {
    static ACCEPTOR: OnceLock<Acceptor> = OnceLock::new();
    let acceptor = ACCEPTOR.get_or_init(|| self_signed::self_signed("fuzz").0);
    let mut said = Vec::new();
    let ended = acceptor
        .accept(Memory::new(input, &mut said).with_step(step))
        .handshake();
    let ended = ended.expect_err("the keys are random: nobody foresees them");

    (ended.to_string(), said.first().copied())
}
