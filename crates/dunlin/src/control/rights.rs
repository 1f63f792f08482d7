//! What clients may do, and what decides: of a user by the rules alone, of a client that
//! is here by what vouched for it, too.

use dunlin_base::{Text, topic};
use dunlin_broker::access::{Acl, Action, Grounds};
use dunlin_broker::control::values as shard;

use super::clients::unknown;
use super::plane::{Outcome, Plane, silent};
use super::topics::bad;
use super::values::{Page, Reply, Right};

/// What a client with a session may do with a topic or filter.
pub(super) fn of_client(plane: &Plane, client_id: &str, name: &str) -> Outcome {
    topic::validate_filter(name).map_err(|error| bad(format!("{name:?}: {error}")))?;
    let request = shard::Request::Rights {
        client_id: Text::from(client_id),
        topic: Text::from(name),
    };
    let mut is_silent = false;
    for (_, reply) in plane.shards.control_all(&request) {
        match reply {
            Some(shard::Reply::Rights(Some(rows))) => {
                let rows = rows.into_iter().map(right).collect();
                return Ok(Reply::Rights(Page { rows, next: None }));
            }
            reply => is_silent |= reply.is_none(),
        }
    }
    Err(match is_silent {
        true => silent(),
        false => unknown(client_id),
    })
}

fn right(view: shard::RightView) -> Right {
    let action = match view.action {
        Action::Subscribe => "subscribe",
        Action::Publish => "publish",
        Action::Receive => "receive",
    };
    let verb = match view.allowed {
        true => "allows",
        false => "denies",
    };
    let why = match (view.grounds, view.allowed) {
        (Grounds::Reserved, _) => "only the broker publishes there".to_owned(),
        (Grounds::Line(line), _) => format!("line {line} {verb} it"),
        (Grounds::Own(rule), _) => format!("a rule that the client brought {verb} it: {rule}"),
        (Grounds::Asked, _) => format!("the server of auth.topics {verb} it"),
        (Grounds::Unasked, _) => "the server of auth.topics decides when it is asked".to_owned(),
        (Grounds::Part, _) => {
            "a part of it is allowed; messages that are not are left out".to_owned()
        }
        (Grounds::Standing, true) => "it is of the broker itself".to_owned(),
        (Grounds::Standing, false) => "its user is gone, or not proved yet".to_owned(),
        (_, true) => "nothing is about it".to_owned(),
        (_, false) => "no line allows it, and no rule that the client brought".to_owned(),
    };
    Right {
        action: action.to_owned(),
        allowed: view.allowed,
        why,
    }
}

/// What the rules let a client do with a topic or filter, and which line says so.
pub(super) fn of_user(plane: &Plane, user: Option<&str>, client_id: &str, name: &str) -> Outcome {
    topic::validate_filter(name).map_err(|error| bad(format!("{name:?}: {error}")))?;
    let access = plane.reloader.access();
    let name = Text::from(name);
    let is_filter = topic::validate_name(&name).is_err();
    let actions = [
        ("subscribe", Action::Subscribe),
        ("publish", Action::Publish),
        ("receive", Action::Receive),
    ];
    let asked = actions
        .into_iter()
        .filter(|(_, action)| !is_filter || *action == Action::Subscribe);
    // Where no line decides.
    let open = |asked: Action, otherwise: Result<String, String>| match access.asks {
        None => otherwise,
        Some(_) if asked == Action::Receive => {
            Ok("no line is about it, and no server is asked".to_owned())
        }
        Some(_) => Err("no line is about it: the server of auth.topics decides".to_owned()),
    };
    let filters = plane.config.auth.filter_subscriptions && access.asks.is_none();
    let in_part = |asked: Action, acl: &Acl| {
        let is_filtered = filters && asked == Action::Subscribe && !name.starts_with("$share/");
        is_filtered && acl.allows_part(user, client_id, &name)
    };
    let rows = asked.map(|(action, asked)| {
        let decided = match &access.acl {
            _ if asked == Action::Publish && dunlin_broker::access::is_reserved(&name) => {
                Err("only the broker publishes there".to_owned())
            }
            None => open(
                asked,
                Ok("there is no access list (auth.acl_file)".to_owned()),
            ),
            Some(acl) => match acl.decide(user, client_id, asked, &name) {
                Ok(line) => Ok(format!("line {line} allows it")),
                Err(_) if in_part(asked, acl) => {
                    Ok("lines allow a part of it; what they do not is left out".to_owned())
                }
                Err(Some(line)) => Err(format!("line {line} denies it")),
                Err(None) => open(asked, Err("no line allows it".to_owned())),
            },
        };
        let allowed = decided.is_ok();
        let (Ok(why) | Err(why)) = decided;
        let action = action.to_owned();
        Right {
            action,
            allowed,
            why,
        }
    });
    let rows = rows.collect();
    Ok(Reply::Rights(Page { rows, next: None }))
}
