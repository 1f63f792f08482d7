//! What an import does with the log: it is looked at before it is touched, taken over, filled
//! record by record, read again and ended. One record is on its way at a time, so that a
//! record whose acknowledgement did not come is found out about by reading its place.

use async_nats::HeaderMap;
use bytes::Bytes;
use dunlin_store::codec::encode_ops;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, timeout};

use crate::api::{Api, AskError, StreamInfo, insist};
use crate::chain::{Chain, Found, Place};
use crate::config::NatsConfig;
use crate::copy::Copy;
use crate::counts::{Counts, Sums};
use crate::error::{ImportError, OpenError};
use crate::holder::{Lease, Want};
use crate::lease::{Bucket, Holder, Key as _};
use crate::limits::{ACK_WAIT, ASK_AGAIN, RECORD_BYTES_MAX};
use crate::mine::Mine;
use crate::position::Position;
use crate::reach::{Reached, check_stream, refused, stream};
use crate::reading::{EXPECTED, PubAck, ReadError, WRONG_PLACE, read_until};
use crate::record::{self, BEGIN, END, FIRST, Head, Kind, LAST};
use crate::recover::{Filling, LiveSet, random_owner, take_over};

/// What an import says is live at this number.
const BASE: u64 = 1;

/// What is in a log before an import.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Before {
    /// No record but claims.
    Nothing,
    /// An import that was not finished.
    Unfinished,
    /// What a broker has written, or a whole import.
    Something,
}

/// Whether the lease of a log is held.
pub(crate) async fn is_in_use(config: &NatsConfig) -> Result<bool, OpenError> {
    let lease = Bucket::open(config, false).await?;
    let seen = insist(config.patience, || lease.read()).await;
    let seen = seen.map_err(|error| refused(&error))?;
    Ok(matches!(seen.holder, Holder::Owner(_)))
}

/// A log that is being filled.
pub(crate) struct Importing {
    api: Api,
    patience: core::time::Duration,
    subject: String,
    epoch: u64,
    /// Sequence number of the first message.
    first: u64,
    /// The last record.
    last: Place,
    /// Taken while it is filled again.
    copy: Option<Copy>,
    /// It has everything up to the last record.
    filled: bool,
    asked: Option<oneshot::Receiver<String>>,
    _lease: Lease,
}

impl Importing {
    pub(crate) async fn begin(config: &NatsConfig) -> Result<Self, ImportError> {
        let reached = Reached::connect(config).await?;
        if is_in_use(config).await? {
            return Err(ImportError::InUse);
        }
        let (copy, _) = Copy::open(&config.copy)?;
        let owner = random_owner()?;
        let info = stream(&reached.api, config, &copy, owner).await?;
        check_stream(config, &reached.api, &info)?;
        let asked = reached.ask_for_sync(config, &info).await?;
        let api = reached.api;
        // A broker without a lease is not to be ended.
        if before(&api, config, &info, info.last).await? == Before::Something {
            return Err(ImportError::NotEmpty);
        }
        if copy.position.as_ref().is_some_and(|at| at.place.number > 0) {
            return Err(ImportError::OtherCopy(config.copy.clone()));
        }
        // It is of a log without records.
        let copy = copy.empty()?;
        let lease = Lease::start(config.clone(), owner, Want::Now)?;
        lease.held_soon().await;
        let mut mine = Mine::load(&config.copy).map_err(OpenError::Owner)?;
        let taken = take_over(&api, config, owner, info, &mut mine).await?;
        match before(&api, config, &taken.info, taken.claim).await? {
            Before::Nothing => {}
            Before::Something => return Err(ImportError::NotEmpty),
            Before::Unfinished => {
                tracing::warn!("an import that was not finished is removed");
                let purged = insist(config.patience, || api.purge_before(taken.claim)).await;
                purged.map_err(|error| refused(&error))?;
            }
        }
        lease.serves();
        let mut importing = Self {
            api,
            patience: config.patience,
            subject: taken.subject,
            epoch: taken.epoch,
            first: taken.claim,
            last: Place {
                seq: taken.claim,
                number: BASE,
                hash: 0,
            },
            copy: Some(copy),
            filled: false,
            asked,
            _lease: lease,
        };
        // In one record, so that no reader sees a log of one part.
        importing.append(FIRST | LAST | BEGIN, b"").await?;
        Ok(importing)
    }

    /// Adds operations, in as many records as it takes.
    pub(crate) async fn write(&mut self, body: &[u8]) -> Result<(), ImportError> {
        self.filled = false;
        let mut parts = body.chunks(RECORD_BYTES_MAX).peekable();
        let mut flags = FIRST;
        while let Some(part) = parts.next() {
            flags |= if parts.peek().is_none() { LAST } else { 0 };
            self.append(flags, part).await?;
            flags = 0;
        }
        Ok(())
    }

    /// Writes that nothing more comes. The copy has it all then, or is made from the log.
    pub(crate) async fn end(&mut self) -> Result<(), ImportError> {
        let ended = self.append(FIRST | LAST | END, b"").await;
        // An attempt may have come though its acknowledgement did not.
        ended.map_err(|error| ImportError::EndUnknown(Box::new(error)))?;
        // Without what a check has read into it, it is made from the log.
        let Some(copy) = self.copy.as_mut().filter(|_| self.filled) else {
            return Ok(());
        };
        let end = Position {
            place: self.last,
            epoch: self.epoch,
            term: 0,
        };
        if let Err(error) = copy.apply(Vec::new(), Some(end)) {
            tracing::warn!(%error, "the copy is not finished; the broker makes it from the log");
        }
        Ok(())
    }

    async fn append(&mut self, flags: u8, body: &[u8]) -> Result<(), ImportError> {
        let head = Head {
            kind: Kind::Live,
            flags,
            epoch: self.epoch,
            term: 0,
            number: self.last.number + 1,
            before: self.last.hash,
            base: BASE,
        };
        let (bytes, hash) = record::encode(&head, body);
        self.put(bytes.into()).await?;
        self.last = Place {
            seq: self.last.seq + 1,
            number: head.number,
            hash,
        };
        Ok(())
    }

    /// Writes the next message, again until the server has it.
    async fn put(&self, bytes: Bytes) -> Result<(), ImportError> {
        let next = self.last.seq + 1;
        let until = Instant::now() + self.patience;
        loop {
            let why = match self.try_put(&bytes).await {
                Ok(ack) => match ack.error {
                    None if ack.seq == next => return Ok(()),
                    None => return Err(OpenError::TakenOver.into()),
                    // An attempt before this one came, or another owner did.
                    Some(error) if error.err_code == WRONG_PLACE => {
                        let found = self.api.read(next).await;
                        match found.as_deref() {
                            Ok([(seq, found), ..]) if *seq == next && *found == bytes => {
                                return Ok(());
                            }
                            Ok([_, ..]) => return Err(OpenError::TakenOver.into()),
                            // The server that answered may not have it yet.
                            Ok([]) => error.description,
                            Err(error) => error.to_string(),
                        }
                    }
                    Some(error) if error.passes() => error.description,
                    Some(error) => return Err(refused(&AskError::Refused(error)).into()),
                },
                Err(why) => {
                    self.is_own().await?;
                    why
                }
            };
            if Instant::now() >= until {
                return Err(OpenError::Server(why).into());
            }
            sleep(ASK_AGAIN).await;
        }
    }

    async fn try_put(&self, bytes: &Bytes) -> Result<PubAck, String> {
        let mut headers = HeaderMap::new();
        headers.insert(EXPECTED, self.last.seq.to_string());
        let subject = self.subject.clone();
        let client = &self.api.client;
        let asked = client.request_with_headers(subject, headers, bytes.clone());
        let answer = timeout(ACK_WAIT, asked).await;
        let answer = answer.map_err(|_| "no acknowledgement in time".to_owned())?;
        let answer = answer.map_err(|error| error.to_string())?;
        serde_json::from_slice(&answer.payload).map_err(|error| error.to_string())
    }

    /// Whether the log is still this one's, as far as the server says so.
    async fn is_own(&self) -> Result<(), ImportError> {
        match self.api.info_soon().await {
            Ok(info) if info.is_before(&self.subject) => Ok(()),
            Ok(info) if info.subject() != Some(&self.subject) => Err(OpenError::TakenOver.into()),
            Err(error) if error.is_not_found() => Err(refused(&error).into()),
            _ => Ok(()),
        }
    }

    /// Reads what was written into the copy, and compares that with what was to be written.
    pub(crate) async fn check(
        &mut self,
        config: &NatsConfig,
        wanted: &Sums,
    ) -> Result<Counts, ImportError> {
        if let Some(Ok(server)) = self.asked.as_mut().map(oneshot::Receiver::try_recv) {
            return Err(OpenError::Unsynced { server }.into());
        }
        let copy = match self.copy.take() {
            Some(copy) => copy.empty()?,
            None => Copy::open(&config.copy)?.0.empty()?,
        };
        let live = LiveSet {
            base: BASE,
            first: BASE + 1,
            last: self.last.number,
        };
        let mut filling = Filling::of_live(copy, live);
        let chain = Chain::from_first(self.first);
        filling
            .fill(&self.api, config, chain, self.last.seq)
            .await?;
        let mut found = Sums::default();
        let mut bytes = Vec::new();
        let unreadable = |error| ImportError::from(OpenError::CopyFailed(error));
        let snapshot = filling.copy.snapshot().map_err(unreadable)?;
        let read = snapshot.read(&mut |op| {
            let op = [op];
            bytes.clear();
            encode_ops(&op, &mut bytes);
            found.add(&op, &bytes);
            Ok(())
        });
        let report = read.map_err(unreadable)?;
        drop(snapshot);
        if found != *wanted || !report.damage.is_empty() {
            return Err(ImportError::Differs {
                wanted: Box::new(wanted.counts.clone()),
                found: Box::new(found.counts),
            });
        }
        self.copy = Some(filling.copy);
        self.filled = true;
        Ok(found.counts)
    }
}

/// What a log has up to a message.
async fn before(
    api: &Api,
    config: &NatsConfig,
    info: &StreamInfo,
    until: u64,
) -> Result<Before, ImportError> {
    let mut chain = Chain::from_first(info.first.max(1));
    let mut found = Before::Nothing;
    let see = |record, _: &Chain, _| {
        found = match (record, found) {
            (Found::Claim(_) | Found::Dropped, found) => found,
            (Found::Part, Before::Unfinished) => Before::Unfinished,
            (Found::Whole(body), Before::Nothing)
                if body.kind == Kind::Live && body.begins && !body.ends =>
            {
                Before::Unfinished
            }
            (Found::Whole(body), Before::Unfinished) if body.kind == Kind::Live && !body.ends => {
                Before::Unfinished
            }
            _ => Before::Something,
        };
        // Enough is known.
        match found {
            Before::Something => Err(()),
            _ => Ok(()),
        }
    };
    match read_until(api, &mut chain, until, config.patience, see).await {
        Ok(()) | Err(ReadError::Caller(())) => Ok(found),
        Err(ReadError::Ask(error)) => Err(refused(&error).into()),
        Err(ReadError::Log(error)) => Err(OpenError::from(error).into()),
    }
}
