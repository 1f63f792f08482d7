//! How much work a program can make at most, from its syntax and from how large the values
//! are that it names: a bound that is known before it runs. The interpreter has no limit of
//! its own.
//!
//! Work is counted in bytes that are looked at or written; other steps are worth as many
//! bytes as take about as long.

use cel::common::ast::{ComprehensionExpr, EntryExpr, Expr, LiteralValue, operators};
use cel::parser::Expression;

/// Most work of one evaluation: about a quarter of a second, or as many bytes.
pub(super) const WORK_MAX: f64 = 250e6;

/// Most work of all rows of a message.
pub(super) const MESSAGE_WORK_MAX: f64 = 1e9;

/// What an evaluation takes beside its steps.
const BEGIN: f64 = 1_000.0;

/// Deepest expression: each level is some calls of the interpreter.
const DEPTH_MAX: usize = 150;

/// Most loops (`map`, `filter`, `all`, ...) within each other.
const LOOPS_MAX: usize = 6;

/// A step of the interpreter.
const STEP: f64 = 50.0;

/// A value that is made or copied.
const VALUE: f64 = 100.0;

/// A regular expression that is read; it is read again for each evaluation.
const PATTERN: f64 = 50e3;

/// Longest number as text.
const NUMBER: f64 = 330.0;

/// How large a value is at most.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Size {
    /// Values in it, itself included.
    pub(super) values: f64,
    /// Bytes of its texts and names.
    pub(super) bytes: f64,
}

impl Size {
    const ONE: Self = Self {
        values: 1.0,
        bytes: 0.0,
    };

    const fn text(bytes: f64) -> Self {
        Self { values: 1.0, bytes }
    }

    pub(super) fn plus(self, other: Self) -> Self {
        Self {
            values: self.values + other.values,
            bytes: self.bytes + other.bytes,
        }
    }

    fn max(self, other: Self) -> Self {
        Self {
            values: self.values.max(other.values),
            bytes: self.bytes.max(other.bytes),
        }
    }

    fn min(self, other: Self) -> Self {
        Self {
            values: self.values.min(other.values),
            bytes: self.bytes.min(other.bytes),
        }
    }

    fn times(self, factor: f64) -> Self {
        Self {
            values: self.values * factor,
            bytes: self.bytes * factor,
        }
    }

    /// Work to make it.
    fn copied(self) -> f64 {
        self.values * VALUE + self.bytes
    }
}

/// How large what a program names is.
#[derive(Debug, Default)]
pub(super) struct Input<'v> {
    /// All of it.
    pub(super) whole: Size,
    /// Fields of names.
    pub(super) fields: Vec<(&'static str, &'v str, Size)>,
}

/// The most work that a program makes of values of these sizes.
pub(super) fn of(program: &Expression, input: &Input<'_>) -> f64 {
    let mut count = Count {
        input,
        names: Vec::new(),
        work: 0.0,
    };
    let result = count.value(program, 1.0);
    // What the program names is converted for it, and its result is converted back.
    BEGIN + count.work + input.whole.copied() + result.copied()
}

/// Whether the work of a program can be bounded at all; a sentence if not.
pub(super) fn check(program: &Expression) -> Result<(), String> {
    nesting(program, 1, 0)
}

fn nesting(program: &Expression, depth: usize, loops: usize) -> Result<(), String> {
    if depth > DEPTH_MAX {
        return Err(format!("it is nested deeper than {DEPTH_MAX} levels"));
    }
    let is_loop = matches!(program.expr, Expr::Comprehension(_));
    let loops = loops + usize::from(is_loop);
    if loops > LOOPS_MAX {
        return Err(format!("more than {LOOPS_MAX} loops within each other"));
    }
    if let Expr::Call(call) = &program.expr
        && call.func_name == "matches"
        && !call.args.last().is_some_and(is_text)
    {
        return Err("the pattern of `matches` is written in quotes".into());
    }
    let mut parts = Vec::new();
    parts_of(&program.expr, &mut parts);
    parts
        .into_iter()
        .try_for_each(|part| nesting(part, depth + 1, loops))
}

const fn is_text(expression: &Expression) -> bool {
    matches!(expression.expr, Expr::Literal(LiteralValue::String(_)))
}

/// The expressions that are parts of one.
pub(super) fn parts_of<'e>(expr: &'e Expr, parts: &mut Vec<&'e Expression>) {
    let entry = |entry: &'e EntryExpr, parts: &mut Vec<&'e Expression>| match entry {
        EntryExpr::StructField(field) => parts.push(&field.value),
        EntryExpr::MapEntry(entry) => parts.extend([&entry.key, &entry.value]),
    };
    match expr {
        Expr::Call(call) => {
            parts.extend(call.target.as_deref());
            parts.extend(&call.args);
        }
        Expr::Comprehension(it) => parts.extend([
            &it.iter_range,
            &it.accu_init,
            &it.loop_cond,
            &it.loop_step,
            &it.result,
        ]),
        Expr::List(list) => parts.extend(&list.elements),
        Expr::Map(map) => map.entries.iter().for_each(|it| entry(&it.expr, parts)),
        Expr::Select(select) => parts.push(&select.operand),
        Expr::Struct(it) => it.entries.iter().for_each(|it| entry(&it.expr, parts)),
        Expr::Unspecified | Expr::Ident(_) | Expr::Literal(_) => {}
    }
}

struct Count<'e> {
    input: &'e Input<'e>,
    /// Names that loops give.
    names: Vec<(&'e str, Size)>,
    work: f64,
}

impl<'e> Count<'e> {
    /// The size of an expression that is evaluated so many times; adds the work of all.
    fn value(&mut self, program: &'e Expression, times: f64) -> Size {
        self.work += STEP * times;
        match &program.expr {
            Expr::Literal(LiteralValue::String(text)) => Size::text(text.inner().len() as f64),
            Expr::Literal(LiteralValue::Bytes(bytes)) => Size::text(bytes.inner().len() as f64),
            Expr::Literal(_) | Expr::Unspecified => Size::ONE,
            Expr::Ident(name) => self.named(name),
            Expr::Select(select) => {
                self.work += select.field.len() as f64 * times;
                let known = self.field(&select.operand, &select.field);
                known.unwrap_or_else(|| self.value(&select.operand, times))
            }
            Expr::Call(call) => {
                let target = call.target.as_deref().map(|it| self.value(it, times));
                let mut args = Vec::with_capacity(call.args.len() + 1);
                args.extend(target);
                for arg in &call.args {
                    args.push(self.value(arg, times));
                }
                let (work, size) = call_of(&call.func_name, &args);
                self.work += work * times;
                size
            }
            Expr::Comprehension(it) => self.repeated(it, times),
            made => {
                let mut parts = Vec::new();
                parts_of(made, &mut parts);
                let whole = parts.into_iter().fold(Size::ONE, |whole, part| {
                    let part = self.value(part, times);
                    whole.plus(part)
                });
                self.work += whole.copied() * times;
                whole
            }
        }
    }

    fn named(&self, name: &str) -> Size {
        let mut names = self.names.iter().rev();
        let found = names.find(|(known, _)| *known == name);
        // Every name of the message is at most as large as all of them.
        found.map_or(self.input.whole, |(_, size)| *size)
    }

    fn field(&self, from: &Expression, field: &str) -> Option<Size> {
        let Expr::Ident(name) = &from.expr else {
            return None;
        };
        if self.names.iter().any(|(known, _)| known == name) {
            return None;
        }
        let mut fields = self.input.fields.iter();
        let found = fields.find(|(of, known, _)| of == name && *known == field);
        found.map(|(.., size)| *size)
    }

    /// A loop. What a step does with its item is at most something that does not depend on
    /// it, and something that grows at least as fast as the item does: so all steps make
    /// no more work than each with an item of the mean size, and one with all of them.
    fn repeated(&mut self, it: &'e ComprehensionExpr, times: f64) -> Size {
        let range = self.value(&it.iter_range, times);
        let begin = self.value(&it.accu_init, times);
        let rounds = range.values;
        self.work += (range.copied() + rounds * STEP) * times;
        let mean = range.times(1.0 / rounds.max(1.0)).max(Size::ONE);
        let known = self.names.len();
        let mut grown = begin;
        for (item, steps) in [(mean, rounds), (range, 1.0)] {
            self.names.push((&it.iter_var, item));
            let second = it.iter_var2.as_deref();
            self.names.extend(second.map(|name| (name, item)));
            self.names.push((&it.accu_var, begin));
            self.value(&it.loop_cond, times * steps);
            let step = self.value(&it.loop_step, times * steps);
            self.names.truncate(known);
            let more = Size {
                values: (step.values - begin.values).max(0.0),
                bytes: (step.bytes - begin.bytes).max(0.0),
            };
            grown = grown.plus(more.times(steps));
        }
        self.names.push((&it.accu_var, grown));
        let result = self.value(&it.result, times);
        self.names.truncate(known);
        self.work += result.copied() * times;
        result
    }
}

/// Work and result of a function: by its name, with the target before the arguments.
fn call_of(name: &str, args: &[Size]) -> (f64, Size) {
    let arg = |at: usize| args.get(at).copied().unwrap_or_default();
    let all = args.iter().fold(Size::default(), |all, arg| all.plus(*arg));
    let (first, second) = (arg(0), arg(1));
    match name {
        operators::CONDITIONAL => (0.0, second.max(arg(2))),
        operators::LOGICAL_AND
        | operators::LOGICAL_OR
        | operators::LOGICAL_NOT
        | operators::NOT_STRICTLY_FALSE
        | operators::SUBSTRACT
        | operators::MULTIPLY
        | operators::DIVIDE
        | operators::MODULO
        | operators::NEGATE => (VALUE, Size::ONE),
        operators::ADD => {
            let sum = first.plus(second);
            (sum.copied(), sum)
        }
        operators::EQUALS
        | operators::NOT_EQUALS
        | operators::LESS
        | operators::LESS_EQUALS
        | operators::GREATER
        // A number copies what it cannot be compared with.
        | operators::GREATER_EQUALS => (first.min(second).plus(second).copied(), Size::ONE),
        operators::INDEX | operators::OPT_INDEX => (second.bytes + VALUE, first),
        operators::IN => (second.copied() + second.values * first.copied(), Size::ONE),
        "size" | "startsWith" | "endsWith" | "contains" => (all.bytes, Size::ONE),
        "matches" => {
            let pattern = second.bytes + 1.0;
            (
                PATTERN + pattern * (first.bytes + pattern * STEP),
                Size::ONE,
            )
        }
        "indexOf" | "lastIndexOf" => {
            let looked = (first.bytes + 1.0) * (second.bytes + 1.0);
            (looked + 8.0 * all.bytes, Size::ONE)
        }
        "replace" => {
            let made = first.bytes + (first.bytes + 1.0) * arg(2).bytes;
            (all.bytes + made, Size::text(made))
        }
        "split" => {
            let parts = Size {
                values: first.bytes + 2.0,
                bytes: first.bytes,
            };
            (all.bytes + parts.copied(), parts)
        }
        "join" => {
            let made = first.bytes + first.values * second.bytes;
            (first.values * STEP + made, Size::text(made))
        }
        "format" => {
            let made = first.bytes * 100.0 + 2.0 * second.bytes + NUMBER * second.values;
            (made + second.values * VALUE, Size::text(made))
        }
        // Linear in what they get.
        _ => {
            let made = Size {
                values: all.values,
                bytes: 2.0 * all.bytes + NUMBER,
            };
            (made.copied(), made)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work(source: &str, values: f64, bytes: f64) -> f64 {
        let whole = Size { values, bytes };
        let small = Size::text(20.0);
        let fields = vec![("payload", "name", small), ("payload", "scale", small)];
        let mut env = cel::Env::stdlib();
        let added = env.add_extension(cel::extensions::strings);
        added.expect("free names");
        let program = env.compile(source).expect(source);
        check(program.expression()).expect(source);
        of(program.expression(), &Input { whole, fields })
    }

    #[test]
    fn usual_programs_take_large_messages() {
        for source in [
            "payload.v * 1.8 + 32.0",
            "topic.startsWith('plant/') ? parts[1] : 'other'",
            "has(payload.v) && payload.v > 30.0",
            "topic.matches('^plant/[0-9]+/')",
            "payload.readings.map(r, r.v * payload.scale)",
            "payload.readings.filter(r, r.name == payload.name).size() > 0",
            "payload.readings.exists(r, r.name.startsWith('a'))",
            "payload.names.map(n, n.upperAscii()).join(',')",
        ] {
            let much = work(source, 20_000.0, 1e6);
            assert!(much < WORK_MAX, "{source}: {much}");
        }
    }

    #[test]
    fn work_that_grows_faster_than_a_message_is_seen() {
        for source in [
            "payload.a.map(x, payload.a.map(y, x + y))",
            "payload.a.exists(x, payload.b.exists(y, x == y))",
            "payload.t.replace('a', payload.u)",
            "payload.t.indexOf(payload.u)",
            "payload.a.map(x, payload.t + 'x').join(',')",
            "payload.a.join(payload.t)",
            "payload.a.all(x, x in payload.b)",
            "payload.t.split('').map(c, payload.u + c)",
        ] {
            let much = work(source, 20_000.0, 1e6);
            assert!(much > WORK_MAX, "{source}: {much}");
            let little = work(source, 100.0, 2_000.0);
            assert!(little < WORK_MAX, "{source}: {little}");
        }
    }

    #[test]
    fn what_has_no_bound_is_no_program() {
        for (source, part) in [
            ("topic.matches(payload.pattern)".to_owned(), "`matches`"),
            (format!("1{}", " + 1".repeat(200)), "deeper than"),
            (
                "[1].all(a, ".repeat(7) + "true" + &")".repeat(7),
                "more than 6 loops",
            ),
        ] {
            let compile = std::thread::Builder::new().stack_size(64 << 20);
            let text = source.clone();
            let checked = compile.spawn(move || {
                let program = cel::Env::stdlib().compile(&text).expect("an expression");
                check(program.expression())
            });
            let checked = checked.expect("a thread").join().expect("no panic");
            let why = checked.expect_err(&source);
            assert!(why.contains(part), "{source}: {why}");
        }
    }
}
