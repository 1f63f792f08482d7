//! `Debug` of types that say nothing of what they hold.

/// Implements `Debug` for types, as their name alone: what is in them is secret, or says
/// nothing to who reads it.
#[macro_export]
macro_rules! opaque_debug {
    ($($Type:ident $(<$lt:lifetime>)?),+ $(,)?) => {
        $(impl ::core::fmt::Debug for $Type $(<$lt>)? {
            fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                f.debug_struct(::core::stringify!($Type)).finish_non_exhaustive()
            }
        })+
    };
}

#[cfg(test)]
mod tests {
    use alloc::format;

    struct Key([u8; 2]);

    struct Part<'a>(&'a Key);

    opaque_debug!(Key, Part<'_>);

    #[test]
    fn a_name_is_shown_and_nothing_else() {
        let key = Key([7, 7]);
        assert_eq!(
            format!("{key:?} {:?}", Part(&key)),
            "Key { .. } Part { .. }"
        );
        assert_eq!((key.0, Part(&key).0.0), ([7, 7], [7, 7]));
    }
}
