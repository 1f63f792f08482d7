//! Statistics of recorded values: order statistics, means, intervals by
//! bootstrap. Knows records, and no experiment.
//!
//! ```text
//! let quic = Sample::of(records, &Pick::new("dunlin-quic", "packets").at("testbed", "wireless"));
//! let tcp = Sample::of(records, &Pick::new("mosquitto-tls", "packets").at("testbed", "wireless"));
//! let measured = quic.change(&tcp, Statistic::Median); // such as -61 % [-63, -58]
//! ```

mod bootstrap;
mod order;
mod sample;

pub(crate) use order::{Quartiles, ecdf, float, mean, quantile, quantile_of};
pub(crate) use sample::{Pick, Sample, Statistic};
