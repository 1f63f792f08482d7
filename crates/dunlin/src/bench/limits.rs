//! The number of open files that the system allows this process.

/// Descriptors that the generator needs besides its connections.
const SPARE: u64 = 64;

/// The system allows too few open files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{wanted} connections need {} open files and this process may have {allowed}; \
     raise the limit (ulimit -Hn) or start several generators",
    wanted + SPARE
)]
pub struct TooFewFiles {
    /// Connections asked for.
    pub wanted: u64,
    /// Files allowed.
    pub allowed: u64,
}

/// Raises the soft limit as far as `connections` need it.
///
/// # Errors
/// The hard limit is too low.
#[cfg(unix)]
pub fn allow_files(connections: usize) -> Result<(), TooFewFiles> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    let wanted = connections as u64;
    let needed = wanted + SPARE;
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= needed) {
        return Ok(());
    }
    let new = Rlimit {
        current: Some(limit.maximum.map_or(needed, |maximum| maximum.min(needed))),
        maximum: limit.maximum,
    };
    // If it fails, what is allowed now decides.
    let _ = setrlimit(Resource::Nofile, new);
    let allowed = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    if allowed < needed {
        return Err(TooFewFiles { wanted, allowed });
    }
    Ok(())
}

/// Nothing is known of a limit.
///
/// # Errors
/// None.
#[cfg(not(unix))]
pub fn allow_files(_: usize) -> Result<(), TooFewFiles> {
    Ok(())
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn an_impossible_number_is_refused_in_a_sentence() {
        let wanted = u32::MAX as usize;
        let Err(error) = allow_files(wanted) else {
            // This machine has no limit.
            return;
        };
        assert!(error.to_string().contains("ulimit"), "{error}");
        assert_eq!(allow_files(1), Ok(()));
    }
}
