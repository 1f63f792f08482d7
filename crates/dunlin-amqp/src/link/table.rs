//! The links of a session, by the handles of both sides.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::Link;
use crate::ids::LinkId;

/// Links by our handle, and our handles by the peer's. Both lists are as long
/// as the highest handle in use.
#[derive(Debug, Default)]
pub(crate) struct Links {
    places: Vec<Option<Box<Link>>>,
    by_remote: Vec<Option<u32>>,
}

impl Links {
    /// The lowest free handle up to `handle_max`.
    pub(crate) fn free_handle(&self, handle_max: u32) -> Option<u32> {
        let free = self.places.iter().position(Option::is_none);
        let handle = u32::try_from(free.unwrap_or(self.places.len())).ok()?;
        (handle <= handle_max).then_some(handle)
    }

    /// Puts a link at its handle, which is free.
    pub(crate) fn insert(&mut self, link: Link) {
        let place = link.id.handle as usize;
        if place >= self.places.len() {
            self.places.resize_with(place + 1, || None);
        }
        if let Some(remote) = link.remote_handle {
            self.map_remote(remote, link.id.handle);
        }
        if let Some(free) = self.places.get_mut(place) {
            *free = Some(Box::new(link));
        }
    }

    /// The peer uses `remote` for the link with our handle.
    pub(crate) fn map_remote(&mut self, remote: u32, handle: u32) {
        let place = remote as usize;
        if place >= self.by_remote.len() {
            self.by_remote.resize(place + 1, None);
        }
        if let Some(mapped) = self.by_remote.get_mut(place) {
            *mapped = Some(handle);
        }
    }

    /// The link at our handle.
    pub(crate) fn at(&mut self, handle: u32) -> Option<&mut Link> {
        self.places.get_mut(handle as usize)?.as_deref_mut()
    }

    /// Our handle of the link that the peer calls `remote`.
    pub(crate) fn handle_of(&self, remote: u32) -> Option<u32> {
        *self.by_remote.get(remote as usize)?
    }

    /// The link with this id.
    pub(crate) fn get(&self, id: LinkId) -> Option<&Link> {
        let link = self.places.get(id.handle as usize)?.as_deref()?;
        (link.id == id).then_some(link)
    }

    /// The link with this id.
    pub(crate) fn get_mut(&mut self, id: LinkId) -> Option<&mut Link> {
        self.at(id.handle).filter(|link| link.id == id)
    }

    /// Removes the link at our handle, and both handles are free.
    pub(crate) fn remove(&mut self, handle: u32) -> Option<Box<Link>> {
        let link = self.places.get_mut(handle as usize)?.take()?;
        if let Some(remote) = link.remote_handle
            && let Some(mapped) = self.by_remote.get_mut(remote as usize)
        {
            *mapped = None;
        }
        while self.places.last().is_some_and(Option::is_none) {
            self.places.pop();
        }
        while self.by_remote.last().is_some_and(Option::is_none) {
            self.by_remote.pop();
        }
        Some(link)
    }

    /// All links.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Link> {
        self.places.iter().flatten().map(|link| &**link)
    }
}
