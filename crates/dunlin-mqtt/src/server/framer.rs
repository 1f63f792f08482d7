//! Cuts the bytes of one stream into whole packets. Packets that arrive whole
//! are lent from the receive buffer; only a packet cut by the end of a read is
//! copied.

use alloc::vec::Vec;

use dunlin_mqtt_codec::{DecodeError, peek};

/// Capacity kept between packets; a larger buffer is freed once its packet
/// has been handled, so that an idle connection owns almost nothing.
const KEEP_BYTES_MAX: usize = 0;

/// The packet boundary of one stream.
///
/// Memory is bounded by the maximum packet size given to [`Framer::next`]: the
/// size is checked when the fixed header is complete, before the body is
/// buffered.
#[derive(Debug, Default)]
pub struct Framer {
    partial: Vec<u8>,
    handed_out: bool,
}

impl Framer {
    /// The next whole packet of `data` (with what earlier calls left over), or
    /// `None` when all of `data` has been taken.
    ///
    /// # Errors
    /// The fixed header is malformed or announces more than `packet_bytes_max`.
    pub fn next<'s, 'd: 's>(
        &'s mut self,
        data: &mut &'d [u8],
        packet_bytes_max: u32,
    ) -> Result<Option<&'s [u8]>, DecodeError> {
        if self.handed_out {
            self.partial.clear();
            self.partial.shrink_to(KEEP_BYTES_MAX);
            self.handed_out = false;
        }
        if self.partial.is_empty() {
            if data.is_empty() {
                return Ok(None);
            }
            if let Some(frame) = peek(data, packet_bytes_max)?
                && let Some((packet, rest)) = data.split_at_checked(frame.total_len)
            {
                *data = rest;
                return Ok(Some(packet));
            }
            self.partial.extend_from_slice(data);
            *data = &[];
            return Ok(None);
        }
        self.complete(data, packet_bytes_max)
    }

    /// Bytes held of a packet that has not come whole.
    #[must_use]
    pub const fn held(&self) -> usize {
        if self.handed_out {
            0
        } else {
            self.partial.len()
        }
    }

    /// Whether the stream ended inside a packet.
    #[must_use]
    pub fn has_partial(&self) -> bool {
        !self.handed_out && !self.partial.is_empty()
    }

    fn complete<'s>(
        &'s mut self,
        data: &mut &[u8],
        packet_bytes_max: u32,
    ) -> Result<Option<&'s [u8]>, DecodeError> {
        let total = loop {
            if let Some(frame) = peek(&self.partial, packet_bytes_max)? {
                break frame.total_len;
            }
            let Some((&byte, rest)) = data.split_first() else {
                return Ok(None);
            };
            self.partial.push(byte);
            *data = rest;
        };
        let missing = total.saturating_sub(self.partial.len());
        let (head, rest) = data.split_at(missing.min(data.len()));
        // Grows as usual, but not beyond the packet.
        if self.partial.capacity() - self.partial.len() < head.len() {
            let more = self.partial.len().max(head.len());
            self.partial.reserve_exact(more.min(missing));
        }
        self.partial.extend_from_slice(head);
        *data = rest;
        if self.partial.len() < total {
            return Ok(None);
        }
        self.handed_out = true;
        Ok(Some(&self.partial))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// PINGREQ, an 11-byte QoS 0 PUBLISH, PINGREQ.
    const STREAM: &[u8] = &[
        0xc0, 0, 0x30, 9, 0, 3, b'a', b'/', b'b', 0, b'x', b'y', b'z', 0xc0, 0,
    ];

    #[test]
    fn every_cut_of_a_stream_gives_the_same_packets() {
        for cut in 0..=STREAM.len() {
            for second in cut..=STREAM.len() {
                let mut framer = Framer::default();
                let mut packets = Vec::new();
                for mut part in [&STREAM[..cut], &STREAM[cut..second], &STREAM[second..]] {
                    while let Some(packet) = framer.next(&mut part, 100).expect("valid") {
                        packets.push(packet.to_vec());
                    }
                }
                let whole: [&[u8]; 3] = [&STREAM[..2], &STREAM[2..13], &STREAM[13..]];
                assert_eq!(packets, whole, "cut at {cut} and {second}");
                assert!(!framer.has_partial());
            }
        }
    }

    #[test]
    fn a_packet_over_the_limit_is_refused_at_its_header() {
        let mut framer = Framer::default();
        let mut data: &[u8] = &[0x30, 0xff, 0x7f];
        assert!(framer.next(&mut data, 1000).is_err());
    }
}
