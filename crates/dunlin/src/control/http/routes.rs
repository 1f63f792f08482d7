//! Which resources there are: the one table of what is answered and what the OpenAPI
//! document says.

use schemars::{JsonSchema, Schema, SchemaGenerator};

use super::input::{Input, decode};
use super::orders::{self, Made};
use crate::control::values::{
    Ban, Bearer, Bridge, Certificate, Client, ClusterNode, Listening, Message, Page, PageOf, Queue,
    QueueOptions, QueuedMessage, RetainedTopic, Right, Role, Setting, Status, Subscription, User,
};
use crate::metrics::history::{History, Sample};

/// What all resources are below.
pub(super) const BASE: &str = "/api/v1";

/// Writes the schema of a type.
pub(super) type Describe = fn(&mut SchemaGenerator) -> Schema;

/// A resource with a method.
#[derive(Debug)]
pub(super) struct Route {
    pub(super) method: &'static str,
    /// Below [`BASE`], with at most one name in braces.
    pub(super) path: &'static str,
    /// Which role it needs; none: no token.
    pub(super) role: Option<Role>,
    pub(super) summary: &'static str,
    pub(super) query: Describe,
    pub(super) body: Option<Describe>,
    pub(super) answer: Answer,
    pub(super) act: Act,
}

/// What is answered.
#[derive(Clone, Copy, Debug)]
pub(super) enum Answer {
    /// A type.
    Of(Describe),
    /// The fields of this variant of the plane's replies.
    Reply(&'static str),
    /// Lines of JSON.
    Lines,
    /// The OpenAPI document.
    Document,
}

/// What is done.
#[derive(Clone, Copy, Debug)]
pub(super) enum Act {
    /// The control plane is asked.
    Ask(fn(&Input<'_>) -> Made),
    /// Who asks.
    WhoAmI,
    /// The last hour.
    History,
    /// Counters as they are.
    Totals,
    /// A copy of the store.
    Backup,
    /// The OpenAPI document.
    Document,
}

use Role::{Admin, Operate, Read};

/// Every resource.
#[rustfmt::skip]
pub(super) const ROUTES: &[Route] = &[
    get("/whoami", Read, "What the token allows", of::<Bearer>(), Act::WhoAmI),
    get("/status", Read, "What runs here", of::<Status>(), Act::Ask(orders::status)),
    get("/clients", Read, "Connected clients", of::<Page<Client>>(), Act::Ask(orders::clients))
        .query(schema::<orders::Clients>),
    get("/clients/{id}", Read, "One client", of::<Client>(), Act::Ask(orders::client)),
    delete("/clients/{id}", Operate, "End the connections of a client", orders::disconnect)
        .query(schema::<orders::Why>),
    get("/sessions", Read, "Sessions of MQTT, connected or not", of::<Page<Client>>(), Act::Ask(orders::sessions))
        .query(schema::<orders::Sessions>),
    delete("/sessions/{id}", Operate, "End a session and its connection", orders::delete_session)
        .query(schema::<orders::Why>),
    get("/sessions/{id}/rights", Read, "What a client with a session may do", of::<Page<Right>>(), Act::Ask(orders::client_rights))
        .query(schema::<orders::OneTopic>),
    get("/sessions/{id}/subscriptions", Read, "Subscriptions of a session", of::<Page<Subscription>>(), Act::Ask(orders::subscriptions))
        .query(schema::<PageOf>),
    get("/receivers", Read, "Who would get a message", Answer::Reply("receivers"), Act::Ask(orders::receivers))
        .query(schema::<orders::Topic>),
    get("/retained", Read, "Retained messages without their payloads", of::<Page<RetainedTopic>>(), Act::Ask(orders::retained))
        .query(schema::<orders::Retained>),
    delete("/retained", Operate, "Remove retained messages, a page at a time", orders::clear_retained)
        .query(schema::<orders::Removed>),
    get("/retained/{topic}", Read, "One retained message", of::<Message>(), Act::Ask(orders::retained_message)),
    post("/publish", Operate, "Publish a message of the broker", Answer::Reply("published"), orders::publish)
        .body(schema::<Message>),
    get("/bridges", Read, "Bridges to other brokers", of::<Page<Bridge>>(), Act::Ask(orders::bridges)),
    get("/bridges/{name}", Read, "One bridge", of::<Bridge>(), Act::Ask(orders::bridge)),
    post("/bridges", Admin, "Add a bridge", of::<Bridge>(), orders::add_bridge)
        .body(schema::<orders::NewBridge>),
    put("/bridges/{name}", Admin, "Change a bridge that was added", of::<Bridge>(), orders::change_bridge)
        .body(schema::<orders::NewBridge>),
    delete("/bridges/{name}", Admin, "Remove a bridge that was added", orders::remove_bridge)
        .query(schema::<orders::Removal>),
    post("/bridges/{name}/pause", Operate, "Keep a bridge from its other broker", of::<Bridge>(), orders::pause_bridge),
    post("/bridges/{name}/resume", Operate, "Have a bridge go on", of::<Bridge>(), orders::resume_bridge),
    post("/bridges/{name}/reconnect", Operate, "Connect a bridge again", of::<Bridge>(), orders::reconnect_bridge),
    get("/queues", Read, "Queues of AMQP", of::<Page<Queue>>(), Act::Ask(orders::queues))
        .query(schema::<PageOf>),
    get("/queues/{name}", Read, "One queue", of::<Queue>(), Act::Ask(orders::queue)),
    put("/queues/{name}", Operate, "Make a queue", of::<Queue>(), orders::create_queue)
        .body(schema::<QueueOptions>),
    post("/queues/{name}", Operate, "Change a queue", of::<Queue>(), orders::change_queue)
        .method("PATCH")
        .body(schema::<QueueOptions>),
    delete("/queues/{name}", Operate, "Delete a queue with its messages", orders::delete_queue),
    get("/queues/{name}/messages", Read, "The messages of a queue that leave first", of::<Page<QueuedMessage>>(), Act::Ask(orders::peek))
        .query(schema::<orders::Peeked>),
    delete("/queues/{name}/messages", Operate, "Remove messages of a queue", orders::purge)
        .query(schema::<orders::Left>),
    post("/queues/{name}/move", Operate, "Move messages of a queue to another", Answer::Reply("done"), orders::move_messages)
        .body(schema::<orders::Moved>),
    get("/bans", Read, "Bans", of::<Page<Ban>>(), Act::Ask(orders::bans))
        .query(schema::<PageOf>),
    post("/bans", Operate, "Keep clients out", Answer::Reply("done"), orders::ban)
        .body(schema::<orders::NewBan>),
    delete("/bans", Operate, "End a ban", orders::unban)
        .query(schema::<orders::Banned>),
    post("/reload", Admin, "Read users, rules, certificates, tokens and the configuration again", Answer::Reply("reloaded"), orders::reload),
    get("/log-level", Read, "What the log writes", Answer::Reply("log-level"), Act::Ask(orders::level)),
    put("/log-level", Admin, "Change what the log writes", Answer::Reply("log-level"), orders::set_level)
        .body(schema::<orders::Level>),
    get("/limits", Read, "Limits as they are", of::<Page<Setting>>(), Act::Ask(orders::limits)),
    get("/configuration", Read, "The configuration as it runs", of::<Page<Setting>>(), Act::Ask(orders::configuration)),
    get("/listeners", Read, "Where clients are accepted", of::<Page<Listening>>(), Act::Ask(orders::listeners)),
    get("/certificates", Read, "Certificates of the broker", of::<Page<Certificate>>(), Act::Ask(orders::certificates)),
    get("/cluster", Read, "Nodes of the cluster, as this one sees them", of::<Page<ClusterNode>>(), Act::Ask(orders::cluster)),
    get("/users", Read, "Users of the password file", of::<Page<User>>(), Act::Ask(orders::users))
        .query(schema::<PageOf>),
    post("/users", Admin, "Add a user to the password file", Answer::Reply("done"), orders::add_user)
        .body(schema::<orders::NewUser>),
    put("/users/{name}", Admin, "Give a user another password", Answer::Reply("done"), orders::set_password)
        .body(schema::<orders::NewPassword>),
    delete("/users/{name}", Admin, "Take a user out of the password file", orders::remove_user),
    get("/rights", Read, "What the rules let a client do", of::<Page<Right>>(), Act::Ask(orders::rights))
        .query(schema::<orders::Rights>),
    post("/drain", Admin, "Send clients away, then stop", Answer::Reply("done"), orders::drain)
        .body(schema::<orders::Drain>),
    get("/backup", Admin, "A copy of the store, as lines of JSON", Answer::Lines, Act::Backup),
    get("/tokens", Admin, "Who may come over HTTP", of::<Page<Bearer>>(), Act::Ask(orders::tokens))
        .query(schema::<PageOf>),
    post("/tokens", Admin, "Make a token", Answer::Reply("token"), orders::add_token)
        .body(schema::<Bearer>),
    delete("/tokens/{name}", Admin, "Take a token away", orders::remove_token),
    get("/history", Read, "The last hour, a sample each ten seconds", of::<History>(), Act::History)
        .query(schema::<orders::Since>),
    get("/totals", Read, "Counters since the start of the broker, and sizes now", of::<Sample>(), Act::Totals),
    Route { role: None, ..get("/openapi.json", Read, "This document", Answer::Document, Act::Document) },
];

const fn get(
    path: &'static str,
    role: Role,
    summary: &'static str,
    answer: Answer,
    act: Act,
) -> Route {
    Route {
        method: "GET",
        path,
        role: Some(role),
        summary,
        query: schema::<orders::Nothing>,
        body: None,
        answer,
        act,
    }
}

const fn delete(
    path: &'static str,
    role: Role,
    summary: &'static str,
    make: fn(&Input<'_>) -> Made,
) -> Route {
    let route = get(path, role, summary, Answer::Reply("done"), Act::Ask(make));
    route.method("DELETE")
}

const fn post(
    path: &'static str,
    role: Role,
    summary: &'static str,
    answer: Answer,
    make: fn(&Input<'_>) -> Made,
) -> Route {
    get(path, role, summary, answer, Act::Ask(make)).method("POST")
}

const fn put(
    path: &'static str,
    role: Role,
    summary: &'static str,
    answer: Answer,
    make: fn(&Input<'_>) -> Made,
) -> Route {
    get(path, role, summary, answer, Act::Ask(make)).method("PUT")
}

impl Route {
    const fn method(mut self, method: &'static str) -> Self {
        self.method = method;
        self
    }

    const fn query(mut self, query: Describe) -> Self {
        self.query = query;
        self
    }

    const fn body(mut self, body: Describe) -> Self {
        self.body = Some(body);
        self
    }

    /// The name in braces, if the path has one.
    pub(super) fn name(&self) -> Option<&'static str> {
        let (_, rest) = self.path.split_once('{')?;
        rest.split_once('}').map(|(name, _)| name)
    }

    /// What stands for the name in braces, decoded, if this path is meant. A topic may
    /// have slashes.
    fn matches(&self, path: &str) -> Option<String> {
        let Some((before, rest)) = self.path.split_once('{') else {
            return (self.path == path).then(String::new);
        };
        let after = rest.split_once('}').map_or("", |(_, after)| after);
        let name = path.strip_prefix(before)?.strip_suffix(after)?;
        let is_one = !name.contains('/') || self.name() == Some("topic");
        (is_one && !name.is_empty()).then(|| decode(name)).flatten()
    }
}

const fn of<T: JsonSchema>() -> Answer {
    Answer::Of(schema::<T>)
}

fn schema<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

/// A resource that was found, or what is wrong with the request.
#[derive(Debug)]
pub(super) enum Found {
    /// With the name in its path.
    Route(&'static Route, String),
    /// There is one, with these methods.
    Methods(String),
    /// There is none.
    Nothing,
}

/// Which resource is meant by a path below [`BASE`]. HEAD is answered as GET.
pub(super) fn find(method: &str, path: &str) -> Found {
    let method = if method == "HEAD" { "GET" } else { method };
    let mut methods = Vec::new();
    for route in ROUTES {
        if let Some(name) = route.matches(path) {
            if route.method == method {
                return Found::Route(route, name);
            }
            methods.push(route.method);
        }
    }
    match methods.is_empty() {
        true => Found::Nothing,
        false => Found::Methods(methods.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(method: &str, path: &str) -> (String, String) {
        match find(method, path) {
            Found::Route(route, name) => (route.path.to_owned(), name),
            Found::Methods(methods) => (methods, String::new()),
            Found::Nothing => Default::default(),
        }
    }

    #[test]
    fn paths_lead_to_resources_with_the_name_in_them() {
        for (method, path, route, name) in [
            ("GET", "/status", "/status", ""),
            ("HEAD", "/status", "/status", ""),
            ("GET", "/clients", "/clients", ""),
            ("GET", "/clients/a%2Fb%20c", "/clients/{id}", "a/b c"),
            ("DELETE", "/sessions/a", "/sessions/{id}", "a"),
            (
                "GET",
                "/sessions/a/subscriptions",
                "/sessions/{id}/subscriptions",
                "a",
            ),
            ("GET", "/retained/a/b%23", "/retained/{topic}", "a/b#"),
            ("GET", "/clients/", "", ""),
            ("GET", "/clients/a/b", "", ""),
            ("GET", "/clients/%zz", "", ""),
            ("GET", "/", "", ""),
            ("GET", "", "", ""),
            ("POST", "/status", "GET", ""),
            ("PATCH", "/bans", "GET, POST, DELETE", ""),
            ("OPTIONS", "/clients/a", "GET, DELETE", ""),
        ] {
            let expected = (route.to_owned(), name.to_owned());
            assert_eq!(found(method, path), expected, "{method} {path}");
        }
    }

    #[test]
    fn a_resource_needs_the_role_of_its_request() {
        let queries = ["", "filter=a", "topic=a", "user=a"];
        let bodies: [&[u8]; 10] = [
            br#"{"name":"a","password":"b"}"#,
            br#"{"password":"b"}"#,
            br#"{"to":"b"}"#,
            b"{}",
            br#"{"topic":"a"}"#,
            br#"{"whom":{"user":"a"}}"#,
            br#"{"filter":"info"}"#,
            br#"{"rate":1}"#,
            br#"{"name":"a","role":"read"}"#,
            br#"{"bridge":{"name":"a","url":"quic://h"}}"#,
        ];
        let inputs = || {
            queries.into_iter().flat_map(|query| {
                bodies.into_iter().map(move |body| Input {
                    name: "a".to_owned(),
                    query,
                    body,
                })
            })
        };
        for route in ROUTES {
            if let Act::Ask(make) = route.act {
                let request = inputs().find_map(|input| make(&input).ok());
                let request = request.expect(route.path);
                assert_eq!(Some(request.role()), route.role, "{}", route.path);
            }
        }
    }
}
