//! What a standby shows of itself over HTTP, at the address at which the broker that it
//! becomes shows its metrics: that it is there, and wants no clients.

use std::sync::Arc;

use super::http::{Request, Response};
use super::log::{self, LogViews};
use super::server::Pages;
use super::text::{CONTENT_TYPE, Exposition};
use crate::control::cluster::Known;

/// What the answers are made from.
pub(crate) struct Shown {
    /// Why no clients are wanted.
    pub(crate) why: &'static str,
    pub(crate) views: LogViews,
    /// The cluster that this is a node of, if it is.
    pub(crate) cluster: Option<Arc<dyn Known>>,
}

impl Shown {
    fn metrics(&self) -> String {
        let mut out = Exposition::default();
        let labels = [("version", env!("CARGO_PKG_VERSION"))];
        let help = "Always 1; the labels tell what runs.";
        out.gauge("dunlin_build_info", help, &labels, 1.0);
        log::metrics(&mut out, (self.views)());
        if let Some(cluster) = &self.cluster {
            cluster.metrics(&mut out);
        }
        out.render()
    }
}

impl Pages for Shown {
    fn answer(&self, request: &Request, _: bool) -> Response {
        match (request.method.as_str(), request.path.as_str()) {
            ("GET" | "HEAD", "/metrics") => Response::new(CONTENT_TYPE, self.metrics()),
            ("GET" | "HEAD", "/healthz") => {
                Response::new("text/plain; charset=utf-8", "standby\n".into())
            }
            ("GET" | "HEAD", "/readyz") => Response::refusal("503 Service Unavailable", self.why),
            ("GET" | "HEAD", _) => Response::refusal(
                "404 Not Found",
                "a standby shows /metrics, /healthz and /readyz",
            ),
            _ => Response::refusal("405 Method Not Allowed", "only GET is understood"),
        }
    }
}

#[cfg(test)]
mod tests {
    use core::net::SocketAddr;
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};

    use super::super::log::LogView;
    use super::super::server::Server;
    use super::*;

    #[test]
    fn a_standby_is_there_and_wants_no_clients() {
        let views: LogViews = Arc::new(|| LogView {
            behind: 7,
            ..LogView::default()
        });
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let shown = Shown {
            why: "another one serves",
            views,
            cluster: None,
        };
        let server = Server::start(any, Vec::new(), shown).expect("bound");
        let get = |target: &str, host: &str| {
            let mut stream = TcpStream::connect(server.addr()).expect("connected");
            write!(stream, "GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n").expect("sent");
            let mut answer = String::new();
            stream.read_to_string(&mut answer).expect("text");
            answer
        };
        assert!(get("/healthz", "localhost").starts_with("HTTP/1.1 200"));
        let ready = get("/readyz", "localhost");
        assert!(ready.starts_with("HTTP/1.1 503") && ready.contains("another one serves"));
        assert!(get("/healthz", "elsewhere").starts_with("HTTP/1.1 421"));
        let text = get("/metrics", "127.0.0.1");
        for line in [
            "dunlin_store_log_owner 0",
            "dunlin_store_log_behind_records 7",
        ] {
            assert!(text.lines().any(|it| it == line), "{line}\n{text}");
        }
        // Its address is free again for the broker that it becomes.
        let addr = server.addr();
        drop(server);
        assert!(TcpListener::bind(addr).is_ok());
    }
}
