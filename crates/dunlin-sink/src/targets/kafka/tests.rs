//! The producer against two servers of the test, which keep records as Kafka does: a batch
//! that comes again is not kept twice, and one that does not follow is not kept at all.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, channel};

use super::*;
use crate::input::Input;
use wire::Reader;

const PARTITIONS: usize = 4;

/// What a server does with a request of a producer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    /// Keeps the records, and ends the connection instead of an answer.
    KeepAndEnd,
    /// Keeps the records, and does not answer.
    KeepAndWait,
    /// Ends the connection.
    End,
    /// Keeps none for this partition, and says so.
    Code(i32, i16),
    /// Says nothing of this partition.
    Omit(i32),
    /// Answers so many bytes that are no answer.
    Length(i32),
}

#[derive(Default)]
struct State {
    /// Keys and values, by partition.
    log: Vec<Vec<(String, String)>>,
    /// What a producer sends next to a partition, and what it sent last.
    next: HashMap<(i64, i32), (i32, i32)>,
    script: VecDeque<Act>,
    producers: i64,
    requests: usize,
    ports: Vec<u16>,
}

impl State {
    /// Keeps a batch; gives a number of Kafka's.
    fn keep(&mut self, partition: i32, batch: &[u8]) -> i16 {
        let head: [u8; 21] = batch[..21].try_into().expect("a head");
        assert_eq!(head[17..], crc32c::crc32c(&batch[21..]).to_be_bytes());
        let mut reader = Reader::new(&batch[21 + 22..]);
        let (producer, _) = (reader.int64().expect("id"), reader.int16().expect("epoch"));
        let (sequence, count) = (reader.int32().expect("it"), reader.int32().expect("it"));
        let known = self.next.get(&(producer, partition)).copied();
        let (next, last) = known.unwrap_or((0, -1));
        if sequence == last {
            return 0;
        }
        if sequence != next {
            return 45;
        }
        self.next
            .insert((producer, partition), (next + count, sequence));
        let mut rest = &batch[61..];
        for _ in 0..count {
            let bytes = varint(&mut rest) as usize;
            let (mut one, after) = rest.split_at(bytes);
            rest = after;
            one = &one[1..];
            let _ = (varint(&mut one), varint(&mut one));
            let mut part = || match varint(&mut one) {
                -1 => "-".to_owned(),
                length => {
                    let (text, after) = one.split_at(length as usize);
                    one = after;
                    String::from_utf8(text.to_vec()).expect("UTF-8")
                }
            };
            let record = (part(), part());
            self.log[partition as usize].push(record);
        }
        assert!(rest.is_empty());
        0
    }

    /// What comes next, if it is that.
    fn next_if(&mut self, is_that: impl Fn(Act) -> bool) -> Option<Act> {
        let first = self.script.front().copied().filter(|act| is_that(*act))?;
        self.script.pop_front();
        Some(first)
    }

    fn values(&self) -> Vec<&str> {
        let mut values: Vec<_> = self.log.iter().flatten().map(|it| it.1.as_str()).collect();
        values.sort_unstable();
        values
    }
}

fn varint(bytes: &mut &[u8]) -> i64 {
    let (mut number, mut shift) = (0_u64, 0);
    loop {
        let byte = bytes[0];
        *bytes = &bytes[1..];
        number |= u64::from(byte & 0x7f) << shift;
        shift += 7;
        if byte & 0x80 == 0 {
            return (number >> 1) as i64 ^ -((number & 1) as i64);
        }
    }
}

/// Two servers, each the leader of every other partition.
struct Servers {
    state: Arc<Mutex<State>>,
    /// Of a thread that failed.
    faults: Receiver<()>,
}

impl Servers {
    fn start(script: &[Act]) -> Self {
        let listen = || TcpListener::bind("127.0.0.1:0").expect("a port");
        let listeners = [listen(), listen()];
        let port = |it: &TcpListener| it.local_addr().expect("bound").port();
        let state = Arc::new(Mutex::new(State {
            log: vec![Vec::new(); PARTITIONS],
            script: script.iter().copied().collect(),
            ports: listeners.iter().map(port).collect(),
            ..State::default()
        }));
        let (fault, faults) = channel();
        for listener in listeners {
            let (state, fault) = (Arc::clone(&state), fault.clone());
            std::thread::spawn(move || {
                for stream in listener.incoming().flatten() {
                    let (state, fault) = (Arc::clone(&state), fault.clone());
                    std::thread::spawn(move || {
                        let served = std::panic::catch_unwind(|| serve(stream, &state));
                        if served.is_err() {
                            let _ = fault.send(());
                        }
                    });
                }
            });
        }
        Self { state, faults }
    }

    fn kafka(&self, more: &str) -> Kafka {
        let port = self.state.lock().expect("it").ports[0];
        let text = format!(
            "broker = {{ filters = ['a'] }}\nretry = {{ timeout = '5s' }}\n\
             kafka = {{ servers = ['127.0.0.1:{port}'], topic = 't', {more} }}"
        );
        let config = Config::parse(&"f", &text).expect("TOML");
        let shape = Arc::new(Shape::of(&config).expect("expressions"));
        let kafka = config.kafka.as_ref().expect("given");
        Kafka::new(&config, kafka, shape).expect("valid")
    }

    fn check(&self) {
        assert!(self.faults.try_recv().is_err(), "a server failed");
    }
}

fn serve(mut stream: TcpStream, state: &Mutex<State>) {
    let mut length = [0; 4];
    while stream.read_exact(&mut length).is_ok() {
        let mut request = vec![0; u32::from_be_bytes(length) as usize];
        stream.read_exact(&mut request).expect("whole");
        let mut reader = Reader::new(&request);
        let (api, version) = (reader.int16().expect("it"), reader.int16().expect("it"));
        let mut answer = reader.int32().expect("it").to_be_bytes().to_vec();
        assert_eq!(reader.string().expect("text"), Some("sink"));
        match api {
            18 => {
                answer.extend([0, 0, 0, 0, 0, 3]);
                for (api, least, most) in [(0_i16, 3_i16, 12_i16), (3, 0, 13), (22, 0, 5)] {
                    answer.extend([api, least, most].into_iter().flat_map(i16::to_be_bytes));
                }
            }
            3 => answer.extend(metadata(&state.lock().expect("it"))),
            22 => {
                let mut state = state.lock().expect("it");
                state.producers += 1;
                answer.extend([0; 6]);
                answer.extend(state.producers.to_be_bytes());
                answer.extend([0, 0]);
            }
            0 => {
                assert_eq!(version, 8);
                let mut state = state.lock().expect("it");
                state.requests += 1;
                let act = state.next_if(|act| !matches!(act, Act::Code(..)));
                if act == Some(Act::End) {
                    return;
                }
                let produced = produced(&mut state, &mut reader, act);
                match act {
                    Some(Act::KeepAndEnd) => return,
                    Some(Act::KeepAndWait) => continue,
                    Some(Act::Length(length)) => {
                        stream.write_all(&length.to_be_bytes()).expect("it");
                        continue;
                    }
                    _ => answer.extend(produced),
                }
            }
            other => panic!("request {other}"),
        }
        let length = answer.len() as u32;
        stream.write_all(&length.to_be_bytes()).expect("it");
        stream.write_all(&answer).expect("it");
    }
}

fn metadata(state: &State) -> Vec<u8> {
    let mut out = vec![0; 4];
    out.extend((state.ports.len() as i32).to_be_bytes());
    for (number, port) in (1_i32..).zip(&state.ports) {
        out.extend(number.to_be_bytes());
        wire::put_string("127.0.0.1", &mut out);
        out.extend(i32::from(*port).to_be_bytes());
        out.extend((-1_i16).to_be_bytes());
    }
    out.extend([0xff, 0xff, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0]);
    wire::put_string("t", &mut out);
    out.push(0);
    out.extend((state.log.len() as i32).to_be_bytes());
    for partition in 0..state.log.len() as i32 {
        out.extend([0, 0]);
        out.extend(partition.to_be_bytes());
        out.extend((1 + partition % 2).to_be_bytes());
        out.extend([0; 8]);
    }
    out
}

/// Takes the batches of a request; gives what follows the head of the answer.
fn produced(state: &mut State, reader: &mut Reader<'_>, act: Option<Act>) -> Vec<u8> {
    let it = "as the protocol says";
    assert_eq!(reader.int16().expect(it), -1, "a transaction");
    assert_eq!(reader.int16().expect(it), -1, "acks");
    assert_eq!(reader.int32().expect(it), 5_000, "time");
    assert_eq!(reader.int32().expect(it), 1, "topics");
    assert_eq!(reader.string().expect(it), Some("t"));
    let count = reader.int32().expect(it);
    let omitted = match act {
        Some(Act::Omit(partition)) => Some(partition),
        _ => None,
    };
    let mut out = vec![0, 0, 0, 1];
    wire::put_string("t", &mut out);
    out.extend((count - i32::from(omitted.is_some())).to_be_bytes());
    for _ in 0..count {
        let partition = reader.int32().expect(it);
        let batch = reader.bytes().expect(it).expect("a batch");
        let is_due = |act| matches!(act, Act::Code(this, _) if this == partition);
        let code = match state.next_if(is_due) {
            Some(Act::Code(_, code)) => code,
            _ => state.keep(partition, batch),
        };
        if omitted == Some(partition) {
            continue;
        }
        out.extend(partition.to_be_bytes());
        out.extend(code.to_be_bytes());
        out.extend([0; 24]);
        out.extend([0, 0, 0, 0, 0, 2]);
        out.extend(if code == 0 { b"ok" } else { b"no" });
    }
    out.extend([0; 4]);
    out
}

/// Rows of some messages, whose payload says their key.
fn rows(kafka: &Kafka, payloads: &[String]) -> bytes::Bytes {
    let mut out = Vec::new();
    for payload in payloads {
        let input = Input {
            topic: payload.split_once(' ').expect("a key").0,
            payload: payload.as_bytes(),
            time: 1_000_000,
            qos: 1,
            retain: false,
            properties: None,
        };
        assert_eq!(kafka.encoder.encode(&input, &mut out), Ok(1));
    }
    out.into()
}

/// Numbers of some keys, in turns.
fn payloads(keys: usize, each: usize) -> Vec<String> {
    let number = |n| format!("\"k{} {:03}\"", n % keys, n / keys);
    (0..keys * each).map(number).collect()
}

fn run<T>(steps: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.expect("a runtime").block_on(steps)
}

/// Every value is there once, those of a key in their order and in one partition.
fn all_there(servers: &Servers, payloads: &[String]) {
    servers.check();
    let state = servers.state.lock().expect("it");
    let mut want: Vec<_> = payloads.iter().map(String::as_str).collect();
    want.sort_unstable();
    assert_eq!(state.values(), want);
    let mut homes = HashMap::new();
    for (number, partition) in state.log.iter().enumerate() {
        let mut last = HashMap::new();
        for (key, value) in partition {
            assert_eq!(homes.entry(key).or_insert(number), &number, "{key}");
            let before = last.insert(key, value);
            assert!(before < Some(value), "{value} after {before:?}");
        }
    }
}

/// Stores as the sink does: again after a failure, in halves after a refusal.
async fn store(kafka: &mut Kafka, whole: &bytes::Bytes) -> Vec<String> {
    let all: Vec<_> = records(whole).collect();
    let mut parts = vec![(0, all.len())];
    let (mut refused, mut failures) = (Vec::new(), 0);
    while let Some((from, to)) = parts.pop() {
        let end = all.get(to).map_or(whole.len(), |record| record.at);
        let part = Rows {
            bytes: whole.slice(all[from].at..end),
            count: to - from,
        };
        match Target::store(kafka, part).await {
            Ok(()) => {}
            Err(Failure::Refused(_)) if to - from == 1 => {
                refused.push(String::from_utf8(all[from].value.to_vec()).expect("UTF-8"));
            }
            Err(Failure::Refused(_)) => {
                let middle = from + (to - from) / 2;
                parts.extend([(middle, to), (from, middle)]);
            }
            Err(Failure::Later(why)) => {
                failures += 1;
                assert!(failures < 10, "{why}");
                parts.push((from, to));
                Target::open(kafka).await.expect("open");
            }
        }
    }
    refused
}

#[test]
fn records_of_a_key_are_in_one_partition_in_their_order() {
    let servers = Servers::start(&[]);
    let mut kafka = servers.kafka("batch_bytes = '200B'");
    let payloads = payloads(20, 20);
    let whole = rows(&kafka, &payloads);
    assert!(run(store(&mut kafka, &whole)).is_empty());
    all_there(&servers, &payloads);
    let state = servers.state.lock().expect("it");
    assert!(state.requests > 10, "{} requests", state.requests);
    assert!(state.log.iter().all(|partition| !partition.is_empty()));
    // The topic is the key of a message whose payload goes as it came.
    assert!(state.log.iter().flatten().any(|it| it.0 == "\"k0"));
}

#[test]
fn what_is_tried_again_is_not_there_twice() {
    for script in [
        &[Act::End][..],
        &[Act::KeepAndEnd],
        &[Act::KeepAndEnd, Act::End, Act::KeepAndEnd],
        &[Act::Code(0, 6)],
        // Appended, but not by enough replicas.
        &[Act::Code(1, 20), Act::KeepAndEnd],
        &[Act::Length(i32::MAX)],
        &[Act::Length(-1)],
        &[Act::Length(2)],
    ] {
        let servers = Servers::start(script);
        let mut kafka = servers.kafka("batch_bytes = '300B'");
        let payloads = payloads(5, 12);
        let whole = rows(&kafka, &payloads);
        assert!(run(store(&mut kafka, &whole)).is_empty());
        all_there(&servers, &payloads);
        assert_eq!(servers.state.lock().expect("it").producers, 1, "{script:?}");
    }
}

#[test]
fn rows_after_an_attempt_that_was_given_up_are_stored() {
    let servers = Servers::start(&[Act::KeepAndWait]);
    let mut kafka = servers.kafka("key = 'payload.none'");
    let mut want = Vec::new();
    // Until the partition of the first ones has its turn again.
    for batch in 0..=PARTITIONS {
        let payloads: Vec<_> = (0..3).map(|n| format!("\"k {batch}.{n}\"")).collect();
        let whole = rows(&kafka, &payloads);
        match batch {
            0 => run(async {
                let kept = async {
                    while servers.state.lock().expect("it").values().is_empty() {
                        tokio::time::sleep(Duration::from_millis(1)).await;
                    }
                };
                tokio::select! {
                    _ = store(&mut kafka, &whole) => panic!("an answer"),
                    () = kept => {}
                }
            }),
            _ => assert!(run(store(&mut kafka, &whole)).is_empty()),
        }
        want.extend(payloads);
    }
    servers.check();
    let state = servers.state.lock().expect("it");
    assert_eq!(state.values(), want);
    assert_eq!(state.producers, 2);
}

#[test]
fn records_of_other_partitions_are_not_taken_for_a_repetition() {
    let after = PARTITIONS + 1;
    let home = |n: usize, partitions| partition(format!("\"k{n}").as_bytes(), partitions);
    // One that leaves a partition of the first server, and one that comes to it.
    let leaves = (0..).find(|n| home(*n, PARTITIONS) == 0 && home(*n, after) != 0);
    let comes = (0..).find(|n| home(*n, PARTITIONS) == 2 && home(*n, after) == 0);
    let payload = |n: Option<usize>| format!("\"k{} 0\"", n.expect("a key"));
    let payloads = [payload(leaves), payload(comes)];
    let servers = Servers::start(&[Act::KeepAndEnd, Act::Code(2, 6)]);
    let mut kafka = servers.kafka("");
    let whole = rows(&kafka, &payloads);
    let part = Rows {
        bytes: whole.clone(),
        count: 2,
    };
    run(async {
        let failed = Target::store(&mut kafka, part).await;
        assert!(matches!(failed, Err(Failure::Later(_))), "{failed:?}");
        servers.state.lock().expect("it").log.push(Vec::new());
        Target::open(&mut kafka).await.expect("open");
        assert!(store(&mut kafka, &whole).await.is_empty());
    });
    servers.check();
    let state = servers.state.lock().expect("it");
    for payload in &payloads {
        assert!(state.values().contains(&payload.as_str()), "{payload}");
    }
    assert_eq!(state.producers, 2);
}

#[test]
fn a_refused_record_does_not_double_the_others() {
    // The refused one is the only one of its partition that is sent when it is alone.
    let servers = Servers::start(&[]);
    let mut kafka = servers.kafka("key = 'parts[0]'");
    let payloads = payloads(6, 4);
    let whole = rows(&kafka, &payloads);
    let partition = |key: &[u8]| partition(key, PARTITIONS) as i32;
    let all: Vec<_> = records(&whole).collect();
    let at = partition(all[0].key.expect("a key"));
    // Each time that the partition is asked for until its first record is alone.
    let halves = all.len().ilog2() as usize + 2;
    servers.state.lock().expect("it").script = vec![Act::Code(at, 10); 2 * halves].into();
    let refused = run(store(&mut kafka, &whole));
    assert!(refused.contains(&payloads[0]), "{refused:?}");
    let others: Vec<_> = payloads
        .into_iter()
        .filter(|it| !refused.contains(it))
        .collect();
    assert!(others.len() >= 12, "{} left", others.len());
    all_there(&servers, &others);
}

#[test]
fn a_refusal_does_not_hide_that_an_answer_has_no_word_of_a_partition() {
    // Both have the first server.
    let servers = Servers::start(&[Act::Omit(2), Act::Code(0, 10)]);
    let mut kafka = servers.kafka("");
    let payloads = payloads(20, 3);
    let part = Rows {
        bytes: rows(&kafka, &payloads),
        count: payloads.len(),
    };
    let failed = run(Target::store(&mut kafka, part.clone()));
    assert!(matches!(failed, Err(Failure::Later(_))), "{failed:?}");
    assert!(run(store(&mut kafka, &part.bytes)).is_empty());
    all_there(&servers, &payloads);
}

#[test]
fn a_producer_that_servers_do_not_know_begins_again() {
    let servers = Servers::start(&[Act::Code(0, 59), Act::Code(1, 45)]);
    let mut kafka = servers.kafka("");
    let payloads = payloads(20, 3);
    let whole = rows(&kafka, &payloads);
    assert!(run(store(&mut kafka, &whole)).is_empty());
    all_there(&servers, &payloads);
    assert!(servers.state.lock().expect("it").producers >= 2);
}

#[test]
fn records_without_a_key_are_spread_by_batch() {
    let servers = Servers::start(&[]);
    let mut kafka = servers.kafka("key = 'payload.none'");
    for batch in 0..PARTITIONS {
        let whole = rows(&kafka, &[format!("\"k {batch}\"")]);
        assert!(run(store(&mut kafka, &whole)).is_empty());
    }
    servers.check();
    let state = servers.state.lock().expect("it");
    for partition in &state.log {
        assert_eq!(partition.len(), 1);
        assert_eq!(partition[0].0, "-");
    }
}

#[test]
fn numbers_of_records_begin_again_after_the_largest() {
    let mut producer = Producer {
        id: 1,
        epoch: 0,
        sequences: HashMap::from([(0, i32::MAX - 1)]),
        partitions: 1,
    };
    producer.stored(0, 3);
    assert_eq!(producer.sender(0).sequence, 1);
}

#[test]
fn what_is_impossible_is_named() {
    for (kafka, part) in [
        ("servers = [], topic = 't'", "kafka.servers: 1 to 64"),
        ("servers = ['a@b'], topic = 't'", "`a@b` is no address"),
        ("servers = ['a:x'], topic = 't'", "`a:x` is no address"),
        ("servers = ['a'], topic = 'a/b'", "kafka.topic"),
        (
            "servers = ['a'], topic = 't', batch_bytes = '0B'",
            "kafka.batch_bytes",
        ),
        ("servers = ['a'], topic = 't', key = 'no.such'", "kafka.key"),
        ("servers = ['a'], topic = 't', scram = true", "kafka.user"),
        ("servers = ['a'], topic = 't', user = 'u'", "kafka.user"),
    ] {
        let text = format!("broker = {{ filters = ['a'] }}\nkafka = {{ {kafka} }}");
        let config = Config::parse(&"f", &text).expect(kafka);
        let shape = Arc::new(Shape::of(&config).expect("expressions"));
        let made = Kafka::new(&config, config.kafka.as_ref().expect("given"), shape);
        let error = made.err().expect(kafka).to_string();
        assert!(error.contains(part), "{kafka}: {error}");
    }
}
