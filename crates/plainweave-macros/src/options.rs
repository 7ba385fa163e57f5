//! What stands in the brackets of an attribute.

use proc_macro2::{Span, TokenStream};
use quote::quote;
use syn::ext::IdentExt;
use syn::parse::ParseStream;
use syn::{Error, Ident, LitInt, LitStr, Path, Result, Token};

/// Of a test, unless it says otherwise.
const TIMEOUT_MILLIS: u64 = 60_000;
/// Of a test, unless it says otherwise: enough for fibers to meet each other.
const TEST_WORKERS: u64 = 2;
/// Of a test with several seeds, unless it says otherwise.
const DRAWN: &str = "local-fifo:order=drawn";
/// As `RuntimeBuilder::workers` has it.
const MOST_WORKERS: u64 = 1024;

/// The options, each at most once.
#[derive(Default)]
pub(crate) struct Options {
    is_test: bool,
    /// And where that is said.
    workers: Option<(u64, Span)>,
    io: Option<String>,
    policy: Option<String>,
    stack_size: Option<u64>,
    seed: Option<u64>,
    seeds: Option<(u64, Span)>,
    path: Option<Path>,
    timeout: Option<u64>,
    pub(crate) deny_leaks: bool,
}

impl Options {
    pub(crate) fn parse_main(input: ParseStream<'_>) -> Result<Self> {
        Self::default().parse(input)
    }

    pub(crate) fn parse_test(input: ParseStream<'_>) -> Result<Self> {
        let options = Self {
            is_test: true,
            ..Self::default()
        };
        options.parse(input)
    }

    fn parse(mut self, input: ParseStream<'_>) -> Result<Self> {
        let mut seen: Vec<String> = Vec::new();
        while !input.is_empty() {
            let name = input.call(Ident::parse_any)?;
            let text = name.to_string();
            if seen.contains(&text) {
                return Err(Error::new(
                    name.span(),
                    format!("`{text}` is there already"),
                ));
            }
            self.take(&name, &text, input)?;
            seen.push(text);
            if !input.is_empty() {
                input.parse::<Token![,]>()?;
            }
        }

        let sim = self.io.as_deref() == Some("sim");
        if let Some((_, at)) = self.seeds.filter(|_| !sim) {
            let what = "`seeds` are those of `io = \"sim\"`: write it too";
            return Err(Error::new(at, what));
        }
        match self.workers {
            Some((2.., at)) if sim => {
                let what = "`io = \"sim\"` has one worker: leave `workers` out";
                Err(Error::new(at, what))
            }
            _ => Ok(self),
        }
    }

    fn take(&mut self, name: &Ident, text: &str, input: ParseStream<'_>) -> Result<()> {
        if text == "deny_leaks" && self.is_test {
            self.deny_leaks = true;
            return Ok(());
        }

        let value = |input: ParseStream<'_>| input.parse::<Token![=]>();
        match text {
            "workers" => {
                value(input)?;
                self.workers = Some((number(input, 1, MOST_WORKERS)?, name.span()));
            }
            "io" => {
                value(input)?;
                self.io = Some(self.driver(&input.parse()?)?);
            }
            "policy" => {
                value(input)?;
                self.policy = Some(input.parse::<LitStr>()?.value());
            }
            "stack_size" => {
                value(input)?;
                self.stack_size = Some(number(input, 32 << 10, 1 << 30)?);
            }
            "seed" => {
                value(input)?;
                self.seed = Some(number(input, 0, u64::MAX)?);
            }
            "seeds" if self.is_test => {
                value(input)?;
                self.seeds = Some((number(input, 1, 1 << 32)?, name.span()));
            }
            "crate" => {
                value(input)?;
                self.path = Some(input.parse::<LitStr>()?.parse()?);
            }
            "timeout" if self.is_test => {
                value(input)?;
                self.timeout = Some(millis(&input.parse()?)?);
            }
            "timeout" => {
                let what = "a program has no `timeout`: put what is to end in time into \
                            `plainweave::time::with_timeout`";
                return Err(Error::new(name.span(), what));
            }
            _ => return Err(self.unknown(name, text)),
        }
        Ok(())
    }

    fn driver(&self, name: &LitStr) -> Result<String> {
        let text = name.value();
        let drivers: &[&str] = match self.is_test {
            true => &["auto", "uring", "epoll", "sim"],
            false => &["auto", "uring", "epoll"],
        };
        match drivers.contains(&&*text) {
            true => Ok(text),
            false => {
                let what = format!(
                    "no driver is called so: write one of {}",
                    drivers.join(", ")
                );
                Err(Error::new(name.span(), what))
            }
        }
    }

    fn unknown(&self, name: &Ident, text: &str) -> Error {
        let mut known = vec!["workers", "io", "policy", "stack_size", "seed", "crate"];
        if self.is_test {
            known.extend(["timeout", "deny_leaks", "seeds"]);
        }
        let what = format!(
            "no option is called `{text}`: there are {}",
            known.join(", ")
        );
        Error::new(name.span(), what)
    }

    /// Returns where the crate `plainweave` is.
    pub(crate) fn path(&self) -> TokenStream {
        match &self.path {
            Some(path) => quote!(#path),
            None => quote!(::plainweave),
        }
    }

    /// Returns what makes a runtime's builder.
    pub(crate) fn builder(&self) -> TokenStream {
        let path = self.path();
        let sim = self.io.as_deref() == Some("sim");
        let usual = self.is_test.then_some(if sim { 1 } else { TEST_WORKERS });

        let number = |value: u64| value as usize;
        let workers = self.workers.map(|(number, _)| number);
        let workers = workers.or(usual).map(number).into_iter();

        let io = self.io.as_deref().map(|name| match name {
            "uring" => quote!(Uring),
            "epoll" => quote!(Epoll),
            "sim" => {
                let seed = self.seed.unwrap_or(0);
                quote!(Sim { seed: #seed })
            }
            _ => quote!(Auto),
        });
        let io = io.into_iter();

        // Another schedule by each seed.
        let by_chance = self.seeds.map(|_| DRAWN.to_owned());
        let policy = self.policy.clone().or(by_chance).into_iter();
        let stack_size = self.stack_size.map(number).into_iter();
        let seed = self.seed.into_iter();
        quote! {
            #path::Runtime::builder()
                #(.workers(#workers))*
                #(.io(#path::Io::#io))*
                #(.policy(#policy))*
                #(.stack_size(#stack_size))*
                #(.seed(#seed))*
        }
    }

    /// Returns how many seeds a test is run with.
    pub(crate) fn seeds(&self) -> u64 {
        self.seeds.map_or(1, |(count, _)| count)
    }

    /// Returns how long a test may take.
    pub(crate) fn timeout_millis(&self) -> u64 {
        self.timeout.unwrap_or(TIMEOUT_MILLIS)
    }
}

fn number(input: ParseStream<'_>, least: u64, most: u64) -> Result<u64> {
    let literal = input.parse::<LitInt>()?;
    let value = literal.base10_parse::<u64>().ok();
    let value = value.filter(|value| (least..=most).contains(value));
    value.ok_or_else(|| {
        let what = format!("write a whole number from {least} to {most}");
        Error::new(literal.span(), what)
    })
}

/// Reads a time as `10s`.
fn millis(literal: &LitStr) -> Result<u64> {
    let text = literal.value();
    let unit = text.find(|letter: char| !letter.is_ascii_digit());
    let (digits, unit) = text.split_at(unit.unwrap_or(text.len()));
    let factor = match unit {
        "ms" => Some(1),
        "s" => Some(1000),
        "m" => Some(60_000),
        _ => None,
    };

    let number = digits.parse::<u64>().ok().filter(|number| *number > 0);
    let time = number
        .zip(factor)
        .and_then(|(number, factor)| number.checked_mul(factor));
    time.ok_or_else(|| {
        let what = "write a time with its unit, as in \"500ms\", \"10s\" or \"2m\"";
        Error::new(literal.span(), what)
    })
}
