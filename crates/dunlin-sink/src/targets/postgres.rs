//! PostgreSQL, and Timescale with it: rows go by binary COPY into the table, or, where a
//! row may be there already, into a temporary table and from there by INSERT ... ON
//! CONFLICT DO NOTHING, in one transaction.

mod encode;
mod tls;

use core::time::Duration;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::SinkExt as _;
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, NoTls};

use crate::config::{self, ConfigError, OnConflict};
use crate::shape::Shape;
use crate::target::{Encode, Failure, Rows, Step, Target};
use encode::{HEADER, Kind, RowEncoder, TRAILER};

/// Time for a connection.
const CONNECT_MAX: Duration = Duration::from_secs(10);

/// The temporary table of a session.
const STAGE: &str = "pg_temp.dunlin_sink";

/// A database.
pub(super) struct Postgres {
    config: tokio_postgres::Config,
    tls: Option<tls::MakeTls>,
    statements: Statements,
    shape: Arc<Shape>,
    /// What the columns were when the database was last asked.
    encoder: Option<Arc<RowEncoder>>,
    client: Option<Client>,
}

/// What is said to the database.
struct Statements {
    /// Has the types of the columns.
    describe: String,
    /// Makes the temporary table, if there is one.
    stage: Option<String>,
    copy: String,
    /// Moves rows out of it.
    insert: Option<String>,
}

impl Postgres {
    pub(super) fn new(config: &config::Postgres, shape: Arc<Shape>) -> Result<Self, ConfigError> {
        let wrong = |key, why: String| ConfigError::Value { key, why };
        let mut address: tokio_postgres::Config = config
            .url
            .parse()
            .map_err(|error| wrong("postgres.url", sentence(&error)))?;
        if let Some(file) = &config.password_file {
            address.password(config::secret(file)?);
        }
        if address.get_connect_timeout().is_none() {
            address.connect_timeout(CONNECT_MAX);
        }
        if address.get_application_name().is_none() {
            address.application_name("dunlin-sink");
        }
        let mode = match address.get_ssl_mode() {
            // The default: as the way to the server demands.
            SslMode::Prefer if is_local(&address) => SslMode::Disable,
            SslMode::Prefer => SslMode::Require,
            other => other,
        };
        address.ssl_mode(mode);
        let tls = match mode {
            SslMode::Disable => None,
            _ => {
                let options = config.tls.options().build();
                let options = options.map_err(|error| wrong("postgres.tls", error.to_string()))?;
                Some(tls::MakeTls::new(&options))
            }
        };
        let columns: Vec<_> = shape.columns().iter().map(|it| it.name.as_str()).collect();
        Ok(Self {
            config: address,
            tls,
            statements: Statements::new(&config.table, &columns, config.on_conflict),
            shape,
            encoder: None,
            client: None,
        })
    }

    async fn connect(&mut self) -> Result<Arc<dyn Encode>, Failure> {
        // A connection that failed is not used again.
        self.client = None;
        let client = match &self.tls {
            Some(tls) => start(self.config.connect(tls.clone()).await),
            None => start(self.config.connect(NoTls).await),
        };
        let client = client.map_err(|error| later(&error))?;
        // Stored means on disk, also where the server's default is another.
        let durable = "SELECT set_config('synchronous_commit', 'on', false) \
                       WHERE current_setting('synchronous_commit') = 'off'";
        let prepared = async {
            client.batch_execute(durable).await?;
            let table = client.prepare(&self.statements.describe).await?;
            if let Some(stage) = &self.statements.stage {
                client.batch_execute(stage).await?;
            }
            Ok::<_, tokio_postgres::Error>(table)
        };
        let table = prepared.await.map_err(|error| later(&error))?;
        let mut kinds = Vec::new();
        for column in table.columns() {
            let kind = Kind::of(column.type_()).ok_or_else(|| {
                Failure::Later(format!(
                    "column {} has the type {}, which the sink does not write: a view or a \
                     table with another type can take its place",
                    column.name(),
                    column.type_()
                ))
            })?;
            kinds.push(kind);
        }
        self.client = Some(client);
        if let Some(known) = self.encoder.as_ref().filter(|it| it.kinds() == kinds) {
            return Ok(Arc::clone(known) as _);
        }
        let encoder = Arc::new(RowEncoder::new(Arc::clone(&self.shape), kinds));
        self.encoder = Some(Arc::clone(&encoder));
        Ok(encoder)
    }

    async fn write(&mut self, rows: Rows) -> Result<(), Failure> {
        let Some(client) = &mut self.client else {
            return Err(Failure::Later("there is no connection".into()));
        };
        let written = match &self.statements.insert {
            None => copy(client, &self.statements.copy, rows).await,
            Some(insert) => {
                let moved = async {
                    let transaction = client.transaction().await?;
                    copy(transaction.client(), &self.statements.copy, rows).await?;
                    transaction.batch_execute(insert).await?;
                    transaction.commit().await
                };
                moved.await
            }
        };
        written.map_err(|error| failure(&error))
    }
}

async fn copy(client: &Client, statement: &str, rows: Rows) -> Result<(), tokio_postgres::Error> {
    let copy = client.copy_in(statement).await?;
    let mut copy = core::pin::pin!(copy);
    copy.feed(Bytes::from_static(HEADER)).await?;
    copy.feed(rows.bytes).await?;
    copy.feed(Bytes::from_static(TRAILER)).await?;
    copy.as_mut().finish().await?;
    Ok(())
}

/// Lets a connection run.
fn start<S, T>(
    connected: Result<(Client, tokio_postgres::Connection<S, T>), tokio_postgres::Error>,
) -> Result<Client, tokio_postgres::Error>
where
    tokio_postgres::Connection<S, T>:
        Future<Output = Result<(), tokio_postgres::Error>> + Send + 'static,
{
    let (client, connection) = connected?;
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(error = sentence(&error), "a connection to PostgreSQL ended");
        }
    });
    Ok(client)
}

impl Target for Postgres {
    fn open(&mut self) -> Step<'_, Arc<dyn Encode>> {
        Box::pin(self.connect())
    }

    fn store(&mut self, rows: Rows) -> Step<'_, ()> {
        Box::pin(self.write(rows))
    }
}

impl Statements {
    fn new(table: &str, columns: &[&str], on_conflict: OnConflict) -> Self {
        let table: Vec<String> = table.split('.').map(quoted).collect();
        let table = table.join(".");
        let columns: Vec<String> = columns.iter().map(|name| quoted(name)).collect();
        let columns = columns.join(", ");
        let copy = |into: &str| format!("COPY {into} ({columns}) FROM STDIN (FORMAT binary)");
        let describe = format!("SELECT {columns} FROM {table}");
        match on_conflict {
            OnConflict::Refuse => Self {
                copy: copy(&table),
                describe,
                stage: None,
                insert: None,
            },
            OnConflict::Nothing => Self {
                stage: Some(format!(
                    "CREATE TEMPORARY TABLE IF NOT EXISTS dunlin_sink ON COMMIT DELETE ROWS \
                     AS {describe} WITH NO DATA"
                )),
                copy: copy(STAGE),
                insert: Some(format!(
                    "INSERT INTO {table} ({columns}) SELECT {columns} FROM {STAGE} \
                     ON CONFLICT DO NOTHING"
                )),
                describe,
            },
        }
    }
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Whether what is said does not leave this machine.
fn is_local(config: &tokio_postgres::Config) -> bool {
    let named = config.get_hosts().iter().all(|host| match host {
        Host::Tcp(name) => {
            let addr: Option<core::net::IpAddr> = name.parse().ok();
            name == "localhost" || addr.is_some_and(|addr| addr.is_loopback())
        }
        #[cfg(unix)]
        Host::Unix(_) => true,
    });
    let addrs = config.get_hostaddrs();
    match addrs.is_empty() {
        true => named,
        false => addrs.iter().all(core::net::IpAddr::is_loopback),
    }
}

fn later(error: &tokio_postgres::Error) -> Failure {
    Failure::Later(sentence(error))
}

/// What a database says about rows is for good; what it says about itself, its tables or
/// who may use them is not.
fn failure(error: &tokio_postgres::Error) -> Failure {
    let why = sentence(error);
    match error.code() {
        Some(code) if is_refusal(code) => Failure::Refused(why),
        _ => Failure::Later(why),
    }
}

fn is_refusal(code: &SqlState) -> bool {
    // Data exceptions, integrity constraints, a view's check, and what triggers raise.
    let classes = ["22", "23", "44", "P0"];
    classes.iter().any(|class| code.code().starts_with(class))
}

/// An error with its causes.
fn sentence(error: &dyn core::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        let more = next.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = next.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_quoted() {
        let plain = Statements::new("s.my \"t\"", &["a", "B"], OnConflict::Refuse);
        let want = r#"COPY "s"."my ""t""" ("a", "B") FROM STDIN (FORMAT binary)"#;
        assert_eq!(plain.copy, want);
        let keyed = Statements::new("t", &["a"], OnConflict::Nothing);
        assert!(keyed.copy.contains("pg_temp.dunlin_sink"));
        let insert = keyed.insert.expect("two steps");
        assert!(insert.ends_with("ON CONFLICT DO NOTHING"), "{insert}");
    }

    #[test]
    fn only_what_is_said_about_rows_is_a_refusal() {
        for code in ["22P02", "22001", "23505", "23514", "44000", "P0001"] {
            assert!(is_refusal(&SqlState::from_code(code)), "{code}");
        }
        for code in [
            "08006", "42P01", "42501", "53100", "53300", "57P01", "40001",
        ] {
            assert!(!is_refusal(&SqlState::from_code(code)), "{code}");
        }
    }

    #[test]
    fn what_leaves_the_machine_is_encrypted() {
        for (url, local) in [
            ("host=/run/postgresql", true),
            ("postgresql://u@127.0.0.1/d", true),
            ("postgresql://u@[::1]/d", true),
            ("host=localhost", true),
            ("host=db.example", false),
            ("host=localhost hostaddr=192.0.2.1", false),
            ("host=localhost,db.example", false),
        ] {
            let config: tokio_postgres::Config = url.parse().expect(url);
            assert_eq!(is_local(&config), local, "{url}");
        }
    }
}
