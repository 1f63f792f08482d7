//! What the firmware takes and does on its processor: `cargo xtask mcu-crypto`
//! tests and weighs the cryptography under QEMU.
//!
//! It builds and runs images as a user would, and links nothing of them.

mod crypto;
mod tools;

use anyhow::Result;

use tools::Tools;

/// The tools, or nothing and a line that says what is missing.
fn tools(task: &str) -> Result<Option<Tools>> {
    Ok(match Tools::find()? {
        Ok(tools) => Some(tools),
        Err(missing) => {
            println!("{task}: skipped: {missing}");
            None
        }
    })
}

/// Tests and weighs the providers of cryptography; whether all holds.
///
/// # Errors
/// Something does not compile, run or answer rightly.
pub(crate) fn crypto() -> Result<bool> {
    match tools("mcu-crypto")? {
        Some(tools) => crypto::print(&tools),
        None => Ok(true),
    }
}
