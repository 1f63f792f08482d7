//! Tables of the file whose keys are kept by subject: in the file they stand beside each
//! other, in memory each subject is a type of its own.

use core::fmt;

use serde::Deserializer;
use serde::de::{DeserializeSeed, Error, Visitor};

/// A key of a table; others are refused.
pub(super) struct Key(pub(super) &'static [&'static str]);

impl<'de> DeserializeSeed<'de> for Key {
    type Value = &'static str;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Self::Value, D::Error> {
        from.deserialize_identifier(self)
    }
}

impl Visitor<'_> for Key {
    type Value = &'static str;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a key")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        let found = self.0.iter().find(|key| **key == text);
        found.copied().ok_or_else(|| E::unknown_field(text, self.0))
    }
}

/// Reads and writes a type as one table: its own keys, and behind `;` those of its parts.
macro_rules! one_table {
    ($table:ident { $($own:ident),* ; $($part:ident { $($key:ident),+ $(,)? })+ }) => {
        impl $table {
            const KEYS: &'static [&'static str] =
                &[$(stringify!($own),)* $($(stringify!($key),)+)+];
        }

        impl ::serde::Serialize for $table {
            fn serialize<S: ::serde::Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
                use ::serde::ser::SerializeStruct as _;
                let mut table = out.serialize_struct(stringify!($table), Self::KEYS.len())?;
                $(table.serialize_field(stringify!($own), &self.$own)?;)*
                $($(table.serialize_field(stringify!($key), &self.$part.$key)?;)+)+
                table.end()
            }
        }

        impl<'de> ::serde::Deserialize<'de> for $table {
            fn deserialize<D: ::serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                struct Reader;

                impl<'de> ::serde::de::Visitor<'de> for Reader {
                    type Value = $table;

                    fn expecting(&self, out: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                        out.write_str(concat!("struct ", stringify!($table)))
                    }

                    fn visit_map<A: ::serde::de::MapAccess<'de>>(
                        self,
                        mut map: A,
                    ) -> Result<$table, A::Error> {
                        let mut table = $table::default();
                        while let Some(key) = map.next_key_seed($crate::config::keys::Key($table::KEYS))? {
                            match key {
                                $(stringify!($own) => table.$own = map.next_value()?,)*
                                $($(stringify!($key) => table.$part.$key = map.next_value()?,)+)+
                                // There is no other.
                                _ => {}
                            }
                        }
                        Ok(table)
                    }
                }

                from.deserialize_struct(stringify!($table), Self::KEYS, Reader)
            }
        }
    };
}

pub(super) use one_table;
