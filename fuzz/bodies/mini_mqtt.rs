//! Any bytes as what a broker sends to a device: reading them does not panic,
//! the session says why it ends, and another one begins with the same memory.

use dunlin_mqtt_mini::{Event, Options, Qos, Session, Streams, decode};
use dunlin_quic_mini::{Error, StreamId};

/// A stream of two buffers, and how much of the input has arrived.
struct Pipe<'a> {
    data: &'a [u8],
    arrived: usize,
    written: usize,
}

const ROOM: usize = 300;

impl Streams for Pipe<'_> {
    fn open(&mut self) -> Result<StreamId, Error> {
        Ok(StreamId::nth(0))
    }
    fn room(&mut self, _: StreamId) -> Result<(usize, usize), Error> {
        Ok((ROOM - self.written, ROOM))
    }
    fn write(&mut self, _: StreamId, data: &[u8]) -> Result<(), Error> {
        self.written += data.len();
        assert!(self.written <= ROOM, "more than there is room for");
        Ok(())
    }
    fn received(&mut self, _: StreamId) -> Result<(&[u8], bool), Error> {
        Ok((&self.data[..self.arrived], self.arrived == self.data.len()))
    }
    fn consume(&mut self, _: StreamId, n: usize) {
        self.data = &self.data[n..];
        self.arrived -= n;
    }
    fn finish(&mut self, _: StreamId) {}
    fn window(&mut self) -> usize {
        ROOM
    }
}

/// One input.
pub(crate) fn run(data: &[u8]) {
    if let Ok(Some((_, len))) = decode(data) {
        assert!(len <= data.len());
    }
    let mut session = Session::new();
    for step in [1, 7, ROOM] {
        let mut pipe = Pipe {
            data,
            arrived: 0,
            written: 0,
        };
        assert_eq!(session.begin(&mut pipe, &Options::NEW), Ok(()));
        let _ = session.subscribe(&mut pipe, Qos::AtLeastOnce, b"a");
        while pipe.arrived < pipe.data.len() {
            // Never more than the window that the broker was given.
            let before = (pipe.data.len(), pipe.arrived);
            pipe.arrived = (pipe.arrived + step).min(pipe.data.len()).min(ROOM);
            // The network takes what was written.
            pipe.written = 0;
            if poll(&mut session, &mut pipe) || before == (pipe.data.len(), pipe.arrived) {
                break;
            }
        }
    }
}

/// Whether the session is over.
fn poll(session: &mut Session, pipe: &mut Pipe<'_>) -> bool {
    loop {
        match session.poll(pipe) {
            Ok(Some(Event::Message(message))) => {
                assert!(!message.topic.is_empty() && message.topic.len() < ROOM);
            }
            Ok(Some(_)) => {}
            Ok(None) => return false,
            Err(error) => return !error.is_refusal(),
        }
    }
}
