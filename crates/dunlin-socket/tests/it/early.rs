//! Tickets and early data: taken, refused, asked for by name.

use core::time::Duration;
use std::io::{Read, Write};
use std::thread;
use std::time::Instant;

use dunlin_socket::{EarlyData, ListenOptions, Listener, Options, Stream, TicketFile};

use crate::support::{Identity, PATIENCE, bind, patient};

/// A server, a client with a file of tickets, and the folder that the file is in.
struct Rig {
    identity: Identity,
    options: Options,
    _folder: tempfile::TempDir,
}

impl Rig {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let file = TicketFile::open(folder.path().join("tickets")).expect("a file");
        let identity = Identity::new();
        Self {
            options: identity.options().tickets(&file),
            identity,
            _folder: folder,
        }
    }

    fn listen(&self) -> ListenOptions {
        self.identity.listen()
    }
}

/// The client says `text` and hears it. Gives both ends.
fn talk(options: &Options, listener: &Listener, text: &[u8]) -> (Stream, Stream) {
    talk_through(listener.local_addr().port(), options, listener, text)
}

/// The same through another port.
fn talk_through(
    port: u16,
    options: &Options,
    listener: &Listener,
    text: &[u8],
) -> (Stream, Stream) {
    let mut client = options.connect(("localhost", port)).expect("connected");
    client.write_all(text).expect("written");
    let (mut accepted, _) = listener.accept().expect("accepted");
    let mut into = vec![0; text.len()];
    for stream in [&client, &accepted] {
        patient(stream);
    }
    accepted.read_exact(&mut into).expect("read");
    accepted.write_all(&into).expect("written");
    client.read_exact(&mut into).expect("read");
    assert_eq!(into, text);
    (client, accepted)
}

/// What became of early data once that is known.
fn verdict(stream: &Stream) -> EarlyData {
    let until = Instant::now() + PATIENCE;
    loop {
        match stream.connection().early_data() {
            EarlyData::Pending => {
                assert!(Instant::now() < until);
                thread::sleep(Duration::from_millis(2));
            }
            other => return other,
        }
    }
}

fn verdicts((client, accepted): (Stream, Stream)) -> (EarlyData, EarlyData) {
    (verdict(&client), verdict(&accepted))
}

#[test]
fn early_data_is_taken_where_both_sides_ask_for_it() {
    let rig = Rig::new();
    let listener = bind(&rig.listen().early_data());
    let none = (EarlyData::None, EarlyData::None);
    let early = rig.options.clone().early_data();
    assert_eq!(verdicts(talk(&early, &listener, b"first")), none);
    // The server has taken some of it if it was written before the server answered,
    // for which this machine may be too busy now and then.
    let taken = (0..20).any(|_| {
        let (client, server) = verdicts(talk(&early, &listener, b"second"));
        assert_eq!(client, EarlyData::Accepted);
        server == EarlyData::Accepted
    });
    assert!(taken);
    // Not unless it is asked for.
    assert_eq!(verdicts(talk(&rig.options, &listener, b"fourth")), none);
}

#[test]
fn refused_early_data_arrives_once() {
    let rig = Rig::new();
    let listener = bind(&rig.listen().early_data());
    let addr = listener.local_addr();
    let early = rig.options.clone().early_data();
    drop(talk(&early, &listener, b"first"));
    drop(listener);
    // Another server at the same place, which knows none of the tickets.
    let until = Instant::now() + PATIENCE;
    let listener = loop {
        match rig.listen().early_data().bind(addr) {
            Ok(listener) => break listener,
            Err(error) => assert!(Instant::now() < until, "{error}"),
        }
        thread::sleep(Duration::from_millis(20));
    };
    let text = vec![b'x'; 100_000];
    let (client, accepted) = talk(&early, &listener, &text);
    assert_eq!(verdict(&client), EarlyData::Refused);
    assert_eq!(verdict(&accepted), EarlyData::None);
    drop(client);
    let mut rest = Vec::new();
    (&accepted).read_to_end(&mut rest).expect("its end");
    assert_eq!(rest.len(), 0);
}

#[test]
fn a_server_that_did_not_ask_for_it_takes_none() {
    let rig = Rig::new();
    let listener = bind(&rig.listen());
    let early = rig.options.early_data();
    for _ in 0..3 {
        let (client, accepted) = talk(&early, &listener, b"text");
        assert_eq!(verdict(&client), EarlyData::None);
        assert_eq!(verdict(&accepted), EarlyData::None);
    }
}

/// What the driver's thread does, as Linux tells it.
#[cfg(target_os = "linux")]
mod thread_time {
    use core::task::Context;
    use std::fs;
    use std::path::{Path, PathBuf};
    use std::sync::Arc;
    use std::sync::mpsc::{Sender, channel};
    use std::task::Wake;

    use dunlin_socket::{Driver, Limits};

    use super::*;
    use crate::support::Relay;

    /// Notes the thread that wakes it.
    struct Waking(Sender<PathBuf>);

    impl Wake for Waking {
        fn wake(self: Arc<Self>) {
            let thread = fs::read_link("/proc/thread-self").expect("a thread");
            self.0
                .send(PathBuf::from("/proc").join(thread))
                .expect("awaited");
        }
    }

    /// Time that a thread has run, in ticks of 10 ms.
    fn ticks(thread: &Path) -> u64 {
        let stat = fs::read_to_string(thread.join("stat")).expect("its state");
        let (_, fields) = stat.rsplit_once(')').expect("a name");
        // `utime` and `stime`: fields 14 and 15, of which 1 and 2 are cut off.
        let times = fields.split_whitespace().skip(11).take(2);
        times
            .map(|time| time.parse::<u64>().expect("a number"))
            .sum()
    }

    /// A move that waits for the handshake leaves nothing behind when the connection
    /// is closed: the thread of all connections rests.
    #[test]
    fn a_connection_that_is_closed_while_a_move_waits_costs_no_time() {
        let rig = Rig::new();
        let listener = bind(&rig.listen().early_data());
        let relay = Relay::to(listener.local_addr());
        let driver = Driver::new(&Limits::default()).expect("a driver");
        let early = rig.options.early_data().driver(&driver);
        drop(talk_through(relay.port, &early, &listener, b"first"));
        relay.cut();
        let mut client = early.connect(("localhost", relay.port)).expect("early");
        assert_eq!(client.connection().early_data(), EarlyData::Pending);
        client.write_all(b"second").expect("written");
        let connection = client.connection();
        let (sender, woken) = channel();
        let waker = Arc::new(Waking(sender)).into();
        let mut moving = Box::pin(connection.migrate_async(None));
        let moved = moving.as_mut().poll(&mut Context::from_waker(&waker));
        assert!(moved.is_pending());
        // It is tried again by now.
        thread::sleep(Duration::from_millis(50));
        connection.close(0);
        let thread = woken.recv_timeout(PATIENCE).expect("refused");
        thread::sleep(Duration::from_millis(50));
        let before = ticks(&thread);
        thread::sleep(Duration::from_millis(800));
        let ran = ticks(&thread) - before;
        assert!(ran <= 10, "{ran} ticks of 80");
    }
}
