//! `dunlin rr` as a program: requests and their responses, over every transport.

use std::process::Output;
use std::thread::JoinHandle;

use dunlin_base::transport::Transport;
use dunlin_client::{Client, Message, Publish, QoS};
use tokio::sync::oneshot;

use crate::support::{ALL, Broker, dunlin, run};

/// The program with arguments, words separated by single spaces.
fn rr(args: &str) -> Output {
    dunlin(&format!("rr {args}")).output().expect("started")
}

fn printed(args: &str) -> (String, Option<i32>) {
    let output = rr(args);
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    (text, output.status.code())
}

/// Answers requests to `svc/#` until it is dropped.
struct Responder {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Responder {
    fn start(broker: &Broker) -> Self {
        let builder = broker.client(Transport::Tcp);
        let (stop, stopped) = oneshot::channel();
        let (ready, is_ready) = std::sync::mpsc::channel();
        let respond = async move {
            let (client, mut messages) = builder.connect().await.expect("connected");
            let subscribed = client.subscribe("svc/#", QoS::ExactlyOnce).await;
            let _ = subscribed.expect("subscribed");
            ready.send(()).expect("awaited");
            let answer = async {
                while let Some(message) = messages.next().await {
                    for response in responses(&message) {
                        client.publish(response).await.expect("published");
                    }
                }
            };
            tokio::select! {
                () = answer => panic!("the responder lost its broker"),
                _ = stopped => client.disconnect().await,
            }
        };
        let thread = std::thread::spawn(move || run(respond));
        is_ready.recv().expect("subscribed");
        Self {
            stop: Some(stop),
            thread: Some(thread),
        }
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(ended.is_ok() || std::thread::panicking());
        }
    }
}

/// What comes for a request; the last one is right.
fn responses(request: &Message) -> Vec<Publish> {
    let properties = request.properties.as_deref();
    let asked = properties.and_then(|p| p.response_topic.clone());
    let data = properties.and_then(|p| p.correlation_data.clone());
    let to = asked.map_or_else(|| "fixed".to_owned(), |topic| topic.to_string());
    let publish = |text: &str| Publish::new(to.as_str(), text.to_owned()).qos(request.qos);
    let right = |text: &str| match &data {
        Some(data) => publish(text).correlation_data(data.to_vec()),
        None => publish(text),
    };
    match request.topic.as_str() {
        "svc/echo" => {
            let text = String::from_utf8_lossy(&request.payload);
            vec![right(&text.to_uppercase())]
        }
        "svc/plain" => vec![publish("plain")],
        "svc/mixed" => vec![
            publish("of another").correlation_data(b"x".to_vec()),
            publish("without data"),
            right("right"),
        ],
        _ => Vec::new(),
    }
}

#[test]
fn a_request_is_answered_over_every_transport() {
    let broker = Broker::start(2);
    let _responder = Responder::start(&broker);
    let ca = broker.ca();
    for transport in ALL {
        let port = broker.addr(transport).port();
        let scheme = dunlin_client::scheme(transport);
        let mut at = format!("--url {scheme}://localhost:{port} -t svc/echo -m hello -W 60");
        if transport.is_encrypted() {
            at += &format!(" --ca {}", ca.display());
        }
        for more in ["", " -q 1", " -q 2 -e answers"] {
            let got = printed(&format!("{at}{more}"));
            assert_eq!(got, ("HELLO\n".into(), Some(0)), "{scheme}{more}");
        }
    }
}

#[test]
fn only_the_response_to_this_request_is_printed() {
    let broker = Broker::start(1);
    let _responder = Responder::start(&broker);
    let at = format!(
        "-h 127.0.0.1 -p {} -m x",
        broker.addr(Transport::Tcp).port()
    );
    let cases = [
        // On a topic of its own, only what says that it answers another is not it.
        ("-t svc/mixed", "without data\n", 0),
        ("-t svc/mixed -e answers", "right\n", 0),
        (
            "-t svc/mixed -e answers --no-correlation",
            "of another\n",
            0,
        ),
        (
            "-t svc/echo -D publish correlation-data mine -F %D:%p",
            "mine:X\n",
            0,
        ),
        (
            "-t svc/echo -D publish response-topic mine -v",
            "mine X\n",
            0,
        ),
        ("-t svc/echo -V 311 -e fixed -N", "X", 0),
        ("-t svc/plain", "plain\n", 0),
        ("-t svc/plain -e answers -W 1", "", 27),
        ("-t svc/silent -W 1", "", 27),
    ];
    for (args, want, code) in cases {
        assert_eq!(
            printed(&format!("{at} {args}")),
            (want.into(), Some(code)),
            "{args}"
        );
    }
    // What was there before is no response.
    run(async {
        let builder = broker.client(Transport::Tcp);
        let (client, _messages): (Client, _) = builder.connect().await.expect("connected");
        let old = Publish::new("fixed", "old")
            .qos(QoS::AtLeastOnce)
            .retain(true);
        client.publish(old).await.expect("published");
        client.disconnect().await;
    });
    for version in ["5", "311"] {
        let got = printed(&format!("{at} -t svc/echo -e fixed -V {version}"));
        assert_eq!(got, ("X\n".into(), Some(0)), "{version}");
    }
}

#[test]
fn what_cannot_be_asked_is_said() {
    let broker = Broker::start(1);
    let at = format!("-h 127.0.0.1 -p {}", broker.addr(Transport::Tcp).port());
    let cases = [
        (format!("{at} -m x"), 1, "topic of the request"),
        (format!("{at} -t a"), 1, "-m, -f, -n or -s"),
        (format!("{at} -t a -m x -V 311"), 1, "give it with -e"),
        (format!("{at} -t a -m x -e b/#"), 1, "-e"),
        (format!("{at} -t a/+ -m x"), 1, "invalid topic"),
        (
            format!("{at} -t a -m x -e b -D publish response-topic c"),
            1,
            "twice",
        ),
        (
            format!("{at} -t a -m x -e b -V 311 --no-correlation"),
            1,
            "no effect here",
        ),
        (format!("{at} -t a -n -W 1 -q 1"), 27, "has no subscriber"),
        ("-h 127.0.0.1 -p 1 -t a -n".into(), 1, "connection failed"),
    ];
    for (args, want, words) in cases {
        let got = rr(&args);
        let stderr = String::from_utf8_lossy(&got.stderr);
        assert_eq!(got.status.code(), Some(want), "{args}: {stderr}");
        assert!(stderr.contains(words), "{args}: {stderr}");
    }
    drop(broker);
    let broker = Broker::start_with(1, &["auth.anonymous=\"never\""]);
    let port = broker.addr(Transport::Tcp).port();
    let got = rr(&format!("-h 127.0.0.1 -p {port} -t a -m x"));
    assert_eq!(got.status.code(), Some(135));
}
