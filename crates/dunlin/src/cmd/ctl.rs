//! `dunlin ctl`: sees and steers a running broker over its control socket.

mod args;
mod bridges;
mod columns;
mod queues;
mod table;

use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::bail;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use clap::Args;
use serde::Serialize;
use serde_json::Value;

use super::passwd::read_password;
use crate::control::caller::{Caller, socket_of};
use crate::control::values::{
    ClientFilter, Code, Failure, Message, PageOf, ROWS_MAX, Reply, Request, Role, SessionFilter,
    Setting,
};
use args::{Acl, Client, Command, OneSession, Retained, Token, Topic, User};

use columns::{
    BANS, CERTIFICATES, CLIENTS, CLUSTER, CONFIGURATION, LISTENERS, RECEIVERS, RETAINED, RIGHTS,
    SESSIONS, SETTINGS, SUBSCRIPTIONS, TOKENS, USERS,
};
use table::{Column, Table};

/// The exit code where there is no such thing as is asked for.
const NOT_FOUND: u8 = 2;

/// Time between two questions whether the broker is still there.
const WAIT: core::time::Duration = core::time::Duration::from_millis(200);

/// See and steer a running broker.
///
/// It is asked on its control socket: that of the configuration file, or else of the
/// broker that was started in this directory, or else of the service. Exit codes: 0 it
/// is done; 1 it is not, or no broker is running; 2 there is no such thing.
#[derive(Debug, Args)]
pub(super) struct Ctl {
    /// The control socket.
    #[arg(long, value_name = "PATH", global = true)]
    socket: Option<PathBuf>,
    /// Configuration file of the broker.
    #[arg(
        short,
        long,
        value_name = "FILE",
        global = true,
        conflicts_with = "socket"
    )]
    config: Option<PathBuf>,
    /// Print JSON, one object or row a line.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

impl Ctl {
    /// Runs the command.
    ///
    /// # Errors
    /// No broker is running, or it refuses.
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let socket = match self.socket {
            Some(socket) => socket,
            None => socket_of(self.config.as_deref())?,
        };
        if let Command::Backup { output } = &self.command {
            return super::store::backup(&socket, None, output.as_deref());
        }
        let broker = Caller::connect(&socket)?;
        let mut session = Session {
            broker,
            json: self.json,
        };
        match session.run(self.command) {
            Ok(()) => Ok(ExitCode::SUCCESS),
            Err(error) => match error.downcast_ref::<Failure>() {
                Some(failure) if failure.code == Code::NotFound => {
                    writeln!(io::stderr(), "dunlin: {failure}")?;
                    Ok(ExitCode::from(NOT_FOUND))
                }
                _ => Err(error),
            },
        }
    }
}

/// A connection, and how answers are shown.
struct Session {
    broker: Caller,
    json: bool,
}

impl Session {
    fn run(&mut self, command: Command) -> anyhow::Result<()> {
        match command {
            Command::Status => self.show(&Request::Status {}),
            Command::Clients { filter, limit } => {
                let filter = ClientFilter::from(filter);
                self.list(&CLIENTS, limit, |page| Request::Clients {
                    filter: filter.clone(),
                    page,
                })
            }
            Command::Client(Client::Show { id }) | Command::Session(OneSession::Show { id }) => {
                self.show(&Request::Client { client_id: id })
            }
            Command::Sessions { filter, limit } => {
                let filter = SessionFilter::from(filter);
                self.list(&SESSIONS, limit, |page| Request::Sessions {
                    filter: filter.clone(),
                    page,
                })
            }
            Command::Subscriptions { id, limit } => {
                self.list(&SUBSCRIPTIONS, limit, |page| Request::Subscriptions {
                    client_id: id.clone(),
                    page,
                })
            }
            Command::Topic(Topic::Who { topic, limit }) => self.who(topic, limit),
            Command::Retained(command) => self.retained(command),
            Command::Bridge(command) => command.run(self),
            Command::Queue(command) => command.run(self),
            Command::LogLevel { filter } => {
                let request = match filter {
                    Some(filter) => Request::SetLogLevel { filter },
                    None => Request::LogLevel {},
                };
                self.show(&request)
            }
            Command::Limits => self.list(&SETTINGS, None, |_| Request::Limits {}),
            Command::Configuration { changed } => self.configuration(changed),
            Command::Listeners => self.list(&LISTENERS, None, |_| Request::Listeners {}),
            Command::Certificates => self.list(&CERTIFICATES, None, |_| Request::Certificates {}),
            Command::Cluster => self.list(&CLUSTER, None, |_| Request::Cluster {}),
            Command::Token(Token::List) => {
                self.list(&TOKENS, None, |page| Request::Tokens { page })
            }
            Command::Users | Command::User(User::List) => {
                self.list(&USERS, None, |page| Request::Users { page })
            }
            Command::Acl(Acl::Explain {
                user,
                topic,
                client,
            }) => {
                let client_id = client.unwrap_or_default();
                let request = match user {
                    None => Request::ClientRights { client_id, topic },
                    Some(user) => Request::Rights {
                        user: Some(user).filter(|user| user != "-"),
                        client_id,
                        topic,
                    },
                };
                self.list(&RIGHTS, None, |_| request.clone())
            }
            Command::Bans => self.list(&BANS, None, |page| Request::Bans { page }),
            order => self.order_of(order),
        }
    }

    /// What changes something.
    fn order_of(&mut self, command: Command) -> anyhow::Result<()> {
        match command {
            Command::Session(OneSession::Delete { id, why }) => {
                let request = Request::DeleteSession { client_id: id, why };
                self.order(&request, "sessions deleted")
            }
            Command::Publish {
                topic,
                message,
                qos,
                retain,
                expiry,
                content_type,
            } => self.publish(Message {
                topic,
                payload: message,
                payload_base64: None,
                qos,
                retain,
                content_type,
                expiry_seconds: expiry,
            }),
            Command::Disconnect { id, why } => {
                let request = Request::Disconnect { client_id: id, why };
                self.order(&request, "connections ended")
            }
            Command::Ban { whom, lasts, why } => {
                let whom = whom.whom()?;
                let seconds = lasts.map(|lasts| lasts.0.as_secs());
                let request = Request::Ban { whom, seconds, why };
                self.order(&request, "connections ended")
            }
            Command::Unban { whom } => {
                let whom = whom.whom()?;
                self.order(&Request::Unban { whom }, "bans ended")
            }
            Command::Reload => self.reload(),
            Command::Token(Token::Add { name, role }) => self.add_token(name, role.into()),
            Command::User(User::Add { name }) => {
                let password = read_password()?;
                self.order(&Request::AddUser { name, password }, "users added")
            }
            Command::User(User::Passwd { name }) => {
                let password = read_password()?;
                self.order(&Request::SetPassword { name, password }, "users changed")
            }
            Command::User(User::Remove { name }) => {
                self.order(&Request::RemoveUser { name }, "users removed")
            }
            Command::Token(Token::Remove { name }) => {
                self.order(&Request::RemoveToken { name }, "tokens removed")
            }
            Command::Drain {
                rate,
                server,
                moved,
            } => {
                let request = Request::Drain {
                    rate,
                    server,
                    moved,
                };
                self.order(&request, "connections to end")?;
                self.wait()
            }
            // Questions are answered above; a backup needs no table, and was made before.
            _ => Ok(()),
        }
    }

    fn reload(&mut self) -> anyhow::Result<()> {
        match self.broker.ask(&Request::Reload {})? {
            reply if self.json => line(&serde_json::to_value(reply)?),
            Reply::Reloaded { changed, restart } => {
                let mut out = io::stdout().lock();
                writeln!(out, "in force: {}", changed.join(", "))?;
                if !restart.is_empty() {
                    writeln!(out, "needs a restart: {}", restart.join(", "))?;
                }
                Ok(())
            }
            _ => bail!("the broker's answer is not understood"),
        }
    }

    fn add_token(&mut self, name: String, role: Role) -> anyhow::Result<()> {
        match self.broker.ask(&Request::AddToken { name, role })? {
            Reply::Token { token } if self.json => line(&serde_json::json!({ "token": token })),
            Reply::Token { token } => Ok(writeln!(io::stdout(), "{token}")?),
            _ => bail!("the broker's answer is not understood"),
        }
    }

    fn configuration(&mut self, changed: bool) -> anyhow::Result<()> {
        let Reply::Settings(page) = self.broker.ask(&Request::Configuration {})? else {
            bail!("the broker's answer is not understood");
        };
        let is_wanted = |it: &Setting| !changed || !it.default || it.file.is_some();
        let rows = values(page.rows.into_iter().filter(is_wanted).collect())?;
        match self.json {
            true => rows.iter().try_for_each(line),
            false => Ok(Table::new(&CONFIGURATION).print(&mut io::stdout().lock(), &rows)?),
        }
    }

    /// Waits until the broker has stopped.
    fn wait(&mut self) -> anyhow::Result<()> {
        while self.broker.status().is_ok() {
            std::thread::sleep(WAIT);
        }
        match self.json {
            true => Ok(()),
            false => Ok(writeln!(io::stdout(), "the broker has stopped")?),
        }
    }

    fn who(&mut self, topic: String, limit: usize) -> anyhow::Result<()> {
        let Reply::Receivers {
            rows,
            count,
            groups_left_out,
        } = self.broker.ask(&Request::Receivers { topic, limit })?
        else {
            bail!("the broker's answer is not understood");
        };
        let shown = rows.len() as u64;
        let rows = values(rows)?;
        match self.json {
            true => rows.iter().try_for_each(line)?,
            false => Table::new(&RECEIVERS).print(&mut io::stdout().lock(), &rows)?,
        }
        if count > shown {
            writeln!(io::stderr(), "{} more are not shown", count - shown)?;
        }
        if groups_left_out > 0 {
            let more = "more shared subscriptions match; their members are not shown or counted";
            writeln!(io::stderr(), "{groups_left_out} {more}")?;
        }
        Ok(())
    }

    fn retained(&mut self, command: Retained) -> anyhow::Result<()> {
        match command {
            Retained::List { filter, limit } => {
                self.list(&RETAINED, limit, |page| Request::Retained {
                    filter: filter.clone(),
                    page,
                })
            }
            Retained::Get { topic } => self.show(&Request::RetainedMessage { topic }),
            Retained::Clear { filter } => {
                let (mut count, mut after) = (0, None);
                loop {
                    let limit = ROWS_MAX;
                    let request = Request::ClearRetained {
                        filter: filter.clone(),
                        page: PageOf { after, limit },
                    };
                    let Reply::Done { count: more, next } = self.broker.ask(&request)? else {
                        bail!("the broker's answer is not understood");
                    };
                    count += more;
                    match next {
                        None => return self.done(count, "retained messages removed"),
                        next => after = next,
                    }
                }
            }
        }
    }

    fn publish(&mut self, mut message: Message) -> anyhow::Result<()> {
        if message.payload.is_none() {
            let mut bytes = Vec::new();
            io::stdin().lock().read_to_end(&mut bytes)?;
            message.payload_base64 = Some(BASE64.encode(bytes));
        }
        match self.broker.ask(&Request::Publish { message })? {
            reply if self.json => line(&serde_json::to_value(reply)?),
            Reply::Published { matched: true } => Ok(writeln!(io::stdout(), "published")?),
            Reply::Published { .. } => Ok(writeln!(io::stdout(), "published; it has no receiver")?),
            _ => bail!("the broker's answer is not understood"),
        }
    }

    /// Shows one thing, a line for each thing that is known of it.
    fn show(&mut self, request: &Request) -> anyhow::Result<()> {
        let thing = match self.broker.ask(request)? {
            Reply::Status(status) => serde_json::to_value(status)?,
            Reply::Client(client) => serde_json::to_value(client)?,
            Reply::Message(message) => serde_json::to_value(message)?,
            Reply::Queue(queue) => serde_json::to_value(queue)?,
            Reply::Bridge(bridge) => serde_json::to_value(bridge)?,
            Reply::LogLevel { filter } => serde_json::json!({ "level": filter }),
            _ => bail!("the broker's answer is not understood"),
        };
        match self.json {
            true => line(&thing),
            false => Ok(table::show(&mut io::stdout().lock(), &thing)?),
        }
    }

    /// Does something that counts what it did.
    fn order(&mut self, request: &Request, what: &str) -> anyhow::Result<()> {
        match self.broker.ask(request)? {
            Reply::Done { count, .. } => self.done(count, what),
            _ => bail!("the broker's answer is not understood"),
        }
    }

    /// Says how many things there were, which are called `what` in the plural.
    fn done(&self, count: u64, what: &str) -> anyhow::Result<()> {
        match self.json {
            true => line(&serde_json::json!({ "count": count })),
            false => Ok(writeln!(io::stdout(), "{}", counted(count, what))?),
        }
    }

    /// Lists rows, page by page.
    fn list(
        &mut self,
        columns: &'static [Column],
        limit: Option<usize>,
        request: impl Fn(PageOf) -> Request,
    ) -> anyhow::Result<()> {
        let mut left = limit.unwrap_or(usize::MAX);
        let (mut after, mut table) = (None, Table::new(columns));
        while left > 0 {
            let limit = left.min(ROWS_MAX);
            let reply = self.broker.ask(&request(PageOf { after, limit }))?;
            let (rows, next) = rows(reply)?;
            left = left.saturating_sub(rows.len());
            match self.json {
                true => rows.iter().try_for_each(line)?,
                false => table.print(&mut io::stdout().lock(), &rows)?,
            }
            match next {
                None => break,
                next => after = next,
            }
        }
        Ok(())
    }
}

/// What a page of any kind has.
fn rows(reply: Reply) -> anyhow::Result<(Vec<Value>, Option<String>)> {
    match reply {
        Reply::Clients(page) => Ok((values(page.rows)?, page.next)),
        Reply::Subscriptions(page) => Ok((values(page.rows)?, page.next)),
        Reply::Retained(page) => Ok((values(page.rows)?, page.next)),
        Reply::Bridges(page) => Ok((values(page.rows)?, page.next)),
        Reply::Queues(page) => Ok((values(page.rows)?, page.next)),
        Reply::Cluster(page) => Ok((values(page.rows)?, page.next)),
        Reply::Messages(page) => Ok((values(page.rows)?, page.next)),
        Reply::Bans(page) => Ok((values(page.rows)?, page.next)),
        Reply::Settings(page) => Ok((values(page.rows)?, page.next)),
        Reply::Users(page) => Ok((values(page.rows)?, page.next)),
        Reply::Rights(page) => Ok((values(page.rows)?, page.next)),
        Reply::Listeners(page) => Ok((values(page.rows)?, page.next)),
        Reply::Certificates(page) => Ok((values(page.rows)?, page.next)),
        Reply::Tokens(page) => Ok((values(page.rows)?, page.next)),
        _ => bail!("the broker's answer is not understood"),
    }
}

fn values<T: Serialize>(rows: Vec<T>) -> Result<Vec<Value>, serde_json::Error> {
    rows.into_iter().map(serde_json::to_value).collect()
}

/// A count of what is named in the plural.
fn counted(count: u64, what: &str) -> String {
    match count {
        1 => format!("1 {}", what.replacen("s ", " ", 1)),
        _ => format!("{count} {what}"),
    }
}

fn line(value: &Value) -> anyhow::Result<()> {
    Ok(writeln!(io::stdout(), "{value}")?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_no_plural() {
        assert_eq!(counted(0, "messages moved"), "0 messages moved");
        assert_eq!(counted(1, "messages moved"), "1 message moved");
        assert_eq!(counted(2, "messages moved"), "2 messages moved");
    }
}
