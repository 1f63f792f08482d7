//! What is tried, one function for each feature.

use core::error::Error;
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use dunlin_client::{
    Backoff, Builder, Cipher, Client, ConnectionEvent, Events, Message, Messages, NetworkOptions,
    Publish, QoS, Race, RaceMemory, StreamDialect, StreamPolicy, StreamStatistics, TicketFile,
    Transport,
};

use crate::relay::Relay;
use crate::{Outcome, Run, Skip, ask};

const MESSAGES: usize = 24;
const TOPICS: usize = 3;
const LEVELS: [QoS; 3] = [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce];

/// Packets after which keys are renewed, and messages that need several times
/// as many.
const KEY_PACKETS: u64 = 20;
const KEY_MESSAGES: usize = 100;

/// What QUIC may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(5);

const NO_STREAMS: &str = "the broker refuses such streams; all arrived on the control stream";

/// Tries everything that the setting of the broker is for.
pub(crate) async fn all(run: &Run) {
    run.feature("plain", "single", single).await;
    run.feature("plain", "data-streams", data_streams).await;
    run.feature("plain", "uni-streams", uni_streams).await;
    run.feature("plain", "auto", auto).await;
    run.feature("plain", "server-streams", server_streams).await;
    run.feature("plain", "datagrams", datagrams).await;
    run.feature("plain", "ciphers", ciphers).await;
    run.feature("plain", "key-update", key_update).await;
    run.feature("plain", "rebind", rebind).await;
    run.feature("plain", "migrate", migrate).await;
    run.feature("plain", "race", race).await;
    run.feature("plain", "0rtt", zero_rtt).await;
    run.feature("retry", "retry", single).await;
    run.feature("restart", "0rtt-restart", zero_rtt_restart)
        .await;
}

/// Messages over several topics, there and back: each arrives, and those of a
/// topic and QoS in order.
async fn there_and_back(
    run: &Run,
    name: &str,
    builder: Builder,
    levels: &[QoS],
) -> Result<Seen, Box<dyn Error>> {
    let seen = exchange(run, name, builder, levels).await?;
    match &seen.disorder {
        // What was given up is sent again, after others.
        Some(disorder) if !seen.refused => Err(format!("out of order: {disorder}").into()),
        _ => Ok(seen),
    }
}

/// Messages over several topics, there and back: each arrives.
async fn exchange(
    run: &Run,
    name: &str,
    builder: Builder,
    levels: &[QoS],
) -> Result<Seen, Box<dyn Error>> {
    let (client, mut messages) = builder.connect().await?;
    let events = client.events();
    let filter = run.topic(&format!("{name}/+"));
    client.subscribe(filter, QoS::ExactlyOnce).await?;
    let mut deliveries = Vec::new();
    for number in 0..MESSAGES {
        let topic = run.topic(&format!("{name}/{}", number % TOPICS));
        // Each topic sees each QoS.
        let qos = levels.iter().cycle().nth(number / TOPICS);
        let message = Publish::new(topic, number.to_string()).qos(qos.copied().unwrap_or_default());
        deliveries.push(client.start_publish(message).await?);
    }
    for delivery in deliveries {
        delivery.await?;
    }
    let mut arrived: BTreeMap<(String, QoS), Vec<usize>> = BTreeMap::new();
    let mut all = BTreeSet::new();
    while all.len() < MESSAGES {
        let message = next(&mut messages).await?;
        let number: usize = text(&message)?.parse()?;
        all.insert(number);
        let kind = (message.topic.to_string(), message.qos);
        arrived.entry(kind).or_default().push(number);
    }
    let streams = client.stream_statistics();
    client.disconnect().await;
    let refused = was_refused(events).await;
    let disorder = arrived
        .iter()
        .find(|(_, numbers)| !numbers.is_sorted_by(|a, b| a < b))
        .map(|disorder| format!("{disorder:?}"));
    Ok(Seen {
        streams,
        refused,
        disorder,
    })
}

/// What a client did with streams.
struct Seen {
    streams: StreamStatistics,
    refused: bool,
    /// Messages of a topic and QoS that came in another order.
    disorder: Option<String>,
}

async fn was_refused(mut events: Events) -> bool {
    while let Some(event) = events.next().await {
        if matches!(event, ConnectionEvent::StreamsRefused) {
            return true;
        }
    }
    false
}

async fn next(messages: &mut Messages) -> Result<Message, Box<dyn Error>> {
    let waiting = tokio::time::timeout(Duration::from_secs(10), messages.next());
    match waiting.await {
        Ok(Some(message)) => Ok(message),
        Ok(None) => Err("the connection ended".into()),
        Err(_) => Err("no message in 10 s".into()),
    }
}

fn text(message: &Message) -> Result<&str, Box<dyn Error>> {
    Ok(core::str::from_utf8(&message.payload)?)
}

async fn single(run: &Run) -> Outcome {
    there_and_back(run, "single", run.client()?, &LEVELS).await?;
    Ok(())
}

async fn spread(run: &Run, dialect: StreamDialect) -> Outcome {
    for policy in [StreamPolicy::PerTopic, StreamPolicy::PerPublish] {
        let builder = run.client()?.reconnect(Backoff::default());
        let builder = builder.streams(policy).stream_dialect(dialect);
        let name = format!("{policy:?}-{dialect:?}");
        // What a broker that refuses streams does to QoS 0 is its own affair.
        let seen = there_and_back(run, &name, builder, &LEVELS[1..]).await?;
        if seen.refused {
            return Err(Skip(NO_STREAMS).into());
        }
        let least = match policy {
            StreamPolicy::PerTopic => TOPICS,
            _ => MESSAGES,
        };
        if seen.streams.opened < least as u64 {
            return Err(format!("{policy:?}: {} streams", seen.streams.opened).into());
        }
    }
    for policy in [StreamPolicy::PerTopic, StreamPolicy::PerPublish] {
        let builder = run.client()?.streams(policy).stream_dialect(dialect);
        let name = format!("{policy:?}-{dialect:?}-0");
        // A message on a stream each waits until the one before has arrived, which
        // says nothing of when the broker works on it: streams have no order
        // (RFC 9000, section 2).
        if policy == StreamPolicy::PerTopic || run.streams_in_order {
            there_and_back(run, &name, builder, &LEVELS[..1]).await?;
        } else {
            exchange(run, &name, builder, &LEVELS[..1]).await?;
        }
    }
    Ok(())
}

async fn data_streams(run: &Run) -> Outcome {
    spread(run, StreamDialect::Bidirectional).await
}

async fn uni_streams(run: &Run) -> Outcome {
    spread(run, StreamDialect::Unidirectional).await
}

async fn auto(run: &Run) -> Outcome {
    let builder = run.client()?.streams(StreamPolicy::Auto);
    there_and_back(run, "auto", builder, &LEVELS).await?;
    Ok(())
}

async fn server_streams(run: &Run) -> Outcome {
    let builder = run.client()?.delivery_streams(true);
    there_and_back(run, "server-streams", builder, &LEVELS).await?;
    Ok(())
}

async fn datagrams(run: &Run) -> Outcome {
    let (client, mut messages) = run.client()?.datagrams(true).connect().await?;
    let topic = run.topic("datagrams");
    client.subscribe(&topic, QoS::AtMostOnce).await?;
    for number in 0..MESSAGES {
        client
            .publish(Publish::new(&topic, number.to_string()))
            .await?;
        let message = next(&mut messages).await?;
        if text(&message)? != number.to_string() {
            return Err(format!("got {message:?}").into());
        }
    }
    let seen = client.stream_statistics();
    client.disconnect().await;
    match (seen.datagrams_sent, seen.datagrams_received) {
        (0, _) => Err(Skip("the broker takes no datagrams; all arrived on streams").into()),
        (_, 0) => Err(Skip("the broker takes datagrams and sends none").into()),
        // Either side may take a stream where a datagram had to wait.
        (sent, received) if sent.min(received) * 2 > MESSAGES as u64 => Ok(()),
        counts => Err(format!("{counts:?} datagrams sent and received").into()),
    }
}

async fn ciphers(run: &Run) -> Outcome {
    for cipher in Cipher::ALL {
        let tls = run.tls().ciphers([cipher]);
        let name = format!("{cipher:?}");
        there_and_back(run, &name, run.client()?.tls(tls), &LEVELS).await?;
    }
    Ok(())
}

async fn key_update(run: &Run) -> Outcome {
    let network = NetworkOptions::new().key_update_packets(KEY_PACKETS);
    let (client, mut messages) = run.client()?.network(network).connect().await?;
    let topic = run.topic("key-update");
    for _ in 0..KEY_MESSAGES {
        there(&client, &mut messages, &topic, "new keys").await?;
    }
    client.disconnect().await;
    Ok(())
}

/// A message of QoS 2 there and back.
async fn there(client: &Client, messages: &mut Messages, topic: &str, payload: &str) -> Outcome {
    client.subscribe(topic, QoS::ExactlyOnce).await?;
    let message = Publish::new(topic, payload).qos(QoS::ExactlyOnce);
    client.publish(message).await?;
    let message = next(messages).await?;
    match text(&message)? == payload {
        true => Ok(()),
        false => Err(format!("got {message:?}").into()),
    }
}

async fn rebind(run: &Run) -> Outcome {
    let relay = Relay::to(run.port)?;
    let (client, mut messages) = run.client_at(relay.port())?.connect().await?;
    let topic = run.topic("rebind");
    for payload in ["0", "1", "2", "3"] {
        there(&client, &mut messages, &topic, payload).await?;
        relay.rebind()?;
    }
    client.disconnect().await;
    Ok(())
}

async fn migrate(run: &Run) -> Outcome {
    let (client, mut messages) = run.client()?.connect().await?;
    let topic = run.topic("migrate");
    for probed in [true, false, true] {
        there(&client, &mut messages, &topic, "before").await?;
        let moved = match probed {
            true => client.migrate(None).await?,
            false => client.migrate_at_once(None).await?,
        };
        if moved.from == moved.to {
            return Err(format!("it stays at {}", moved.to).into());
        }
        there(&client, &mut messages, &topic, "after").await?;
    }
    client.disconnect().await;
    Ok(())
}

async fn race(run: &Run) -> Outcome {
    let tls_port = run.tls_port.ok_or(Skip("the broker has no TLS listener"))?;
    let relay = Relay::blackhole(run.port)?;
    for (udp_passes, want) in [(false, Transport::Tls), (true, Transport::Quic)] {
        if udp_passes {
            relay.rebind()?;
        }
        let race = Race::new().quic_port(relay.port()).tls_port(tls_port);
        // It need not remember that QUIC was blocked, and gives a busy machine
        // time where QUIC can win.
        let race = race.memory(&RaceMemory::new());
        let race = match udp_passes {
            true => race.head_start(PATIENCE),
            false => race,
        };
        let builder = Client::builder(format!("auto://{}", run.host))?;
        let builder = builder.tls(run.tls()).no_reconnect().race(race);
        let (client, mut messages) = builder.connect().await?;
        let got = client.transport();
        if got != Some(want) {
            return Err(format!("UDP passes: {udp_passes}; connected by {got:?}").into());
        }
        there(&client, &mut messages, &run.topic("race"), "race").await?;
        client.disconnect().await;
    }
    Ok(())
}

async fn zero_rtt(run: &Run) -> Outcome {
    let file = tempfile::NamedTempFile::new()?;
    resume(run, file.path(), "0rtt", false).await
}

async fn zero_rtt_restart(run: &Run) -> Outcome {
    let file = tempfile::NamedTempFile::new()?;
    resume(run, file.path(), "0rtt-restart", true).await
}

/// Gets tickets into a file, and resumes with what the file has, as a new
/// process would. A watcher sees that the message arrives once.
async fn resume(run: &Run, file: &Path, name: &str, restart: bool) -> Outcome {
    let (client, _) = with_tickets(run, file)?.connect().await?;
    let qos1 = |payload| Publish::new(run.topic(name), payload).qos(QoS::AtLeastOnce);
    // Tickets come before the answer to this.
    client.publish(qos1("before")).await?;
    client.disconnect().await;
    if restart {
        ask("restart")?;
    }
    let (watcher, mut messages) = run.client()?.connect().await?;
    watcher.subscribe(run.topic(name), QoS::ExactlyOnce).await?;
    let (client, _, mut connecting) = with_tickets(run, file)?.start()?;
    let events = connecting.events();
    let delivery = client.start_publish(qos1("early")).await?;
    connecting.await?;
    delivery.await?;
    client.publish(qos1("late")).await?;
    client.disconnect().await;
    for want in ["early", "late"] {
        let message = next(&mut messages).await?;
        if text(&message)? != want {
            return Err(format!("got {message:?}, want {want}").into());
        }
    }
    watcher.disconnect().await;
    match verdict(events).await {
        Some(true) => Ok(()),
        Some(false) => Err("early data was refused".into()),
        None => Err(Skip("the broker gives no ticket for early data").into()),
    }
}

fn with_tickets(run: &Run, file: &Path) -> Result<Builder, Box<dyn Error>> {
    let builder = run.client()?.client_id(run.name.as_str());
    Ok(builder.tickets(TicketFile::open(file)?))
}

async fn verdict(mut events: Events) -> Option<bool> {
    while let Some(event) = events.next().await {
        if let ConnectionEvent::EarlyData { accepted } = event {
            return Some(accepted);
        }
    }
    None
}
