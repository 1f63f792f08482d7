//! What an expression of a selector is.

use core::cmp::Ordering;

/// What an expression is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Term<'a> {
    /// A field that is not there, or an unknown truth.
    Null,
    Bool(bool),
    Number(Number),
    Text(&'a str),
    /// A value that is compared with nothing, as bytes.
    Other,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operator {
    Add,
    Subtract,
    Multiply,
    Divide,
    Modulo,
}

/// A number, exact or approximate; both are compared by their value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Number {
    Long(i64),
    Double(f64),
}

impl Number {
    const fn as_f64(self) -> f64 {
        match self {
            Self::Long(number) => number as f64,
            Self::Double(number) => number,
        }
    }

    /// The order of two numbers; none of what is not a number.
    pub(super) fn compare(self, other: Self) -> Option<Ordering> {
        match (self, other) {
            (Self::Long(a), Self::Long(b)) => Some(a.cmp(&b)),
            (a, b) => a.as_f64().partial_cmp(&b.as_f64()),
        }
    }

    pub(super) fn negate(self) -> Self {
        match self {
            Self::Long(number) => Self::Long(number.wrapping_neg()),
            Self::Double(number) => Self::Double(-number),
        }
    }

    /// The result, if there is one: exact numbers are not divided by zero.
    pub(super) fn calculate(self, operator: Operator, other: Self) -> Option<Self> {
        if let (Self::Long(a), Self::Long(b)) = (self, other) {
            return match operator {
                Operator::Add => Some(a.wrapping_add(b)),
                Operator::Subtract => Some(a.wrapping_sub(b)),
                Operator::Multiply => Some(a.wrapping_mul(b)),
                Operator::Divide => (b != 0).then(|| a.wrapping_div(b)),
                Operator::Modulo => (b != 0).then(|| a.wrapping_rem(b)),
            }
            .map(Self::Long);
        }
        let (a, b) = (self.as_f64(), other.as_f64());
        Some(Self::Double(match operator {
            Operator::Add => a + b,
            Operator::Subtract => a - b,
            Operator::Multiply => a * b,
            Operator::Divide => a / b,
            Operator::Modulo => a % b,
        }))
    }
}
