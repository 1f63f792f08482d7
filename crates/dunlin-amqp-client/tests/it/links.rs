//! How links are described, refused and ended.

use dunlin_amqp::Event;
use dunlin_amqp::codec::{
    AnyTarget, Error, ReceiverSettleMode, SenderSettleMode, TerminusDurability,
    TerminusExpiryPolicy, Value, condition,
};
use dunlin_amqp_client::{LinkError, SendError};

use super::server::Server;
use super::{Duration, run};

#[test]
fn attach_says_what_was_asked_for() {
    let server = Server::run(|listener| {
        let mut peer = listener.accept();
        let mut count = 0;
        peer.until(|_, event| {
            let Event::Attach { attach, .. } = event else {
                return None;
            };
            let attach = attach.attach().expect("decoded before");
            count += 1;
            if count == 1 {
                assert_eq!(attach.name, "to");
                assert_eq!(attach.snd_settle_mode, SenderSettleMode::Unsettled);
                assert_eq!(attach.rcv_settle_mode, ReceiverSettleMode::Second);
                let Some(AnyTarget::Target(target)) = attach.target else {
                    unreachable!("no target");
                };
                assert_eq!(target.address, Some("q"));
                assert_eq!(target.durable, TerminusDurability::UnsettledState);
                assert!(target.capabilities.expect("one").contains("queue"));
                return None;
            }
            assert_eq!((attach.name, attach.max_message_size), ("from", Some(500)));
            let source = attach.source.expect("one");
            assert_eq!(source.address, Some("t"));
            assert_eq!(source.expiry_policy, TerminusExpiryPolicy::Never);
            assert_eq!(source.timeout, 60);
            let filter = source.filter.expect("two");
            let value = filter.get("apache.org:selector-filter:string");
            let Some(Value::Described(selector)) = value else {
                unreachable!("{filter:?}");
            };
            assert_eq!(selector.value(), Value::String("a > 1"));
            assert!(filter.get("apache.org:no-local-filter:list").is_some());
            Some(())
        })
        .expect("two links");
        peer.serve();
    });
    run(async {
        let client = server.client().connect().await.expect("connected");
        let sender = client
            .sender("q")
            .name("to")
            .exactly_once()
            .capability("queue");
        let sender = sender.attach().await.expect("attached");
        assert_eq!(sender.attached().address.as_deref(), Some("q"));
        let receiver = client
            .receiver("t")
            .name("from")
            .max_message_size(500)
            .durable(TerminusDurability::Configuration)
            .expiry(TerminusExpiryPolicy::Never, Duration::from_secs(60))
            .selector("a > 1")
            .no_local()
            .attach()
            .await
            .expect("attached");
        assert_eq!(receiver.attached().filters.len(), 2);
        client.close().await;
    });
    server.end();
}

#[test]
fn a_refusal_says_why() {
    let server = Server::run(|listener| {
        let mut peer = listener.accept();
        peer.until(|engine, event| match event {
            Event::Attach { link, .. } => {
                let error = Error::new(condition::NOT_FOUND, "no such queue");
                engine.refuse_attach(*link, &error).expect("it waits");
                Some(())
            }
            _ => None,
        });
        peer.serve();
    });
    run(async {
        let client = server.client().connect().await.expect("connected");
        let (sender, attaching) = client.sender("q").name("by hand").start().expect("started");
        let sending = sender.start_send("x").await.expect("handed over");
        let error = attaching.await.expect_err("refused");
        let want = "the server refused the link: no such queue (amqp:not-found)";
        assert_eq!(error.to_string(), want);
        let error = sending.await.expect_err("refused");
        assert!(
            matches!(error, SendError::Link(LinkError::Refused(_))),
            "{error}"
        );
        let error = sender.send("y").await.expect_err("ended");
        assert_eq!(error.to_string(), want);
        client.close().await;
    });
    server.end();
}

#[test]
fn a_link_that_the_server_ends_says_why_and_others_go_on() {
    let server = Server::run(|listener| {
        let mut peer = listener.accept();
        let first = peer.link();
        peer.link();
        let error = Error::new(condition::RESOURCE_DELETED, "deleted");
        peer.engine
            .detach(first, true, Some(&error))
            .expect("attached");
        peer.serve();
    });
    run(async {
        let client = server.client().connect().await.expect("connected");
        let mut first = client.receiver("a").attach().await.expect("attached");
        let second = client.sender("b").attach().await.expect("attached");
        let error = first.recv().await.expect_err("ended");
        assert_eq!(
            error.to_string(),
            "the server ended the link: deleted (amqp:resource-deleted)"
        );
        second.close().await;
        client.close().await;
    });
    server.end();
}

/// What the connection before had sent may be read after what this one has.
#[test]
fn a_link_that_is_stolen_after_a_reconnection_is_taken_back_once() {
    let server = Server::run(|listener| {
        let mut peer = listener.accept();
        peer.link();
        drop(peer);
        let mut peer = listener.accept();
        for _ in 0..2 {
            let link = peer.link();
            let error = Error::new(condition::STOLEN, "attached again");
            peer.engine
                .detach(link, true, Some(&error))
                .expect("attached");
        }
        peer.serve();
    });
    run(async {
        let client = server.client().connect().await.expect("connected");
        let mut receiver = client.receiver("a").attach().await.expect("attached");
        let error = receiver.recv().await.expect_err("stolen again");
        let want = "the server ended the link: attached again (amqp:link:stolen)";
        assert_eq!(error.to_string(), want);
        client.close().await;
    });
    server.end();
}

#[test]
fn dropping_a_link_detaches_it_and_a_durable_one_stays() {
    let server = Server::run(|listener| {
        let mut peer = listener.accept();
        let mut ends = Vec::new();
        peer.until(|_, event| {
            if let Event::Detached { closed, error, .. } = event {
                assert!(error.is_none());
                ends.push(*closed);
            }
            (ends.len() == 3).then_some(())
        });
        assert_eq!(ends, [true, false, true]);
        peer.serve();
    });
    run(async {
        let client = server.client().connect().await.expect("connected");
        drop(client.receiver("a").attach().await.expect("attached"));
        let durable = || {
            let receiver = client.receiver("a").name("sub");
            receiver
                .expiry(TerminusExpiryPolicy::Never, Duration::ZERO)
                .attach()
        };
        drop(durable().await.expect("attached"));
        durable().await.expect("attached").close().await;
        client.close().await;
    });
    server.end();
}
