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

use crate::api::StreamInfo;
use crate::chain::Chain;
use crate::config::NatsConfig;
use crate::copy::Copy;
use crate::error::OpenError;
use crate::holder::Lease;
use crate::limits::{ASK_AGAIN, REREAD_AFTER, REREADS_MAX, TAIL_EVERY, TAIL_LOOK_EVERY};
use crate::mine::Mine;
use crate::reach::{Reached, check_stream, refused, stream};
use crate::recover::{Extent, Filling, Owned, Read, bring_up, finish, take_over};
use crate::role::LogMetrics;

/// A copy that follows the log.
struct Tail {
    filling: Filling,
    chain: Chain,
}

/// See the head of the file.
pub(crate) struct Standing {
    reached: Reached,
    /// What is not opened, or not up to the log yet.
    copy: Option<Copy>,
    tail: Option<Tail>,
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
            copy: Some(copy),
            tail: None,
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
                Err(OpenError::Log(error)) => {
                    failed += 1;
                    if failed > REREADS_MAX {
                        return OpenError::Log(error);
                    }
                    // The owner may have deleted what is not live, before it was read here.
                    tracing::warn!("{error}; the log is read again");
                    self.copy = self.tail.take().map(|tail| tail.filling.copy);
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
            if self.tail.is_none() {
                self.join(config, &info).await?;
            }
        }
        let Some(Tail { filling, chain }) = &mut self.tail else {
            return Ok(false);
        };
        let read = self.reached.api.read(chain.next).await;
        let messages = read.map_err(|error| refused(&error))?;
        for (seq, bytes) in &messages {
            let found = chain.take(*seq, bytes)?;
            filling.see(found, chain)?;
        }
        filling.flush()?;
        metrics.note_read(chain.next.saturating_sub(1));
        Ok(!messages.is_empty())
    }

    /// What the stream is, now and then, and where that is not known; `None` also where
    /// there is none.
    async fn look(&mut self) -> Result<Option<StreamInfo>, OpenError> {
        if self.tail.is_some() && Instant::now() < self.look {
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
        let copy = match self.copy.take() {
            Some(copy) => copy,
            None => Copy::open(&config.copy)?.0,
        };
        let extent = Extent::of(info);
        let Read { chain, copy, .. } = bring_up(&self.reached.api, config, copy, extent).await?;
        let filling = Filling::new(copy, 0);
        self.tail = Some(Tail { filling, chain });
        Ok(())
    }

    /// Takes the partition over, and reads what is left.
    pub(crate) async fn take_over(
        mut self,
        config: &NatsConfig,
        owner: u64,
        lease: Lease,
    ) -> Result<(Owned, Recovered), OpenError> {
        let (copy, chain) = match self.tail.take() {
            Some(tail) => (tail.filling.copy, Some(tail.chain)),
            None => match self.copy.take() {
                Some(copy) => (copy, None),
                None => (Copy::open(&config.copy)?.0, None),
            },
        };
        let api = self.reached.api.clone();
        let info = stream(&api, config, &copy, owner).await?;
        check_stream(config, &api, &info)?;
        if self.asked.is_none() {
            self.asked = self.reached.ask_for_sync(config, &info).await?;
        }
        let mut mine = Mine::load(&config.copy).map_err(OpenError::Owner)?;
        let taken = take_over(&api, config, owner, info, &mut mine).await?;
        lease.serves();
        let mut filling = Filling::new(copy, 0);
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
