//! placeholder
use anyhow::Result;
pub(crate) fn run(_: &[&str]) -> Result<bool> {
    Ok(true)
}
