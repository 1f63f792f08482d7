//! Which fields of a name a program looks at, so that only these are given to it.

use cel::common::ast::Expr;
use cel::parser::Expression;

use super::work::parts_of;

/// The fields of `name` that a program looks at; none if it looks at all of it.
pub(super) fn fields(program: &Expression, name: &str) -> Option<Vec<String>> {
    let mut found = Vec::new();
    gather(program, name, &mut found).then_some(found)
}

fn gather(program: &Expression, name: &str, found: &mut Vec<String>) -> bool {
    match &program.expr {
        Expr::Ident(ident) => ident != name,
        Expr::Select(select) if matches!(&select.operand.expr, Expr::Ident(ident) if ident == name) =>
        {
            if !found.contains(&select.field) {
                found.push(select.field.clone());
            }
            true
        }
        other => {
            let mut parts = Vec::new();
            parts_of(other, &mut parts);
            parts.into_iter().all(|part| gather(part, name, found))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_fields_that_are_looked_at() {
        for (source, want) in [
            ("payload.v * 1.8", Some(&["v"][..])),
            (
                "has(payload.a) ? payload.a.b : payload.c[0]",
                Some(&["a", "c"]),
            ),
            ("payload.l.map(x, x + payload.k)", Some(&["l", "k"])),
            ("topic == 'a'", Some(&[])),
            ("payload['a b'] + payload.v", None),
            ("payload.l.exists(x, payload)", None),
        ] {
            let program = cel::Env::stdlib().compile(source).expect(source);
            let got = fields(program.expression(), "payload");
            let want = want.map(|names| names.iter().map(|it| (*it).to_owned()).collect());
            assert_eq!(got, want, "{source}");
        }
    }
}
