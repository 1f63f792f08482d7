//! What the study of the microcontroller shows, as values.

use super::budget::Verdict;
use super::crypto::Figures;
use super::image::Image;
use super::profile::PURPOSES;
use super::wake::Wake;

/// What is known of the firmware with one provider.
pub(crate) struct Provider {
    pub(crate) name: &'static str,
    pub(crate) image: Image,
    pub(crate) crypto: Figures,
    /// A wake with a full handshake, one that resumes, one with early data.
    pub(crate) full: Wake,
    pub(crate) resumed: Wake,
    pub(crate) early: Wake,
    /// Cycles of the last of them by what they are for.
    pub(crate) profile: [u64; PURPOSES.len()],
    pub(crate) verdicts: Vec<Verdict>,
}

/// What is known of the firmware with smoltcp, and the smallest provider.
pub(crate) struct Smoltcp {
    pub(crate) image: Image,
    pub(crate) full: Wake,
    pub(crate) early: Wake,
    pub(crate) verdicts: Vec<Verdict>,
}

/// Everything that the page shows.
pub(crate) struct Study {
    pub(crate) providers: Vec<Provider>,
    pub(crate) smoltcp: Smoltcp,
    /// Images of the smallest provider by option.
    pub(crate) options: Vec<(&'static str, Image)>,
    /// Flash of an image that believes an authority instead of a pinned key.
    pub(crate) authority: u64,
    /// The same with HelloRetryRequest.
    pub(crate) authority_retry: u64,
}

impl Study {
    /// What the budget says of every image.
    pub(crate) fn verdicts(&self) -> impl Iterator<Item = &Verdict> {
        let providers = self.providers.iter().flat_map(|p| &p.verdicts);
        providers.chain(&self.smoltcp.verdicts)
    }
}
