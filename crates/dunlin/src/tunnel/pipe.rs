//! One TCP connection and the QUIC stream that carries it: bytes, ends and
//! back-pressure, both ways. Knows no protocol.

use dunlin_base::{ConnId, SendBuf, StreamId};
use dunlin_dial::Key;
use dunlin_net::Net;

/// Bytes of one direction that may wait for the other side before no more are
/// read. What one read brings (256 KiB at most) may come on top.
pub const PIPE_BYTES_MAX: usize = 256 << 10;

/// A TCP connection and its stream.
pub(super) struct Pipe {
    tcp: ConnId,
    /// The QUIC connection that carries it.
    pub(super) carrier: Key,
    stream: Option<(ConnId, StreamId)>,
    /// Towards the broker.
    pub(super) up: Flow,
    /// Towards the client.
    pub(super) down: Flow,
}

/// One direction.
#[derive(Default)]
pub(super) struct Flow {
    bytes: SendBuf,
    /// Bytes that have not left.
    waiting: usize,
    end: End,
    paused: bool,
}

/// Whether more follows in a direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum End {
    #[default]
    Open,
    /// What is here is the last.
    Due,
    /// The end was passed on.
    Passed,
}

impl Flow {
    pub(super) fn put(&mut self, data: &[u8]) {
        self.bytes.put_slice(data);
    }

    pub(super) fn finish(&mut self) {
        if self.end == End::Open {
            self.end = End::Due;
        }
    }

    /// So much has left.
    pub(super) const fn sent(&mut self, bytes: usize) {
        self.waiting = self.waiting.saturating_sub(bytes);
    }

    pub(super) const fn is_paused(&self) -> bool {
        self.paused
    }

    fn take_end(&mut self) -> bool {
        let due = self.end == End::Due;
        if due {
            self.end = End::Passed;
        }
        due
    }

    /// Whether its source is to be paused or read again, if that changes.
    fn change(&mut self) -> Option<bool> {
        let most = match self.paused {
            true => PIPE_BYTES_MAX / 2,
            false => PIPE_BYTES_MAX,
        };
        let wanted = self.waiting > most;
        let changes = wanted != self.paused;
        self.paused = wanted;
        changes.then_some(wanted)
    }
}

impl Pipe {
    pub(super) fn new(tcp: ConnId, carrier: Key) -> Self {
        Self {
            tcp,
            carrier,
            stream: None,
            up: Flow::default(),
            down: Flow::default(),
        }
    }

    /// The stream is open.
    pub(super) fn connect(&mut self, quic: ConnId, stream: StreamId) {
        self.stream = Some((quic, stream));
    }

    pub(super) fn stream(&self) -> Option<StreamId> {
        self.stream.map(|(_, stream)| stream)
    }

    /// Passes on what can be passed on. Tells whether both sides have ended.
    pub(super) fn run(&mut self, net: &mut Net) -> bool {
        self.run_up(net);
        self.run_down(net);
        self.up.end == End::Passed && self.down.end == End::Passed
    }

    fn run_up(&mut self, net: &mut Net) {
        self.up.waiting = match self.stream {
            Some((quic, stream)) => {
                if !self.up.bytes.is_empty() {
                    // What waits is asked for, by stream.
                    let _ = net.send(quic, stream, &mut self.up.bytes);
                }
                if self.up.take_end() {
                    net.conn(quic).finish_stream(stream);
                }
                net.conn(quic).stream_backlog(stream)
            }
            None => self.up.bytes.len(),
        };
        if let Some(paused) = self.up.change() {
            net.conn(self.tcp).pause_reading(paused);
        }
    }

    fn run_down(&mut self, net: &mut Net) {
        let given = self.down.bytes.len();
        if given > 0 {
            let left = net.send(self.tcp, StreamId::CONTROL, &mut self.down.bytes);
            self.down.waiting += given.saturating_sub(left);
        }
        if self.down.take_end() {
            net.conn(self.tcp).finish_stream(StreamId::CONTROL);
        }
        if let (Some(paused), Some((quic, stream))) = (self.down.change(), self.stream) {
            net.conn(quic).pause_stream(stream, paused);
        }
    }

    /// The client is gone before its time: the broker sees a stream reset.
    pub(super) fn reset(&self, net: &mut Net) {
        if let Some((quic, stream)) = self.stream {
            net.conn(quic).reset_stream(stream, 0);
            net.conn(quic).stop_stream(stream, 0);
            // What had arrived is not wanted.
            net.conn(quic).pause_stream(stream, false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_is_paused_at_the_limit_and_read_again_at_half() {
        let mut flow = Flow {
            waiting: PIPE_BYTES_MAX,
            ..Flow::default()
        };
        assert_eq!(flow.change(), None);
        flow.waiting += 1;
        assert_eq!(flow.change(), Some(true));
        assert_eq!(flow.change(), None);
        flow.sent(PIPE_BYTES_MAX / 2);
        assert_eq!(flow.change(), None);
        flow.sent(1);
        assert_eq!(flow.change(), Some(false));
    }

    #[test]
    fn an_end_is_passed_on_once() {
        let mut flow = Flow::default();
        assert!(!flow.take_end());
        flow.finish();
        assert!(flow.take_end());
        flow.finish();
        assert!(!flow.take_end());
    }
}
