//! Time as this engine has it: milliseconds of any clock in 32 bits that wrap
//! around after 49 days. Points in time are compared by their distance.

/// Whether `deadline` has come.
pub(crate) const fn is_due(now: u32, deadline: u32) -> bool {
    now.wrapping_sub(deadline).cast_signed() >= 0
}

/// Milliseconds until `deadline`, zero if it has come.
pub(crate) const fn until(now: u32, deadline: u32) -> u32 {
    if is_due(now, deadline) {
        0
    } else {
        deadline.wrapping_sub(now)
    }
}
