//! What the command line does not have, against a server of AMQP 1.0 by others:
//! `peer transaction|dynamic URL QUEUE [CAFILE]`. It fails with what was not so.

use core::error::Error;
use core::time::Duration;

use dunlin_amqp_client::{Client, Outcome, Receiver, TlsOptions};

/// Longest that one of them takes.
const TIME_MAX: Duration = Duration::from_secs(30);

type Failure = Box<dyn Error>;

fn expect(found: &str, wanted: &str) -> Result<(), Failure> {
    match found == wanted {
        true => Ok(()),
        false => Err(format!("found {found:?}, wanted {wanted:?}").into()),
    }
}

/// The payloads of all messages that there are, which stay with this link.
async fn waiting(receiver: &mut Receiver) -> Result<String, Failure> {
    receiver.drain().await?;
    let mut payloads = Vec::new();
    while let Some(delivery) = receiver.try_recv() {
        payloads.push(String::from_utf8_lossy(&delivery.payload()).into_owned());
        delivery.release().await?;
    }
    Ok(payloads.join(" "))
}

/// What is rolled back was never sent and never taken, what is committed was.
async fn transaction(client: &Client, queue: &str) -> Result<(), Failure> {
    let controller = client.controller().await?;
    let sender = client.sender(queue).attach().await?;
    let begun = controller.declare().await?;
    let outcome = begun.send(&sender, "rolled-back").await?.await?;
    if outcome != Outcome::Accepted {
        return Err(format!("rolled-back: {outcome:?}").into());
    }
    begun.rollback().await?;
    let begun = controller.declare().await?;
    for payload in ["one", "two"] {
        let outcome = begun.send(&sender, payload).await?.await?;
        if outcome != Outcome::Accepted {
            return Err(format!("{payload}: {outcome:?}").into());
        }
    }
    let mut receiver = client.receiver(queue).attach().await?;
    expect(&waiting(&mut receiver).await?, "")?;
    begun.commit().await?;
    let first = receiver.recv().await?;
    expect(&String::from_utf8_lossy(&first.payload()), "one")?;
    let begun = controller.declare().await?;
    let accepted = begun.accept(&first);
    begun.commit().await?;
    accepted.await?;
    receiver.close().await;
    let mut receiver = client.receiver(queue).attach().await?;
    expect(&waiting(&mut receiver).await?, "two")?;
    Ok(())
}

/// A node that the server makes, by the name that it gives it.
async fn dynamic(client: &Client) -> Result<(), Failure> {
    let mut receiver = client.dynamic_receiver().attach().await?;
    let address = receiver.address().ok_or("a node without an address")?;
    let sender = client.sender(&address).attach().await?;
    let outcome = sender.send("x").await?;
    if outcome != Outcome::Accepted {
        return Err(format!("{outcome:?}").into());
    }
    let delivery = receiver.recv().await?;
    expect(&String::from_utf8_lossy(&delivery.payload()), "x")?;
    delivery.accept().await?;
    Ok(())
}

async fn run(arguments: &[&str]) -> Result<(), Failure> {
    let (what, url, queue, ca) = match arguments {
        [what, url, queue] => (*what, *url, *queue, None),
        [what, url, queue, ca] => (*what, *url, *queue, Some(*ca)),
        _ => return Err("peer transaction|dynamic URL QUEUE [CAFILE]".into()),
    };
    let mut builder = Client::builder(url)?;
    if let Some(ca) = ca {
        builder = builder.tls(TlsOptions::new().ca_file(ca));
    }
    let client = builder.connect().await?;
    match what {
        "transaction" => transaction(&client, queue).await?,
        "dynamic" => dynamic(&client).await?,
        other => return Err(format!("{other} is not known").into()),
    }
    client.close().await;
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match tokio::time::timeout(TIME_MAX, run(&arguments)).await {
        Ok(done) => done,
        Err(_) => Err(format!("no end within {} s", TIME_MAX.as_secs()).into()),
    }
}
