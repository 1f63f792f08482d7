//! The operations of NATS that a publisher needs, as text, and rows on their way to them.

use std::io::{self, Error, ErrorKind};

use tokio::io::{AsyncBufRead, AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _};

use crate::config::{self, ConfigError};
use crate::value::json;

/// Longest line: that with what the server can do names every server of its cluster.
const LINE_BYTES_MAX: u64 = 1 << 20;

/// Longest answer.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// What became of a message.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// It is in a stream.
    Stored,
    /// The stream does not take it.
    Refused(String),
    /// It may be taken later.
    Failed(String),
}

/// What a server says.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Op {
    Ping,
    Pong,
    Answer(Answer),
    Error(String),
    Other,
}

/// The first line of a connection, byte by byte: nothing after it may be read.
pub(super) async fn first_line<R: AsyncRead + Unpin>(read: &mut R) -> io::Result<String> {
    let mut line = Vec::new();
    while line.last() != Some(&b'\n') {
        if line.len() as u64 >= LINE_BYTES_MAX {
            return Err(bad("a line has no end"));
        }
        line.push(read.read_u8().await?);
    }
    String::from_utf8(line).map_err(|_| bad("a line is not text"))
}

/// CONNECT.
pub(super) fn connect(config: &config::Nats) -> Result<String, ConfigError> {
    let mut out = b"CONNECT {\"verbose\":false,\"pedantic\":false,\"headers\":true,\
        \"no_responders\":true,\"lang\":\"rust\",\"name\":\"dunlin-sink\",\"version\":\"0\""
        .to_vec();
    let mut field = |name: &str, value: &str| {
        out.push(b',');
        json(name, &mut out);
        out.push(b':');
        json(value, &mut out);
    };
    if let Some(user) = &config.user {
        field("user", user);
    }
    if let Some(file) = &config.password_file {
        field("pass", &config::secret(file)?);
    }
    if let Some(file) = &config.token_file {
        field("auth_token", &config::secret(file)?);
    }
    out.extend_from_slice(b"}\r\n");
    Ok(String::from_utf8_lossy(&out).into_owned())
}

/// Appends the subject of a topic: a level is a token, and what no token may have is `_`.
pub(super) fn subject(topic: &str, out: &mut String) {
    for (index, level) in topic.split('/').enumerate() {
        if index > 0 {
            out.push('.');
        }
        if level.is_empty() {
            out.push('_');
        }
        for c in level.chars() {
            let special = c.is_whitespace() || c.is_control() || ".*>".contains(c);
            out.push(if special { '_' } else { c });
        }
    }
}

/// The next thing that the server says.
pub(super) async fn next<R: AsyncBufRead + Unpin>(read: &mut R) -> io::Result<Op> {
    let mut line = Vec::new();
    let count = (&mut *read)
        .take(LINE_BYTES_MAX)
        .read_until(b'\n', &mut line)
        .await?;
    if line.last() != Some(&b'\n') {
        return Err(match count {
            0 => Error::new(ErrorKind::UnexpectedEof, "the connection ended"),
            _ => bad("a line has no end"),
        });
    }
    let line = String::from_utf8_lossy(&line);
    let mut words = line.split_whitespace();
    match words.next() {
        Some("PING") => Ok(Op::Ping),
        Some("PONG") => Ok(Op::Pong),
        Some("-ERR") => {
            let why = line.trim().trim_start_matches("-ERR").trim();
            Ok(Op::Error(why.trim_matches('\'').to_owned()))
        }
        Some("MSG") => {
            let length = words.next_back().and_then(|it| it.parse().ok());
            let body = body(read, length).await?;
            Ok(Op::Answer(answer(&body)))
        }
        Some("HMSG") => {
            let length = words.next_back().and_then(|it| it.parse().ok());
            let body = body(read, length).await?;
            // A status and no body: there is no stream for the subject.
            let status = String::from_utf8_lossy(&body);
            let status = status.lines().next().unwrap_or_default();
            let status = status.trim_start_matches("NATS/1.0").trim().to_owned();
            Ok(Op::Answer(Answer::Failed(match status.as_str() {
                "503" => "NATS: no stream takes the subject".into(),
                other => format!("NATS: status {other}"),
            })))
        }
        _ => Ok(Op::Other),
    }
}

async fn body<R: AsyncBufRead + Unpin>(read: &mut R, length: Option<usize>) -> io::Result<Vec<u8>> {
    let length = length.ok_or_else(|| bad("a message has no length"))?;
    if length > ANSWER_BYTES_MAX {
        return Err(bad("an answer is too long"));
    }
    let mut body = vec![0; length + 2];
    read.read_exact(&mut body).await?;
    body.truncate(length);
    Ok(body)
}

/// What an answer of JetStream says.
fn answer(body: &[u8]) -> Answer {
    /// The message is longer than the stream allows.
    const TOO_LONG: u64 = 10_054;
    let parsed: serde_json::Value = match serde_json::from_slice(body) {
        Ok(parsed) => parsed,
        Err(_) => return Answer::Failed("NATS: an answer that is no JSON".into()),
    };
    if let Some(error) = parsed.get("error") {
        let why = error.get("description").and_then(serde_json::Value::as_str);
        let why = format!("NATS: {}", why.unwrap_or("an error without a name"));
        let code = error.get("err_code").and_then(serde_json::Value::as_u64);
        return match code {
            Some(TOO_LONG) => Answer::Refused(why),
            _ => Answer::Failed(why),
        };
    }
    match parsed.get("stream") {
        Some(_) => Answer::Stored,
        // A subscriber that answers is no stream.
        None => Answer::Failed("NATS: an answer that is not of a stream".into()),
    }
}

fn bad(why: &'static str) -> Error {
    Error::new(ErrorKind::InvalidData, why)
}

/// Appends a message: three lengths, then subject, header and body.
pub(super) fn write_record(
    subject: &str,
    header: &str,
    body: &[u8],
    out: &mut Vec<u8>,
) -> Option<()> {
    for part in [subject.as_bytes(), header.as_bytes(), body] {
        out.extend(u32::try_from(part.len()).ok()?.to_be_bytes());
    }
    for part in [subject.as_bytes(), header.as_bytes(), body] {
        out.extend_from_slice(part);
    }
    Some(())
}

/// Messages as they were appended.
pub(super) fn records(mut rest: &[u8]) -> impl Iterator<Item = [&[u8]; 3]> {
    core::iter::from_fn(move || {
        let mut lengths = [0; 3];
        for length in &mut lengths {
            let (bytes, after) = rest.split_first_chunk()?;
            *length = usize::try_from(u32::from_be_bytes(*bytes)).ok()?;
            rest = after;
        }
        let mut parts: [&[u8]; 3] = [&[]; 3];
        for (part, length) in parts.iter_mut().zip(lengths) {
            let (bytes, after) = rest.split_at_checked(length)?;
            *part = bytes;
            rest = after;
        }
        Some(parts)
    })
}

/// Messages as they are published.
pub(super) fn publishes<'a>(records: impl Iterator<Item = [&'a [u8]; 3]>, inbox: &str) -> Vec<u8> {
    let mut out = Vec::new();
    for [subject, header, body] in records {
        let lengths = match header.len() {
            0 => format!("{inbox} {}", body.len()),
            some => format!("{inbox} {some} {}", some + body.len()),
        };
        out.extend_from_slice(if header.is_empty() { b"PUB " } else { b"HPUB " });
        out.extend_from_slice(subject);
        out.push(b' ');
        out.extend_from_slice(lengths.as_bytes());
        out.extend_from_slice(b"\r\n");
        out.extend_from_slice(header);
        out.extend_from_slice(body);
        out.extend_from_slice(b"\r\n");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ops(text: &str) -> Vec<String> {
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        runtime.expect("a runtime").block_on(async {
            let mut read = text.as_bytes();
            let mut ops = Vec::new();
            loop {
                match next(&mut read).await {
                    Ok(op) => ops.push(format!("{op:?}")),
                    Err(error) => {
                        ops.push(error.to_string());
                        return ops;
                    }
                }
            }
        })
    }

    #[test]
    fn what_a_server_says_is_read() {
        let text = "PING\r\nPONG\r\n+OK\r\n-ERR 'Authorization Violation'\r\n\
                    MSG i 1 26\r\n{\"stream\":\"S\",\"seq\":1    }\r\n\
                    HMSG i 1 16 16\r\nNATS/1.0 503\r\n\r\n\r\n\
                    MSG i 1 60\r\n{\"error\":{\"err_code\":10054,\"description\":\"message size\"}}   \r\n\
                    MSG i 1 2\r\n{}\r\n";
        let want = [
            "Ping",
            "Pong",
            "Other",
            "Error(\"Authorization Violation\")",
            "Answer(Stored)",
            "Answer(Failed(\"NATS: no stream takes the subject\"))",
            "Answer(Refused(\"NATS: message size\"))",
            "Answer(Failed(\"NATS: an answer that is not of a stream\"))",
            "the connection ended",
        ];
        assert_eq!(ops(text), want);
        assert_eq!(ops("MSG i 1 x\r\n"), ["a message has no length"]);
        assert_eq!(ops("MSG i 1 99999999\r\n"), ["an answer is too long"]);
        assert_eq!(ops("PIN"), ["a line has no end"]);
    }

    #[test]
    fn topics_become_subjects() {
        for (topic, want) in [("a/b", "a.b"), ("/a//", "_.a._._"), ("a b/*>.", "a_b.___")] {
            let mut out = String::new();
            subject(topic, &mut out);
            assert_eq!(out, want);
        }
    }

    #[test]
    fn records_that_are_cut_end() {
        let mut out = Vec::new();
        write_record("s", "", b"body", &mut out).expect("short");
        assert_eq!(records(&out).count(), 1);
        assert_eq!(records(&out[..out.len() - 1]).count(), 0);
        let text = publishes(records(&out), "I");
        assert_eq!(text, b"PUB s I 4\r\nbody\r\n");
    }
}
