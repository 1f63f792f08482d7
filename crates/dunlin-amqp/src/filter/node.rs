//! The parts of a selector.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::subject::Field;
use super::term::Operator;

/// Place of a node in [`Selector::nodes`].
pub(super) type NodeId = usize;

/// A part of an expression.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Node {
    Literal(Literal),
    Field(Field),
    Not(NodeId),
    Negate(NodeId),
    And(NodeId, NodeId),
    Or(NodeId, NodeId),
    Compare(Comparison, NodeId, NodeId),
    Arithmetic(Operator, NodeId, NodeId),
    Between(NodeId, NodeId, NodeId),
    In(NodeId, Vec<Literal>),
    Like(NodeId, Pattern),
    IsNull(NodeId),
}

impl Node {
    /// What it takes in memory besides its own size.
    pub(super) fn more_bytes(&self) -> usize {
        match self {
            Self::Literal(literal) => literal.text_bytes(),
            Self::Field(field) => field.text_bytes(),
            Self::In(_, all) => {
                let texts: usize = all.iter().map(Literal::text_bytes).sum();
                size_of_val(&all[..]) + texts
            }
            Self::Like(_, pattern) => size_of_val(&pattern[..]),
            _ => 0,
        }
    }
}

/// A literal.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Literal {
    Bool(bool),
    Long(i64),
    Double(f64),
    Text(Box<str>),
}

impl Literal {
    fn text_bytes(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Bool(_) | Self::Long(_) | Self::Double(_) => 0,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// One place of a LIKE pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Char(char),
    AnyChar,
    AnyText,
}

pub(super) type Pattern = Box<[Place]>;
