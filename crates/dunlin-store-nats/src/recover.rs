//! Opening: the server is looked at, the stream is taken over, and the copy is brought
//! up to the claim.

use async_nats::Client;
use dunlin_store::{Batch, Recovered};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};

use crate::api::{Api, AskError, StreamInfo, insist};
use crate::chain::{Body, Chain, Found, LogError};
use crate::config::NatsConfig;
use crate::connect::connect;
use crate::copy::Copy;
use crate::error::OpenError;
use crate::limits::CONNECT_AGAIN;
use crate::mine::Mine;
use crate::position::Position;
use crate::reading::{self, ReadError, claim, read_until};
use crate::record::{self, Kind};
use crate::server;

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
}

/// Connects, takes the partition over and reads it.
pub(crate) async fn open(config: &NatsConfig) -> Result<(Owned, Recovered), OpenError> {
    let usable = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if config.prefix.is_empty() || !config.prefix.chars().all(usable) {
        return Err(OpenError::Stream {
            stream: config.stream(),
            why: "its prefix has other characters than letters, digits, - and _".to_owned(),
        });
    }
    let client = connect(&config.servers(&config.urls)).await?;
    server::check(&client)?;
    let system = match config.system_urls.is_empty() {
        _ if config.unsynced_accepted => None,
        true => {
            let why = "no URL of the system account is named".to_owned();
            return Err(OpenError::SyncUnknown(why));
        }
        false => Some(connect(&config.servers(&config.system_urls)).await?),
    };
    let api = Api {
        client,
        stream: config.stream(),
    };
    let (copy, recovered) = Copy::open(&config.copy)?;
    let owner = getrandom::u64().map_err(|error| OpenError::Server(error.to_string()))?;
    let info = stream(&api, config, &copy, owner).await?;
    check_stream(config, &api, &info)?;
    let mut mine = Mine::load(&config.copy).map_err(OpenError::Owner)?;
    // An empty one has no owner yet.
    if config.own_only && info.last > 0 && !mine.has(info.subject()) {
        return Err(OpenError::TakenOver);
    }
    let mut asked = None;
    if let Some(system) = system {
        let silent = most_sync(config, &system, &info.servers).await?;
        if !silent.is_empty() {
            tracing::warn!(?silent, "NATS servers that do not say whether they sync");
        }
        let servers = info.servers.clone();
        asked = Some(server::keep_asking(
            api.clone(),
            system,
            servers,
            !silent.is_empty(),
        ));
    }
    let taken = take_over(&api, config, owner, info, &mut mine).await?;
    let (owned, recovered) = read(api, config, copy, recovered, owner, taken).await?;
    Ok((Owned { asked, ..owned }, recovered))
}

/// Whether the servers of a stream sync, as far as they answer; most have to.
async fn most_sync(
    config: &NatsConfig,
    system: &Client,
    servers: &[String],
) -> Result<Vec<String>, OpenError> {
    let until = Instant::now() + config.patience;
    loop {
        let found = server::syncing(system, servers).await;
        match found.and_then(|found| server::all_sync(&found, servers)) {
            Err(OpenError::SyncUnknown(why)) if Instant::now() < until => {
                tracing::warn!("whether the NATS servers sync: {why}; asking again");
                sleep(CONNECT_AGAIN).await;
            }
            answer => return answer,
        }
    }
}

fn refused(error: &AskError) -> OpenError {
    OpenError::Server(error.to_string())
}

/// The stream, made if there is none.
async fn stream(
    api: &Api,
    config: &NatsConfig,
    copy: &Copy,
    owner: u64,
) -> Result<StreamInfo, OpenError> {
    match insist(config.patience, || api.info()).await {
        Err(error) if error.is_not_found() => {}
        answer => return answer.map_err(|error| refused(&error)),
    }
    if let Some(position) = &copy.position {
        let known = position.place.number;
        return Err(LogError::Lost { known, last: 0 }.into());
    }
    let subject = config.subject(1, owner);
    let made = insist(config.patience, || api.create(&subject, config.replicas)).await;
    made.map_err(|error| refused(&error))
}

/// Whether a stream keeps everything, on disk, as often as it has to.
fn check_stream(config: &NatsConfig, api: &Api, info: &StreamInfo) -> Result<(), OpenError> {
    let number = |name: &str| info.config[name].as_i64().unwrap_or_default();
    let replicas = i64::try_from(config.replicas).unwrap_or(i64::MAX);
    let why = if info.text("storage") != "file" {
        "it is not kept in files"
    } else if number("num_replicas").max(1) != replicas {
        "it has another number of replicas than is configured"
    } else if info.text("retention") != "limits" || number("max_age") != 0 {
        "it deletes messages by itself"
    } else if info.text("discard") != "new" && (number("max_msgs") > 0 || number("max_bytes") > 0) {
        "it deletes old messages when it is full"
    } else if info.config["allow_direct"] != true {
        "its messages cannot be read directly"
    } else if info.subject().and_then(|s| config.epoch_in(s)).is_none() {
        "it does not listen to one subject of this partition"
    } else {
        return Ok(());
    };
    Err(OpenError::Stream {
        stream: api.stream.clone(),
        why: why.to_owned(),
    })
}

/// A stream that listens to the subject of this owner.
struct Taken {
    info: StreamInfo,
    subject: String,
    /// Sequence number of the claim.
    claim: u64,
    epoch: u64,
}

/// Lets the stream listen to this owner alone, and writes the claim.
async fn take_over(
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
        let seen = insist(config.patience, || api.info()).await;
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

/// Brings the copy up to the claim.
async fn read(
    api: Api,
    config: &NatsConfig,
    copy: Copy,
    recovered: Recovered,
    owner: u64,
    taken: Taken,
) -> Result<(Owned, Recovered), OpenError> {
    let known = copy.position.clone();
    let fits = match &known {
        Some(position) if !copy.is_damaged() => fits(&api, config, position, &taken).await?,
        _ => false,
    };
    let (chain, copy, changed) = if let (true, Some(position)) = (fits, &known) {
        let chain = Chain::after(position.place, position.epoch, position.term);
        let mut filling = Filling::new(copy, 0);
        let chain = filling.fill(&api, config, chain, taken.claim).await?;
        (chain, filling.copy, filling.changed)
    } else {
        if known.is_some() {
            tracing::warn!(
                stream = api.stream,
                "the copy does not fit the log: read again"
            );
        }
        let (chain, copy) = rebuild(&api, config, copy, known, &taken).await?;
        (chain, copy, true)
    };
    if (chain.epoch, chain.term) != (taken.epoch, 0) {
        return Err(OpenError::TakenOver);
    }
    let (copy, recovered) = if changed {
        copy.reopen()?
    } else {
        (copy, recovered)
    };
    let owned = Owned {
        bytes: taken.info.bytes,
        asked: None,
        subject: taken.subject,
        api,
        owner,
        chain,
        copy,
    };
    Ok((owned, recovered))
}

/// Whether the log has the record up to which a copy is.
async fn fits(
    api: &Api,
    config: &NatsConfig,
    position: &Position,
    taken: &Taken,
) -> Result<bool, OpenError> {
    let place = position.place;
    if place.seq >= taken.claim {
        return Err(LogError::Lost {
            known: place.number,
            last: taken.claim.saturating_sub(1),
        }
        .into());
    }
    if place.seq < taken.info.first {
        // All after it is there, and the first of that names it.
        return Ok(place.seq + 1 == taken.info.first);
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
struct LiveSet {
    base: u64,
    first: u64,
    last: u64,
}

/// Reads all of a log before anything of the copy is touched.
async fn survey(
    api: &Api,
    config: &NatsConfig,
    taken: &Taken,
) -> Result<(Chain, Option<LiveSet>), OpenError> {
    let mut chain = Chain::from_first(taken.info.first.max(1));
    let mut first = None;
    let mut open: Option<LiveSet> = None;
    let mut live = None;
    let see = |found, _: &Chain, _| {
        let Found::Whole(body) = found else {
            return Ok(());
        };
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
    read_until(api, &mut chain, taken.claim, config.patience, see)
        .await
        .map_err(open_error)?;
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
    taken: &Taken,
) -> Result<(Chain, Copy), OpenError> {
    let (chain, live) = survey(api, config, taken).await?;
    if let Some(known) = known.map(|position| position.place.number)
        && known > chain.last.number
    {
        let last = chain.last.number;
        return Err(LogError::Lost { known, last }.into());
    }
    let mut filling = Filling::new(copy.empty()?, live.map_or(0, |set| set.base));
    let begin = || Chain::from_first(taken.info.first.max(1));
    if live.is_some() {
        filling.live = live;
        filling.fill(api, config, begin(), taken.claim).await?;
        filling.live = None;
    }
    let chain = filling.fill(api, config, begin(), taken.claim).await?;
    let position = Position {
        place: chain.last,
        epoch: chain.epoch,
        term: chain.term,
    };
    let applied = filling.copy.apply(Vec::new(), Some(position));
    applied.map_err(OpenError::CopyFailed)?;
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
struct Filling {
    copy: Copy,
    /// Operations up to this number are in it already.
    base: u64,
    /// Take these, and nothing else.
    live: Option<LiveSet>,
    batches: Vec<Batch>,
    position: Option<Position>,
    changed: bool,
}

impl Filling {
    const fn new(copy: Copy, base: u64) -> Self {
        Self {
            copy,
            base,
            live: None,
            batches: Vec::new(),
            position: None,
            changed: false,
        }
    }

    /// Reads up to the claim, and adds what is read answer by answer of the server.
    async fn fill(
        &mut self,
        api: &Api,
        config: &NatsConfig,
        mut chain: Chain,
        claim: u64,
    ) -> Result<Chain, OpenError> {
        let take = |found, chain: &Chain, last| {
            if let Found::Whole(body) = found {
                self.take(&body, chain)?;
            }
            if last { self.flush() } else { Ok(()) }
        };
        let read = read_until(api, &mut chain, claim, config.patience, take).await;
        read.map_err(open_error)?;
        Ok(chain)
    }

    fn take(&mut self, body: &Body, chain: &Chain) -> Result<(), OpenError> {
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

    fn flush(&mut self) -> Result<(), OpenError> {
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
