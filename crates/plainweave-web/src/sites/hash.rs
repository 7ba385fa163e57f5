//! Names of files that have a hash of their content in them, as bundlers write them.

/// Letters and digits of the shortest hash.
const LEAST: usize = 8;

/// Returns whether a file's name has a hash in front of its extension: `app.3f9a2c71.js`,
/// `index-BkU3mZ9q.css`, `chunk-4ZQXK2DJ.js`. A hash is hexadecimal, or has capitals and digits, as
/// no word has.
pub(super) fn has_hash(path: &[u8]) -> bool {
    let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
    let mut parts = name.split(|&byte| byte == b'.' || byte == b'-');
    let _ = parts.next(); // What it is called.
    let mut parts = parts.peekable();
    while let Some(part) = parts.next() {
        if parts.peek().is_some() && is_hash(part) {
            return true;
        }
    }

    false
}

fn is_hash(part: &[u8]) -> bool {
    let has = |is: fn(&u8) -> bool| part.iter().any(is);
    let are = |is: fn(&u8) -> bool| part.iter().all(is);
    let is_hex = are(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(byte));
    let is_word = are(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
    part.len() >= LEAST
        && has(u8::is_ascii_digit)
        && has(u8::is_ascii_alphabetic)
        && (is_hex || is_word && has(u8::is_ascii_uppercase))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_hashes() {
        for (path, has) in [
            ("/assets/app.3f9a2c71.js", true),
            ("/index-BkU3mZ9q.css", true),
            ("/chunk-4ZQXK2DJ.js", true),
            ("/a/chunk-vendors.0a1b2c3d4e5f.js.map", true),
            ("/app.js", false),
            ("/3f9a2c71.js", false),
            ("/report-20261129.pdf", false),
            ("/jquery-compatibility.js", false),
            ("/hero-1920x1080.jpg", false),
            ("/logo-version2.svg", false),
            ("/user-550e8400", false),
            ("/app.3f9a2c71/index.html", false),
            ("/", false),
        ] {
            assert_eq!(has_hash(path.as_bytes()), has, "{path}");
        }
    }
}
