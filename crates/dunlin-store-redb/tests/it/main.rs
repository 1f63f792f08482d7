//! Tests of the store on disk: the conformance suite, then what only a disk
//! can do.

mod conformance;
mod crash;
mod damage;
mod faulty;
mod former;
mod kill;
mod store;
mod support;
