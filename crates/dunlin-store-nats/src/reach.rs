//! What comes before the log is touched: servers are connected to and looked at, and the
//! stream is looked at, or made.

use async_nats::Client;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};

use crate::api::{Api, AskError, StreamInfo, insist};
use crate::chain::LogError;
use crate::config::NatsConfig;
use crate::connect::connect;
use crate::copy::Copy;
use crate::error::OpenError;
use crate::limits::CONNECT_AGAIN;
use crate::server;

/// Servers that are connected to.
pub(crate) struct Reached {
    pub(crate) api: Api,
    /// As a user of the system account; none where servers may not sync.
    pub(crate) system: Option<Client>,
}

impl Reached {
    /// Connects to servers that are new enough.
    pub(crate) async fn connect(config: &NatsConfig) -> Result<Self, OpenError> {
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
            unanswered: Default::default(),
        };
        Ok(Self { api, system })
    }

    /// Whether the servers of a stream sync. They are asked again and again from here on;
    /// what is given says when one does not.
    pub(crate) async fn ask_for_sync(
        &self,
        config: &NatsConfig,
        info: &StreamInfo,
    ) -> Result<Option<oneshot::Receiver<String>>, OpenError> {
        let Some(system) = self.system.clone() else {
            return Ok(None);
        };
        let silent = most_sync(config, &system, &info.servers).await?;
        if !silent.is_empty() {
            tracing::warn!(?silent, "NATS servers that do not say whether they sync");
        }
        let (api, servers) = (self.api.clone(), info.servers.clone());
        let asked = server::keep_asking(api, system, servers, !silent.is_empty());
        Ok(Some(asked))
    }
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

pub(crate) fn refused(error: &AskError) -> OpenError {
    OpenError::Server(error.to_string())
}

/// The stream, made if there is none.
pub(crate) async fn stream(
    api: &Api,
    config: &NatsConfig,
    copy: &Copy,
    owner: u64,
) -> Result<StreamInfo, OpenError> {
    match insist(config.patience, || api.info_soon()).await {
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
pub(crate) fn check_stream(
    config: &NatsConfig,
    api: &Api,
    info: &StreamInfo,
) -> Result<(), OpenError> {
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
