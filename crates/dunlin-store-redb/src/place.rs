//! What a store needs of the place where it lives. Knows no table and no
//! request.

use std::io;

use redb::StorageBackend;

/// Where a store lives. Tests put it on a faulty disk.
pub trait Place: Send {
    /// Opens what is there, or something empty.
    ///
    /// # Errors
    /// What the system says.
    fn open(&mut self) -> io::Result<Box<dyn StorageBackend>>;

    /// Makes sure that the reserve is held: space that [`Place::spend`] sets
    /// free when the disk is full, for the changes that drain queues.
    ///
    /// # Errors
    /// There is no room for it.
    fn hold(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// Gives the reserve up.
    fn spend(&mut self) {}
}
