//! A selector: parsed once, evaluated often.

use alloc::vec::Vec;

use super::error::SelectorError;
use super::limits::{EVALUATION_STEPS_MAX, SELECTOR_BYTES_MAX};
use super::node::Node;
use super::subject::{Field, Subject};
use super::{eval, parser};

/// An expression over the fields of a message.
#[derive(Clone, Debug, PartialEq)]
pub struct Selector {
    /// An operator comes after its operands; the last node is the expression.
    pub(super) nodes: Vec<Node>,
}

impl Selector {
    /// Parses a selector of JMS: names such as `JMSPriority`, or of application
    /// properties.
    ///
    /// # Errors
    /// The first mistake.
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        Self::parse_with(text, Field::of_jms)
    }

    /// Parses an SQL filter: names such as `properties.subject`, or of
    /// application properties.
    ///
    /// # Errors
    /// The first mistake.
    pub fn parse_sql(text: &str) -> Result<Self, SelectorError> {
        Self::parse_with(text, Field::of_sql)
    }

    fn parse_with(text: &str, field: fn(&str) -> Field) -> Result<Self, SelectorError> {
        if text.len() > SELECTOR_BYTES_MAX {
            return Err(SelectorError::TooLong);
        }
        parser::parse(text, field).map(|nodes| Self { nodes })
    }

    /// What it takes in memory, about.
    pub(super) fn bytes(&self) -> usize {
        let more: usize = self.nodes.iter().map(Node::more_bytes).sum();
        size_of_val(&self.nodes[..]) + more
    }

    /// Whether the expression is true of a message: neither false nor unknown.
    #[must_use]
    pub fn matches(&self, subject: &Subject<'_>) -> bool {
        self.matches_within(subject, &mut { EVALUATION_STEPS_MAX })
    }

    /// As [`Selector::matches`], with the steps that are left.
    pub(super) fn matches_within(&self, subject: &Subject<'_>, steps: &mut usize) -> bool {
        eval::is_true(&self.nodes, subject, steps)
    }
}
