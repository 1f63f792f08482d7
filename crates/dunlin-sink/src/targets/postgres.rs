//! PostgreSQL, and Timescale with it: rows go by binary COPY into the table, or, where a
//! row is there already and may be, into a temporary table and from there by INSERT ... ON
//! CONFLICT DO NOTHING. Either is a transaction, and stored is what it has committed.

mod direct;
mod encode;
mod tls;

use core::time::Duration;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::SinkExt as _;
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, NoTls, Statement};

use crate::config::{self, ConfigError, OnConflict};
use crate::shape::Shape;
use crate::target::{Encode, Failure, Rows, Step, Target};
use direct::Direct;
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
    session: Option<Session>,
    /// Which way rows go where one may be there already.
    direct: Direct,
}

/// A connection, with what is said for each batch prepared.
struct Session {
    client: Client,
    copy: Statement,
    stage: Option<Statement>,
}

/// What is said to the database.
struct Statements {
    /// Has the types of the columns.
    describe: String,
    /// Writes rows into the table.
    copy: String,
    /// Where a row may be there already.
    staged: Option<Staged>,
}

/// The way over the temporary table.
struct Staged {
    /// Makes it.
    make: String,
    /// Writes rows into it.
    copy: String,
    /// Moves them out of it.
    insert: String,
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
            session: None,
            direct: Direct::new(),
        })
    }

    async fn connect(&mut self) -> Result<Arc<dyn Encode>, Failure> {
        // A connection that failed is not used again.
        self.session = None;
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
            let copy = client.prepare(&self.statements.copy).await?;
            let stage = match &self.statements.staged {
                Some(staged) => {
                    client.batch_execute(&staged.make).await?;
                    Some(client.prepare(&staged.copy).await?)
                }
                None => None,
            };
            Ok::<_, tokio_postgres::Error>((table, copy, stage))
        };
        let (table, copy, stage) = prepared.await.map_err(|error| later(&error))?;
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
        self.session = Some(Session {
            client,
            copy,
            stage,
        });
        if let Some(known) = self.encoder.as_ref().filter(|it| it.kinds() == kinds) {
            return Ok(Arc::clone(known) as _);
        }
        let encoder = Arc::new(RowEncoder::new(Arc::clone(&self.shape), kinds));
        self.encoder = Some(Arc::clone(&encoder));
        Ok(encoder)
    }

    async fn write(&mut self, rows: Rows) -> Result<(), Failure> {
        let Some(session) = &mut self.session else {
            return Err(Failure::Later("there is no connection".into()));
        };
        let Session {
            client,
            copy,
            stage,
        } = session;
        let staged = stage.as_ref().zip(self.statements.staged.as_ref());
        let Some((stage, Staged { insert, .. })) = staged else {
            let stored = store(client, copy, rows, None).await;
            return stored.map_err(|error| failure(&error));
        };
        if self.direct.take() {
            match store(client, copy, rows.clone(), None).await {
                Ok(()) => {
                    self.direct.succeeded();
                    return Ok(());
                }
                // A key that is there, or something that COPY does not do, such as to write
                // into a view: the other way finds out, and has the last word.
                Err(error) if error.as_db_error().is_some() => self.direct.failed(),
                Err(error) => return Err(failure(&error)),
            }
        }
        let stored = store(client, stage, rows, Some(insert)).await;
        stored.map_err(|error| failure(&error))
    }
}

/// Writes rows, and says what is to be said after them, in one transaction. Its end is an
/// answer of its own: a COPY without one is complete before the database checks what is
/// deferred to the commit, and what it says then is not heard.
async fn store(
    client: &mut Client,
    statement: &Statement,
    rows: Rows,
    then: Option<&str>,
) -> Result<(), tokio_postgres::Error> {
    let transaction = client.transaction().await?;
    copy(transaction.client(), statement, rows).await?;
    if let Some(then) = then {
        transaction.batch_execute(then).await?;
    }
    transaction.commit().await
}

async fn copy(
    client: &Client,
    statement: &Statement,
    rows: Rows,
) -> Result<(), tokio_postgres::Error> {
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
        let staged = match on_conflict {
            OnConflict::Refuse => None,
            OnConflict::Nothing => Some(Staged {
                make: format!(
                    "CREATE TEMPORARY TABLE IF NOT EXISTS dunlin_sink ON COMMIT DELETE ROWS \
                     AS {describe} WITH NO DATA"
                ),
                copy: copy(STAGE),
                insert: format!(
                    "INSERT INTO {table} ({columns}) SELECT {columns} FROM {STAGE} \
                     ON CONFLICT DO NOTHING"
                ),
            }),
        };
        Self {
            copy: copy(&table),
            describe,
            staged,
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
        assert!(keyed.copy.starts_with(r#"COPY "t" ("#));
        let Staged { copy, insert, .. } = keyed.staged.expect("two steps");
        assert!(copy.contains("pg_temp.dunlin_sink"), "{copy}");
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
