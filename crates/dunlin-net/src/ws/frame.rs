//! Frames of RFC 6455 section 5. Payload of data frames is passed on as it
//! arrives and never gathered; only control frames, which are small, are.

/// Longest frame header: flags, length, extended length, mask.
pub(crate) const HEADER_BYTES_MAX: usize = 14;
/// Longest payload of a control frame (section 5.5).
const CONTROL_BYTES_MAX: usize = 125;

const FIN: u8 = 0x80;
const RESERVED: u8 = 0x70;
const OPCODE: u8 = 0x0f;
const MASKED: u8 = 0x80;
const LENGTH: u8 = 0x7f;

const CONTINUATION: u8 = 0;
const TEXT: u8 = 1;
const BINARY: u8 = 2;
pub(super) const CLOSE: u8 = 8;
const PING: u8 = 9;
pub(super) const PONG: u8 = 10;

/// Which side we are: clients mask what they send, servers do not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Client,
    Server,
}

/// How the peer broke the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum WsError {
    #[error("reserved bits are set in a frame")]
    ReservedBits,
    #[error("unknown frame type")]
    Opcode,
    #[error("a frame is masked that must not be, or the reverse")]
    Masking,
    #[error("a length is not in its shortest form or out of range")]
    Length,
    #[error("a control frame is fragmented or too long")]
    Control,
    #[error("a fragment is missing its beginning, or a message its end")]
    Fragment,
    #[error("a Close frame is malformed")]
    CloseFrame,
    #[error("text was sent where only binary messages are allowed")]
    Text,
    #[error("a message is too long")]
    TooLong,
}

impl WsError {
    /// Code for our Close frame (section 7.4.1).
    pub(crate) const fn code(self) -> u16 {
        match self {
            Self::Text => 1003,
            Self::TooLong => 1009,
            _ => 1002,
        }
    }
}

/// What a run of received bytes holds next.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Frame<'a> {
    /// A part of a binary message.
    Data(&'a [u8]),
    /// Answer with [`Decoder::control`].
    Ping,
    Pong,
    Close,
}

/// Takes frames apart.
#[derive(Debug)]
pub(super) struct Decoder {
    role: Role,
    message_bytes_max: u64,
    header: [u8; HEADER_BYTES_MAX],
    header_len: usize,
    /// Inside of a frame's payload.
    in_payload: bool,
    opcode: u8,
    /// Payload bytes to come.
    left: u64,
    mask: [u8; 4],
    /// Payload bytes of the frame so far, for the mask.
    at: usize,
    /// Inside of a message: more fragments come.
    fragmented: bool,
    message_bytes: u64,
    control: Vec<u8>,
}

impl Decoder {
    pub(super) const fn new(role: Role, message_bytes_max: u64) -> Self {
        Self {
            role,
            message_bytes_max,
            header: [0; HEADER_BYTES_MAX],
            header_len: 0,
            in_payload: false,
            opcode: 0,
            left: 0,
            mask: [0; 4],
            at: 0,
            fragmented: false,
            message_bytes: 0,
            control: Vec::new(),
        }
    }

    /// Payload of the last control frame.
    pub(super) fn control(&self) -> &[u8] {
        &self.control
    }

    /// The next thing in `input`, which moves on; `None` when it is used up.
    pub(super) fn next<'a>(
        &mut self,
        input: &mut &'a mut [u8],
    ) -> Result<Option<Frame<'a>>, WsError> {
        loop {
            if !self.in_payload && !self.read_header(input)? {
                return Ok(None);
            }
            let take = usize::try_from(self.left)
                .unwrap_or(usize::MAX)
                .min(input.len());
            let (payload, rest) = core::mem::take(input).split_at_mut(take);
            *input = rest;
            if self.role == Role::Server {
                mask(payload, self.mask, self.at);
            }
            self.at += take;
            self.left -= take as u64;
            let is_control = self.opcode >= CLOSE;
            if is_control {
                self.control.extend_from_slice(payload);
            }
            let ended = self.left == 0;
            if ended {
                self.in_payload = false;
                self.header_len = 0;
            }
            match (is_control, ended) {
                (true, true) => return self.control_frame().map(Some),
                (true, false) => return Ok(None),
                (false, _) if take > 0 => return Ok(Some(Frame::Data(payload))),
                // An empty frame; there may be another one behind it.
                (false, true) => {}
                (false, false) => return Ok(None),
            }
        }
    }

    fn control_frame(&self) -> Result<Frame<'static>, WsError> {
        match self.opcode {
            PING => Ok(Frame::Ping),
            PONG => Ok(Frame::Pong),
            _ => match self.control.as_slice() {
                [] => Ok(Frame::Close),
                [a, b, reason @ ..] => {
                    let code = u16::from_be_bytes([*a, *b]);
                    let known = matches!(code, 1000..=1003 | 1007..=1014 | 3000..=4999);
                    if known && core::str::from_utf8(reason).is_ok() {
                        Ok(Frame::Close)
                    } else {
                        Err(WsError::CloseFrame)
                    }
                }
                [_] => Err(WsError::CloseFrame),
            },
        }
    }

    /// Gathers the header; returns whether it is complete and checked.
    fn read_header(&mut self, input: &mut &mut [u8]) -> Result<bool, WsError> {
        loop {
            let want = self.header_bytes()?;
            if self.header_len == want {
                break;
            }
            let take = (want - self.header_len).min(input.len());
            if take == 0 {
                return Ok(false);
            }
            let (bytes, rest) = core::mem::take(input).split_at_mut(take);
            *input = rest;
            if let Some(to) = self.header.get_mut(self.header_len..self.header_len + take) {
                to.copy_from_slice(bytes);
            }
            self.header_len += take;
        }
        self.begin_frame()?;
        Ok(true)
    }

    /// Length of the header as far as it is known; checks the first bytes as
    /// soon as they are there.
    fn header_bytes(&self) -> Result<usize, WsError> {
        if self.header_len < 2 {
            return Ok(2);
        }
        let [first, second, ..] = self.header;
        if first & RESERVED != 0 {
            return Err(WsError::ReservedBits);
        }
        if (second & MASKED != 0) != (self.role == Role::Server) {
            return Err(WsError::Masking);
        }
        match first & OPCODE {
            CONTINUATION | BINARY => {}
            TEXT => return Err(WsError::Text),
            CLOSE | PING | PONG => {
                if first & FIN == 0 || usize::from(second & LENGTH) > CONTROL_BYTES_MAX {
                    return Err(WsError::Control);
                }
            }
            _ => return Err(WsError::Opcode),
        }
        let extended = match second & LENGTH {
            126 => 2,
            127 => 8,
            _ => 0,
        };
        let mask = if second & MASKED != 0 { 4 } else { 0 };
        Ok(2 + extended + mask)
    }

    fn begin_frame(&mut self) -> Result<(), WsError> {
        let [first, second, b2, b3, b4, b5, b6, b7, b8, b9, ..] = self.header;
        let (length, mask_at) = match second & LENGTH {
            126 => (u64::from(u16::from_be_bytes([b2, b3])), 4),
            127 => (u64::from_be_bytes([b2, b3, b4, b5, b6, b7, b8, b9]), 10),
            short => (u64::from(short), 2),
        };
        let shortest = match second & LENGTH {
            126 => length > 125,
            127 => length > 0xffff && length >> 63 == 0,
            _ => true,
        };
        if !shortest {
            return Err(WsError::Length);
        }
        if let Some(mask) = self.header.get(mask_at..mask_at + 4) {
            self.mask.copy_from_slice(mask);
        }
        self.opcode = first & OPCODE;
        self.left = length;
        self.at = 0;
        self.in_payload = true;
        if self.opcode >= CLOSE {
            self.control.clear();
            return Ok(());
        }
        if (self.opcode == CONTINUATION) != self.fragmented {
            return Err(WsError::Fragment);
        }
        if !self.fragmented {
            self.message_bytes = 0;
        }
        self.fragmented = first & FIN == 0;
        self.message_bytes = self.message_bytes.saturating_add(length);
        if self.message_bytes > self.message_bytes_max {
            return Err(WsError::TooLong);
        }
        Ok(())
    }
}

/// Masks or unmasks `payload`, whose first byte is number `at` of its frame
/// (section 5.3).
pub(crate) fn mask(payload: &mut [u8], key: [u8; 4], at: usize) {
    let mut key = key;
    key.rotate_left(at % 4);
    let wide = u64::from_ne_bytes([
        key[0], key[1], key[2], key[3], key[0], key[1], key[2], key[3],
    ]);
    let mut words = payload.chunks_exact_mut(8);
    for word in &mut words {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(word);
        word.copy_from_slice(&(u64::from_ne_bytes(bytes) ^ wide).to_ne_bytes());
    }
    for (byte, key) in words.into_remainder().iter_mut().zip(key.iter().cycle()) {
        *byte ^= key;
    }
}

/// Writes the header of a whole binary message; returns its length. A key is
/// given by clients.
pub(crate) fn header(
    length: usize,
    key: Option<[u8; 4]>,
    out: &mut [u8; HEADER_BYTES_MAX],
) -> usize {
    put_header(FIN | BINARY, length, key, out)
}

fn put_header(
    first: u8,
    length: usize,
    key: Option<[u8; 4]>,
    out: &mut [u8; HEADER_BYTES_MAX],
) -> usize {
    let masked = if key.is_some() { MASKED } else { 0 };
    let mut bytes = [0u8; HEADER_BYTES_MAX];
    bytes[0] = first;
    let mut n = 2;
    if length <= CONTROL_BYTES_MAX {
        bytes[1] = masked | length as u8;
    } else if let Ok(length) = u16::try_from(length) {
        bytes[1] = masked | 126;
        bytes[2..4].copy_from_slice(&length.to_be_bytes());
        n = 4;
    } else {
        bytes[1] = masked | 127;
        bytes[2..10].copy_from_slice(&(length as u64).to_be_bytes());
        n = 10;
    }
    if let (Some(key), Some(to)) = (key, bytes.get_mut(n..n + 4)) {
        to.copy_from_slice(&key);
        n += 4;
    }
    *out = bytes;
    n
}

/// Appends a control frame; clients give a key.
pub(super) fn put_control(opcode: u8, payload: &[u8], key: Option<[u8; 4]>, out: &mut Vec<u8>) {
    let payload = payload.get(..CONTROL_BYTES_MAX).unwrap_or(payload);
    let mut bytes = [0; HEADER_BYTES_MAX];
    let n = put_header(FIN | opcode, payload.len(), key, &mut bytes);
    out.extend_from_slice(bytes.get(..n).unwrap_or_default());
    let at = out.len();
    out.extend_from_slice(payload);
    if let (Some(key), Some(payload)) = (key, out.get_mut(at..)) {
        mask(payload, key, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq)]
    enum Got {
        Data(Vec<u8>),
        Ping(Vec<u8>),
        Pong,
        Close,
    }

    /// Decodes `bytes` cut into pieces of `step`.
    fn decode(decoder: &mut Decoder, bytes: &[u8], step: usize) -> Result<Vec<Got>, WsError> {
        let mut got = Vec::new();
        for piece in bytes.chunks(step) {
            let mut piece = piece.to_vec();
            let mut input = piece.as_mut_slice();
            while let Some(frame) = decoder.next(&mut input)? {
                match (frame, got.last_mut()) {
                    (Frame::Data(d), Some(Got::Data(v))) => v.extend_from_slice(d),
                    (Frame::Data(d), _) => got.push(Got::Data(d.to_vec())),
                    (Frame::Ping, _) => got.push(Got::Ping(decoder.control().to_vec())),
                    (Frame::Pong, _) => got.push(Got::Pong),
                    (Frame::Close, _) => got.push(Got::Close),
                }
            }
        }
        Ok(got)
    }

    fn frame(first: u8, payload: &[u8], key: Option<[u8; 4]>) -> Vec<u8> {
        let mut head = [0; HEADER_BYTES_MAX];
        let n = put_header(first, payload.len(), key, &mut head);
        let mut bytes = head[..n].to_vec();
        bytes.extend_from_slice(payload);
        if let Some(key) = key {
            mask(&mut bytes[n..], key, 0);
        }
        bytes
    }

    const KEY: Option<[u8; 4]> = Some([0xa1, 0x02, 0xc3, 0x7f]);

    #[test]
    fn messages_of_every_length_class_survive_any_cut() {
        for len in [0, 1, 7, 8, 125, 126, 127, 65_535, 65_536] {
            let payload: Vec<u8> = (0..len).map(|i| (i * 7) as u8).collect();
            for (role, key) in [(Role::Server, KEY), (Role::Client, None)] {
                let mut bytes = frame(FIN | BINARY, &payload, key);
                bytes.extend(frame(FIN | PING, b"p", key));
                for step in [1, 2, 3, 13, 4096, bytes.len()] {
                    let mut decoder = Decoder::new(role, 1 << 20);
                    let got = decode(&mut decoder, &bytes, step).unwrap();
                    let mut want = vec![Got::Ping(b"p".to_vec())];
                    if len > 0 {
                        want.insert(0, Got::Data(payload.clone()));
                    }
                    assert_eq!(got, want, "{len} {step}");
                }
            }
        }
    }

    #[test]
    fn control_frames_may_come_between_fragments() {
        let mut bytes = frame(BINARY, b"ab", KEY);
        bytes.extend(frame(FIN | PING, b"hello", KEY));
        bytes.extend(frame(CONTINUATION, b"", KEY));
        bytes.extend(frame(FIN | CONTINUATION, b"cd", KEY));
        bytes.extend(frame(FIN | PONG, b"", KEY));
        bytes.extend(frame(FIN | CLOSE, &[0x03, 0xe8, b'o', b'k'], KEY));
        let want = [
            Got::Data(b"ab".to_vec()),
            Got::Ping(b"hello".to_vec()),
            Got::Data(b"cd".to_vec()),
            Got::Pong,
            Got::Close,
        ];
        for step in 1..bytes.len() {
            let mut decoder = Decoder::new(Role::Server, 4);
            assert_eq!(decode(&mut decoder, &bytes, step).unwrap(), want);
        }
    }

    #[test]
    fn every_breach_has_its_answer() {
        let server = |first, payload: &[u8]| (Role::Server, frame(first, payload, KEY));
        let mut long = vec![FIN | BINARY, MASKED | 127];
        long.extend([0xff; 8]);
        long.extend([0; 4]);
        let cases = [
            (
                server(FIN | BINARY | 0x40, b""),
                WsError::ReservedBits,
                1002,
            ),
            (server(FIN | 3, b""), WsError::Opcode, 1002),
            (server(FIN | 0xb, b""), WsError::Opcode, 1002),
            (server(FIN | TEXT, b"text"), WsError::Text, 1003),
            (server(PING, b""), WsError::Control, 1002),
            (server(FIN | PING, &[0; 126]), WsError::Control, 1002),
            (server(FIN | CONTINUATION, b"x"), WsError::Fragment, 1002),
            (server(FIN | BINARY, &[0; 2000]), WsError::TooLong, 1009),
            (server(FIN | CLOSE, &[1]), WsError::CloseFrame, 1002),
            (
                server(FIN | CLOSE, &[0x03, 0xed]),
                WsError::CloseFrame,
                1002,
            ),
            (
                server(FIN | CLOSE, &[0x03, 0xe8, 0xff]),
                WsError::CloseFrame,
                1002,
            ),
            (
                (Role::Server, frame(FIN | BINARY, b"x", None)),
                WsError::Masking,
                1002,
            ),
            (
                (Role::Client, frame(FIN | BINARY, b"x", KEY)),
                WsError::Masking,
                1002,
            ),
            (
                (Role::Client, vec![FIN | BINARY, 126, 0, 125]),
                WsError::Length,
                1002,
            ),
            (
                (
                    Role::Client,
                    vec![FIN | BINARY, 127, 0, 0, 0, 0, 0, 0, 0xff, 0xff],
                ),
                WsError::Length,
                1002,
            ),
            ((Role::Server, long), WsError::Length, 1002),
        ];
        for ((role, bytes), want, code) in cases {
            let mut decoder = Decoder::new(role, 1000);
            assert_eq!(decode(&mut decoder, &bytes, 1), Err(want));
            assert_eq!(want.code(), code);
        }
        let mut two = frame(BINARY, b"a", KEY);
        two.extend(frame(FIN | BINARY, b"b", KEY));
        let mut decoder = Decoder::new(Role::Server, 1000);
        assert_eq!(decode(&mut decoder, &two, 3), Err(WsError::Fragment));
    }

    #[test]
    fn masks_continue_at_any_offset() {
        let key = [1, 2, 3, 4];
        let whole: Vec<u8> = (0..100).collect();
        let mut want = whole.clone();
        mask(&mut want, key, 0);
        for cut in 0..100 {
            let mut got = whole.clone();
            let (a, b) = got.split_at_mut(cut);
            mask(a, key, 0);
            mask(b, key, cut);
            assert_eq!(got, want);
        }
    }
}
