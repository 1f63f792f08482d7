//! Evaluation of a selector: SQL's three values of logic, with comparisons of
//! unlike types false (JMS 2.0 section 3.8.1.2).

use core::cmp::Ordering;

use super::like::is_like;
use super::node::{Comparison, Literal, Node, NodeId};
use super::subject::Subject;
use super::term::{Number, Term};

/// Whether the last node is true. What it takes is taken from `steps`.
pub(super) fn is_true(nodes: &[Node], subject: &Subject<'_>, steps: &mut usize) -> bool {
    let mut eval = Eval {
        nodes,
        subject,
        steps: *steps,
    };
    let Some(last) = nodes.len().checked_sub(1) else {
        return false;
    };
    let term = eval.term(last);
    let left = eval.steps;
    let is_true = term == Some(Term::Bool(true));
    *steps = if term.is_some() { left } else { 0 };
    is_true
}

struct Eval<'a> {
    nodes: &'a [Node],
    subject: &'a Subject<'a>,
    steps: usize,
}

impl<'a> Eval<'a> {
    /// What a node is; `None` once the steps are used up. The parser bounds how
    /// deep this goes: chains of one operator are loops here.
    fn term(&mut self, id: NodeId) -> Option<Term<'a>> {
        self.steps = self.steps.checked_sub(1)?;
        let nodes = self.nodes;
        Some(match nodes.get(id)? {
            Node::Literal(literal) => term_of(literal),
            Node::Field(field) => {
                self.steps = self.steps.checked_sub(self.subject.steps(field))?;
                self.subject.field(field)
            }
            Node::Not(operand) => match self.term(*operand)? {
                Term::Bool(truth) => Term::Bool(!truth),
                _ => Term::Null,
            },
            Node::Negate(operand) => match self.term(*operand)? {
                Term::Number(number) => Term::Number(number.negate()),
                _ => Term::Null,
            },
            Node::And(..) => self.chain(id, false)?,
            Node::Or(..) => self.chain(id, true)?,
            Node::Compare(comparison, left, right) => {
                let (left, right) = (self.term(*left)?, self.term(*right)?);
                compare(*comparison, left, right)
            }
            Node::Arithmetic(..) => self.arithmetic(id)?,
            Node::Between(value, low, high) => {
                let value = self.term(*value)?;
                let low = compare(Comparison::GreaterOrEqual, value, self.term(*low)?);
                let high = compare(Comparison::LessOrEqual, value, self.term(*high)?);
                both(low, high)
            }
            Node::In(value, literals) => {
                let value = self.term(*value)?;
                self.steps = self.steps.checked_sub(literals.len())?;
                if value == Term::Null {
                    return Some(Term::Null);
                }
                let is = |it| compare(Comparison::Equal, value, term_of(it)) == Term::Bool(true);
                Term::Bool(literals.iter().any(is))
            }
            Node::Like(value, pattern) => match self.term(*value)? {
                Term::Null => Term::Null,
                Term::Text(text) => Term::Bool(is_like(text, pattern, &mut self.steps)?),
                _ => Term::Bool(false),
            },
            Node::IsNull(value) => Term::Bool(self.term(*value)? == Term::Null),
        })
    }

    /// `a OR b OR c…` or `a AND b AND c…`, which lean to the left: true or
    /// false as soon as one is `decides`.
    fn chain(&mut self, id: NodeId, decides: bool) -> Option<Term<'a>> {
        let mut is_unknown = false;
        let mut next = Some(id);
        while let Some(at) = next {
            self.steps = self.steps.checked_sub(1)?;
            let operand = match self.nodes.get(at)? {
                Node::Or(left, right) if decides => {
                    next = Some(*left);
                    *right
                }
                Node::And(left, right) if !decides => {
                    next = Some(*left);
                    *right
                }
                _ => {
                    next = None;
                    at
                }
            };
            match self.term(operand)? {
                Term::Bool(truth) if truth == decides => return Some(Term::Bool(decides)),
                Term::Bool(_) => {}
                _ => is_unknown = true,
            }
        }
        Some(if is_unknown {
            Term::Null
        } else {
            Term::Bool(!decides)
        })
    }

    /// A chain of operators, which leans to the left.
    fn arithmetic(&mut self, id: NodeId) -> Option<Term<'a>> {
        let mut operators = alloc::vec::Vec::new();
        let mut at = id;
        while let Node::Arithmetic(operator, left, right) = self.nodes.get(at)? {
            operators.push((*operator, *right));
            at = *left;
        }
        let mut result = self.term(at)?;
        for (operator, right) in operators.into_iter().rev() {
            let right = self.term(right)?;
            result = match (result, right) {
                (Term::Number(left), Term::Number(right)) => left
                    .calculate(operator, right)
                    .map_or(Term::Null, Term::Number),
                _ => Term::Null,
            };
        }
        Some(result)
    }
}

fn term_of(literal: &Literal) -> Term<'_> {
    match literal {
        Literal::Bool(truth) => Term::Bool(*truth),
        Literal::Long(number) => Term::Number(Number::Long(*number)),
        Literal::Double(number) => Term::Number(Number::Double(*number)),
        Literal::Text(text) => Term::Text(text),
    }
}

fn both<'a>(left: Term<'_>, right: Term<'_>) -> Term<'a> {
    match (left, right) {
        (Term::Bool(false), _) | (_, Term::Bool(false)) => Term::Bool(false),
        (Term::Bool(true), Term::Bool(true)) => Term::Bool(true),
        _ => Term::Null,
    }
}

fn compare<'a>(comparison: Comparison, left: Term<'_>, right: Term<'_>) -> Term<'a> {
    use Comparison::{Equal, Greater, GreaterOrEqual, Less, LessOrEqual, NotEqual};
    let is_equality = matches!(comparison, Equal | NotEqual);
    let order = match (left, right) {
        (Term::Null, _) | (_, Term::Null) => return Term::Null,
        (Term::Number(a), Term::Number(b)) => a.compare(b),
        (Term::Text(a), Term::Text(b)) if is_equality => Some(a.cmp(b)),
        (Term::Bool(a), Term::Bool(b)) if is_equality => Some(a.cmp(&b)),
        _ => return Term::Bool(false),
    };
    let Some(order) = order else {
        // Not a number differs from all.
        return Term::Bool(comparison == NotEqual);
    };
    Term::Bool(match comparison {
        Equal => order == Ordering::Equal,
        NotEqual => order != Ordering::Equal,
        Less => order == Ordering::Less,
        LessOrEqual => order != Ordering::Greater,
        Greater => order == Ordering::Greater,
        GreaterOrEqual => order != Ordering::Less,
    })
}
