//! Limits of filters.

/// Filters of a source, and entries of one that is a map.
pub const FILTERS_MAX: usize = 32;

/// Longest selector or SQL filter.
pub const SELECTOR_BYTES_MAX: usize = 16 * 1024;

/// Parts of a selector: operators, names and literals.
pub const SELECTOR_NODES_MAX: usize = 1024;

/// Levels of operators in operators.
pub const SELECTOR_DEPTH_MAX: usize = 64;

/// Steps that all filters of one receiver may take for one message, a character
/// that `LIKE` looks at being one; a message that takes more does not match.
pub const EVALUATION_STEPS_MAX: usize = 10_000;
