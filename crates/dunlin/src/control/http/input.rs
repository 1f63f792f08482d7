//! What a request says besides its method: the name in its path, its query and its
//! body, as the types of the control plane. What is not known is refused.

use serde::de::value::{Error, MapDeserializer};
use serde::de::{DeserializeOwned, Deserializer, IntoDeserializer, Visitor};
use serde::forward_to_deserialize_any;

use crate::control::topics::bad;
use crate::control::values::Failure;

/// A request, as far as an order is made of it.
#[derive(Debug, Default)]
pub(super) struct Input<'a> {
    /// What stands for the name in braces, decoded.
    pub(super) name: String,
    /// The query, still encoded.
    pub(super) query: &'a str,
    pub(super) body: &'a [u8],
}

impl Input<'_> {
    /// The query as its type.
    pub(super) fn query<T: DeserializeOwned>(&self) -> Result<T, Failure> {
        let mut pairs: Vec<(String, Value)> = Vec::new();
        for pair in self.query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let text = |text: &str| {
                let damaged = || bad("the query is not percent-encoded UTF-8");
                decode(&text.replace('+', " ")).ok_or_else(damaged)
            };
            let (name, value) = (text(name)?, text(value)?);
            if pairs.iter().any(|(other, _)| *other == name) {
                return Err(bad(format!("`{name}` is in the query twice")));
            }
            pairs.push((name, Value(value)));
        }
        let map: MapDeserializer<'_, _, Error> = MapDeserializer::new(pairs.into_iter());
        T::deserialize(map).map_err(|error| bad(format!("query: {error}")))
    }

    /// The body as its type.
    pub(super) fn body<T: DeserializeOwned>(&self) -> Result<T, Failure> {
        serde_json::from_slice(self.body).map_err(|error| bad(format!("body: {error}")))
    }
}

/// Undoes percent-encoding; `None`: it is damaged, or no text.
pub(super) fn decode(text: &str) -> Option<String> {
    crate::metrics::decode(text)
}

/// A value of a query, which becomes what the type wants.
struct Value(String);

impl<'de> IntoDeserializer<'de, Error> for Value {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

macro_rules! parsed {
    ($($method:ident $visit:ident $kind:ty,)+) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            match self.0.parse::<$kind>() {
                Ok(value) => visitor.$visit(value),
                // It says what it expects.
                Err(_) => visitor.visit_string(self.0),
            }
        })+
    };
}

impl<'de> Deserializer<'de> for Value {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_string(self.0)
    }

    parsed! {
        deserialize_bool visit_bool bool,
        deserialize_u8 visit_u64 u64,
        deserialize_u16 visit_u64 u64,
        deserialize_u32 visit_u64 u64,
        deserialize_u64 visit_u64 u64,
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_some(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let text: serde::de::value::StringDeserializer<Error> = self.0.into_deserializer();
        text.deserialize_enum(name, variants, visitor)
    }

    forward_to_deserialize_any! {
        i8 i16 i32 i64 i128 u128 f32 f64 char str string bytes byte_buf unit unit_struct
        newtype_struct seq tuple tuple_struct map struct identifier ignored_any
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;
    use crate::control::values::Protocol;

    #[derive(Debug, PartialEq, Eq, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Asked {
        text: Option<String>,
        number: Option<usize>,
        #[serde(default)]
        yes: bool,
        protocol: Option<Protocol>,
    }

    fn read(query: &str) -> Result<Asked, String> {
        let input = Input {
            query,
            ..Input::default()
        };
        input.query().map_err(|failure| failure.text)
    }

    #[test]
    fn a_query_becomes_its_type() {
        let asked = read("text=a%2Fb+c&number=7&yes=true&protocol=amqp").expect("good");
        assert_eq!(asked.text.as_deref(), Some("a/b c"));
        assert_eq!((asked.number, asked.yes), (Some(7), true));
        assert_eq!(asked.protocol, Some(Protocol::Amqp));
        let asked = read("text=&&").expect("good");
        assert_eq!((asked.text.as_deref(), asked.number), (Some(""), None));
    }

    #[test]
    fn mistakes_are_named() {
        for (query, says) in [
            ("x=1", "unknown field `x`"),
            ("number=x", "invalid type: string \"x\""),
            ("number=-1", "invalid type: string \"-1\""),
            ("yes=1", "invalid type: string \"1\""),
            ("protocol=http", "unknown variant `http`"),
            ("text=%ff", "percent-encoded"),
            ("text=%4", "percent-encoded"),
            ("text=a&text=b", "`text` is in the query twice"),
        ] {
            let error = read(query).expect_err("wrong");
            assert!(error.contains(says), "{query}: {error}");
        }
    }
}
