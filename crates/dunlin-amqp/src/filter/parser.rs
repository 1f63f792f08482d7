//! The grammar of a selector, by recursive descent. An operator's node comes
//! after those of its operands.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::error::SelectorError;
use super::lexer::{Lexer, Token};
use super::like::pattern;
use super::limits::{SELECTOR_DEPTH_MAX, SELECTOR_NODES_MAX};
use super::node::{Comparison, Literal, Node, NodeId};
use super::subject::Field;
use super::term::Operator;

/// The nodes of a selector.
pub(super) fn parse(text: &str, field: fn(&str) -> Field) -> Result<Vec<Node>, SelectorError> {
    let mut lexer = Lexer::new(text);
    let (token, at) = lexer.next()?;
    let mut parser = Parser {
        lexer,
        token,
        at,
        field,
        nodes: Vec::new(),
        depth: 0,
    };
    parser.either()?;
    if parser.token != Token::End {
        return parser.fail();
    }
    Ok(parser.nodes)
}

struct Parser<'a> {
    lexer: Lexer<'a>,
    token: Token<'a>,
    at: usize,
    field: fn(&str) -> Field,
    nodes: Vec<Node>,
    depth: usize,
}

type Parsed = Result<NodeId, SelectorError>;

impl<'a> Parser<'a> {
    fn fail<T>(&self) -> Result<T, SelectorError> {
        Err(SelectorError::Syntax { at: self.at })
    }

    /// Takes the word, and reads the next.
    fn advance(&mut self) -> Result<Token<'a>, SelectorError> {
        let (token, at) = self.lexer.next()?;
        self.at = at;
        Ok(core::mem::replace(&mut self.token, token))
    }

    fn is_key(&self, key: &str) -> bool {
        matches!(self.token, Token::Word(word) if word.eq_ignore_ascii_case(key))
    }

    /// Takes a key word, if it is there.
    fn take_key(&mut self, key: &str) -> Result<bool, SelectorError> {
        let is_there = self.is_key(key);
        if is_there {
            self.advance()?;
        }
        Ok(is_there)
    }

    /// Takes a sign, if it is there.
    fn take_sign(&mut self, sign: &str) -> Result<bool, SelectorError> {
        let is_there = matches!(self.token, Token::Sign(it) if it == sign);
        if is_there {
            self.advance()?;
        }
        Ok(is_there)
    }

    fn expect_sign(&mut self, sign: &str) -> Result<(), SelectorError> {
        if self.take_sign(sign)? {
            Ok(())
        } else {
            self.fail()
        }
    }

    fn push(&mut self, node: Node) -> Parsed {
        if self.nodes.len() >= SELECTOR_NODES_MAX {
            return Err(SelectorError::TooLong);
        }
        self.nodes.push(node);
        Ok(self.nodes.len() - 1)
    }

    /// Parses one level deeper.
    fn deeper(&mut self, parse: fn(&mut Self) -> Parsed) -> Parsed {
        if self.depth >= SELECTOR_DEPTH_MAX {
            return Err(SelectorError::Depth { at: self.at });
        }
        self.depth += 1;
        let parsed = parse(self);
        self.depth -= 1;
        parsed
    }

    fn either(&mut self) -> Parsed {
        let mut left = self.both()?;
        while self.take_key("OR")? {
            let right = self.both()?;
            left = self.push(Node::Or(left, right))?;
        }
        Ok(left)
    }

    fn both(&mut self) -> Parsed {
        let mut left = self.not()?;
        while self.take_key("AND")? {
            let right = self.not()?;
            left = self.push(Node::And(left, right))?;
        }
        Ok(left)
    }

    fn not(&mut self) -> Parsed {
        if self.take_key("NOT")? {
            let operand = self.deeper(Self::not)?;
            return self.push(Node::Not(operand));
        }
        self.predicate()
    }

    fn predicate(&mut self) -> Parsed {
        let left = self.sum()?;
        if let Token::Sign(sign) = self.token
            && let Some(comparison) = comparison(sign)
        {
            self.advance()?;
            let right = self.sum()?;
            return self.push(Node::Compare(comparison, left, right));
        }
        if self.take_key("IS")? {
            let is_not = self.take_key("NOT")?;
            if !self.take_key("NULL")? {
                return self.fail();
            }
            let node = self.push(Node::IsNull(left))?;
            return self.negated(is_not, node);
        }
        let is_not = self.take_key("NOT")?;
        let node = if self.take_key("BETWEEN")? {
            let low = self.sum()?;
            if !self.take_key("AND")? {
                return self.fail();
            }
            let high = self.sum()?;
            self.push(Node::Between(left, low, high))?
        } else if self.take_key("IN")? {
            let values = self.values()?;
            self.push(Node::In(left, values))?
        } else if self.take_key("LIKE")? {
            self.like(left)?
        } else if is_not {
            return self.fail();
        } else {
            return Ok(left);
        };
        self.negated(is_not, node)
    }

    fn negated(&mut self, is_not: bool, node: NodeId) -> Parsed {
        if is_not {
            self.push(Node::Not(node))
        } else {
            Ok(node)
        }
    }

    /// The literals between brackets after `IN`.
    fn values(&mut self) -> Result<Vec<Literal>, SelectorError> {
        self.expect_sign("(")?;
        let mut values = Vec::new();
        loop {
            if values.len() >= SELECTOR_NODES_MAX {
                return Err(SelectorError::TooLong);
            }
            let is_negative = self.take_sign("-")?;
            let value = match self.advance()? {
                Token::Text(text) if !is_negative => Literal::Text(Box::from(&*text)),
                Token::Long(number) => Literal::Long(if is_negative { -number } else { number }),
                Token::Double(number) => {
                    Literal::Double(if is_negative { -number } else { number })
                }
                _ => return self.fail(),
            };
            values.push(value);
            if !self.take_sign(",")? {
                break;
            }
        }
        self.expect_sign(")")?;
        Ok(values)
    }

    fn like(&mut self, left: NodeId) -> Parsed {
        let Token::Text(text) = self.advance()? else {
            return self.fail();
        };
        let mut escape = None;
        if self.take_key("ESCAPE")? {
            let Token::Text(text) = self.advance()? else {
                return self.fail();
            };
            let mut chars = text.chars();
            escape = chars.next();
            if escape.is_none() || chars.next().is_some() {
                return Err(SelectorError::Escape { at: self.at });
            }
        }
        let pattern = pattern(&text, escape).ok_or(SelectorError::Escape { at: self.at })?;
        self.push(Node::Like(left, pattern))
    }

    fn sum(&mut self) -> Parsed {
        let mut left = self.product()?;
        loop {
            let operator = match self.token {
                Token::Sign("+") => Operator::Add,
                Token::Sign("-") => Operator::Subtract,
                _ => return Ok(left),
            };
            self.advance()?;
            let right = self.product()?;
            left = self.push(Node::Arithmetic(operator, left, right))?;
        }
    }

    fn product(&mut self) -> Parsed {
        let mut left = self.unary()?;
        loop {
            let operator = match self.token {
                Token::Sign("*") => Operator::Multiply,
                Token::Sign("/") => Operator::Divide,
                Token::Sign("%") => Operator::Modulo,
                _ => return Ok(left),
            };
            self.advance()?;
            let right = self.unary()?;
            left = self.push(Node::Arithmetic(operator, left, right))?;
        }
    }

    fn unary(&mut self) -> Parsed {
        if self.take_sign("-")? {
            let operand = self.deeper(Self::unary)?;
            return self.push(Node::Negate(operand));
        }
        if self.take_sign("+")? {
            return self.deeper(Self::unary);
        }
        if self.take_sign("(")? {
            let inner = self.deeper(Self::either)?;
            self.expect_sign(")")?;
            return Ok(inner);
        }
        self.primary()
    }

    fn primary(&mut self) -> Parsed {
        let node = match &self.token {
            Token::Text(text) => Node::Literal(Literal::Text(Box::from(&**text))),
            Token::Long(number) => Node::Literal(Literal::Long(*number)),
            Token::Double(number) => Node::Literal(Literal::Double(*number)),
            Token::Name(name) => Node::Field((self.field)(name)),
            Token::Word(_) if self.is_key("TRUE") => Node::Literal(Literal::Bool(true)),
            Token::Word(_) if self.is_key("FALSE") => Node::Literal(Literal::Bool(false)),
            Token::Word(word) if !is_reserved(word) => Node::Field((self.field)(word)),
            Token::Word(_) | Token::Sign(_) | Token::End => return self.fail(),
        };
        self.advance()?;
        self.push(node)
    }
}

fn comparison(sign: &str) -> Option<Comparison> {
    Some(match sign {
        "=" => Comparison::Equal,
        "<>" | "!=" => Comparison::NotEqual,
        "<" => Comparison::Less,
        "<=" => Comparison::LessOrEqual,
        ">" => Comparison::Greater,
        ">=" => Comparison::GreaterOrEqual,
        _ => return None,
    })
}

/// Key words are no names.
fn is_reserved(word: &str) -> bool {
    [
        "NULL", "NOT", "AND", "OR", "BETWEEN", "LIKE", "IN", "IS", "ESCAPE",
    ]
    .into_iter()
    .any(|key| word.eq_ignore_ascii_case(key))
}
