//! Packets of hostile clients that are the same in all programs of one size, encoded
//! once: their text is long.

use dunlin_mqtt_codec::Version;
use dunlin_sim::encode;

use crate::sizes::Sizes;

/// Most properties of a CONNECT that is not finished.
pub(crate) const STRANGER_PROPERTIES_MAX: u64 = 4;

/// Sizes, and packets by what they are for.
pub(crate) struct Packets {
    pub(crate) name: &'static str,
    pub(crate) sizes: Sizes,
    /// A SUBSCRIBE for each filter that matches one topic, each with an identifier.
    pub(crate) overlap: Vec<u8>,
    /// All but the end of a PUBLISH.
    pub(crate) unfinished: Vec<u8>,
    /// All but the end of a CONNECT, by the number of its properties.
    pub(crate) strangers: Vec<Vec<u8>>,
    /// CONNECT of each client of the crowd, with its name.
    pub(crate) crowd: Vec<(String, Vec<u8>)>,
}

impl Packets {
    pub(crate) fn new(name: &'static str, sizes: Sizes) -> Self {
        let payload = "y".repeat(sizes.crowd_will_bytes);
        let crowd = (0..sizes.crowd).map(|number| {
            let line = format!("CONNECT y{number} expiry=100000 will=y/w:{payload} wq=1");
            (format!("y{number}"), encode(&line, Version::V5))
        });
        let publish = format!("PUBLISH t/1 {}", "u".repeat(sizes.unfinished_bytes));
        let properties = 0..=STRANGER_PROPERTIES_MAX;
        Self {
            name,
            overlap: overlap(sizes.levels),
            unfinished: begin(&publish),
            strangers: properties
                .map(|count| stranger(count, sizes.stranger_bytes))
                .collect(),
            crowd: crowd.collect(),
            sizes,
        }
    }
}

fn overlap(levels: u64) -> Vec<u8> {
    let mut all = Vec::new();
    for number in 0..1_u64 << levels {
        let level = |bit| if number >> bit & 1 == 1 { "+" } else { "t" };
        let filter: Vec<&str> = (0..levels).map(level).collect();
        let line = format!("SUBSCRIBE 2 sub={} {}", number + 1, filter.join("/"));
        all.extend(encode(&line, Version::V5));
    }
    all
}

fn stranger(properties: u64, bytes: usize) -> Vec<u8> {
    let mut line = format!("CONNECT {} clean", "s".repeat(bytes / 3));
    for _ in 0..properties {
        line += &format!(" u=k:{}", "v".repeat(bytes));
    }
    begin(&line)
}

/// All but the last byte of a packet.
fn begin(line: &str) -> Vec<u8> {
    let mut whole = encode(line, Version::V5);
    whole.pop();
    whole
}
