//! Commands as values: what a connection is to do, done.

use dunlin_base::transport::{NetCommand, NetCommandKind, NetEvent, NetEventKind};
use dunlin_base::{ConnId, SendBuf};

use dunlin_quic::QuicConn;

use super::Net;

impl Net {
    /// Does what a command says. Returns what came of it at once, which
    /// [`Net::poll`] does not report again: `Sent` for bytes that have left,
    /// `StreamOpened` for a stream.
    ///
    /// The bytes of a `Send` are taken; the emptied buffer stays in the command
    /// for reuse.
    #[must_use = "`poll` does not report this event again"]
    pub fn command(&mut self, command: &mut NetCommand) -> Option<NetEvent<&'static [u8]>> {
        let conn = command.conn;
        match &mut command.kind {
            NetCommandKind::Send { stream, data } => {
                let bytes = self.send(conn, *stream, data);
                return sent(conn, bytes);
            }
            NetCommandKind::SendDatagram {
                data,
                expires,
                fallback,
            } => {
                let bytes = match self.send_datagram(conn, data.clone(), *expires) {
                    // Its queue has a bound of its own.
                    Ok(()) => data.len(),
                    Err(_) => {
                        let mut bytes = SendBuf::new();
                        bytes.put_bytes(data);
                        self.send(conn, *fallback, &mut bytes)
                    }
                };
                return sent(conn, bytes);
            }
            NetCommandKind::OpenStream { bidirectional } => {
                let stream = self.open_stream(conn, *bidirectional);
                return Some(NetEvent::new(conn, NetEventKind::StreamOpened { stream }));
            }
            NetCommandKind::FinishStream { stream } => self.finish_stream(conn, *stream),
            NetCommandKind::ResetStream { stream, code } => {
                self.reset_stream(conn, *stream, *code);
                self.stop_stream(conn, *stream, *code);
            }
            NetCommandKind::SetPriority { stream, priority } => {
                self.set_stream_priority(conn, *stream, *priority);
            }
            NetCommandKind::IsolateStreams { isolate } => self.isolate_streams(conn, *isolate),
            NetCommandKind::RepeatPackets { repeat } => self.repeat_packets(conn, *repeat),
            NetCommandKind::ExpectMore => {
                self.with_quic(conn, QuicConn::expect_more);
            }
            NetCommandKind::Close {
                code,
                promptly: true,
            } => self.close_promptly(conn, *code),
            NetCommandKind::Close { code, .. } => self.close(conn, *code),
            NetCommandKind::SetIdleTimeout { timeout } => self.set_idle_timeout(conn, *timeout),
            NetCommandKind::PauseReading { paused } => self.pause_reading(conn, *paused),
        }
        None
    }
}

fn sent(conn: ConnId, bytes: usize) -> Option<NetEvent<&'static [u8]>> {
    (bytes > 0).then(|| NetEvent::new(conn, NetEventKind::Sent { bytes }))
}
