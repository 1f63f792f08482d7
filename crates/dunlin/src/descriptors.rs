//! How many sockets this process may have. Every connection is a file
//! descriptor, and the usual soft limit of 1,024 is from another century.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the soft limit of open files to the hard limit, which needs no
/// rights. Returns the limit in force; `None`: there is none.
#[must_use]
pub fn raise_limit() -> Option<u64> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: maximum,
        maximum,
    };
    // Some systems refuse what they themselves call the maximum; the old
    // limit holds then.
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => maximum,
        Err(_) => current,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_raised_once() {
        let first = raise_limit();
        assert_eq!(raise_limit(), first);
        assert!(first.is_none_or(|limit| limit > 0));
    }
}
