//! `dunlin cid`: what QUIC connection ids say.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, anyhow};
use clap::Args;
use dunlin_net::{CidCodec, LbConfig};

use crate::config::Config;
use crate::config::cluster::SHARDS_MAX;
use crate::config::lb::{parse_key, unhex};
use crate::daemon;

/// Show what QUIC connection ids say: configuration, server, nonce, shard.
///
/// Either the ids of a broker, as its configuration file says, which shows the
/// shard too; or those of any server that follows QUIC-LB, by the options.
#[derive(Debug, Args)]
pub(super) struct Cid {
    /// Connection ids in hexadecimal.
    #[arg(required = true, value_name = "HEX")]
    ids: Vec<String>,
    /// Configuration file of the broker that issued them.
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// 16 octets in hexadecimal; without it the ids are in plaintext.
    #[arg(long, value_name = "HEX", conflicts_with = "config")]
    key: Option<String>,
    /// Octets of a server id.
    #[arg(long, value_name = "NUMBER", conflicts_with = "config")]
    server_id_len: Option<usize>,
    /// Octets of a nonce; what is left of the id when not given.
    #[arg(long, value_name = "NUMBER", conflicts_with = "config")]
    nonce_len: Option<usize>,
    /// The first octet does not tell the length.
    #[arg(long, conflicts_with = "config")]
    no_length: bool,
}

/// How the ids are read.
struct Reader {
    layout: Option<LbConfig>,
    /// The broker's own secret.
    codec: Option<CidCodec>,
    /// Shards have numbers among those of all nodes.
    is_of_cluster: bool,
}

impl Cid {
    /// Runs the command; the exit code is 1 if an id cannot be read.
    ///
    /// # Errors
    /// The options make no sense.
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let broker = self.config.as_deref().map(of_broker).transpose()?;
        let mut out = std::io::stdout().lock();
        let mut code = ExitCode::SUCCESS;
        for text in &self.ids {
            let described = unhex(text)
                .map_err(|why| anyhow!(why))
                .and_then(|id| match &broker {
                    Some(reader) => reader.describe(&id),
                    None => self.reader_for(&id)?.describe(&id),
                });
            match described {
                Ok(line) => writeln!(out, "{text}: {line}")?,
                Err(error) => {
                    code = ExitCode::FAILURE;
                    writeln!(out, "{text}: {error:#}")?;
                }
            }
        }
        Ok(code)
    }

    /// By the options; the rotation is the id's own.
    fn reader_for(&self, id: &[u8]) -> anyhow::Result<Reader> {
        let server_id_len = self
            .server_id_len
            .context("give the length of server ids (--server-id-len) or a configuration file")?;
        let key = match &self.key {
            None => None,
            Some(digits) => Some(parse_key(digits).map_err(|why| anyhow!("--key: {why}"))?),
        };
        let left = || id.len().saturating_sub(1 + server_id_len);
        let nonce_len = self.nonce_len.unwrap_or_else(left);
        let rotation = id.first().map_or(0, |first| first >> 5);
        // A server id of the right length stands for all.
        let server_id = vec![0; server_id_len];
        // The codepoint for ids that are not routable is found by decoding.
        let layout = LbConfig::new(rotation % 7, &server_id, nonce_len, key)?;
        Ok(Reader {
            layout: Some(layout.tell_length(!self.no_length)),
            codec: None,
            is_of_cluster: false,
        })
    }
}

/// By the configuration of a broker and the secret in its data directory.
fn of_broker(file: &std::path::Path) -> anyhow::Result<Reader> {
    let config = Config::load(Some(file), &[])?;
    let layout = config
        .quic
        .lb
        .layout()
        .map_err(|(key, why)| anyhow!("quic.{key}: {why}"))?;
    let codec = match daemon::net_keys(&config)? {
        Some(keys) => {
            let codec = CidCodec::new(keys.cid, config.shard_count(), layout.clone())?;
            Some(match config.cluster.is_used() {
                true => codec.among(SHARDS_MAX..u16::MAX),
                false => codec,
            })
        }
        None => None,
    };
    if layout.is_none() && codec.is_none() {
        let dir = config.data_dir.display();
        anyhow::bail!("no quic.key in {dir}, and quic.lb is off: ids say nothing");
    }
    let is_of_cluster = config.cluster.is_used();
    Ok(Reader {
        layout,
        codec,
        is_of_cluster,
    })
}

impl Reader {
    fn describe(&self, id: &[u8]) -> anyhow::Result<String> {
        let mut parts = Vec::new();
        if let Some(layout) = &self.layout {
            let read = layout.decode(id)?;
            parts.push(format!("configuration {}", read.rotation));
            parts.push(format!("server {}", hex(&read.server_id)));
            parts.push(format!("nonce {}", hex(&read.nonce)));
        }
        if let Some(codec) = &self.codec {
            let shard = codec.shard(id);
            // Server ids of others are masked by other secrets.
            parts.push(match shard {
                Some(shard) if self.is_of_cluster => {
                    let (node, shard) = (shard.0 / SHARDS_MAX, shard.0 % SHARDS_MAX);
                    format!("node {node}, shard {shard}")
                }
                Some(shard) => format!("shard {}", shard.0),
                None => "no shard of this broker".to_owned(),
            });
        }
        Ok(parts.join(", "))
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}
