//! The columns of the tables of `dunlin ctl`.

use super::table::Column;

pub(super) const SESSIONS: [Column; 7] = [
    Column("CLIENT", "client_id"),
    Column("USER", "user"),
    Column("CONNECTION", "connection"),
    Column("EXPIRY", "session_expiry_seconds"),
    Column("SUBSCRIPTIONS", "subscriptions"),
    Column("QUEUED", "queued_messages"),
    Column("INFLIGHT", "inflight_messages"),
];

pub(super) const SUBSCRIPTIONS: [Column; 5] = [
    Column("FILTER", "filter"),
    Column("QOS", "qos"),
    Column("IDENTIFIER", "identifier"),
    Column("NO LOCAL", "no_local"),
    Column("RETAIN AS PUBLISHED", "retain_as_published"),
];

pub(super) const RECEIVERS: [Column; 5] = [
    Column("CLIENT", "client_id"),
    Column("QOS", "qos"),
    Column("SHARE", "share"),
    Column("ALLOWED", "allowed"),
    Column("CONNECTED", "connected"),
];

pub(super) const RETAINED: [Column; 3] = [
    Column("TOPIC", "topic"),
    Column("QOS", "qos"),
    Column("BYTES", "bytes"),
];

pub(super) const SETTINGS: [Column; 3] = [
    Column("KEY", "key"),
    Column("VALUE", "value"),
    Column("DEFAULT", "default"),
];

pub(super) const CONFIGURATION: [Column; 4] = [
    Column("KEY", "key"),
    Column("VALUE", "value"),
    Column("DEFAULT", "default"),
    Column("FILE", "file"),
];

pub(super) const LISTENERS: [Column; 5] = [
    Column("LISTENER", "listener"),
    Column("TRANSPORT", "transport"),
    Column("ADDRESS", "address"),
    Column("PATH", "path"),
    Column("PROTOCOLS", "protocols"),
];

pub(super) const CERTIFICATES: [Column; 5] = [
    Column("LISTENER", "listener"),
    Column("UNTIL", "not_after"),
    Column("SUBJECT", "subject"),
    Column("NAMES", "names"),
    Column("FILE", "file"),
];

pub(super) const CLUSTER: [Column; 12] = [
    Column("NODE", "node"),
    Column("NAME", "name"),
    Column("HERE", "here"),
    Column("ROLE", "role"),
    Column("LEASE", "lease"),
    Column("LINK", "link"),
    Column("LINK S", "link_seconds"),
    Column("WAITING", "waiting_bytes"),
    Column("ROUND TRIP US", "round_trip_us"),
    Column("VERSION", "version"),
    Column("SINCE", "since"),
    Column("ADDRESSES", "addresses"),
];

pub(super) const TOKENS: [Column; 2] = [Column("TOKEN", "name"), Column("ROLE", "role")];

pub(super) const USERS: [Column; 1] = [Column("USER", "name")];

pub(super) const RIGHTS: [Column; 3] = [
    Column("ACTION", "action"),
    Column("ALLOWED", "allowed"),
    Column("WHY", "why"),
];

pub(super) const BANS: [Column; 3] = [
    Column("WHOM", "whom"),
    Column("UNTIL", "until"),
    Column("WHY", "why"),
];

pub(super) const CLIENTS: [Column; 8] = [
    Column("CLIENT", "client_id"),
    Column("USER", "user"),
    Column("ADDRESS", "address"),
    Column("TRANSPORT", "transport"),
    Column("PROTOCOL", "protocol"),
    Column("SUBSCRIPTIONS", "subscriptions"),
    Column("QUEUED", "queued_messages"),
    Column("INFLIGHT", "inflight_messages"),
];

pub(super) const QUEUES: [Column; 7] = [
    Column("QUEUE", "name"),
    Column("MESSAGES", "messages"),
    Column("UNSETTLED", "unsettled"),
    Column("CONSUMERS", "consumers"),
    Column("OLDEST S", "oldest_seconds"),
    Column("DEAD LETTERS TO", "dead_letter"),
    Column("TOPICS", "topics"),
];

pub(super) const MESSAGES: [Column; 5] = [
    Column("TOPIC", "topic"),
    Column("BYTES", "bytes"),
    Column("FAILED", "failed_deliveries"),
    Column("EXPIRY", "expiry_seconds"),
    Column("PAYLOAD", "payload"),
];

pub(super) const BRIDGES: [Column; 8] = [
    Column("BRIDGE", "name"),
    Column("STATE", "state"),
    Column("CONFIGURED", "configured"),
    Column("URL", "url"),
    Column("WAITING", "waiting_messages"),
    Column("OUT", "messages_out"),
    Column("IN", "messages_in"),
    Column("LAST ERROR", "last_error"),
];
