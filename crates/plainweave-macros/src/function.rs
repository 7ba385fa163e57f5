//! What a function must be to run on a fiber.

use quote::ToTokens;
use syn::{Error, ItemFn, Result};

/// Refuses a function that cannot run by itself, each with the remedy.
pub(crate) fn checked(function: ItemFn) -> Result<ItemFn> {
    let sig = &function.sig;
    let refuse = |at: &dyn ToTokens, what: &str| Err(Error::new_spanned(at, what));
    if let Some(word) = &sig.asyncness {
        let what = "leave `async` out: on a fiber, what waits is an ordinary call, and \
                    `plainweave::block_on` waits for a future";
        return refuse(word, what);
    }
    if let Some(word) = &sig.constness {
        return refuse(word, "leave `const` out: it is to run on a fiber");
    }
    if let Some(word) = &sig.unsafety {
        return refuse(
            word,
            "leave `unsafe` out: nobody could keep a contract here",
        );
    }
    if let Some(word) = &sig.abi {
        return refuse(word, "leave `extern` out: it is a function of Rust's own");
    }

    if !sig.generics.params.is_empty() {
        return refuse(
            &sig.generics,
            "it cannot be generic: nobody says for which types",
        );
    }
    if !sig.inputs.is_empty() {
        return refuse(&sig.inputs, "it takes no arguments: nobody passes any");
    }
    Ok(function)
}
