//! A standby: follows the log of another owner into its copy, so that a take-over reads
//! only what is left.
//!
//! What the stream shows is committed, and whether a record counts is decided by what is
//! before it: a later claim takes nothing back that counts. So what is read is applied as a
//! recovery does it, body by body, and nothing is held back but bodies whose last record
//! has not come. It writes nothing to the log before it takes it over.

use dunlin_store::Recovered;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};

use crate::api::{Stored, StreamInfo};
use crate::chain::{Chain, LogError};
use crate::config::NatsConfig;
use crate::copy::Copy;
use crate::error::OpenError;
use crate::holder::Lease;
use crate::limits::{ASK_AGAIN, REREAD_AFTER, REREADS_MAX, TAIL_EVERY, TAIL_LOOK_EVERY};
use crate::mine::Mine;
use crate::reach::{Reached, check_stream, refused, stream};
use crate::recover::{Extent, Filling, Owned, Read, bring_up, finish, take_over};
use crate::role::LogMetrics;

/// A copy that follows the log: what the chain took is in it, between two answers.
struct Tail {
    filling: Filling,
    chain: Chain,
}

/// What there is of the copy. Where there is neither, it is to be opened.
struct Following {
    /// It is not up to the log yet.
    copy: Option<Copy>,
    tail: Option<Tail>,
}

impl Following {
    /// Adds one answer of the server. After an error the chain may be ahead of the copy, so
    /// that there is no tail any more: reading begins again where the copy is.
    fn add(&mut self, messages: &[Stored]) -> Result<(), OpenError> {
        let Some(Tail { filling, chain }) = &mut self.tail else {
            return Ok(());
        };
        let added = messages
            .iter()
            .try_for_each(|(seq, bytes)| {
                let found = chain.take(*seq, bytes)?;
                filling.see(found, chain)
            })
            .and_then(|()| filling.flush());
        if let Err(error) = &added {
            let copy = self.tail.take().map(|tail| tail.filling.copy);
            // After a write that failed, only the file says how far it is.
            self.copy = copy.filter(|_| !matches!(error, OpenError::CopyFailed(_)));
        }
        added
    }

    /// Takes the copy, and its chain where it follows the log. The filling goes with it, so
    /// that nothing that it holds back is lost.
    fn take(&mut self, config: &NatsConfig) -> Result<(Filling, Option<Chain>), OpenError> {
        if let Some(Tail { filling, chain }) = self.tail.take() {
            return Ok((filling, Some(chain)));
        }
        let copy = match self.copy.take() {
            Some(copy) => copy,
            None => Copy::open(&config.copy)?.0,
        };
        Ok((Filling::new(copy, 0), None))
    }
}

/// See the head of the file.
pub(crate) struct Standing {
    reached: Reached,
    following: Following,
    /// Servers are asked again and again whether they sync.
    asked: Option<oneshot::Receiver<String>>,
    /// When to ask how long the log is.
    look: Instant,
}

impl Standing {
    /// Connects, and opens the copy.
    pub(crate) async fn begin(config: &NatsConfig) -> Result<Self, OpenError> {
        let reached = Reached::connect(config).await?;
        let (copy, _) = Copy::open(&config.copy)?;
        Mine::load(&config.copy).map_err(OpenError::Owner)?;
        Ok(Self {
            reached,
            following: Following {
                copy: Some(copy),
                tail: None,
            },
            asked: None,
            look: Instant::now(),
        })
    }

    /// Follows the log until it cannot. May be dropped and called again.
    pub(crate) async fn follow(&mut self, config: &NatsConfig, metrics: &LogMetrics) -> OpenError {
        let mut failed = 0;
        loop {
            if let Some(server) = self.unsynced() {
                return OpenError::Unsynced { server };
            }
            let pause = match self.step(config, metrics).await {
                Ok(read) => {
                    failed = 0;
                    if read { continue } else { TAIL_EVERY }
                }
                // A standby has time.
                Err(OpenError::Server(why)) => {
                    tracing::debug!("the log cannot be read: {why}; trying again");
                    ASK_AGAIN
                }
                // Who imports has the lease until it is finished.
                Err(OpenError::Log(error @ LogError::Unfinished)) => {
                    tracing::debug!("{error}; waiting");
                    REREAD_AFTER
                }
                Err(OpenError::Log(error)) => {
                    failed += 1;
                    if failed > REREADS_MAX {
                        return OpenError::Log(error);
                    }
                    // The owner may have deleted what is not live, before it was read here.
                    tracing::warn!("{error}; the log is read again");
                    REREAD_AFTER
                }
                Err(error) => return error,
            };
            sleep(pause).await;
        }
    }

    fn unsynced(&mut self) -> Option<String> {
        self.asked.as_mut()?.try_recv().ok()
    }

    /// Reads what there is, once; `false`: nothing.
    async fn step(&mut self, config: &NatsConfig, metrics: &LogMetrics) -> Result<bool, OpenError> {
        if let Some(info) = self.look().await? {
            metrics.note_last(info.last);
            if self.following.tail.is_none() {
                self.join(config, &info).await?;
            }
        }
        let Some(tail) = &self.following.tail else {
            return Ok(false);
        };
        let read = self.reached.api.read(tail.chain.next).await;
        let messages = read.map_err(|error| refused(&error))?;
        self.following.add(&messages)?;
        if let Some(tail) = &self.following.tail {
            metrics.note_read(tail.chain.next.saturating_sub(1));
        }
        Ok(!messages.is_empty())
    }

    /// What the stream is, now and then, and where that is not known; `None` also where
    /// there is none.
    async fn look(&mut self) -> Result<Option<StreamInfo>, OpenError> {
        if self.following.tail.is_some() && Instant::now() < self.look {
            return Ok(None);
        }
        let info = match self.reached.api.info().await {
            Err(error) if error.is_not_found() => return Ok(None),
            info => info.map_err(|error| refused(&error))?,
        };
        self.look = Instant::now() + TAIL_LOOK_EVERY;
        Ok(Some(info))
    }

    /// Brings the copy up to what there is.
    async fn join(&mut self, config: &NatsConfig, info: &StreamInfo) -> Result<(), OpenError> {
        check_stream(config, &self.reached.api, info)?;
        if self.asked.is_none() {
            self.asked = self.reached.ask_for_sync(config, info).await?;
        }
        let (Filling { copy, .. }, _) = self.following.take(config)?;
        let extent = Extent::of(info);
        let Read { chain, copy, .. } = bring_up(&self.reached.api, config, copy, extent).await?;
        let filling = Filling::new(copy, 0);
        self.following.tail = Some(Tail { filling, chain });
        Ok(())
    }

    /// Takes the partition over, and reads what is left.
    pub(crate) async fn take_over(
        mut self,
        config: &NatsConfig,
        owner: u64,
        lease: Lease,
    ) -> Result<(Owned, Recovered), OpenError> {
        let (mut filling, chain) = self.following.take(config)?;
        let api = self.reached.api.clone();
        let info = stream(&api, config, &filling.copy, owner).await?;
        check_stream(config, &api, &info)?;
        if self.asked.is_none() {
            self.asked = self.reached.ask_for_sync(config, &info).await?;
        }
        let mut mine = Mine::load(&config.copy).map_err(OpenError::Owner)?;
        let taken = take_over(&api, config, owner, info, &mut mine).await?;
        lease.serves();
        let rest = match chain {
            Some(chain) => filling
                .fill(&api, config, chain, taken.claim)
                .await
                .map(Some),
            None => Ok(None),
        };
        let read = match rest {
            Ok(Some(chain)) => Read {
                chain,
                copy: filling.copy,
                changed: true,
            },
            Ok(None) | Err(OpenError::Log(_)) => {
                bring_up(&api, config, filling.copy, taken.extent()).await?
            }
            Err(error) => return Err(error),
        };
        let (read, recovered) = finish(read, None, &taken)?;
        let owned = Owned {
            api,
            subject: taken.subject,
            owner,
            chain: read.chain,
            copy: read.copy,
            bytes: taken.info.bytes,
            asked: self.asked,
            lease,
        };
        Ok((owned, recovered))
    }
}

#[cfg(test)]
mod tests {
    use dunlin_base::Text;
    use dunlin_store::codec::encode_ops;
    use dunlin_store::{StoreError, StoreOp};

    use super::*;
    use crate::record::{self, FIRST, Head, Kind, LAST};

    /// A log of a claim and these bodies.
    fn log(bodies: &[Vec<u8>]) -> Vec<Stored> {
        let mut head = Head {
            kind: Kind::Claim,
            flags: 0,
            epoch: 1,
            term: 0,
            number: 0,
            before: 0,
            base: 0,
        };
        let mut log = vec![(1, record::encode(&head, b"").0.into())];
        (head.kind, head.flags) = (Kind::Ops, FIRST | LAST);
        for (body, number) in bodies.iter().zip(1..) {
            head.number = number;
            let (bytes, hash) = record::encode(&head, body);
            head.before = hash;
            log.push((number + 1, bytes.into()));
        }
        log
    }

    /// The body of a batch that puts this key.
    fn put(key: &'static str) -> Vec<u8> {
        let mut body = Vec::new();
        let op = StoreOp::PutMeta {
            key: Text::from_static(key),
            value: Vec::new().into(),
        };
        encode_ops(&[op], &mut body);
        body
    }

    /// Reads a claim and "a", then `next`, in which something fails; goes on from what is
    /// there then with `then`. Which keys the copy has in the end.
    fn keys(next: &[Stored], fail: impl FnOnce(&mut Copy), then: &[Stored]) -> Vec<String> {
        let dir = tempfile::tempdir().expect("a folder");
        let config = NatsConfig::new("nats://127.0.0.1", dir.path().join("copy"));
        let (copy, _) = Copy::open(&config.copy).expect("opened");
        let filling = Filling::new(copy, 0);
        let chain = Chain::from_first(1);
        let mut following = Following {
            copy: None,
            tail: Some(Tail { filling, chain }),
        };
        following.add(&log(&[put("a")])).expect("added");
        let tail = following.tail.as_mut().expect("it follows");
        fail(&mut tail.filling.copy);
        following.add(next).expect_err("it fails");
        let (filling, chain) = following.take(&config).expect("there");
        // As a take-over does: from where the copy is, where there is no chain.
        let place = filling.copy.position.clone().expect("a place");
        let chain = chain.unwrap_or_else(|| Chain::after(place.place, place.epoch, place.term));
        let rest = then.iter().filter(|(seq, _)| *seq >= chain.next).cloned();
        let rest: Vec<_> = rest.collect();
        following.tail = Some(Tail { filling, chain });
        following.add(&rest).expect("added");
        let (filling, _) = following.take(&config).expect("there");
        let (_, recovered) = filling.copy.read().expect("read");
        let keys = recovered.meta.iter().map(|(key, _)| key.to_string());
        let mut keys: Vec<_> = keys.collect();
        keys.sort();
        keys
    }

    /// A disk that is full for a moment.
    #[test]
    fn what_the_copy_could_not_write_is_read_again() {
        let log = log(&[put("a"), put("b"), put("c")]);
        let full = |copy: &mut Copy| copy.fails = Some(StoreError::DiskFull);
        assert_eq!(keys(&log[2..3], full, &log), ["a", "b", "c"]);
    }

    /// It holds what came before it in the same answer.
    #[test]
    fn what_came_before_an_unreadable_record_is_read_again() {
        let damaged = log(&[put("a"), put("b"), vec![0xff]]);
        let log = log(&[put("a"), put("b"), put("c")]);
        assert_eq!(keys(&damaged[2..], |_| {}, &log), ["a", "b", "c"]);
    }
}
