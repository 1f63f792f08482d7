//! A web client and a web server by others, `hyper`, over QUIC sockets: HTTP/1.1 as
//! it is, on one stream a connection.
//!
//! ```text
//! cargo run -p dunlin-socket --example web
//! ```

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use core::convert::Infallible;
use core::error::Error;
use core::future::poll_fn;
use core::pin::Pin;
use core::task::{Context, Poll, ready};
use std::io;

use dunlin_socket::{ListenOptions, Listener, Options, Stream, TlsOptions};
use hyper::body::{Body as _, Incoming};
use hyper::rt::ReadBufCursor;
use hyper::service::service_fn;
use hyper::{Request, Response};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

type Failure = Box<dyn Error + Send + Sync>;

/// The traits of hyper's own, as for any stream of Tokio.
struct Io(Stream);

impl hyper::rt::Read for Io {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        mut into: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let mut bytes = [0; 8192];
        let (bytes, _) = bytes.split_at_mut(into.remaining().min(8192));
        let mut read = ReadBuf::new(bytes);
        ready!(AsyncRead::poll_read(
            Pin::new(&mut self.0),
            context,
            &mut read
        ))?;
        into.put_slice(read.filled());
        Poll::Ready(Ok(()))
    }
}

impl hyper::rt::Write for Io {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        AsyncWrite::poll_write(Pin::new(&mut self.0), context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        AsyncWrite::poll_flush(Pin::new(&mut self.0), context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        AsyncWrite::poll_shutdown(Pin::new(&mut self.0), context)
    }
}

async fn serve(listener: Listener) -> Result<(), Failure> {
    loop {
        let (stream, _) = listener.accept_async().await?;
        let answer = service_fn(async |request: Request<Incoming>| {
            let text = format!("this is {}", request.uri().path());
            Ok::<_, Infallible>(Response::new(text))
        });
        let serving = hyper::server::conn::http1::Builder::new();
        serving.serve_connection(Io(stream), answer).await?;
    }
}

async fn body(response: Response<Incoming>) -> Result<String, Failure> {
    let mut body = response.into_body();
    let mut text = Vec::new();
    while let Some(frame) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
        if let Ok(data) = frame?.into_data() {
            text.extend_from_slice(&data);
        }
    }
    Ok(String::from_utf8(text)?)
}

#[tokio::main(flavor = "current_thread")]
pub(crate) async fn main() -> Result<(), Failure> {
    let issued = rcgen::generate_simple_self_signed(vec!["localhost".into()])?;
    let (cert, key) = (issued.cert.pem(), issued.signing_key.serialize_pem());
    let listener = ListenOptions::pem(cert.clone(), key)
        .protocol("http/1.1")
        .bind("127.0.0.1:0")?;
    let server = ("localhost", listener.local_addr().port());
    let ask = async {
        let tls = TlsOptions::new().ca_pem(cert);
        let options = Options::new().tls(tls).protocol("http/1.1");
        let stream = options.connect_async(server).await?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(Io(stream)).await?;
        tokio::spawn(connection);
        for path in ["/one", "/two"] {
            let request = Request::builder().uri(path).header("host", "localhost");
            let response = sender.send_request(request.body(String::new())?).await?;
            let (status, text) = (response.status(), body(response).await?);
            println!("{status} {text}");
            assert_eq!(text, format!("this is {path}"));
        }
        Ok(())
    };
    tokio::select! {
        result = serve(listener) => result,
        result = ask => result,
    }
}
