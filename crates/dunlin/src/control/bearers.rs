//! Tokens for HTTP: made, taken away and listed.

use super::plane::{Outcome, Plane, checked};
use super::values::{Page, PageOf, Reply, Role};

/// One page of those who have tokens.
pub(super) fn list(plane: &Plane, page: &PageOf) -> Outcome {
    let limit = checked(page)?;
    let after = page.after.as_deref().unwrap_or("");
    let mut rows = plane.tokens.bearers();
    rows.retain(|bearer| bearer.name.as_str() > after);
    let more = rows.len() > limit;
    rows.truncate(limit);
    let next = rows.last().filter(|_| more);
    let next = next.map(|bearer| bearer.name.clone());
    Ok(Reply::Tokens(Page { rows, next }))
}

/// Makes a token.
pub(super) fn add(plane: &Plane, name: &str, role: Role) -> Outcome {
    let token = plane.tokens.add(name, role)?;
    Ok(Reply::Token { token })
}

/// Takes a token away.
pub(super) fn remove(plane: &Plane, name: &str) -> Outcome {
    plane.tokens.remove(name)?;
    Ok(Reply::Done {
        count: 1,
        next: None,
    })
}
