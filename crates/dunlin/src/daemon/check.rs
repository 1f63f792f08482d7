//! `dunlin broker --check`: everything that start reads, without making or
//! binding anything.

use super::{Added, Config, StartError, certificates, load_access};

impl super::Daemon {
    /// Reads the files that a configuration names, and looks up its names.
    /// Nothing is created, bound or started.
    ///
    /// # Errors
    /// The first thing that [`Daemon::start`](super::Daemon::start) would
    /// refuse, as far as it can be known without doing it.
    pub fn check(config: &Config) -> Result<(), StartError> {
        let added = Added::load(config)?;
        load_access(config, &added)?;
        for bridge in config.bridge.iter().chain(&added.all()) {
            crate::bridge::check_files(bridge)?;
        }
        certificates::load(config, None, None)?;
        certificates::http(config)?;
        certificates::log(config)?;
        #[cfg(feature = "cluster")]
        super::node::check(config)?;
        for (index, listener) in config.listener.iter().enumerate() {
            super::listening::check(index, listener)?;
        }
        Ok(())
    }
}
