//! Tasks that wait: Tokio's traits and those of futures.

use core::future::poll_fn;
use core::pin::Pin;
use core::time::Duration;
use std::io;

use dunlin_socket::Stream;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::runtime::Builder;

use crate::support::{PATIENCE, pattern, server};

fn run<F: Future>(future: F) -> F::Output {
    let runtime = Builder::new_current_thread().enable_time().build();
    let runtime = runtime.expect("a runtime");
    runtime.block_on(async {
        let limited = tokio::time::timeout(PATIENCE, future);
        limited.await.expect("in time")
    })
}

#[test]
fn a_thousand_streams_on_one_thread() {
    run(async {
        let (listener, options, server) = server();
        let serve = async {
            let connection = listener.accept_connection_async().await?;
            for _ in 0..1000 {
                let stream = connection.accept_stream_async().await?;
                tokio::spawn(async move {
                    let (mut from, mut to) = tokio::io::split(stream);
                    tokio::io::copy(&mut from, &mut to).await?;
                    to.shutdown().await
                });
            }
            io::Result::Ok(connection)
        };
        let ask = async {
            let connection = options.connect_connection_async(server).await?;
            let mut tasks = Vec::new();
            for n in 0..1000 {
                let connection = connection.clone();
                tasks.push(tokio::spawn(async move {
                    let sent = pattern(n);
                    let mut stream = connection.open_stream_async().await?;
                    stream.write_all(&sent).await?;
                    // Streams without bytes do not show at the peer until they end.
                    tokio::io::AsyncWriteExt::shutdown(&mut stream).await?;
                    let mut answer = Vec::new();
                    stream.read_to_end(&mut answer).await?;
                    assert!(answer == sent);
                    io::Result::Ok(())
                }));
            }
            for task in tasks {
                task.await.expect("no panic")?;
            }
            Ok(())
        };
        tokio::try_join!(serve, ask).expect("served");
    });
}

#[test]
fn a_writer_waits_for_its_reader() {
    run(async {
        let (listener, options, server) = server();
        let mut client = options.connect_async(server).await.expect("connected");
        let (mut accepted, _) = listener.accept_async().await.expect("accepted");
        let sent = pattern(5 << 20);
        let expected = sent.clone();
        let writer = tokio::spawn(async move {
            client.write_all(&sent).await.expect("written");
            client.finish_async().await.expect("delivered");
        });
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert!(!writer.is_finished());
        let mut bytes = Vec::new();
        accepted.read_to_end(&mut bytes).await.expect("read");
        assert!(bytes == expected);
        writer.await.expect("no panic");
    });
}

#[test]
fn futures_that_are_dropped_lose_nothing() {
    run(async {
        let (listener, options, server) = server();
        let short = Duration::from_millis(1);
        for _ in 0..3 {
            let accepted = tokio::time::timeout(short, listener.accept_async()).await;
            assert!(accepted.is_err());
        }
        let mut client = options.connect_async(server).await.expect("connected");
        let (mut accepted, _) = listener.accept_async().await.expect("accepted");
        let connection = accepted.connection();
        for _ in 0..3 {
            let early = tokio::time::timeout(short, connection.accept_stream_async());
            assert!(early.await.is_err());
            let early = tokio::time::timeout(short, accepted.read_u8()).await;
            assert!(early.is_err());
        }
        client.write_all(b"x").await.expect("written");
        assert_eq!(accepted.read_u8().await.expect("a byte"), b'x');
    });
}

/// The traits of futures, without an executor of theirs.
#[test]
fn futures_read_and_write() {
    async fn read(stream: &mut Stream, into: &mut [u8]) -> io::Result<usize> {
        poll_fn(|cx| futures_io::AsyncRead::poll_read(Pin::new(&mut *stream), cx, into)).await
    }
    async fn write(stream: &mut Stream, bytes: &[u8]) -> io::Result<usize> {
        poll_fn(|cx| futures_io::AsyncWrite::poll_write(Pin::new(&mut *stream), cx, bytes)).await
    }
    run(async {
        let (listener, options, server) = server();
        let mut client = options.connect_async(server).await.expect("connected");
        let (mut accepted, _) = listener.accept_async().await.expect("accepted");
        assert_eq!(write(&mut client, b"abc").await.expect("written"), 3);
        let close = poll_fn(|cx| futures_io::AsyncWrite::poll_close(Pin::new(&mut client), cx));
        close.await.expect("closed");
        let mut bytes = Vec::new();
        loop {
            let mut into = [0; 2];
            match read(&mut accepted, &mut into).await.expect("read") {
                0 => break,
                count => bytes.extend_from_slice(&into[..count]),
            }
        }
        assert_eq!(bytes, b"abc");
    });
}
