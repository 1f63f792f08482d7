//! What a store holds as lines of JSON, one object a line: a first line with the
//! version, one for each session, subscription, message, packet identifier and
//! named value, and a last line with their number, so that a copy that was cut
//! off is noticed. Knows no file.

mod line;
#[cfg(test)]
mod tests;

use std::io::{self, BufRead, Write};

use dunlin_store::StoreOp;

use line::Line;

/// Version of the lines.
const VERSION: u32 = 1;

/// Why a line is not one.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LineError {
    /// It is not JSON, or not of this form.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    /// Base64 that is none.
    #[error(transparent)]
    Base64(#[from] base64::DecodeError),
    /// A QoS above 2.
    #[error("there is no QoS {0}")]
    Qos(u8),
    /// Lines of a newer release.
    #[error("version {0} of the lines is not known")]
    Version(u32),
    /// It does not begin as a copy of a store does.
    #[error("this is no copy of a store")]
    Beginning,
    /// It has no last line, or one that says another number.
    #[error("the copy is cut off")]
    CutOff,
    /// Something follows the last line, as where several copies are read as one.
    #[error("something follows the end of the copy: give one copy only")]
    AfterEnd,
    /// The copy says why it was not finished.
    #[error("the copy was not finished: {0}")]
    Failed(String),
}

/// Writes lines.
#[derive(Debug)]
pub struct Writer<W: Write> {
    out: W,
    lines: u64,
}

impl<W: Write> Writer<W> {
    /// Begins with the first line.
    ///
    /// # Errors
    /// What `out` says, as with the others.
    pub fn new(out: W) -> io::Result<Self> {
        let mut writer = Self { out, lines: 0 };
        writer.line(&Line::DunlinStore { version: VERSION })?;
        writer.lines = 0;
        Ok(writer)
    }

    /// Writes what an operation says.
    ///
    /// # Errors
    /// The operation takes something away.
    pub fn write(&mut self, op: &StoreOp) -> io::Result<()> {
        let line = Line::of(op).ok_or_else(|| io::Error::other("not the content of a store"))?;
        self.line(&line)
    }

    /// Lines so far.
    #[must_use]
    pub const fn lines(&self) -> u64 {
        self.lines
    }

    /// Ends a copy of everything but `lost` rows.
    ///
    /// # Errors
    /// As with the others.
    pub fn end(mut self, lost: u64) -> io::Result<()> {
        let lines = self.lines;
        self.line(&Line::End { lines, lost })?;
        self.out.flush()
    }

    /// Ends a copy that cannot be finished.
    ///
    /// # Errors
    /// As with the others.
    pub fn fail(mut self, error: String) -> io::Result<()> {
        self.line(&Line::Failed { error })?;
        self.out.flush()
    }

    fn line(&mut self, line: &Line) -> io::Result<()> {
        serde_json::to_writer(&mut self.out, line)?;
        self.lines += 1;
        self.out.write_all(b"\n")
    }
}

/// Reads lines to the last, which nothing may follow; how many rows the copy lacks.
///
/// # Errors
/// What is wrong and in which line; what `each` fails with.
pub fn read(
    input: &mut dyn BufRead,
    each: &mut dyn FnMut(StoreOp) -> io::Result<()>,
) -> io::Result<u64> {
    let mut number = 0;
    let mut text = Vec::new();
    let wrong = |number: u64, error: LineError| {
        io::Error::new(
            io::ErrorKind::InvalidData,
            format!("line {number}: {error}"),
        )
    };
    loop {
        text.clear();
        number += 1;
        if input.read_until(b'\n', &mut text)? == 0 {
            let error = match number {
                1 => LineError::Beginning,
                _ => LineError::CutOff,
            };
            return Err(wrong(number, error));
        }
        match read_line(&text, number).map_err(|error| wrong(number, error))? {
            Read::Op(op) => each(*op)?,
            Read::Begin => {}
            Read::End { lost } if input.fill_buf()?.is_empty() => return Ok(lost),
            Read::End { .. } => return Err(wrong(number + 1, LineError::AfterEnd)),
        }
    }
}

enum Read {
    Begin,
    Op(Box<StoreOp>),
    End { lost: u64 },
}

fn read_line(text: &[u8], number: u64) -> Result<Read, LineError> {
    let line = match serde_json::from_slice(text) {
        Err(_) if number == 1 => return Err(LineError::Beginning),
        line => line?,
    };
    match (number, line) {
        (1, Line::DunlinStore { version: VERSION }) => Ok(Read::Begin),
        (1, Line::DunlinStore { version }) => Err(LineError::Version(version)),
        (1, _) | (_, Line::DunlinStore { .. }) => Err(LineError::Beginning),
        (_, Line::Failed { error }) => Err(LineError::Failed(error)),
        (_, Line::End { lines, lost }) if lines + 2 == number => Ok(Read::End { lost }),
        (_, Line::End { .. }) => Err(LineError::CutOff),
        (_, line) => Ok(Read::Op(Box::new(line.into_op()?))),
    }
}
