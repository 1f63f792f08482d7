//! The requests of Kafka's protocol that a producer needs, as bytes, and their answers. All
//! are of versions before those with tagged fields, which every server since 0.11 takes.
//! Knows no socket.

use super::error::{Code, KafkaError};

/// A request, by its number in the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Api {
    Produce = 0,
    Metadata = 3,
    SaslHandshake = 17,
    /// `ApiVersions`.
    Versions = 18,
    InitProducerId = 22,
    SaslAuthenticate = 36,
}

impl Api {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Produce => "Produce",
            Self::Metadata => "Metadata",
            Self::SaslHandshake => "SaslHandshake",
            Self::Versions => "ApiVersions",
            Self::InitProducerId => "InitProducerId",
            Self::SaslAuthenticate => "SaslAuthenticate",
        }
    }

    /// Versions that are written and read here.
    const fn versions(self) -> (i16, i16) {
        match self {
            // From 8 on an answer says why in words.
            Self::Produce => (3, 8),
            Self::Metadata => (4, 4),
            Self::SaslHandshake => (1, 1),
            Self::Versions | Self::InitProducerId | Self::SaslAuthenticate => (0, 0),
        }
    }

    /// The newest version that both know.
    pub(super) fn common(self, least: i16, most: i16) -> Option<i16> {
        let (ours_least, ours_most) = self.versions();
        let version = most.min(ours_most);
        (version >= least.max(ours_least)).then_some(version)
    }
}

/// Reads an answer. Every number of a peer is checked against what is left of it.
pub(super) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(super) const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    fn fixed<const N: usize>(&mut self) -> Result<[u8; N], KafkaError> {
        let (bytes, rest) = self.0.split_first_chunk().ok_or(KafkaError::Malformed)?;
        self.0 = rest;
        Ok(*bytes)
    }

    pub(super) fn int8(&mut self) -> Result<i8, KafkaError> {
        self.fixed().map(i8::from_be_bytes)
    }

    pub(super) fn int16(&mut self) -> Result<i16, KafkaError> {
        self.fixed().map(i16::from_be_bytes)
    }

    pub(super) fn int32(&mut self) -> Result<i32, KafkaError> {
        self.fixed().map(i32::from_be_bytes)
    }

    pub(super) fn int64(&mut self) -> Result<i64, KafkaError> {
        self.fixed().map(i64::from_be_bytes)
    }

    fn code(&mut self) -> Result<Code, KafkaError> {
        self.int16().map(Code)
    }

    fn take(&mut self, length: i64) -> Result<Option<&'a [u8]>, KafkaError> {
        if length < 0 {
            return Ok(None);
        }
        let length = usize::try_from(length).map_err(|_| KafkaError::Malformed)?;
        let (bytes, rest) = self
            .0
            .split_at_checked(length)
            .ok_or(KafkaError::Malformed)?;
        self.0 = rest;
        Ok(Some(bytes))
    }

    pub(super) fn string(&mut self) -> Result<Option<&'a str>, KafkaError> {
        let length = self.int16()?;
        let bytes = self.take(length.into())?;
        let text = bytes.map(core::str::from_utf8).transpose();
        text.map_err(|_| KafkaError::Malformed)
    }

    pub(super) fn bytes(&mut self) -> Result<Option<&'a [u8]>, KafkaError> {
        let length = self.int32()?;
        self.take(length.into())
    }

    /// How many elements follow. Each has a byte at least.
    pub(super) fn count(&mut self) -> Result<usize, KafkaError> {
        let count = usize::try_from(self.int32()?.max(0)).map_err(|_| KafkaError::Malformed)?;
        match count <= self.0.len() {
            true => Ok(count),
            false => Err(KafkaError::Malformed),
        }
    }

    fn skip_numbers(&mut self) -> Result<(), KafkaError> {
        for _ in 0..self.count()? {
            self.int32()?;
        }
        Ok(())
    }
}

/// Appends a string of at most 32,767 bytes; a longer one is cut.
pub(super) fn put_string(text: &str, out: &mut Vec<u8>) {
    let end = text.floor_char_boundary(text.len().min(i16::MAX as usize));
    let text = text.get(..end).unwrap_or_default();
    out.extend(i16::try_from(text.len()).unwrap_or(0).to_be_bytes());
    out.extend_from_slice(text.as_bytes());
}

/// A length of something that is at most as long as a request.
pub(super) fn length(bytes: usize) -> i32 {
    i32::try_from(bytes).unwrap_or(i32::MAX)
}

fn put_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    out.extend(length(bytes.len()).to_be_bytes());
    out.extend_from_slice(bytes);
}

/// Begins a request; its length is written by [`finish`].
pub(super) fn begin(api: Api, version: i16, correlation: i32, client_id: &str) -> Vec<u8> {
    let mut out = vec![0; 4];
    out.extend((api as i16).to_be_bytes());
    out.extend(version.to_be_bytes());
    out.extend(correlation.to_be_bytes());
    put_string(client_id, &mut out);
    out
}

/// Writes the length of a request.
pub(super) fn finish(request: &mut [u8]) {
    let bytes = length(request.len().saturating_sub(4));
    if let Some(first) = request.first_chunk_mut() {
        *first = bytes.to_be_bytes();
    }
}

/// Which version of each request the server takes, as `(request, least, most)`.
pub(super) fn api_versions(answer: &[u8]) -> Result<Vec<(i16, i16, i16)>, KafkaError> {
    let mut reader = Reader::new(answer);
    reader.code()?.check("ApiVersions", None)?;
    let mut found = Vec::new();
    for _ in 0..reader.count()? {
        found.push((reader.int16()?, reader.int16()?, reader.int16()?));
    }
    Ok(found)
}

/// Who leads which partition of a topic, and where all servers are.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Metadata {
    /// Number, host and port of each server.
    pub(super) servers: Vec<(i32, String, u16)>,
    /// The leader of each partition; none while it has none.
    pub(super) leaders: Vec<Option<i32>>,
}

pub(super) fn put_metadata(topic: &str, out: &mut Vec<u8>) {
    out.extend(1_i32.to_be_bytes());
    put_string(topic, out);
    // The server makes no topic.
    out.push(0);
}

pub(super) fn metadata(answer: &[u8]) -> Result<Metadata, KafkaError> {
    /// Most partitions of a topic.
    const PARTITIONS_MAX: usize = 100_000;
    let mut reader = Reader::new(answer);
    let mut found = Metadata::default();
    let _throttle = reader.int32()?;
    for _ in 0..reader.count()? {
        let number = reader.int32()?;
        let host = reader.string()?.ok_or(KafkaError::Malformed)?.to_owned();
        let port = u16::try_from(reader.int32()?).map_err(|_| KafkaError::Malformed)?;
        let _rack = reader.string()?;
        found.servers.push((number, host, port));
    }
    let _cluster = reader.string()?;
    let _controller = reader.int32()?;
    for _ in 0..reader.count()? {
        let code = reader.code()?;
        let name = reader.string()?.unwrap_or_default();
        code.check("topic", Some(name))?;
        let _internal = reader.int8()?;
        for _ in 0..reader.count()? {
            let code = reader.code()?;
            let partition = usize::try_from(reader.int32()?).map_err(|_| KafkaError::Malformed)?;
            let leader = reader.int32()?;
            reader.skip_numbers()?;
            reader.skip_numbers()?;
            if partition >= PARTITIONS_MAX {
                return Err(KafkaError::Malformed);
            }
            if found.leaders.len() <= partition {
                found.leaders.resize(partition + 1, None);
            }
            if let Some(place) = found.leaders.get_mut(partition) {
                *place = (leader >= 0 && code != Code::LEADER_NOT_AVAILABLE).then_some(leader);
            }
        }
    }
    match found.leaders.is_empty() {
        true => Err(KafkaError::Malformed),
        false => Ok(found),
    }
}

pub(super) fn put_init_producer_id(out: &mut Vec<u8>) {
    // Not of a transaction.
    out.extend((-1_i16).to_be_bytes());
    out.extend(i32::MAX.to_be_bytes());
}

/// The number of the producer, and its epoch.
pub(super) fn init_producer_id(answer: &[u8]) -> Result<(i64, i16), KafkaError> {
    let mut reader = Reader::new(answer);
    let _throttle = reader.int32()?;
    reader.code()?.check("InitProducerId", None)?;
    Ok((reader.int64()?, reader.int16()?))
}

pub(super) fn put_sasl_handshake(mechanism: &str, out: &mut Vec<u8>) {
    put_string(mechanism, out);
}

pub(super) fn sasl_handshake(answer: &[u8]) -> Result<(), KafkaError> {
    /// Most mechanisms that an error names.
    const NAMED_MAX: usize = 16;
    /// Most letters of one: RFC 4422 allows so many.
    const NAME_CHARS_MAX: usize = 20;
    let mut reader = Reader::new(answer);
    let code = reader.code()?;
    if code == Code(0) {
        return Ok(());
    }
    let mut why = String::from("it offers");
    for index in 0..reader.count()?.min(NAMED_MAX) {
        let name = reader.string()?.unwrap_or_default();
        why.push_str(if index == 0 { " " } else { ", " });
        why.extend(name.chars().take(NAME_CHARS_MAX));
    }
    code.check("SaslHandshake", Some(&why))
}

pub(super) fn put_sasl_authenticate(message: &[u8], out: &mut Vec<u8>) {
    put_bytes(message, out);
}

/// What the server says to a message of the mechanism.
pub(super) fn sasl_authenticate(answer: &[u8]) -> Result<&[u8], KafkaError> {
    let mut reader = Reader::new(answer);
    let code = reader.code()?;
    let why = reader.string()?;
    code.check("SaslAuthenticate", why)?;
    Ok(reader.bytes()?.unwrap_or_default())
}

/// Batches of records, one for each of some partitions of a topic.
pub(super) fn put_produce<'a>(
    topic: &str,
    timeout_millis: i32,
    batches: impl ExactSizeIterator<Item = (i32, &'a [u8])>,
    out: &mut Vec<u8>,
) {
    /// All replicas that are in sync.
    const ACKS_ALL: i16 = -1;
    // Not of a transaction.
    out.extend((-1_i16).to_be_bytes());
    out.extend(ACKS_ALL.to_be_bytes());
    out.extend(timeout_millis.to_be_bytes());
    out.extend(1_i32.to_be_bytes());
    put_string(topic, out);
    out.extend(length(batches.len()).to_be_bytes());
    for (partition, batch) in batches {
        out.extend(partition.to_be_bytes());
        put_bytes(batch, out);
    }
}

/// What became of the batch for one partition.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Produced {
    pub(super) partition: i32,
    pub(super) code: Code,
    pub(super) why: Option<String>,
}

pub(super) fn produce(version: i16, answer: &[u8]) -> Result<Vec<Produced>, KafkaError> {
    let mut reader = Reader::new(answer);
    let mut found = Vec::new();
    for _ in 0..reader.count()? {
        let _topic = reader.string()?;
        for _ in 0..reader.count()? {
            let partition = reader.int32()?;
            let code = reader.code()?;
            let _offset = reader.int64()?;
            let _time = reader.int64()?;
            if version >= 5 {
                let _first = reader.int64()?;
            }
            let mut why = None;
            if version >= 8 {
                for _ in 0..reader.count()? {
                    let _index = reader.int32()?;
                    why = reader.string()?.or(why);
                }
                why = reader.string()?.or(why);
            }
            found.push(Produced {
                partition,
                code,
                why: why.map(str::to_owned),
            });
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_agreed() {
        for (least, most, want) in [
            (0, 12, Some(8)),
            (0, 7, Some(7)),
            (9, 12, None),
            (0, 2, None),
        ] {
            assert_eq!(Api::Produce.common(least, most), want);
        }
    }

    #[test]
    fn answers_that_are_cut_are_malformed() {
        let mut answer = vec![
            0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 7, 0, 1, b'h', 0, 0, 0x23, 0x84,
        ];
        answer.extend([0xff, 0xff, 0xff, 0xff, 0, 0, 0, 7]);
        answer.extend([0, 0, 0, 1, 0, 0, 0, 1, b't', 0, 0, 0, 0, 1]);
        answer.extend([
            0, 0, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 1, 0, 0, 0, 7, 0, 0, 0, 0,
        ]);
        let want = Metadata {
            servers: vec![(7, "h".into(), 9092)],
            leaders: vec![Some(7)],
        };
        assert_eq!(metadata(&answer).expect("whole"), want);
        for end in 0..answer.len() {
            let cut = metadata(&answer[..end]).expect_err("cut");
            assert!(matches!(cut, KafkaError::Malformed), "{end}: {cut}");
        }
        // Counts, lengths and numbers that nothing follows.
        let many = [0, 0, 0, 0, 0x7f, 0xff, 0xff, 0xff, 0];
        assert!(matches!(metadata(&many), Err(KafkaError::Malformed)));
        assert!(matches!(produce(8, &many[4..]), Err(KafkaError::Malformed)));
        assert!(matches!(
            sasl_authenticate(&[0, 0, 0x7f]),
            Err(KafkaError::Malformed)
        ));
    }

    #[test]
    fn a_server_tells_so_many_mechanisms() {
        let answer = |code: i16, name: &str| {
            let mut answer = code.to_be_bytes().to_vec();
            answer.extend(1_000_i32.to_be_bytes());
            (0..1_000).for_each(|_| put_string(name, &mut answer));
            sasl_handshake(&answer)
        };
        answer(0, "PLAIN").expect("it takes it");
        for (name, want) in [("PLAIN", "PLAIN"), (&"x".repeat(9_000), &"x".repeat(20))] {
            let KafkaError::Answer { code, why, .. } = answer(33, name).expect_err("refused")
            else {
                panic!("an answer");
            };
            assert_eq!(code, Code(33));
            assert_eq!(why, format!("it offers {}", [want; 16].join(", ")));
        }
    }
}
