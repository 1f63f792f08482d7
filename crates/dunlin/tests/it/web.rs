//! A server of HTTP that answers as a test wants, also wrongly. Tests inside the
//! library use this file too.

use core::net::SocketAddr;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

/// What is answered to a request.
#[allow(dead_code, reason = "not all of it in each of the two programs")]
pub(crate) enum Answer {
    /// 200 with this text.
    Ok(String),
    /// This status without content, and this line of a header.
    Status(u16, &'static str),
    /// These bytes, and the end of the connection.
    Raw(Vec<u8>),
    /// Nothing, until the client leaves.
    Nothing,
}

/// What gives the answer to the first line and the content of a request.
type Answers = dyn Fn(&str, &str) -> Answer + Send + Sync;

/// The server. It ends with the process.
pub(crate) struct Web(SocketAddr);

impl Web {
    /// `answer` gets the first line and the content of each request.
    pub(crate) fn start(answer: impl Fn(&str, &str) -> Answer + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let addr = listener.local_addr().expect("bound");
        let answer: Arc<Answers> = Arc::new(answer);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (Ok(stream), answer) = (stream, Arc::clone(&answer)) else {
                    continue;
                };
                std::thread::spawn(move || serve(stream, &*answer));
            }
        });
        Self(addr)
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.0)
    }
}

fn serve(mut stream: TcpStream, answer: &Answers) {
    let mut read = Vec::new();
    while let Some((line, content)) = request(&mut stream, &mut read) {
        let text = match answer(&line, &content) {
            Answer::Ok(text) => format!(
                "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{text}",
                text.len()
            ),
            Answer::Status(status, header) => {
                format!("HTTP/1.1 {status} Status\r\n{header}content-length: 0\r\n\r\n")
            }
            Answer::Raw(bytes) => {
                let _ = stream.write_all(&bytes);
                return;
            }
            Answer::Nothing => {
                let _ = stream.read_to_end(&mut Vec::new());
                return;
            }
        };
        if stream.write_all(text.as_bytes()).is_err() {
            return;
        }
    }
}

/// The first line and the content of the next request; `None`: the client has left.
fn request(stream: &mut TcpStream, read: &mut Vec<u8>) -> Option<(String, String)> {
    loop {
        let text = String::from_utf8_lossy(read).into_owned();
        if let Some((head, rest)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| {
                let (name, value) = line.split_once(':')?;
                let is_length = name.eq_ignore_ascii_case("content-length");
                is_length.then(|| value.trim().parse::<usize>().ok())?
            });
            let length = length.unwrap_or(0);
            if rest.len() >= length {
                let line = head.lines().next().unwrap_or_default().to_owned();
                let content = rest.get(..length).unwrap_or_default().to_owned();
                read.drain(..head.len() + 4 + length);
                return Some((line, content));
            }
        }
        let mut buffer = [0; 4096];
        match stream.read(&mut buffer) {
            Ok(0) | Err(_) => return None,
            Ok(len) => read.extend_from_slice(&buffer[..len]),
        }
    }
}
