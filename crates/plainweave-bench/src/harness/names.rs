//! Names that a flag lists.

use anyhow::bail;

/// # Errors
/// One of them is not known; the message lists those that are. `what` is what they name.
pub(crate) fn check<'a>(
    what: &str,
    wanted: &[String],
    known: impl Iterator<Item = &'a str> + Clone,
) -> anyhow::Result<()> {
    if let Some(wrong) = wanted
        .iter()
        .find(|name| known.clone().all(|known| known != **name))
    {
        let known: Vec<_> = known.collect();
        bail!(
            "no {what} is called '{wrong}'; there are: {}",
            known.join(", ")
        );
    }
    Ok(())
}
