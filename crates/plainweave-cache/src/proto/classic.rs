//! The classic commands.

use super::super::number;
use super::command::Command;
use super::key::{KEY_BYTES, Key};
use super::manage;
use super::meta::Meta;
use super::reject::{BAD_EXPTIME, BAD_FORMAT, ERROR, Reject};
use super::storage::{Store, Verb, value_len};
use super::tokens::{Keys, Tokens};

/// Reads a line.
pub(crate) fn parse(line: &[u8]) -> Result<Command<'_>, Reject> {
    // Most lines of most caches are of this kind.
    if let Some(keys) = line.strip_prefix(b"get ") {
        return get(keys, false, None);
    }
    let tokens = Tokens::cut(line);
    match tokens.word(0) {
        b"get" | b"bget" => get(tokens.after(1).0, false, None),
        b"gets" => get(tokens.after(1).0, true, None),
        b"gat" => get_and_touch(&tokens, false),
        b"gats" => get_and_touch(&tokens, true),
        b"set" => store(&tokens, Verb::Set),
        b"add" => store(&tokens, Verb::Add),
        b"replace" => store(&tokens, Verb::Replace),
        b"append" => store(&tokens, Verb::Append),
        b"prepend" => store(&tokens, Verb::Prepend),
        b"cas" => store(&tokens, Verb::Cas),
        b"delete" => delete(&tokens),
        b"incr" => count(&tokens, true),
        b"decr" => count(&tokens, false),
        b"touch" => touch(&tokens),
        b"mg" => Meta::get(&tokens).map(Command::MetaGet),
        b"ms" => Meta::store(&tokens).map(|(meta, len)| Command::MetaStore(meta, len)),
        b"md" => Meta::other(&tokens).map(Command::MetaDelete),
        b"ma" => Meta::other(&tokens).map(Command::MetaCount),
        b"me" => meta_debug(&tokens),
        b"mn" => Ok(Command::MetaNothing),
        _ => manage::parse(&tokens).map(Command::Manage),
    }
}

fn get(keys: &[u8], cas: bool, touch: Option<i32>) -> Result<Command<'_>, Reject> {
    let mut longest = None;
    for key in Keys(keys) {
        longest = longest.max(Some(key.len()));
    }
    match longest {
        // A get-and-touch may lack keys, a get may not.
        None if touch.is_none() => Err(ERROR),
        Some(len) if len > KEY_BYTES => Err(Reject::of(BAD_FORMAT)),
        _ => Ok(Command::Get {
            keys: Keys(keys),
            cas,
            touch,
        }),
    }
}

fn get_and_touch<'a>(tokens: &Tokens<'a>, cas: bool) -> Result<Command<'a>, Reject> {
    if tokens.len() < 2 {
        return Err(ERROR);
    }
    let exptime = number::signed32(tokens.word(1)).ok_or(Reject::of(BAD_EXPTIME))?;
    get(tokens.after(2).0, cas, Some(exptime))
}

fn store<'a>(tokens: &Tokens<'a>, verb: Verb) -> Result<Command<'a>, Reject> {
    let words = if verb == Verb::Cas { 6 } else { 5 };
    if tokens.len() != words && tokens.len() != words + 1 {
        return Err(ERROR);
    }
    let quiet = tokens.noreply();
    let bad = Reject::of(BAD_FORMAT).quiet(quiet);
    let key = key(tokens, quiet)?;
    let flags = number::unsigned32(tokens.word(2)).ok_or(bad)?;
    let exptime = number::signed32(tokens.word(3)).ok_or(bad)?;
    let len = number::signed32(tokens.word(4)).ok_or(bad)?;
    let cas = if verb == Verb::Cas {
        number::unsigned64(tokens.word(5)).ok_or(bad)?
    } else {
        0
    };
    let len = value_len(len).ok_or(bad)?;
    Ok(Command::Store(Store {
        verb,
        key,
        flags,
        exptime,
        len,
        cas,
        quiet,
    }))
}

fn key<'a>(tokens: &Tokens<'a>, quiet: bool) -> Result<&'a [u8], Reject> {
    let key = tokens.word(1);
    if key.len() > KEY_BYTES {
        Err(Reject::of(BAD_FORMAT).quiet(quiet))
    } else {
        Ok(key)
    }
}

fn delete<'a>(tokens: &Tokens<'a>) -> Result<Command<'a>, Reject> {
    const USAGE: &str = "CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]";
    let zero = tokens.word(2) == b"0";
    let mut quiet = false;
    match tokens.len() {
        2 => {}
        3 | 4 => {
            quiet = tokens.noreply();
            let valid = if tokens.len() == 3 {
                zero || quiet
            } else {
                zero && quiet
            };
            if !valid {
                return Err(Reject::of(USAGE).quiet(quiet));
            }
        }
        _ => return Err(ERROR),
    }
    Ok(Command::Delete {
        key: key(tokens, quiet)?,
        quiet,
    })
}

fn count<'a>(tokens: &Tokens<'a>, up: bool) -> Result<Command<'a>, Reject> {
    const BAD_DELTA: &str = "CLIENT_ERROR invalid numeric delta argument";
    if !matches!(tokens.len(), 3 | 4) {
        return Err(ERROR);
    }
    let quiet = tokens.noreply();
    let key = key(tokens, quiet)?;
    let delta = number::unsigned64(tokens.word(2)).ok_or(Reject::of(BAD_DELTA).quiet(quiet))?;
    Ok(Command::Count {
        key,
        up,
        delta,
        quiet,
    })
}

fn touch<'a>(tokens: &Tokens<'a>) -> Result<Command<'a>, Reject> {
    if !matches!(tokens.len(), 3 | 4) {
        return Err(ERROR);
    }
    let quiet = tokens.noreply();
    let key = key(tokens, quiet)?;
    let exptime = number::signed32(tokens.word(2)).ok_or(Reject::of(BAD_EXPTIME).quiet(quiet))?;
    Ok(Command::Touch {
        key,
        exptime,
        quiet,
    })
}

fn meta_debug<'a>(tokens: &Tokens<'a>) -> Result<Command<'a>, Reject> {
    let text = tokens.word(1);
    if tokens.len() < 2 || text.len() > KEY_BYTES {
        return Err(Reject::of(BAD_FORMAT));
    }
    let key = match tokens.word(2) {
        b"b" => Key::decode(text).ok_or(Reject::of(BAD_FORMAT))?,
        _ => Key::Plain(text),
    };
    Ok(Command::MetaDebug { key })
}
