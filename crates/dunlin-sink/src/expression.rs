//! Expressions over a message: a path such as `payload.sensor.value`, which is followed
//! as it is, or a program of the Common Expression Language. Knows no column.

#[cfg(test)]
mod hostile;
mod uses;
mod work;

use core::cell::Cell;
use core::fmt;
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use cel::objects::{Key, Map};
use cel::{Context, Env, Program};

use crate::input::Input;
use crate::refusal::{Cause, Refusal};
use crate::value::{EXACT, Value};
use work::{MESSAGE_WORK_MAX, Size, WORK_MAX};

/// Longest expression in the configuration.
const SOURCE_BYTES_MAX: usize = 4096;

/// Stack of the thread that reads expressions: the parser descends some twenty calls for
/// each level of brackets.
const PARSER_STACK_BYTES: usize = 64 << 20;

/// What an expression may name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Root {
    Topic,
    Parts,
    Payload,
    Raw,
    Time,
    Qos,
    Retain,
    Properties,
    ContentType,
    ResponseTopic,
    CorrelationData,
    Item,
    Index,
}

impl Root {
    const ALL: [(&'static str, Self); 13] = [
        ("topic", Self::Topic),
        ("parts", Self::Parts),
        ("payload", Self::Payload),
        ("raw", Self::Raw),
        ("time", Self::Time),
        ("qos", Self::Qos),
        ("retain", Self::Retain),
        ("properties", Self::Properties),
        ("content_type", Self::ContentType),
        ("response_topic", Self::ResponseTopic),
        ("correlation_data", Self::CorrelationData),
        ("item", Self::Item),
        ("index", Self::Index),
    ];

    fn named(name: &str) -> Option<Self> {
        let mut all = Self::ALL.iter();
        all.find(|(known, _)| *known == name).map(|(_, root)| *root)
    }
}

/// What an expression is evaluated over.
#[derive(Clone, Copy, Debug)]
pub struct Scope<'s> {
    /// The message.
    pub input: &'s Input<'s>,
    /// Its payload, decoded.
    pub payload: &'s Value<'s>,
    /// One element of the list that makes a row each, if there is such a list.
    pub item: Option<&'s Value<'s>>,
    /// Its number, from 0.
    pub index: usize,
    /// What programs have done for this message.
    pub work: &'s Work,
}

/// A value and its name.
type Field<'v> = (Cow<'v, str>, Value<'v>);

/// What an expression gives.
pub type Found<'s> = Cow<'s, Value<'s>>;

#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Field(String),
    At(usize),
}

#[derive(Debug)]
enum Kind {
    /// A name and what to follow from it. What is not there is null.
    Path(Root, Vec<Step>),
    Program(Box<Formula>),
}

/// A program, and what is known of it.
#[derive(Debug)]
struct Formula {
    program: Program,
    uses: Vec<Use>,
}

/// A name that a program uses.
#[derive(Debug)]
struct Use {
    name: &'static str,
    root: Root,
    /// Its fields that are looked at, if not all of it is.
    fields: Option<Vec<String>>,
}

/// Work that programs have made of a message, counted beforehand.
#[derive(Debug, Default)]
pub struct Work(Cell<f64>);

impl Work {
    /// Whether so much more is not too much.
    fn add(&self, more: f64) -> bool {
        let all = self.0.get() + more;
        self.0.set(all);
        more <= WORK_MAX && all <= MESSAGE_WORK_MAX
    }
}

/// An expression.
pub struct Expression {
    source: String,
    kind: Kind,
    env: Arc<Env>,
}

/// Reads expressions.
#[derive(Clone)]
pub struct Expressions {
    env: Arc<Env>,
}

impl Expressions {
    /// With CEL's standard library and its functions for strings.
    #[must_use]
    pub fn new() -> Self {
        let mut env = Env::stdlib();
        // It adds to an environment that has none of its names.
        let added = env.add_extension(cel::extensions::strings);
        debug_assert!(added.is_ok(), "names are free");
        Self { env: Arc::new(env) }
    }

    /// Reads one.
    ///
    /// # Errors
    /// It is none; a sentence says why.
    pub fn parse(&self, source: &str) -> Result<Expression, String> {
        if source.len() > SOURCE_BYTES_MAX {
            return Err(format!(
                "an expression has at most {SOURCE_BYTES_MAX} bytes"
            ));
        }
        let kind = match path(source) {
            Some((root, steps)) => Kind::Path(root, steps),
            None => self.program(source)?,
        };
        Ok(Expression {
            source: source.to_owned(),
            kind,
            env: Arc::clone(&self.env),
        })
    }

    fn program(&self, source: &str) -> Result<Kind, String> {
        let wrong = |why: &dyn fmt::Display| format!("`{source}` is not an expression: {why}");
        let (env, text) = (Arc::clone(&self.env), source.to_owned());
        let parser = std::thread::Builder::new().stack_size(PARSER_STACK_BYTES);
        let compiled = parser
            .spawn(move || env.compile(&text).map_err(|error| error.to_string()))
            .map_err(|error| wrong(&error))?
            .join();
        let program = match compiled {
            Ok(program) => program.map_err(|error| wrong(&error))?,
            Err(_) => return Err(wrong(&"the parser gave up")),
        };
        work::check(program.expression()).map_err(|why| wrong(&why))?;
        let mut uses = Vec::new();
        for name in program.references().variables() {
            let known = Root::ALL.iter().find(|(known, _)| *known == name);
            if known.is_none() && is_bound(source, name) {
                continue;
            }
            let Some(known) = known else {
                let names: Vec<&str> = Root::ALL.iter().map(|(name, _)| *name).collect();
                let names = names.join(", ");
                return Err(wrong(&format_args!("there is no `{name}`, but {names}")));
            };
            let (name, root) = *known;
            let fields = uses::fields(program.expression(), name);
            uses.push(Use { name, root, fields });
        }
        Ok(Kind::Program(Box::new(Formula { program, uses })))
    }
}

impl Default for Expressions {
    fn default() -> Self {
        Self::new()
    }
}

dunlin_base::opaque_debug!(Expressions);

impl Expression {
    /// Evaluates it.
    ///
    /// # Errors
    /// A program failed.
    pub fn eval<'s>(&self, scope: &Scope<'s>) -> Result<Found<'s>, Refusal> {
        let formula = match &self.kind {
            Kind::Path(root, steps) => return Ok(follow(*root, steps, scope)),
            Kind::Program(formula) => formula,
        };
        let failed = |why: &dyn fmt::Display| {
            Refusal::new(Cause::Expression, format!("`{}`: {why}", self.source))
        };
        let mut context = Context::with_env(Arc::clone(&self.env));
        let mut size = work::Input::default();
        for used in &formula.uses {
            let whole = follow(used.root, &[], scope);
            let value = match (&*whole, &used.fields) {
                (Value::Map(fields), Some(names)) => used.some_to_cel(fields, names, &mut size),
                (whole, _) => to_cel(whole, &mut size.whole),
            };
            context.add_variable_from_value(used.name, value);
        }
        let work = work::of(formula.program.expression(), &size);
        if !scope.work.add(work) {
            let Size { values, bytes } = size.whole;
            let why = format!("{values} values with {bytes} bytes of text are too much work");
            return Err(failed(&why));
        }
        let value = formula.program.execute(&context);
        let value = value.map_err(|error| failed(&error))?;
        let value = from_cel(&value).ok_or_else(|| failed(&"its value has no type here"))?;
        Ok(Cow::Owned(value))
    }
}

impl Expression {
    /// Whether it is a program, and not a path.
    #[must_use]
    pub const fn is_program(&self) -> bool {
        matches!(self.kind, Kind::Program(_))
    }
}

impl fmt::Debug for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Expression").field(&self.source).finish()
    }
}

/// Whether a name is one that the program gives itself: the first argument of a macro such
/// as `list.map(v, ...)`, or what a macro calculates with.
fn is_bound(source: &str, name: &str) -> bool {
    let is_inner = name.starts_with(['@', '_']);
    let dense: String = source.split_whitespace().collect();
    is_inner || dense.contains(&format!("({name},"))
}

/// A path: a name, then `.name`, `["name"]` and `[number]`.
fn path(source: &str) -> Option<(Root, Vec<Step>)> {
    let source = source.trim();
    let (name, mut rest) = identifier(source)?;
    let root = Root::named(name)?;
    let mut steps = Vec::new();
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix('.') {
            let (name, after) = identifier(after)?;
            steps.push(Step::Field(name.to_owned()));
            rest = after;
        } else {
            let (inner, after) = rest.strip_prefix('[')?.split_once(']')?;
            let quoted = inner.strip_prefix('"').and_then(|it| it.strip_suffix('"'));
            steps.push(match quoted {
                Some(name) if !name.contains(['"', '\\']) => Step::Field(name.to_owned()),
                Some(_) => return None,
                None => Step::At(inner.parse().ok()?),
            });
            rest = after;
        }
    }
    Some((root, steps))
}

fn identifier(text: &str) -> Option<(&str, &str)> {
    let end = text
        .find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
        .unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    let first = name.bytes().next()?;
    (!first.is_ascii_digit()).then_some((name, rest))
}

fn follow<'s>(root: Root, steps: &[Step], scope: &Scope<'s>) -> Found<'s> {
    let owned = match (root, steps) {
        (Root::Payload, _) => return descend(scope.payload, steps),
        (Root::Item, _) => match scope.item {
            Some(item) => return descend(item, steps),
            None => Value::Null,
        },
        // Without a list or a map that holds them all.
        (Root::Parts, [Step::At(index)]) => {
            let part = scope.input.topic.split('/').nth(*index);
            part.map_or(Value::Null, |part| Value::Text(part.into()))
        }
        (Root::Properties, [Step::Field(name)]) => property(scope.input, name),
        _ => {
            let whole = simple(root, scope);
            if steps.is_empty() {
                whole
            } else {
                descend_owned(whole, steps)
            }
        }
    };
    Cow::Owned(owned)
}

fn simple<'s>(root: Root, scope: &Scope<'s>) -> Value<'s> {
    let input = scope.input;
    let text = |text: Option<&'s dunlin_base::Text>| {
        text.map_or(Value::Null, |text| Value::Text(text.as_str().into()))
    };
    let properties = input.properties;
    match root {
        Root::Topic => Value::Text(input.topic.into()),
        Root::Parts => {
            let parts = input.topic.split('/');
            Value::List(parts.map(|part| Value::Text(part.into())).collect())
        }
        Root::Raw => Value::Bytes(input.payload.into()),
        Root::Time => Value::Time(input.time),
        Root::Qos => Value::Int(input.qos.into()),
        Root::Retain => Value::Bool(input.retain),
        Root::Properties => {
            let all = properties.map_or(&[][..], |it| &it.user_properties);
            let named = all
                .iter()
                .map(|(name, value)| (name.as_str().into(), Value::Text(value.as_str().into())));
            Value::Map(named.collect())
        }
        Root::ContentType => text(properties.and_then(|it| it.content_type.as_ref())),
        Root::ResponseTopic => text(properties.and_then(|it| it.response_topic.as_ref())),
        Root::CorrelationData => properties
            .and_then(|it| it.correlation_data.as_ref())
            .map_or(Value::Null, |data| Value::Bytes((&**data).into())),
        Root::Index => Value::Int(i64::try_from(scope.index).unwrap_or(i64::MAX)),
        Root::Payload => scope.payload.clone(),
        Root::Item => scope.item.cloned().unwrap_or(Value::Null),
    }
}

fn property<'s>(input: &Input<'s>, name: &str) -> Value<'s> {
    let all = input.properties.map_or(&[][..], |it| &it.user_properties);
    let mut all = all.iter().rev();
    let found = all.find(|(key, _)| key.as_str() == name);
    found.map_or(Value::Null, |(_, value)| Value::Text(value.as_str().into()))
}

fn descend<'s>(from: &'s Value<'s>, steps: &[Step]) -> Found<'s> {
    let mut at = from;
    for step in steps {
        let next = match step {
            Step::Field(name) => at.field(name),
            Step::At(index) => at.at(*index),
        };
        match next {
            Some(next) => at = next,
            None => return Cow::Owned(Value::Null),
        }
    }
    Cow::Borrowed(at)
}

fn descend_owned<'s>(from: Value<'s>, steps: &[Step]) -> Value<'s> {
    let mut at = &from;
    for step in steps {
        let next = match step {
            Step::Field(name) => at.field(name),
            Step::At(index) => at.at(*index),
        };
        match next {
            Some(next) => at = next,
            None => return Value::Null,
        }
    }
    at.clone()
}

/// Numbers become what they are in CEL's view of JSON, so that 21 and 21.5 of one sensor
/// are of one type; whole ones that a float does not hold stay whole. Adds to `size` what
/// it is.
fn to_cel(value: &Value<'_>, size: &mut Size) -> cel::Value {
    size.values += 1.0;
    match value {
        Value::Null => cel::Value::Null,
        Value::Bool(yes) => cel::Value::Bool(*yes),
        Value::Int(int) if (*int as f64).abs() <= EXACT => cel::Value::Float(*int as f64),
        Value::Int(int) | Value::Time(int) => cel::Value::Int(*int),
        Value::UInt(int) => cel::Value::UInt(*int),
        Value::Float(float) => cel::Value::Float(*float),
        Value::Text(text) => {
            size.bytes += text.len() as f64;
            cel::Value::String(Arc::new(text.as_ref().to_owned()))
        }
        Value::Bytes(bytes) => {
            size.bytes += bytes.len() as f64;
            cel::Value::Bytes(Arc::new(bytes.to_vec()))
        }
        Value::List(values) => {
            let values = values.iter().map(|value| to_cel(value, size));
            cel::Value::List(Arc::new(values.collect()))
        }
        Value::Map(fields) => map_to_cel(fields, size),
    }
}

impl Use {
    /// The same of the fields of a map that a program looks at.
    fn some_to_cel<'n>(
        &self,
        fields: &[Field<'_>],
        names: &'n [String],
        size: &mut work::Input<'n>,
    ) -> cel::Value {
        let mut map = HashMap::new();
        size.whole.values += 1.0;
        for (name, value) in fields {
            let Some(name) = names.iter().find(|it| *it == name) else {
                continue;
            };
            let mut of_field = Size::default();
            let value = to_cel(value, &mut of_field);
            size.whole = size.whole.plus(of_field);
            size.whole.bytes += name.len() as f64;
            size.fields.push((self.name, name, of_field));
            map.insert(Key::from(name.clone()), value);
        }
        // Of a field that is there twice the last one counts.
        size.fields.reverse();
        cel::Value::Map(Map { map: Arc::new(map) })
    }
}

fn map_to_cel(fields: &[Field<'_>], size: &mut Size) -> cel::Value {
    let named = fields.iter().map(|(name, value)| {
        size.bytes += name.len() as f64;
        (Key::from(name.as_ref().to_owned()), to_cel(value, size))
    });
    let map: HashMap<Key, cel::Value> = named.collect();
    cel::Value::Map(Map { map: Arc::new(map) })
}

fn from_cel(value: &cel::Value) -> Option<Value<'static>> {
    Some(match value {
        cel::Value::Null => Value::Null,
        cel::Value::Bool(yes) => Value::Bool(*yes),
        cel::Value::Int(int) => Value::Int(*int),
        cel::Value::UInt(int) => i64::try_from(*int).map_or(Value::UInt(*int), Value::Int),
        cel::Value::Float(float) => Value::Float(*float),
        cel::Value::String(text) => Value::Text(text.as_str().to_owned().into()),
        cel::Value::Bytes(bytes) => Value::Bytes(bytes.to_vec().into()),
        cel::Value::List(values) => {
            let values: Option<Vec<_>> = values.iter().map(from_cel).collect();
            Value::List(values?)
        }
        cel::Value::Map(map) => {
            let mut fields = Vec::with_capacity(map.map.len());
            for (key, value) in map.map.iter() {
                let name = match key {
                    Key::String(name) => name.as_str().to_owned(),
                    Key::Int(int) => int.to_string(),
                    Key::Uint(int) => int.to_string(),
                    Key::Bool(yes) => yes.to_string(),
                };
                fields.push((Cow::<str>::Owned(name), from_cel(value)?));
            }
            fields.sort_by(|(a, _), (b, _)| a.cmp(b));
            Value::Map(fields)
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use dunlin_base::MessageProperties;

    use super::*;

    fn eval(source: &str) -> Result<String, String> {
        let payload = br#"{"t":21,"n":{"a b":[1,2.5]},"name":"x","big":9007199254740993}"#;
        let properties = MessageProperties {
            user_properties: vec![("id".into(), "one".into()), ("id".into(), "two".into())],
            ..MessageProperties::default()
        };
        let input = Input {
            topic: "plant/7/temperature",
            payload,
            time: 1_000_000,
            qos: 1,
            retain: false,
            properties: Some(&properties),
        };
        let payload: Value<'_> = serde_json::from_slice(payload).expect("JSON");
        let scope = Scope {
            input: &input,
            payload: &payload,
            item: None,
            index: 0,
            work: &Work::default(),
        };
        let expression = Expressions::new().parse(source)?;
        let value = expression.eval(&scope).map_err(|error| error.to_string())?;
        let mut out = Vec::new();
        value.write_json(&mut out);
        Ok(String::from_utf8(out).expect("UTF-8"))
    }

    #[test]
    fn paths_are_followed() {
        for (source, want) in [
            ("topic", "\"plant/7/temperature\""),
            (" parts[1] ", "\"7\""),
            ("parts[3]", "null"),
            ("payload.t", "21"),
            ("payload.n[\"a b\"][1]", "2.5"),
            ("payload.n.none.deeper", "null"),
            ("payload[0]", "null"),
            ("properties.id", "\"two\""),
            ("properties.none", "null"),
            ("time", "\"1970-01-01T00:00:01Z\""),
            ("qos", "1"),
            ("topic.x", "null"),
            ("item", "null"),
            ("content_type", "null"),
            ("payload.big", "9007199254740993"),
        ] {
            assert!(path(source).is_some(), "{source}");
            assert_eq!(eval(source).as_deref(), Ok(want), "{source}");
        }
    }

    #[test]
    fn programs_are_run() {
        for (source, want) in [
            ("payload.t > 20.5 && topic.startsWith(\"plant/\")", "true"),
            ("payload.t > 21", "false"),
            ("payload.t * 1.5 + 32.0", "63.5"),
            ("int(payload.t) % 2", "1"),
            ("has(payload.none) ? payload.none : \"-\"", "\"-\""),
            ("parts[0] + \".\" + parts[1]", "\"plant.7\""),
            ("payload.n[\"a b\"].map(v, v * 2.0)", "[2.0,5.0]"),
            (
                "{\"a\": payload.name, \"b\": qos}",
                "{\"a\":\"x\",\"b\":1.0}",
            ),
            ("payload.name.replace(\"x\", \"y\")", "\"y\""),
            ("payload.big", "9007199254740993"),
            ("topic.matches(\"^plant/[0-9]+/\")", "true"),
            ("true", "true"),
        ] {
            assert_eq!(eval(source).as_deref(), Ok(want), "{source}");
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (source, part) in [
            ("payload.t >", "is not an expression"),
            (
                "temperature > 3",
                "there is no `temperature`, but topic, parts",
            ),
            ("payload.none > 3", "expression: `payload.none > 3`"),
            ("payload.name + 1", "expression: "),
            ("", "is not an expression"),
        ] {
            let error = eval(source).expect_err(source);
            assert!(error.contains(part), "{source}: {error}");
        }
        let nested = format!("1{}", " + 1".repeat(200));
        let error = eval(&nested).expect_err("too deep");
        assert!(error.contains("deeper than 150"), "{error}");
        let deep = "(".repeat(4000);
        assert!(Expressions::new().parse(&deep).is_err());
        assert!(Expressions::new().parse(&"x".repeat(5000)).is_err());
    }
}
