//! Errors of redb and of the file system, sorted by what can be done about
//! them.

use std::io;
use std::path::PathBuf;

use dunlin_base::Text;
use dunlin_store::StoreError;

use crate::rows::BadRow;

/// Why a store cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Another process, or another part of this one, has it open.
    #[error("the store {} is in use by another process", path.display())]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// The file, or its folder, cannot be read or written.
    #[error("the store {} cannot be opened: {error}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system says.
        #[source]
        error: io::Error,
    },
    /// The file is not a store, or is damaged.
    #[error("the store {} is damaged or not a store: {text}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What does not fit, for people.
        text: String,
    },
    /// The file is there and has no length.
    #[error(
        "the store {} is empty, which it never is: it was cut off. Put a backup in its place, \
         or remove it to begin with nothing",
        path.display()
    )]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// A newer release wrote the file.
    #[error("the store {} has format {found}, which this release does not know", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// Its version of the layout.
        found: u64,
    },
    /// The system has no thread left for the writer.
    #[error("the store's thread cannot be started: {0}")]
    Thread(#[source] io::Error),
}

/// Anything that goes wrong below.
#[derive(Debug)]
pub(crate) enum Fault {
    InUse,
    Io(io::Error),
    /// The database closed itself after an earlier failure of the disk.
    Closed,
    Damaged(String),
    /// One row cannot be read; the others can.
    Row(BadRow),
    Format(u64),
}

impl Fault {
    /// The database engine panicked.
    pub(crate) fn panicked() -> Self {
        Self::Damaged("the database engine panicked".to_owned())
    }

    /// Whether space would help.
    pub(crate) fn is_full(&self) -> bool {
        matches!(self, Self::Io(error) if is_full(error))
    }

    /// As an answer to a request.
    pub(crate) fn to_store_error(&self) -> StoreError {
        match self {
            Self::Io(error) if is_full(error) => StoreError::DiskFull,
            Self::Io(error) => StoreError::Io(Text::from(error.to_string())),
            Self::InUse => StoreError::Io(Text::from_static("the file is in use")),
            Self::Closed => StoreError::Io(Text::from_static("an earlier access failed")),
            Self::Damaged(text) => StoreError::Corrupt(Text::from(text.as_str())),
            Self::Row(row) => StoreError::Corrupt(Text::from(row.to_string())),
            Self::Format(_) => StoreError::Corrupt(Text::from_static("the format has changed")),
        }
    }

    /// As the reason that `path` cannot be opened.
    pub(crate) fn into_open_error(self, path: PathBuf) -> OpenError {
        match self {
            Self::InUse => OpenError::InUse { path },
            Self::Io(error) => OpenError::Io { path, error },
            Self::Closed => OpenError::Io {
                path,
                error: io::Error::other("an earlier access failed"),
            },
            Self::Damaged(text) => OpenError::Damaged { path, text },
            Self::Row(row) => OpenError::Damaged {
                path,
                text: row.to_string(),
            },
            Self::Format(found) => OpenError::Format { path, found },
        }
    }
}

/// Whether space would help.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
    )
}

impl From<redb::Error> for Fault {
    fn from(error: redb::Error) -> Self {
        match error {
            redb::Error::DatabaseAlreadyOpen => Self::InUse,
            // What redb says of a file that is not its own.
            redb::Error::Io(error) if error.kind() == io::ErrorKind::InvalidData => {
                Self::Damaged(error.to_string())
            }
            redb::Error::Io(error) => Self::Io(error),
            redb::Error::PreviousIo | redb::Error::DatabaseClosed => Self::Closed,
            other => Self::Damaged(other.to_string()),
        }
    }
}

macro_rules! from_redb {
    ($($error:ty),*) => {$(
        impl From<$error> for Fault {
            fn from(error: $error) -> Self {
                redb::Error::from(error).into()
            }
        }
    )*};
}

from_redb!(
    redb::DatabaseError,
    redb::TransactionError,
    redb::TableError,
    redb::StorageError,
    redb::CommitError
);

impl From<BadRow> for Fault {
    fn from(row: BadRow) -> Self {
        Self::Row(row)
    }
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::InvalidData => Self::Damaged(error.to_string()),
            _ => Self::Io(error),
        }
    }
}
