//! Opening: the server is looked at, the stream is taken over, and the copy is brought
//! up to the claim.

use dunlin_store::{Batch, Recovered};
use tokio::sync::oneshot;

use crate::api::{Api, StreamInfo, insist};
use crate::chain::{Body, Chain, Found, LogError};
use crate::config::NatsConfig;
use crate::copy::Copy;
use crate::error::OpenError;
use crate::holder::{Lease, Want};
use crate::mine::Mine;
use crate::position::Position;
use crate::reach::{Reached, check_stream, refused, stream};
use crate::reading::{self, ReadError, claim, read_until};
use crate::record::{self, Kind};

/// How often an epoch is chosen again, because another owner had a newer one.
const TRIES_MAX: usize = 8;

/// A log that this process owns.
pub(crate) struct Owned {
    pub(crate) api: Api,
    pub(crate) subject: String,
    pub(crate) owner: u64,
    /// What was read: all up to the claim.
    pub(crate) chain: Chain,
    pub(crate) copy: Copy,
    /// Bytes of the log.
    pub(crate) bytes: u64,
    /// Servers are asked again and again whether they sync.
    pub(crate) asked: Option<oneshot::Receiver<String>>,
    pub(crate) lease: Lease,
}

/// Connects, takes the partition over and reads it.
pub(crate) async fn open(config: &NatsConfig) -> Result<(Owned, Recovered), OpenError> {
    let reached = Reached::connect(config).await?;
    let (copy, recovered) = Copy::open(&config.copy)?;
    let owner = random_owner()?;
    let info = stream(&reached.api, config, &copy, owner).await?;
    check_stream(config, &reached.api, &info)?;
    let mut mine = Mine::load(&config.copy).map_err(OpenError::Owner)?;
    // An empty one has no owner yet.
    if config.own_only && info.last > 0 && !mine.has(info.subject()) {
        return Err(OpenError::TakenOver);
    }
    let asked = reached.ask_for_sync(config, &info).await?;
    // Before the log, so that no standby takes the log from here.
    let lease = Lease::start(config.clone(), owner, Want::Now)?;
    lease.held_soon().await;
    let api = reached.api;
    let taken = take_over(&api, config, owner, info, &mut mine).await?;
    lease.serves();
    let (read, recovered) = read(&api, config, copy, recovered, &taken).await?;
    let owned = Owned {
        api,
        subject: taken.subject,
        owner,
        chain: read.chain,
        copy: read.copy,
        bytes: taken.info.bytes,
        asked,
        lease,
    };
    Ok((owned, recovered))
}

/// The number of one owner, which no other has.
pub(crate) fn random_owner() -> Result<u64, OpenError> {
    getrandom::u64().map_err(|error| OpenError::Server(error.to_string()))
}

/// A stream that listens to the subject of this owner.
pub(crate) struct Taken {
    pub(crate) info: StreamInfo,
    pub(crate) subject: String,
    /// Sequence number of the claim.
    pub(crate) claim: u64,
    pub(crate) epoch: u64,
}

/// Lets the stream listen to this owner alone, and writes the claim.
pub(crate) async fn take_over(
    api: &Api,
    config: &NatsConfig,
    owner: u64,
    mut info: StreamInfo,
    mine: &mut Mine,
) -> Result<Taken, OpenError> {
    for _ in 0..TRIES_MAX {
        let now = info.subject().and_then(|s| config.epoch_in(s)).unwrap_or(0);
        // One that was just made listens to this owner.
        let made = info.last == 0 && info.subject() == Some(config.subject(now, owner).as_str());
        let epoch = if made { now } else { now.saturating_add(1) };
        let subject = config.subject(epoch, owner);
        let remembered = mine.remember(info.subject(), &subject);
        remembered.map_err(OpenError::Owner)?;
        if !made {
            let changed = insist(config.patience, || api.listen_to(&info, &subject)).await;
            changed.map_err(|error| refused(&error))?;
        }
        let claimed = insist(config.patience, || claim(api, &subject, epoch, 0, owner)).await;
        let seen = insist(config.patience, || api.info_soon()).await;
        let seen = seen.map_err(|error| refused(&error))?;
        match claimed {
            Ok(claim) if seen.subject() == Some(&subject) => {
                return Ok(Taken {
                    info: seen,
                    subject,
                    claim,
                    epoch,
                });
            }
            Err(error) if seen.subject() == Some(&subject) => return Err(refused(&error)),
            // Another owner came in between.
            _ if config.own_only => return Err(OpenError::TakenOver),
            _ => info = seen,
        }
    }
    Err(OpenError::TakenOver)
}

/// The part of a log that is read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extent {
    pub(crate) first: u64,
    pub(crate) last: u64,
    /// No copy knows this message, or a later one.
    pub(crate) unknown: u64,
}

impl Extent {
    /// All that is there.
    pub(crate) const fn of(info: &StreamInfo) -> Self {
        Self {
            first: info.first,
            last: info.last,
            unknown: info.last + 1,
        }
    }
}

impl Taken {
    pub(crate) const fn extent(&self) -> Extent {
        Extent {
            first: self.info.first,
            last: self.claim,
            unknown: self.claim,
        }
    }
}

/// A copy, and how far the log was read into it.
pub(crate) struct Read {
    pub(crate) chain: Chain,
    pub(crate) copy: Copy,
    /// It is another one than it was.
    pub(crate) changed: bool,
}

/// Brings the copy up to the end of a part of the log.
pub(crate) async fn bring_up(
    api: &Api,
    config: &NatsConfig,
    copy: Copy,
    extent: Extent,
) -> Result<Read, OpenError> {
    // One that has nothing says nothing of a log that may have begun with an import since.
    let known = copy.position.clone().filter(|at| at.place.number > 0);
    let fits = match &known {
        Some(position) if !copy.is_damaged() => fits(api, config, position, extent).await?,
        _ => false,
    };
    if let (true, Some(position)) = (fits, &known) {
        let chain = Chain::after(position.place, position.epoch, position.term);
        let mut filling = Filling::new(copy, 0);
        let chain = filling.fill(api, config, chain, extent.last).await?;
        return Ok(Read {
            chain,
            copy: filling.copy,
            changed: filling.changed,
        });
    }
    if known.is_some() {
        tracing::warn!(
            stream = api.stream,
            "the copy does not fit the log: read again"
        );
    }
    let (chain, copy) = rebuild(api, config, copy, known, extent).await?;
    Ok(Read {
        chain,
        copy,
        changed: true,
    })
}

/// Brings the copy up to the claim.
async fn read(
    api: &Api,
    config: &NatsConfig,
    copy: Copy,
    recovered: Recovered,
    taken: &Taken,
) -> Result<(Read, Recovered), OpenError> {
    let read = bring_up(api, config, copy, taken.extent()).await?;
    finish(read, Some(recovered), taken)
}

/// What is in a copy that is up to the claim. `recovered`: what was in it before.
pub(crate) fn finish(
    read: Read,
    recovered: Option<Recovered>,
    taken: &Taken,
) -> Result<(Read, Recovered), OpenError> {
    let Read {
        chain,
        copy,
        changed,
    } = read;
    if (chain.epoch, chain.term) != (taken.epoch, 0) {
        return Err(OpenError::TakenOver);
    }
    let (copy, recovered) = match recovered {
        Some(recovered) if !changed => (copy, recovered),
        _ => copy.read()?,
    };
    let read = Read {
        chain,
        copy,
        changed,
    };
    Ok((read, recovered))
}

/// Whether the log has the record up to which a copy is.
async fn fits(
    api: &Api,
    config: &NatsConfig,
    position: &Position,
    extent: Extent,
) -> Result<bool, OpenError> {
    let place = position.place;
    if place.seq >= extent.unknown {
        return Err(LogError::Lost {
            known: place.number,
            last: extent.unknown.saturating_sub(1),
        }
        .into());
    }
    if place.seq < extent.first {
        // All after it is there, and the first of that names it.
        return Ok(place.seq + 1 == extent.first);
    }
    let messages = insist(config.patience, || api.read(place.seq)).await;
    let messages = messages.map_err(|error| refused(&error))?;
    let Some((seq, bytes)) = messages.first() else {
        return Ok(false);
    };
    let record = record::decode(bytes);
    Ok(*seq == place.seq && record.is_ok_and(|record| record.hash == place.hash))
}

/// What the log says is live at a number: its records are these, inclusive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LiveSet {
    pub(crate) base: u64,
    pub(crate) first: u64,
    pub(crate) last: u64,
}

/// Reads all of a log before anything of the copy is touched.
async fn survey(
    api: &Api,
    config: &NatsConfig,
    extent: Extent,
) -> Result<(Chain, Option<LiveSet>), OpenError> {
    let mut chain = Chain::from_first(extent.first.max(1));
    let mut first = None;
    let mut open: Option<LiveSet> = None;
    let mut live = None;
    let mut imported = false;
    let see = |found, _: &Chain, _| {
        let Found::Whole(body) = found else {
            return Ok(());
        };
        imported |= first.is_none() && body.kind == Kind::Live && body.begins;
        first.get_or_insert(body.first);
        batches(&body)?;
        if body.kind == Kind::Live {
            if body.begins {
                open = Some(LiveSet {
                    base: body.base,
                    first: body.first,
                    last: 0,
                });
            }
            if let Some(set) = open.take_if(|_| body.ends) {
                let last = body.place.number;
                live = Some(LiveSet { last, ..set });
            }
        }
        Ok(())
    };
    read_until(api, &mut chain, extent.last, config.patience, see)
        .await
        .map_err(open_error)?;
    if imported && live.is_none() {
        return Err(LogError::Unfinished.into());
    }
    let first = first.unwrap_or(1);
    // The whole log is there: nothing else is needed.
    let live = live.filter(|_| first != 1);
    if first != 1 && live.is_none_or(|set: LiveSet| set.base + 1 < first) {
        return Err(LogError::NoBeginning { first }.into());
    }
    Ok((chain, live))
}

/// A copy from the log alone.
async fn rebuild(
    api: &Api,
    config: &NatsConfig,
    copy: Copy,
    known: Option<Position>,
    extent: Extent,
) -> Result<(Chain, Copy), OpenError> {
    let (chain, live) = survey(api, config, extent).await?;
    if let Some(known) = known.map(|position| position.place.number)
        && known > chain.last.number
    {
        let last = chain.last.number;
        return Err(LogError::Lost { known, last }.into());
    }
    let mut filling = Filling::new(copy.empty()?, live.map_or(0, |set| set.base));
    let begin = || Chain::from_first(extent.first.max(1));
    if live.is_some() {
        filling.live = live;
        filling.fill(api, config, begin(), extent.last).await?;
        filling.live = None;
    }
    let mut chain = filling.fill(api, config, begin(), extent.last).await?;
    // What was before its first record is in the copy.
    chain.middle = None;
    // Nothing at all was read from a stream without a message.
    if let Some(end) = filling.end.take() {
        let applied = filling.copy.apply(Vec::new(), Some(end));
        applied.map_err(OpenError::CopyFailed)?;
    }
    Ok((chain, filling.copy))
}

fn batches(body: &Body) -> Result<Vec<Batch>, OpenError> {
    reading::batches(&body.bytes).map_err(|why| OpenError::Operations {
        number: body.place.number,
        why,
    })
}

fn open_error(error: ReadError<OpenError>) -> OpenError {
    match error {
        ReadError::Ask(error) => refused(&error),
        ReadError::Log(error) => error.into(),
        ReadError::Caller(error) => error,
    }
}

/// A copy that takes what is read.
pub(crate) struct Filling {
    pub(crate) copy: Copy,
    /// Operations up to this number are in it already.
    base: u64,
    /// Take these, and nothing else.
    live: Option<LiveSet>,
    batches: Vec<Batch>,
    position: Option<Position>,
    /// Where reading may begin again: not within a body.
    end: Option<Position>,
    changed: bool,
}

impl Filling {
    pub(crate) const fn new(copy: Copy, base: u64) -> Self {
        Self {
            copy,
            base,
            live: None,
            batches: Vec::new(),
            position: None,
            end: None,
            changed: false,
        }
    }

    /// One that takes what is live, and nothing else.
    pub(crate) fn of_live(copy: Copy, live: LiveSet) -> Self {
        Self {
            live: Some(live),
            ..Self::new(copy, live.base)
        }
    }

    /// Reads up to this message, and adds what is read answer by answer of the server.
    pub(crate) async fn fill(
        &mut self,
        api: &Api,
        config: &NatsConfig,
        mut chain: Chain,
        until: u64,
    ) -> Result<Chain, OpenError> {
        let take = |found, chain: &Chain, last| {
            self.see(found, chain)?;
            if last { self.flush() } else { Ok(()) }
        };
        let read = read_until(api, &mut chain, until, config.patience, take).await;
        read.map_err(open_error)?;
        Ok(chain)
    }

    /// Takes the next message, as the chain has found it to be.
    pub(crate) fn see(&mut self, found: Found, chain: &Chain) -> Result<(), OpenError> {
        match found {
            Found::Part | Found::Dropped => return Ok(()),
            Found::Claim(_) => {}
            Found::Whole(body) => self.take(&body, chain)?,
        }
        self.end = Some(Position {
            place: chain.last,
            epoch: chain.epoch,
            term: chain.term,
        });
        Ok(())
    }

    fn take(&mut self, body: &Body, chain: &Chain) -> Result<(), OpenError> {
        if let (None, 0, Some(first)) = (self.live, self.base, chain.middle) {
            // An import into a log that had nothing when it began to be followed.
            return Err(LogError::NoBeginning { first }.into());
        }
        let wanted = match self.live {
            Some(set) => {
                body.kind == Kind::Live
                    && (set.first..=set.last).contains(&body.place.number)
                    && body.base == set.base
            }
            None => body.kind == Kind::Ops && body.first > self.base,
        };
        if !wanted {
            return Ok(());
        }
        self.batches.extend(batches(body)?);
        if self.live.is_none() {
            self.position = Some(Position {
                place: body.place,
                epoch: chain.epoch,
                term: chain.term,
            });
        }
        Ok(())
    }

    /// Adds what was taken to the copy.
    pub(crate) fn flush(&mut self) -> Result<(), OpenError> {
        if self.batches.is_empty() {
            return Ok(());
        }
        let batches = core::mem::take(&mut self.batches);
        let position = self.position.take();
        self.changed = true;
        self.copy
            .apply(batches, position)
            .map_err(OpenError::CopyFailed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{FIRST, Head, LAST};

    /// A standby may have read a part of a body when it ends.
    #[test]
    fn reading_begins_again_behind_a_whole_body() {
        let dir = tempfile::tempdir().expect("a folder");
        let (copy, _) = Copy::open(&dir.path().join("copy")).expect("opened");
        let mut filling = Filling::new(copy, 0);
        let mut chain = Chain::from_first(1);
        let mut before = 0;
        let mut ends = Vec::new();
        let claim = (Kind::Claim, 0);
        let ops = |flags| (Kind::Ops, flags);
        let log = [
            claim,
            ops(FIRST | LAST),
            ops(FIRST),
            ops(0),
            ops(LAST),
            ops(FIRST),
        ];
        for (at, (kind, flags)) in log.into_iter().enumerate() {
            let number = at as u64;
            let head = Head {
                kind,
                flags,
                epoch: 1,
                term: 0,
                number,
                before,
                base: 0,
            };
            let (bytes, hash) = record::encode(&head, b"");
            if kind == Kind::Ops {
                before = hash;
            }
            let found = chain.take(number + 1, &bytes).expect("a record");
            filling.see(found, &chain).expect("taken");
            ends.push(filling.end.as_ref().map(|end| end.place.number));
        }
        let want = [0, 1, 1, 1, 4, 4].map(Some);
        assert_eq!(ends, want);
        // Another owner ends what is not whole: its numbers go on behind it.
        let head = Head {
            kind: Kind::Claim,
            flags: 0,
            epoch: 2,
            term: 0,
            number: 0,
            before: 0,
            base: 0,
        };
        let (bytes, _) = record::encode(&head, b"");
        let found = chain.take(7, &bytes).expect("a record");
        filling.see(found, &chain).expect("taken");
        let end = filling.end.expect("read");
        assert_eq!((end.place.number, end.epoch), (5, 2));
    }
}
