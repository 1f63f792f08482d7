//! Kafka: each row is a record, in the partition of its key, stored when all replicas in
//! sync have it. A producer numbers its records, so that an attempt whose answer was lost
//! is not stored twice while the sink lives. What a producer needs of the protocol is six
//! requests, so they are written out here.

mod connection;
mod error;
mod records;
mod wire;

#[cfg(test)]
mod tests;

use core::time::Duration;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use tokio_rustls::TlsConnector;

use super::stream::address;
use crate::config::{self, Config, ConfigError};
use crate::expression::Expressions;
use crate::shape::Shape;
use crate::target::{Encode, Failure, Rows, Step, Target};
use connection::{Connection, Dial, Login};
use error::KafkaError;
use records::{BATCH_HEAD_BYTES, Record, Records, Sender, batch, partition, records};
use wire::{Api, Metadata};

/// Time for a connection.
const CONNECT_MAX: Duration = Duration::from_secs(10);

/// Age at which the leaders are asked for again, and connections are made again: before servers
/// end those on which nothing happens, after 10 minutes.
const LEADERS_AGE_MAX: Duration = Duration::from_secs(300);

/// Most bytes of a request, beyond one batch.
const REQUEST_BYTES_MAX: usize = 16 << 20;

/// Most bytes of a batch of records.
const BATCH_BYTES_MAX: u64 = 64 << 20;

/// Most servers in the configuration.
const SERVERS_MAX: usize = 64;

/// Longest name of a topic.
const TOPIC_BYTES_MAX: usize = 249;

const PORT: u16 = 9092;

/// Servers of a cluster.
pub(super) struct Kafka {
    bootstrap: Vec<(String, u16)>,
    /// Which of them is asked next.
    turn: usize,
    dial: Dial,
    topic: String,
    batch_bytes: usize,
    timeout: Duration,
    encoder: Arc<Records>,
    cluster: Option<Cluster>,
    /// Outlives connections: by it the servers know what they have.
    producer: Option<Producer>,
    progress: Progress,
}

/// What is known of the cluster.
struct Cluster {
    asked: Instant,
    metadata: Metadata,
    connections: HashMap<i32, Connection>,
}

/// How far the sink came in each partition.
struct Producer {
    id: i64,
    epoch: i16,
    sequences: HashMap<i32, i32>,
    /// How many there were when it began: with others a key has another partition.
    partitions: usize,
}

impl Producer {
    fn sender(&self, partition: i32) -> Sender {
        Sender {
            producer: self.id,
            epoch: self.epoch,
            sequence: self.sequences.get(&partition).copied().unwrap_or(0),
        }
    }

    /// Some of its records are in a partition.
    fn stored(&mut self, partition: i32, records: usize) {
        let sequence = self.sequences.entry(partition).or_insert(0);
        // After the largest number comes 0.
        *sequence = sequence.wrapping_add(wire::length(records)) & i32::MAX;
    }
}

/// Which rows of a batch are stored, when others of it are not: they are not sent again
/// when the batch is tried again, as a whole or in halves.
#[derive(Default)]
struct Progress {
    /// All rows that were given first. Kept, so that no others are at their place in memory.
    whole: bytes::Bytes,
    /// Where records that are stored begin in it.
    stored: HashSet<usize>,
    /// Counts batches, to spread records without a key.
    batches: usize,
    /// Records were sent, and it is not known of all whether they are stored.
    is_unsure: bool,
}

impl Progress {
    /// Where rows begin in those that were given first, if they are some of them.
    fn find(&self, rows: &bytes::Bytes) -> Option<usize> {
        let whole = self.whole.as_ptr() as usize;
        let at = (rows.as_ptr() as usize).checked_sub(whole)?;
        (at + rows.len() <= self.whole.len()).then_some(at)
    }

    /// Where rows begin in those that were given first; 0 if they are others.
    fn begin(&mut self, rows: &bytes::Bytes) -> usize {
        match self.find(rows) {
            Some(at) => at,
            None => {
                self.whole = rows.clone();
                self.stored.clear();
                self.batches = self.batches.wrapping_add(1);
                self.is_unsure = false;
                0
            }
        }
    }

    /// Rows are stored: if they are all, none of them comes again.
    fn end(&mut self, begin: usize, rows: &bytes::Bytes) {
        if begin == 0 && rows.len() == self.whole.len() {
            self.whole = bytes::Bytes::new();
            self.stored.clear();
        }
    }
}

/// Records that wait, by partition.
type Waiting<'a> = BTreeMap<i32, VecDeque<Record<'a>>>;

/// The next batch of each of some partitions.
type Batches<'a> = BTreeMap<i32, Vec<Record<'a>>>;

/// A request that was sent.
struct Sent<'a> {
    leader: i32,
    connection: Connection,
    version: i16,
    batches: Batches<'a>,
}

impl Kafka {
    pub(super) fn new(
        config: &Config,
        kafka: &config::Kafka,
        shape: Arc<Shape>,
    ) -> Result<Self, ConfigError> {
        let wrong = |key, why: String| ConfigError::Value { key, why };
        if kafka.servers.is_empty() || kafka.servers.len() > SERVERS_MAX {
            let why = format!("1 to {SERVERS_MAX} addresses");
            return Err(wrong("kafka.servers", why));
        }
        let servers = kafka.servers.iter().map(|text| {
            let found = address(text, PORT).map(|(host, port)| (host.to_owned(), port));
            found.ok_or_else(|| wrong("kafka.servers", format!("`{text}` is no address")))
        });
        let bootstrap = servers.collect::<Result<_, _>>()?;
        let legal = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        let topic = kafka.topic.as_str();
        if topic.is_empty() || topic.len() > TOPIC_BYTES_MAX || !topic.chars().all(legal) {
            let why = format!("1 to {TOPIC_BYTES_MAX} letters, digits, `.`, `_` and `-`");
            return Err(wrong("kafka.topic", why));
        }
        if kafka.batch_bytes.0 == 0 || kafka.batch_bytes.0 > BATCH_BYTES_MAX {
            return Err(wrong("kafka.batch_bytes", "from 1B to 64MiB".into()));
        }
        let key = kafka.key.as_ref().map(|key| Expressions::new().parse(key));
        Ok(Self {
            bootstrap,
            turn: 0,
            dial: dial(config, kafka)?,
            topic: topic.to_owned(),
            batch_bytes: usize::try_from(kafka.batch_bytes.0).unwrap_or(usize::MAX),
            timeout: config.retry.timeout.0,
            encoder: Arc::new(Records {
                shape,
                key: key.transpose().map_err(|why| wrong("kafka.key", why))?,
            }),
            cluster: None,
            producer: None,
            progress: Progress::default(),
        })
    }

    /// Asks a server who leads, and who the sink is as a producer.
    async fn open(&mut self) -> Result<(), KafkaError> {
        self.cluster = None;
        let Some((host, port)) = self.bootstrap.get(self.turn % self.bootstrap.len()) else {
            return Err(KafkaError::Time);
        };
        // Another one, should this one not answer.
        self.turn = self.turn.wrapping_add(1);
        let ask = async {
            let mut connection = Connection::open(&self.dial, host, *port).await?;
            let answer = connection
                .ask(Api::Metadata, |out| wire::put_metadata(&self.topic, out))
                .await?;
            let metadata = wire::metadata(&answer)?;
            // Of other partitions a batch that is tried again has other records under the
            // same numbers.
            let partitions = metadata.leaders.len();
            let producer = match &self.producer {
                Some(producer) if producer.partitions == partitions => None,
                _ => {
                    let answer = connection
                        .ask(Api::InitProducerId, wire::put_init_producer_id)
                        .await?;
                    Some(wire::init_producer_id(&answer)?)
                }
            };
            Ok::<_, KafkaError>((metadata, producer))
        };
        let asked = tokio::time::timeout(CONNECT_MAX, ask).await;
        let (metadata, producer) = asked.map_err(|_| KafkaError::Time)??;
        if let Some((id, epoch)) = producer {
            self.producer = Some(Producer {
                id,
                epoch,
                sequences: HashMap::new(),
                partitions: metadata.leaders.len(),
            });
        }
        self.turn = self.turn.wrapping_sub(1);
        self.cluster = Some(Cluster {
            asked: Instant::now(),
            metadata,
            connections: HashMap::new(),
        });
        Ok(())
    }

    /// Stores what is not stored yet of some rows.
    async fn produce(&mut self, rows: &bytes::Bytes) -> Result<(), KafkaError> {
        // Others would be taken for those that may be stored, under the same numbers.
        if self.progress.is_unsure && self.progress.find(rows).is_none() {
            self.producer = None;
        }
        let is_old = |cluster: &Cluster| cluster.asked.elapsed() > LEADERS_AGE_MAX;
        if self.producer.is_none() || self.cluster.as_ref().is_none_or(is_old) {
            self.open().await?;
        }
        let begin = self.progress.begin(rows);
        let mut waiting = self.waiting(rows, begin);
        while !waiting.is_empty() {
            self.progress.is_unsure = true;
            let sent = self.send(&mut waiting).await?;
            self.receive(sent, begin).await?;
        }
        self.progress.end(begin, rows);
        Ok(())
    }

    /// Records that are not stored yet, by partition.
    fn waiting<'a>(&self, rows: &'a [u8], begin: usize) -> Waiting<'a> {
        let leaders = self.cluster.as_ref().map(|it| it.metadata.leaders.len());
        let partitions = leaders.unwrap_or(1).max(1);
        let mut waiting = Waiting::new();
        for record in records(rows) {
            if !self.progress.stored.contains(&(begin + record.at)) {
                let partition = match record.key {
                    Some(key) => partition(key, partitions),
                    None => self.progress.batches % partitions,
                };
                let partition = i32::try_from(partition).unwrap_or(0);
                waiting.entry(partition).or_default().push_back(record);
            }
        }
        waiting
    }

    /// The next batch of each partition, as far as a request takes them, and no other: what
    /// a batch has depends on its partition alone, so that the same one is sent again.
    fn next_batches<'a>(
        &self,
        waiting: &mut Waiting<'a>,
    ) -> Result<BTreeMap<i32, Batches<'a>>, KafkaError> {
        let mut requests: BTreeMap<i32, Batches<'a>> = BTreeMap::new();
        let mut bytes = 0;
        for (number, records) in waiting.iter_mut() {
            if bytes >= REQUEST_BYTES_MAX {
                break;
            }
            let at = usize::try_from(*number).unwrap_or(0);
            let cluster = self.cluster.as_ref();
            let leader = cluster.and_then(|it| it.metadata.leaders.get(at).copied().flatten());
            let leader = leader.ok_or(KafkaError::NoLeader(at))?;
            let mut chosen: Vec<Record<'a>> = Vec::new();
            let mut size = BATCH_HEAD_BYTES;
            while let Some(record) = records.front() {
                let first = chosen.first().unwrap_or(record);
                let more = record.bytes_after(first, chosen.len());
                if !chosen.is_empty() && size + more > self.batch_bytes {
                    break;
                }
                size += more;
                chosen.extend(records.pop_front());
            }
            bytes += size;
            requests.entry(leader).or_default().insert(*number, chosen);
        }
        waiting.retain(|_, records| !records.is_empty());
        Ok(requests)
    }

    /// Sends a request to each leader. A connection that is in use is in no table: should
    /// this be given up half-way, it ends, with what else it would have said.
    async fn send<'a>(&mut self, waiting: &mut Waiting<'a>) -> Result<Vec<Sent<'a>>, KafkaError> {
        let requests = self.next_batches(waiting)?;
        let timeout = i32::try_from(self.timeout.as_millis()).unwrap_or(i32::MAX);
        let mut sent = Vec::new();
        for (leader, batches) in requests {
            let mut connection = self.connection(leader).await?;
            let version = connection.version(Api::Produce)?;
            let Some(producer) = &self.producer else {
                return Err(KafkaError::Malformed);
            };
            let encoded: Vec<_> = batches
                .iter()
                .map(|(number, records)| (*number, batch(records, producer.sender(*number))))
                .collect();
            let all = encoded.iter().map(|(number, batch)| (*number, &**batch));
            connection
                .send(Api::Produce, |out| {
                    wire::put_produce(&self.topic, timeout, all, out);
                })
                .await?;
            sent.push(Sent {
                leader,
                connection,
                version,
                batches,
            });
        }
        Ok(sent)
    }

    async fn connection(&mut self, leader: i32) -> Result<Connection, KafkaError> {
        let Some(cluster) = &mut self.cluster else {
            return Err(KafkaError::Malformed);
        };
        if let Some(connection) = cluster.connections.remove(&leader) {
            return Ok(connection);
        }
        let mut servers = cluster.metadata.servers.iter();
        let server = servers.find(|(number, ..)| *number == leader);
        let (_, host, port) = server.ok_or(KafkaError::Malformed)?;
        let opened = Connection::open(&self.dial, host, *port);
        let opened = tokio::time::timeout(CONNECT_MAX, opened).await;
        opened.map_err(|_| KafkaError::Time)?
    }

    /// Takes all answers; then gives what is wrong, a reason to try again before a refusal:
    /// what a batch has must not change before it is known whether it is stored.
    async fn receive(&mut self, sent: Vec<Sent<'_>>, begin: usize) -> Result<(), KafkaError> {
        let mut later = None;
        let mut refused = None;
        for mut sent in sent {
            let answer = sent.connection.answer().await;
            let answers = answer.and_then(|answer| wire::produce(sent.version, &answer));
            let answers = match answers {
                Ok(answers) => answers,
                Err(error) => {
                    later = Some(error);
                    continue;
                }
            };
            for answer in answers {
                let Some(records) = sent.batches.remove(&answer.partition) else {
                    continue;
                };
                if answer.code.is_stored() {
                    self.stored(answer.partition, &records, begin);
                    continue;
                }
                if answer.code.ends_producer() {
                    self.producer = None;
                }
                let why = answer.why.as_deref();
                match answer.code.check("partition", why).map_err(Failure::from) {
                    Ok(()) => {}
                    Err(Failure::Later(_)) => {
                        later = answer.code.check("partition", why).err();
                    }
                    Err(Failure::Refused(_)) => {
                        refused = answer.code.check("partition", why).err();
                    }
                }
            }
            if !sent.batches.is_empty() {
                later.get_or_insert(KafkaError::Malformed);
            }
            if let Some(cluster) = &mut self.cluster {
                cluster.connections.insert(sent.leader, sent.connection);
            }
        }
        self.progress.is_unsure = later.is_some();
        later.or(refused).map_or(Ok(()), Err)
    }

    fn stored(&mut self, partition: i32, records: &[Record<'_>], begin: usize) {
        if let Some(producer) = &mut self.producer {
            producer.stored(partition, records.len());
        }
        let places = records.iter().map(|record| begin + record.at);
        self.progress.stored.extend(places);
    }
}

fn dial(config: &Config, kafka: &config::Kafka) -> Result<Dial, ConfigError> {
    let wrong = |key, why: String| ConfigError::Value { key, why };
    let tls = match &kafka.tls {
        None => None,
        Some(tls) => {
            let tls = tls.options().build();
            let tls = tls.map_err(|error| wrong("kafka.tls", error.to_string()))?;
            Some(TlsConnector::from(tls.over_tcp(&[])))
        }
    };
    let password = kafka.password_file.as_deref().map(config::secret);
    let login = match (kafka.user.clone(), password.transpose()?) {
        (None, None) if !kafka.scram => None,
        (Some(user), Some(password)) if kafka.scram => Some(Login::Scram { user, password }),
        (Some(user), Some(password)) => Some(Login::Plain { user, password }),
        _ => {
            let why = "`user` and `password_file` go together, and `scram` needs both";
            return Err(wrong("kafka.user", why.into()));
        }
    };
    Ok(Dial {
        client_id: config.name.clone(),
        tls,
        login,
    })
}

impl Target for Kafka {
    fn open(&mut self) -> Step<'_, Arc<dyn Encode>> {
        Box::pin(async move {
            Self::open(self).await?;
            Ok(Arc::clone(&self.encoder) as _)
        })
    }

    fn store(&mut self, rows: Rows) -> Step<'_, ()> {
        Box::pin(async move { Ok(self.produce(&rows.bytes).await?) })
    }
}
