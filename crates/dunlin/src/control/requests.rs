//! What the control plane does with a request, for whichever door it came through: one
//! function for each. Roles are checked and orders audited here.

use std::io::{self, Write};

use super::audit::Who;
use super::plane::{Outcome, Plane, absolute};
use super::values::{Code, Failure, Reply, Request, Role, Status};
use super::{
    bans, bearers, bridges, clients, cluster, drain, inventory, queues, rights, running, sessions,
    topics, users,
};
use crate::store::json::Writer;

impl Plane {
    /// Answers a request; an order is written to the audit log.
    #[must_use]
    pub fn answer(&self, who: &Who, request: &Request) -> Reply {
        let outcome = permitted(who, request).and_then(|()| self.carry_out(request));
        self.note(who, request, &outcome);
        outcome.unwrap_or_else(Reply::Failed)
    }

    /// Refuses what was not read, because the role of who sent it does not allow it.
    pub(super) fn refuse(&self, who: &Who, what: &str) -> Failure {
        let failure = not_allowed();
        self.audit.write_unread(who, what, &failure);
        failure
    }

    /// One function for each request.
    fn carry_out(&self, request: &Request) -> Outcome {
        match request {
            Request::Status {} => self.status(),
            Request::Clients { filter, page } => clients::list(self, filter, page),
            Request::Client { client_id } => clients::show(self, client_id),
            Request::Disconnect { client_id, why } => clients::disconnect(self, client_id, why),
            Request::Sessions { filter, page } => sessions::list(self, filter, page),
            Request::DeleteSession { client_id, why } => sessions::delete(self, client_id, why),
            Request::Subscriptions { client_id, page } => {
                topics::subscriptions(self, client_id, page)
            }
            Request::Receivers { topic, limit } => topics::receivers(self, topic, *limit),
            Request::Retained { filter, page } => topics::retained(self, filter, page),
            Request::RetainedMessage { topic } => topics::retained_message(self, topic),
            Request::ClearRetained { filter, page } => topics::clear_retained(self, filter, page),
            Request::Publish { message } => topics::publish(self, message),
            Request::Bridges {}
            | Request::Bridge { .. }
            | Request::AddBridge { .. }
            | Request::ChangeBridge { .. }
            | Request::RemoveBridge { .. }
            | Request::PauseBridge { .. }
            | Request::ResumeBridge { .. }
            | Request::ReconnectBridge { .. } => bridges::carry_out(self, request),
            Request::Queues { .. }
            | Request::Queue { .. }
            | Request::CreateQueue { .. }
            | Request::ChangeQueue { .. }
            | Request::DeleteQueue { .. }
            | Request::PeekQueue { .. }
            | Request::PurgeQueue { .. }
            | Request::MoveMessages { .. } => queues::carry_out(self, request),
            Request::Ban { whom, seconds, why } => bans::ban(self, whom, *seconds, why),
            Request::Unban { whom } => bans::unban(self, whom),
            Request::Bans { page } => bans::list(self, page),
            Request::Reload {} => running::reload(self),
            Request::LogLevel {} => running::level(self),
            Request::SetLogLevel { filter } => running::set_level(self, filter),
            Request::Limits {} => running::limits(self),
            Request::Configuration {} => inventory::configuration(self),
            Request::Listeners {} => inventory::listeners(self),
            Request::Certificates {} => inventory::certificates(self),
            Request::Cluster {} => Ok(cluster::reply(self.cluster.as_deref())),
            Request::Tokens { page } => bearers::list(self, page),
            Request::AddToken { name, role } => bearers::add(self, name, *role),
            Request::RemoveToken { name } => bearers::remove(self, name),
            Request::Users { .. }
            | Request::AddUser { .. }
            | Request::SetPassword { .. }
            | Request::RemoveUser { .. } => users::carry_out(self, request),
            Request::Rights {
                user,
                client_id,
                topic,
            } => rights::of_user(self, user.as_deref(), client_id, topic),
            Request::ClientRights { client_id, topic } => rights::of_client(self, client_id, topic),
            Request::Drain {
                rate,
                server,
                moved,
            } => drain::begin(self, *rate, server.as_deref(), *moved),
            Request::Backup {} => {
                let text = "this door has no way to send a copy of the store";
                Err(Failure::new(Code::BadRequest, text))
            }
        }
    }

    /// Writes a copy of the store as of this moment, as lines of JSON, the last of which
    /// may say why it is not whole. `stopping` ends it.
    ///
    /// # Errors
    /// What `out` says.
    pub fn backup(
        &self,
        who: &Who,
        mut out: impl Write,
        stopping: impl Fn() -> bool,
    ) -> io::Result<()> {
        match self.copy(who, || &mut out, stopping) {
            Ok(written) => written,
            Err(failure) => Writer::new(out)?.fail(failure.text),
        }
    }

    /// As [`Plane::backup`], to what `open` returns when the copy begins.
    ///
    /// # Errors
    /// There is no copy.
    pub(super) fn copy<W: Write>(
        &self,
        who: &Who,
        open: impl FnOnce() -> W,
        stopping: impl Fn() -> bool,
    ) -> Result<io::Result<()>, Failure> {
        let begun = permitted(who, &Request::Backup {}).and_then(|()| {
            let none = || Failure::new(Code::NotFound, "the broker keeps nothing on disk");
            let (_, snapshots) = self.store.as_ref().ok_or_else(none)?;
            let busy = |_| Failure::new(Code::Busy, "a copy is being made");
            let alone = self.copying.try_lock().map_err(busy)?;
            let view = snapshots.take();
            let view = view.map_err(|error| Failure::new(Code::Unavailable, error.to_string()))?;
            Ok((view, alone))
        });
        let (view, _alone) = match begun {
            Ok(begun) => begun,
            Err(failure) => {
                tracing::warn!(error = %failure, "a backup was not begun");
                self.note(who, &Request::Backup {}, &Err(failure.clone()));
                return Err(failure);
            }
        };
        Ok(Writer::new(open()).and_then(|mut lines| {
            let read = view.read(&mut |op| match stopping() {
                true => Err(io::Error::other("the broker stops")),
                false => lines.write(&op),
            });
            let outcome = match &read {
                Ok(_) => Ok(Reply::Done {
                    count: lines.lines(),
                    next: None,
                }),
                Err(error) => Err(Failure::new(Code::Unavailable, error.to_string())),
            };
            self.note(who, &Request::Backup {}, &outcome);
            match read {
                Ok(report) => {
                    tracing::info!(lines = lines.lines(), lost = report.lost(), "backup made");
                    lines.end(report.lost())
                }
                Err(error) => {
                    tracing::warn!(%error, "a backup was not finished");
                    lines.fail(error.to_string())
                }
            }
        }))
    }

    fn note(&self, who: &Who, request: &Request, outcome: &Outcome) {
        if request.role() > Role::Read {
            self.audit.write(who, request, outcome);
        }
    }

    fn status(&self) -> Outcome {
        let reports = self.shards.reports();
        let census = reports
            .iter()
            .fold(dunlin_broker::Census::default(), |sum, report| {
                sum.plus(&report.census)
            });
        let store = self.store.as_ref();
        Ok(Reply::Status(Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            uptime_seconds: self.started.elapsed().as_secs(),
            data_dir: absolute(self.config.data_dir.clone()).display().to_string(),
            store: store.map(|(path, _)| path.display().to_string()),
            draining: self.is_draining(),
            shards: self.shards.count(),
            shards_answering: reports.len(),
            connections: census.conns as u64,
            sessions: census.sessions as u64,
            subscriptions: census.subscribed as u64,
            retained: reports
                .iter()
                .map(|it| it.census.retained)
                .max()
                .unwrap_or(0) as u64,
        }))
    }
}

fn not_allowed() -> Failure {
    Failure::new(Code::Forbidden, "your role does not allow this")
}

fn permitted(who: &Who, request: &Request) -> Result<(), Failure> {
    match request.role() <= who.role {
        true => Ok(()),
        false => Err(not_allowed()),
    }
}
