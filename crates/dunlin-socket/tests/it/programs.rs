//! The examples, which have programs by others and one that knows only
//! `std::net` run over sockets.

#[path = "../../examples/chat.rs"]
mod chat;
#[path = "../../examples/web.rs"]
mod web;

#[test]
fn a_program_for_tcp_runs_over_quic() {
    chat::main().expect("lines that are heard");
}

#[test]
fn a_web_client_and_a_web_server_by_others_talk() {
    web::main().expect("answers");
}
