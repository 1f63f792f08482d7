//! Limits of this crate.

/// Levels of values in values; deeper ones are refused.
pub const DEPTH_MAX: usize = 32;

/// Elements of an array whose elements take no bytes; more are refused, because
/// their number has no bytes behind it.
pub const EMPTY_ELEMENTS_MAX: u32 = 256;

/// Longest constructor of an array, descriptors included; it is read again for
/// each element.
pub const ARRAY_CONSTRUCTOR_BYTES_MAX: usize = 128;

/// Longest delivery tag (section 2.8.7).
pub const DELIVERY_TAG_BYTES_MAX: usize = 32;

/// The smallest `max-frame-size`, and the one that holds before `open`
/// (section 2.7.1); also the largest SASL frame (section 5.3.1).
pub const FRAME_BYTES_MIN: u32 = 512;
