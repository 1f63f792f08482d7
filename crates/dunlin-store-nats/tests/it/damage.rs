//! A log that is not what was written.

use dunlin_store_nats::{LogError, NatsStore, OpenError};
use serde_json::json;

use crate::support::{Open, Server, Sync, numbers};

fn written() -> Option<Server> {
    let server = Server::start(Sync::Always)?;
    let (open, _) = Open::new(server.config("copy"));
    open.commit(1..=10);
    open.store.close();
    Some(server)
}

fn refused(server: &Server, copy: &str) -> LogError {
    match NatsStore::open(server.config(copy)) {
        Err(OpenError::Log(error)) => error,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it opens"),
    }
}

/// A byte of a record in the server's files: whether the server leaves the message out
/// or cuts the log off there, the copy knows of it.
#[test]
fn an_altered_file_of_the_server_is_seen() {
    let Some(mut server) = written() else {
        return;
    };
    server.alter(b"topic-5", |bytes| bytes[6] ^= 1);
    match NatsStore::open(server.config("copy")) {
        Err(OpenError::Log(error)) => println!("seen: {error}"),
        Err(other) => panic!("{other}"),
        Ok((_, recovered)) => {
            assert_eq!(numbers(&recovered), (1..=10).collect::<Vec<_>>());
        }
    }
}

#[test]
fn a_missing_record_is_seen() {
    let Some(server) = written() else {
        return;
    };
    let mut config = server.info()["config"].clone();
    // What is kept from deleting by the server cannot be allowed again.
    config["name"] = json!("other");
    config["subjects"] = json!(["other"]);
    config["deny_delete"] = json!(false);
    let made = server.ask("$JS.API.STREAM.CREATE.other", &config);
    assert!(made["error"].is_null(), "{made}");
    let last = server.info()["state"]["last_seq"]
        .as_u64()
        .expect("a number");
    for seq in 1..=last {
        let message = server.message(seq);
        assert!(message["data"].is_string(), "{message}");
    }
    let denied = server.ask("$JS.API.STREAM.MSG.DELETE.dl-p-0", &json!({ "seq": 5 }));
    assert!(denied["error"].is_object(), "{denied}");
    // A purge up to the middle takes what nothing else has.
    let purged = server.ask("$JS.API.STREAM.PURGE.dl-p-0", &json!({ "seq": 5 }));
    assert_eq!(purged["success"], json!(true));
    let error = refused(&server, "another copy");
    assert!(
        matches!(error, LogError::NoBeginning { first: 4 }),
        "{error}"
    );
    let (_, recovered) = Open::new(server.config("copy"));
    assert_eq!(numbers(&recovered), (1..=10).collect::<Vec<_>>());
}

#[test]
fn a_log_that_was_emptied_is_seen_by_the_copy() {
    let Some(server) = written() else {
        return;
    };
    let purged = server.ask("$JS.API.STREAM.PURGE.dl-p-0", &json!({}));
    assert_eq!(purged["success"], json!(true));
    let gone = server.ask("$JS.API.STREAM.DELETE.dl-p-0", &json!({}));
    assert_eq!(gone["success"], json!(true));
    let error = refused(&server, "copy");
    assert_eq!(error, LogError::Lost { known: 10, last: 0 });
}

/// A copy that is another log's is made again.
#[test]
fn a_copy_that_does_not_fit_is_made_again() {
    let Some(server) = written() else {
        return;
    };
    let other = dunlin_store_nats::NatsConfig {
        partition: 1,
        ..server.config("other")
    };
    let (open, _) = Open::new(other);
    open.commit(20..=25);
    open.store.close();
    let (_, recovered) = Open::new(server.config("other"));
    assert_eq!(numbers(&recovered), (1..=10).collect::<Vec<_>>());
}
