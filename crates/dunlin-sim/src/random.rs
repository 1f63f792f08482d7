//! The only source of chance in a simulated world: one number decides all.

pub use dunlin_base::Random;
