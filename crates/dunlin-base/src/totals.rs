//! Structs of totals that can be summed and exported without a second list of
//! their fields. Knows nothing of what is counted, or where it is shown.

/// Declares a struct of totals. Adding a line to it is all it takes for a new
/// total to be summed over shards and exported: its name and its sentence are
/// taken from the line itself.
///
/// ```
/// dunlin_base::totals! {
///     /// What a baker counts.
///     #[derive(Clone, Copy, Debug, Default)]
///     pub struct Bakery {
///         /// Loaves sold.
///         pub loaves_sold: u64,
///     }
/// }
///
/// let day = Bakery { loaves_sold: 12 };
/// day.plus(&day).each(|name, help, value| {
///     assert_eq!((name, help, value), ("loaves_sold", "Loaves sold.", 24));
/// });
/// ```
#[macro_export]
macro_rules! totals {
    (
        $(#[$meta:meta])*
        pub struct $name:ident {
            $($(#[doc = $help:literal])+ pub $field:ident: u64,)+
        }
    ) => {
        $(#[$meta])*
        pub struct $name {
            $($(#[doc = $help])+ pub $field: u64,)+
        }

        impl $name {
            /// The sum of two shards' totals.
            #[must_use]
            pub const fn plus(&self, other: &Self) -> Self {
                Self { $($field: self.$field.wrapping_add(other.$field),)+ }
            }

            /// Every total: its name, a sentence about it, its value.
            pub fn each(&self, mut f: impl FnMut(&'static str, &'static str, u64)) {
                $(f(stringify!($field), concat!($($help),+).trim(), self.$field);)+
            }
        }
    };
}
