//! The data: statements with the side that they bind, and exceptions.

use core::fmt;

use crate::finding::Finding;

/// Whom a statement binds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// The server.
    Server,
    /// The client, and a server could not tell.
    Client,
    /// Both, or one of them with the other checking.
    Both,
    /// The sender of the packet.
    Sender,
    /// The receiver of the packet.
    Receiver,
}

impl Role {
    const ALL: [Self; 5] = [
        Self::Server,
        Self::Client,
        Self::Both,
        Self::Sender,
        Self::Receiver,
    ];

    /// The word in the data.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Client => "client",
            Self::Both => "both",
            Self::Sender => "sender",
            Self::Receiver => "receiver",
        }
    }

    /// Whether a server can break it.
    pub(super) const fn binds_server(self) -> bool {
        !matches!(self, Self::Client)
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// One normative statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Statement {
    /// As in `MQTT-3.1.2-24`.
    pub(super) id: String,
    /// Whom it binds.
    pub(super) role: Role,
    /// Its words.
    pub(super) text: String,
}

/// One statement without a test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Exception {
    /// Line in the file.
    pub(super) line: usize,
    /// The statement.
    pub(super) id: String,
    /// Why.
    pub(super) reason: String,
}

/// Reads the statements, in the order of the file.
pub(super) fn parse(path: &str, text: &str, findings: &mut Vec<Finding>) -> Vec<Statement> {
    let mut statements: Vec<Statement> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let mut report =
            |advice: &str| findings.push(Finding::new(path, index + 1, "statement", advice));
        if let Some(heading) = line.strip_prefix("## ") {
            let (id, role) = heading.split_once(' ').unwrap_or((heading, ""));
            let Some(role) = Role::ALL.into_iter().find(|r| r.name() == role) else {
                report("say whom it binds: server, client, both, sender or receiver");
                continue;
            };
            if statements.iter().any(|s| s.id == id) {
                report("name each statement once");
            }
            statements.push(Statement {
                id: id.to_owned(),
                role,
                text: String::new(),
            });
        } else if !line.is_empty() && !line.starts_with('#') {
            match statements.last_mut() {
                Some(last) if last.text.is_empty() => last.text.push_str(line),
                _ => report("write one line of text below a heading"),
            }
        }
    }
    statements
}

/// Reads the exceptions.
pub(super) fn parse_exceptions(
    path: &str,
    text: &str,
    findings: &mut Vec<Finding>,
) -> Vec<Exception> {
    let mut exceptions = Vec::new();
    for (index, line) in text.lines().enumerate() {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        match line.split_once(' ') {
            Some((id, reason)) if !reason.trim().is_empty() => exceptions.push(Exception {
                line: index + 1,
                id: id.to_owned(),
                reason: reason.trim().to_owned(),
            }),
            _ => {
                let advice = "write `IDENTIFIER reason`";
                findings.push(Finding::new(path, index + 1, "exception", advice));
            }
        }
    }
    exceptions
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_have_a_role_and_a_text() {
        let mut findings = Vec::new();
        let text = "# head\n\n## MQTT-1.0.0-1 server\nIt MUST.\n\n## MQTT-1.0.0-2\n";
        let got = parse("s.txt", text, &mut findings);
        assert_eq!(got.len(), 1);
        assert_eq!(
            (got[0].role, got[0].text.as_str()),
            (Role::Server, "It MUST.")
        );
        assert_eq!(findings.len(), 1);
        assert_eq!(findings[0].line, 6);
    }

    #[test]
    fn exceptions_have_a_reason() {
        let mut findings = Vec::new();
        let got = parse_exceptions(
            "e.txt",
            "# x\nMQTT-1.0.0-1 because\nMQTT-1.0.0-2\n",
            &mut findings,
        );
        assert_eq!(got.len(), 1);
        assert_eq!(got[0].reason, "because");
        assert_eq!(
            findings[0].to_string(),
            "e.txt:3: exception: write `IDENTIFIER reason`"
        );
    }
}
