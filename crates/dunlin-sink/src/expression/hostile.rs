//! Programs and payloads of strangers: each is evaluated or refused, soon, and none panics.

use core::time::Duration;
use std::time::Instant;

use super::*;

/// Every operator, function and macro, over a payload that may be anything.
const PROGRAMS: [&str; 44] = [
    "p.a + p.b",
    "p.a - p.b",
    "p.a * p.b",
    "p.a / p.b",
    "p.a % p.b",
    "-p.a",
    "!p.a",
    "p.a < p.b || p.a >= p.b",
    "p.a == p.b && p.a != p.b",
    "p.a in p.b",
    "p.a[p.b]",
    "p.a[-1]",
    "p.a[int(p.b)]",
    "p.a[9223372036854775807]",
    "int(p.a) + int(p.b)",
    "int(p.a) - int(p.b)",
    "int(p.a) * int(p.b)",
    "int(p.a) / int(p.b)",
    "int(p.a) % int(p.b)",
    "-int(p.a)",
    "uint(p.a) - uint(p.b)",
    "double(p.a) / double(p.b)",
    "string(p.a) + string(p.b)",
    "bytes(p.a) == bytes(p.b)",
    "string(bytes(p.a))",
    "size(p.a) + p.b.size()",
    "p.a.contains(p.b) || p.a.startsWith(p.b) || p.a.endsWith(p.b)",
    "p.a.matches('^[a-z]{1,9}(x|y)*$')",
    "p.a.charAt(int(p.b))",
    "p.a.indexOf(p.b) + p.a.lastIndexOf(p.b)",
    "p.a.indexOf(p.c, int(p.b)) + p.a.lastIndexOf(p.c, int(p.b))",
    "p.a.substring(int(p.b))",
    "p.a.substring(int(p.b), int(p.c))",
    "p.a.replace(p.b, p.c)",
    "p.a.replace(p.b, p.c, int(p.c))",
    "p.a.split(p.b, int(p.c))",
    "p.a.split(p.b).join(p.c)",
    "p.a.format([p.b, p.c])",
    "p.a.reverse().trim().lowerAscii().upperAscii()",
    "p.a.map(x, x + p.b).filter(x, x != p.c)",
    "p.a.all(x, x > p.b) ? p.a.exists(x, x == p.b) : p.a.exists_one(x, x == p.c)",
    "p.a.map(x, p.b.map(y, [x, y, p.c]))",
    "{p.a: p.b, p.c: p.a}",
    "has(p.a.x) ? type(p.a.x) == type(p.b) : dyn(p.c) == null",
];

/// Small numbers that differ, of a seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }

    fn value(&mut self, depth: u32) -> Value<'static> {
        let ints = [0, -1, 1, 5, 1 << 53, i64::MIN, i64::MAX];
        let floats = [-0.0, 1e308, -1e308, 9.3e18, f64::NAN, f64::INFINITY, 0.5];
        let texts = [
            "",
            "a",
            "é",
            "%.100f%s%x",
            "%",
            "\0",
            "x\u{10ffff}y",
            "-1",
            "aaaaaaaa",
        ];
        let one = self.below(7) as usize;
        match self.below(if depth == 0 { 7 } else { 9 }) {
            0 => Value::Null,
            1 => Value::Bool(one > 3),
            2 => Value::Int(ints[one]),
            3 => Value::UInt(u64::MAX - one as u64),
            4 => Value::Float(floats[one]),
            5 => Value::Text(
                texts[self.below(9) as usize]
                    .repeat(1 + one * one * 20)
                    .into(),
            ),
            6 => Value::Bytes(vec![0xff - one as u8; one].into()),
            7 => Value::List((0..one * 3).map(|_| self.value(depth - 1)).collect()),
            _ => {
                let names = ["a", "x", "", "é", "b", "c", "d"];
                let fields = names.iter().take(one);
                Value::Map(
                    fields
                        .map(|name| ((*name).into(), self.value(depth - 1)))
                        .collect(),
                )
            }
        }
    }
}

fn eval(program: &Expression, payload: &Value<'_>) -> Result<(), Refusal> {
    let input = Input {
        topic: "t",
        payload: b"",
        time: 0,
        qos: 1,
        retain: false,
        properties: None,
    };
    let scope = Scope {
        input: &input,
        payload,
        item: None,
        index: 0,
        work: &Work::default(),
    };
    program.eval(&scope).map(drop)
}

fn programs() -> Vec<Expression> {
    let expressions = Expressions::new();
    let read = |source: &&str| {
        let source = source.replace("p.", "payload.");
        expressions.parse(&source).expect(&source)
    };
    PROGRAMS.iter().map(read).collect()
}

#[test]
fn no_payload_makes_a_program_panic() {
    let programs = programs();
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
    let mut done = 0;
    for _ in 0..400 {
        let fields = ["a", "b", "c"].map(|name| (name.into(), dice.value(2)));
        let payload = Value::Map(fields.into());
        for program in &programs {
            done += usize::from(eval(program, &payload).is_ok());
        }
    }
    assert!(done > 1_000, "{done} were evaluated");
}

#[test]
fn large_payloads_are_refused_or_soon_done() {
    let texts = |unit: &str| Value::Text(unit.repeat(1 << 19).into());
    let lists = |value: Value<'static>| Value::List(vec![value; 50_000]);
    let mut deep = Value::Int(1);
    for _ in 0..127 {
        deep = Value::List(vec![deep]);
    }
    let large = [
        [texts("a"), texts("a"), texts("b")],
        [texts("aa"), Value::Text("a".into()), texts("b")],
        [texts("ab"), Value::Text("".into()), texts("é")],
        [lists(Value::Int(1)), lists(Value::Int(2)), Value::Int(3)],
        [
            lists(Value::Text("ab".into())),
            Value::Text("b".into()),
            Value::Null,
        ],
        [lists(Value::Null), texts("a"), texts("a")],
        [deep.clone(), deep.clone(), deep],
    ];
    // A machine under load is some times slower than the bound says.
    let soon = Duration::from_secs(60);
    let mut refused = 0;
    for program in &programs() {
        for [a, b, c] in &large {
            let fields = [("a", a), ("b", b), ("c", c)];
            let fields = fields.map(|(name, value)| (name.into(), value.clone()));
            let payload = Value::Map(fields.into());
            let began = Instant::now();
            let outcome = eval(program, &payload);
            let took = began.elapsed();
            assert!(took < soon, "{program:?} took {took:?}");
            refused += usize::from(outcome.is_err_and(|it| it.why.contains("too much work")));
        }
    }
    assert!(refused > 10, "{refused} were refused");
}
