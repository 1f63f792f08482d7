//! Users of the password file: listed, added, changed, taken away. Passwords come in and
//! never leave.

use std::io;
use std::path::Path;

use super::plane::{Outcome, Plane, checked};
use super::topics::bad;
use super::values::{Code, Failure, Page, PageOf, Reply, Request, User};
use crate::auth::passwords::{Change, ITERATIONS_DEFAULT, changed};
use crate::causes::sentence;
use crate::files::{self, Access};

/// Longest password, as MQTT limits it.
const PASSWORD_BYTES_MAX: usize = 65_535;

/// One function for each request about users.
pub(super) fn carry_out(plane: &Plane, request: &Request) -> Outcome {
    match request {
        Request::Users { page } => list(plane, page),
        Request::AddUser { name, password } => change(plane, name, Some(password), false),
        Request::SetPassword { name, password } => change(plane, name, Some(password), true),
        Request::RemoveUser { name } => change(plane, name, None, true),
        _ => Err(bad("this is not about users")),
    }
}

/// Users of the password file.
fn list(plane: &Plane, page: &PageOf) -> Outcome {
    let limit = checked(page)?;
    let access = plane.reloader.access();
    let users = access.users.as_ref().ok_or_else(no_file)?;
    let after = page.after.as_deref().unwrap_or("");
    let names = users.keys().filter(|name| name.as_str() > after);
    let rows: Vec<User> = names
        .take(limit)
        .map(|name| User {
            name: name.to_string(),
        })
        .collect();
    let next = rows.last().filter(|_| rows.len() == limit);
    let next = next.map(|user| user.name.clone());
    Ok(Reply::Users(Page { rows, next }))
}

fn no_file() -> Failure {
    let text = "there is no password file (auth.password_file)";
    Failure::new(Code::NotFound, text)
}

/// Gives a user a password, or takes it away: one who is `known`, or one who is new. What
/// the broker cannot read afterwards is put back as it was.
fn change(plane: &Plane, name: &str, password: Option<&str>, known: bool) -> Outcome {
    if password.is_some_and(|it| it.is_empty() || it.len() > PASSWORD_BYTES_MAX) {
        return Err(bad("a password has 1 to 65535 bytes"));
    }
    let path = plane.config.auth.password_file.as_deref();
    let path = path.ok_or_else(no_file)?;
    // One change after the other, and none while a reload has read the file and has not
    // brought it into force.
    let _alone = plane.in_force();
    let old = std::fs::read_to_string(path).map_err(|error| failed(path, "read", &error))?;
    let is_line = |line: &str| line.split_once(':').is_some_and(|(user, _)| user == name);
    match (old.lines().any(is_line), known) {
        (true, false) => {
            let text = format!("there is a user {name:?} already");
            return Err(Failure::new(Code::Conflict, text));
        }
        (false, true) => {
            let text = format!("there is no user {name:?}");
            return Err(Failure::new(Code::NotFound, text));
        }
        _ => {}
    }
    let wanted = match password {
        None => Change::Delete,
        Some(password) => Change::Set {
            password: password.as_bytes(),
            iterations: ITERATIONS_DEFAULT,
        },
    };
    let new = changed(path, Some(&old), name, wanted).map_err(|error| bad(sentence(&error)))?;
    write(path, &new)?;
    if let Err(error) = plane.reloader.reload_users() {
        write(path, &old)?;
        return Err(bad(sentence(&error)));
    }
    Ok(Reply::Done {
        count: 1,
        next: None,
    })
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    let written = files::replace(path, text.as_bytes(), Access::Private);
    written.map_err(|error| failed(path, "write", &error))
}

fn failed(path: &Path, verb: &str, error: &io::Error) -> Failure {
    let text = format!("cannot {verb} {}: {error}", path.display());
    Failure::new(Code::Unavailable, text)
}
