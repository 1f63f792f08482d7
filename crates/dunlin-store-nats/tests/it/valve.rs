//! A way to a server that can be shut for a while: nothing passes then, and nothing ends.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};

/// Bytes that are passed at a time.
const BYTES: usize = 16 * 1024;

#[derive(Default)]
struct Gate {
    shut: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    fn pass(&self) {
        let mut shut = self.shut.lock().expect("no panic");
        while *shut {
            shut = self.opened.wait(shut).expect("no panic");
        }
    }
}

/// The way. Its threads end with the process.
pub(crate) struct Valve {
    gate: Arc<Gate>,
    port: u16,
}

impl Valve {
    /// To a server on this machine.
    pub(crate) fn new(server: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("bound").port();
        let gate = Arc::new(Gate::default());
        let of_thread = Arc::clone(&gate);
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let Ok(server) = TcpStream::connect(("127.0.0.1", server)) else {
                    continue;
                };
                let other = |stream: &TcpStream| stream.try_clone().expect("a socket");
                carry(other(&client), other(&server), Arc::clone(&of_thread));
                carry(server, client, Arc::clone(&of_thread));
            }
        });
        Self { gate, port }
    }

    pub(crate) const fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn shut(&self, shut: bool) {
        *self.gate.shut.lock().expect("no panic") = shut;
        self.gate.opened.notify_all();
    }
}

fn carry(mut from: TcpStream, mut to: TcpStream, gate: Arc<Gate>) {
    std::thread::spawn(move || {
        let mut bytes = vec![0; BYTES];
        loop {
            let read = from.read(&mut bytes).unwrap_or(0);
            gate.pass();
            if read == 0 || to.write_all(&bytes[..read]).is_err() {
                break;
            }
        }
        // Either may have ended.
        let _ = from.shutdown(Shutdown::Both);
        let _ = to.shutdown(Shutdown::Both);
    });
}
