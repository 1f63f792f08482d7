//! qlog at run time: what is logged, and what is to be logged from now on.
//! Only programs on this machine may change it, and no page of a browser.

use dunlin_base::{ConnId, Text};
use dunlin_net::{Qlog, QlogFilter, QlogTotals};
use serde_json::json;

use super::connection::conn_id;
use super::http::{JSON, Request, Response};
use super::text::Exposition;

/// What a request changes.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) filter: QlogFilter,
    /// A client that may be connected already.
    pub(super) client_id: Option<Text>,
    /// A connection that is there already.
    pub(super) conn: Option<ConnId>,
}

/// The state of `qlog` as a page.
pub(super) fn show(qlog: &Qlog) -> Response {
    let (filter, totals) = (qlog.filter(), qlog.totals());
    let addresses: Vec<String> = filter.addresses.iter().map(ToString::to_string).collect();
    let body = json!({
        "dir": qlog.dir().display().to_string(),
        "clients": filter.clients,
        "addresses": addresses,
        "one_in": filter.one_in,
        "files": totals.files,
        "bytes": totals.bytes,
        "refused_connections": totals.refused,
        "dropped_bytes": totals.dropped_bytes,
        "failure": qlog.failure(),
    });
    Response::new(JSON, format!("{body:#}\n"))
}

/// How much is logged, for those who watch disks.
pub(super) fn metrics(out: &mut Exposition, totals: &QlogTotals, failed: bool) {
    let help = "qlog files in the directory.";
    out.gauge("dunlin_qlog_files", help, &[], totals.files as f64);
    let help = "Bytes in them.";
    out.gauge("dunlin_qlog_bytes", help, &[], totals.bytes as f64);
    let help = "1: a file could not be written, and nothing is logged until it is asked for again.";
    let failed = f64::from(u8::from(failed));
    out.gauge("dunlin_qlog_failed", help, &[], failed);
    for (name, help, value) in [
        (
            "dunlin_qlog_connections_refused_total",
            "Connections that should have been logged and got no file.",
            totals.refused,
        ),
        (
            "dunlin_qlog_dropped_bytes_total",
            "Bytes of logs left out, at a bound or because the disk was too slow or full.",
            totals.dropped_bytes,
        ),
    ] {
        out.counter(name, help, &[], value);
    }
}

/// What is to be logged from now on, after `POST /qlog?…` and `DELETE /qlog`.
pub(super) fn change(request: &Request, mut filter: QlogFilter) -> Result<Change, Response> {
    let wrong = |why: &str| Response::refusal("400 Bad Request", why);
    if request.method == "DELETE" {
        return Ok(Change::default());
    }
    let mut client_id = None;
    let conn = request.query("connection").map(|text| conn_id(&text));
    if conn == Some(None) {
        return Err(wrong("connection is one such as 0:1048576"));
    }
    let conn = conn.flatten();
    let mut known = conn.is_some();
    if let Some(client) = request.query("client_id") {
        if !client.ends_with('*') {
            client_id = Some(Text::from(client.as_str()));
        }
        filter.clients.retain(|other| *other != client);
        filter.clients.push(client);
        known = true;
    }
    if let Some(address) = request.query("address") {
        let range = address.parse();
        let range = range.map_err(|e: dunlin_net::ParseRangeError| wrong(&e.to_string()))?;
        filter.addresses.retain(|other| *other != range);
        filter.addresses.push(range);
        known = true;
    }
    if let Some(one_in) = request.query("one_in") {
        let one_in = one_in.parse();
        filter.one_in = one_in.map_err(|_| wrong("one_in is a number; 0 is none"))?;
        known = true;
    }
    if !known {
        return Err(wrong(
            "one of client_id, address, connection and one_in is needed",
        ));
    }
    if filter.is_too_long() {
        return Err(wrong(
            "64 clients and 64 addresses at most; DELETE /qlog forgets all",
        ));
    }
    Ok(Change {
        filter,
        client_id,
        conn,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(line: &str) -> Request {
        let text = format!("{line} HTTP/1.1\r\n\r\n");
        Request::parse(text.as_bytes()).unwrap().unwrap()
    }

    #[test]
    fn requests_add_to_what_is_logged_until_all_is_forgotten() {
        let first = request("POST /qlog?client_id=a%2A");
        let first = change(&first, QlogFilter::default()).unwrap();
        assert_eq!(first.client_id, None, "more than one client");
        let second = request("POST /qlog?client_id=b&address=192.0.2.0/24&one_in=10");
        let second = change(&second, first.filter).unwrap();
        assert_eq!(second.filter.clients, ["a*", "b"]);
        assert_eq!(
            (second.filter.addresses.len(), second.filter.one_in),
            (1, 10)
        );
        assert_eq!(second.client_id.as_deref(), Some("b"));
        let third = request("POST /qlog?connection=1:5");
        let third = change(&third, QlogFilter::default()).unwrap();
        assert!(third.filter.is_empty(), "connections to come are not meant");
        assert_eq!(third.conn.map(|conn| conn.to_string()).unwrap(), "1:5");
        let gone = change(&request("DELETE /qlog"), second.filter).unwrap();
        assert_eq!(gone, Change::default());
        for line in [
            "POST /qlog",
            "POST /qlog?address=x",
            "POST /qlog?one_in=-1",
            "POST /qlog?connection=1",
        ] {
            assert!(
                change(&request(line), QlogFilter::default()).is_err(),
                "{line}"
            );
        }
        let mut full = QlogFilter::default();
        full.clients = (0..64).map(|n| n.to_string()).collect();
        assert!(change(&request("POST /qlog?client_id=x"), full).is_err());
    }
}
