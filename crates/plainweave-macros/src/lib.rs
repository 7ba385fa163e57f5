//! The attributes of the crate `plainweave`: use them from there.

mod function; // What a function must be to run on a fiber.
mod options; // What stands in the brackets of an attribute.

use proc_macro::TokenStream;
use proc_macro2::TokenStream as Tokens;
use quote::quote;
use syn::parse::Parser;
use syn::{Error, ItemFn, Result};

use function::checked;
use options::Options;

/// Runs `main` on a fiber of a runtime, which ends with it: as
/// [`run`](../plainweave/fn.run.html) does, with settings.
///
/// ```
/// #[plainweave::main(workers = 2, policy = "lifo")]
/// fn main() -> std::io::Result<()> {
///     plainweave::spawn(|| println!("hello")).join().unwrap();
///     Ok(())
/// }
/// ```
///
/// Options, all of them optional: `workers = 4`, `io = "uring"` (or `"epoll"`, `"auto"`),
/// `policy = "fifo"`, `stack_size = 262144` (bytes), `seed = 7`, and `crate = "path"` for a
/// `plainweave` of another name.
///
/// A runtime that cannot start ends the program with status 1 and says why. A panic says which
/// fiber it is of.
#[proc_macro_attribute]
pub fn main(attribute: TokenStream, item: TokenStream) -> TokenStream {
    let expanded = expand_main(attribute.into(), item);
    let expanded = expanded.unwrap_or_else(|error| {
        // That there is no `main` besides would only be in the way.
        let error = error.into_compile_error();
        quote!(#error fn main() {})
    });
    expanded.into()
}

/// Runs a test on a fiber of a runtime of its own, in a process of its own.
///
/// ```
/// #[plainweave::test(workers = 2, timeout = "5s")]
/// fn two_fibers_meet() {
///     let (sender, receiver) = plainweave::sync::channel::bounded(1);
///     plainweave::spawn(move || sender.send(1));
///     assert_eq!(receiver.recv().unwrap(), 1);
/// }
/// ```
///
/// It fails if the function panics or returns an error, and also
///
/// * after `timeout` (`"500ms"`, `"10s"`, `"2m"`; a minute unless given): what each fiber waits for
///   is printed;
/// * if a fiber panicked that nobody has joined;
/// * if fibers do not end when they are cancelled, behind the function;
/// * with `deny_leaks`, if fibers are left at all.
///
/// The other options are those of [`macro@main`]; `workers` is 2 unless given, and `io = "sim"`
/// has one, with simulated time. `#[should_panic]` and `#[ignore]` work as for any test.
///
/// `io = "sim", seeds = 1000` runs the test a thousand times, each with a schedule of its own:
/// before each lock, message, permit and atomic of the crate any fiber that is ready may go on
/// (policy `local-fifo:order=drawn`; in builds with debug assertions, or with the feature
/// `preemption-points`). The failure says the seed, and `PLAINWEAVE_SEED=17` runs the test with
/// that one alone.
///
/// What fibers print is captured like what any test prints: a child process runs the function, and
/// its test prints what it says. So a stack that overflows ends one test and not all.
/// `PLAINWEAVE_TEST=inline` runs all in one process, for debuggers.
#[proc_macro_attribute]
pub fn test(attribute: TokenStream, item: TokenStream) -> TokenStream {
    let expanded = expand_test(attribute.into(), item);
    expanded.unwrap_or_else(Error::into_compile_error).into()
}

fn expand_main(attribute: Tokens, item: TokenStream) -> Result<Tokens> {
    let options = Options::parse_main.parse2(attribute)?;
    let ItemFn {
        attrs, sig, block, ..
    } = checked(syn::parse(item)?)?;
    if sig.ident != "main" {
        let what = "this runs a program: put it on `fn main`, or call `plainweave::run` elsewhere";
        return Err(Error::new_spanned(&sig.ident, what));
    }

    let path = options.path();
    let builder = options.builder();
    let output = &sig.output;
    Ok(quote! {
        #(#attrs)*
        fn main() -> ::std::process::ExitCode {
            fn main() #output #block
            #path::entry::main(#builder, main)
        }
    })
}

fn expand_test(attribute: Tokens, item: TokenStream) -> Result<Tokens> {
    let options = Options::parse_test.parse2(attribute)?;
    let ItemFn {
        attrs,
        vis,
        sig,
        block,
    } = checked(syn::parse(item)?)?;
    let twice = attrs
        .iter()
        .find(|attribute| attribute.path().is_ident("test"));
    if let Some(twice) = twice {
        let what = "`#[plainweave::test]` makes it a test: leave `#[test]` out";
        return Err(Error::new_spanned(twice, what));
    }

    let path = options.path();
    let builder = options.builder();
    let timeout = options.timeout_millis();
    let deny_leaks = options.deny_leaks;
    let seeds = options.seeds();
    let name = &sig.ident;
    let text = name.to_string();
    let output = &sig.output;
    Ok(quote! {
        #[::core::prelude::v1::test]
        #(#attrs)*
        #vis fn #name() {
            fn body() #output #block
            let case = #path::testing::Case {
                name: ::core::concat!(::core::module_path!(), "::", #text),
                builder: #builder,
                timeout: ::core::time::Duration::from_millis(#timeout),
                deny_leaks: #deny_leaks,
                seeds: #seeds,
            };
            case.run(body);
        }
    })
}
