//! Which sources figures come from, and how they were built.

/// Returns the commit that this program was built from, 12 digits, and "with changes" if files
/// outside `results`, where reports of earlier runs land, had changed by then. Built without git or
/// outside a repository it is "unknown".
#[must_use]
pub fn commit() -> &'static str {
    env!("PLAINWEAVE_COMMIT")
}

/// Returns the profile that this program was built with, by the name of its folder: "dist" for
/// figures and packages, "release", or "debug".
#[must_use]
pub fn profile() -> &'static str {
    env!("PLAINWEAVE_PROFILE")
}
