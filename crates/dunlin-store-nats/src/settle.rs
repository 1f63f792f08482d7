//! What became of records whose acknowledgement did not come: another claim is written,
//! and the log is read up to it. What is there then counts, is answered and stays; what
//! is not never will be, and is sent again under the next term.

use tokio::time::{Instant, sleep};

use crate::api::AskError;
use crate::chain::{Found, Place};
use crate::error::GaveUp;
use crate::limits::ASK_AGAIN;
use crate::log::{Log, Stop};
use crate::reading::{ReadError, claim, read_until};

/// Why it could not be found out.
enum NotYet {
    Later(String),
    Never(GaveUp),
}

impl From<AskError> for NotYet {
    fn from(error: AskError) -> Self {
        match error {
            error if error.is_not_found() => Self::Never(GaveUp::StreamGone),
            error if error.passes() => Self::Later(error.to_string()),
            AskError::Refused(error) => Self::Never(GaveUp::Refused {
                code: error.err_code,
                text: error.description,
            }),
            other => Self::Later(other.to_string()),
        }
    }
}

impl Log {
    /// Finds out what became of everything that is on its way, and sends again what did
    /// not arrive.
    pub(crate) async fn settle(&mut self) -> Result<(), GaveUp> {
        let since = *self.uncertain.get_or_insert_with(Instant::now);
        loop {
            match self.try_settle().await {
                Ok(()) => return Ok(()),
                Err(NotYet::Never(cause)) => return Err(cause),
                Err(NotYet::Later(why)) => {
                    tracing::debug!(stream = self.api.stream, "the log: {why}");
                }
            }
            if since.elapsed() >= self.patience {
                return Err(GaveUp::Silent(self.patience.as_secs()));
            }
            sleep(ASK_AGAIN).await;
        }
    }

    async fn try_settle(&mut self) -> Result<(), NotYet> {
        let info = self.api.info_soon().await?;
        if info.is_before(&self.subject) {
            let why = "the stream's leader does not know of its last change";
            return Err(NotYet::Later(why.to_owned()));
        }
        if info.subject() != Some(&self.subject) {
            tracing::warn!(subject = ?info.subject(), own = self.subject, "another subject");
            return Err(NotYet::Never(GaveUp::TakenOver));
        }
        self.own.term += 1;
        let own = self.own;
        let until = claim(&self.api, &self.subject, own.epoch, own.term, own.owner).await?;
        let mut chain = self.tail.clone();
        let mut counted = Vec::new();
        let see = |found, _: &_, _| {
            if let Found::Whole(body) = found {
                counted.push((body.place.number, body.place.hash, body.place.seq));
            }
            Ok::<(), core::convert::Infallible>(())
        };
        let read = read_until(&self.api, &mut chain, until, self.patience, see).await;
        match read {
            Ok(()) => {}
            Err(ReadError::Ask(error)) => return Err(error.into()),
            Err(ReadError::Log(error)) => return Err(NotYet::Never(error.into())),
            Err(ReadError::Caller(never)) => match never {},
        }
        // One of another owner came in between.
        if (chain.epoch, chain.term) != (own.epoch, own.term) {
            let (epoch, term) = (chain.epoch, chain.term);
            tracing::warn!(epoch, term, own = self.subject, "another claim");
            return Err(NotYet::Never(GaveUp::TakenOver));
        }
        for (number, hash, seq) in counted {
            let is_first = |end: Place| end.number == number && end.hash == hash;
            if self
                .flights
                .front()
                .is_some_and(|f| is_first(f.end()) && f.end().seq == seq)
            {
                self.land();
            }
        }
        self.own.last = Place {
            seq: until,
            ..chain.last
        };
        self.tail = chain;
        let mut flights = self.take_flights();
        while let Some(flight) = flights.pop_front() {
            if let Err(stop) = self.send(flight).await {
                self.put_back(flights);
                return Err(match stop {
                    Stop::Uncertain(why) => NotYet::Later(why),
                    Stop::GaveUp(cause) => NotYet::Never(cause),
                });
            }
        }
        Ok(())
    }
}
