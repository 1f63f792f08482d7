//! A chat: each line of each member goes to all members. It is written for
//! `std::net`; what `Listener` and `Stream` are says the module around it.

use core::time::Duration;
use std::io::{self, BufRead, BufReader, Write};
use std::net::Shutdown;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use super::{Listener, Stream};

/// A member that takes no line for so long is no member any more.
const PATIENCE: Duration = Duration::from_secs(5);

/// Serves so many members, until all have left.
pub(crate) fn serve(listener: &Listener, members_max: usize) -> io::Result<()> {
    let members: Arc<Mutex<Vec<Stream>>> = Arc::default();
    let mut threads = Vec::new();
    for stream in listener.incoming().take(members_max) {
        let stream = stream?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let shared = Arc::clone(&members);
        let lock = move || -> Vec<Stream> {
            let members = shared.lock().unwrap_or_else(PoisonError::into_inner);
            members
                .iter()
                .filter_map(|member| member.try_clone().ok())
                .collect()
        };
        members
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(stream.try_clone()?);
        threads.push(thread::spawn(move || {
            for line in BufReader::new(&stream).lines().map_while(Result::ok) {
                for mut member in lock() {
                    // Who has left hears nothing.
                    let _ = writeln!(member, "{line}");
                }
            }
            let _ = stream.shutdown(Shutdown::Write);
        }));
    }
    for thread in threads {
        let _ = thread.join();
    }
    Ok(())
}

/// Says these lines, and hears so many.
pub(crate) fn talk(mut stream: Stream, lines: &[&str], hears: usize) -> io::Result<Vec<String>> {
    stream.set_read_timeout(Some(PATIENCE))?;
    for line in lines {
        writeln!(stream, "{line}")?;
    }
    let heard = BufReader::new(stream.try_clone()?)
        .lines()
        .take(hears)
        .collect();
    stream.shutdown(Shutdown::Write)?;
    heard
}
