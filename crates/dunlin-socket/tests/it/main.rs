//! Sockets over loopback, as programs use them.

mod blocking;
mod early;
mod ends;
mod hostile;
mod paths;
mod programs;
mod support;
mod tasks;
