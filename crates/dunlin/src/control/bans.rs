//! Bans: made, ended and listed; in force on all shards when they are in the file.

use std::sync::Arc;

use dunlin_broker::control::values as shard;

use super::banlist::in_force;
use super::clients::ending;
use super::plane::{Outcome, Plane, checked, silent};
use super::values::{BANS_MAX, Ban, Code, Failure, Page, PageOf, Reply, WHY_BYTES_MAX, Whom};

/// Connections that one question to a shard ends.
const ENDED_MAX: usize = 100;

/// Seconds since 1970.
fn seconds(plane: &Plane) -> u64 {
    plane.now().as_micros() / 1_000_000
}

/// Bans, or changes a ban; those whom it hits are disconnected.
pub(super) fn ban(plane: &Plane, whom: &Whom, lasts: Option<u64>, why: &str) -> Outcome {
    check(whom, why)?;
    let now = seconds(plane);
    let ban = Ban {
        whom: whom.clone(),
        until: lasts.map(|lasts| now.saturating_add(lasts)),
        why: why.to_owned(),
    };
    change(plane, |bans| {
        bans.retain(|other| other.whom != *whom);
        if bans.len() >= BANS_MAX {
            let text = format!("there are {BANS_MAX} bans, the most that there may be");
            return Err(Failure::new(Code::Busy, text));
        }
        bans.push(ban);
        Ok(())
    })?;
    let count = disconnect(plane)?;
    Ok(Reply::Done { count, next: None })
}

fn check(whom: &Whom, why: &str) -> Result<(), Failure> {
    let name = match whom {
        Whom::ClientId(name) | Whom::User(name) => name,
        Whom::Address(_) => "an address",
    };
    if name.is_empty() || name.len() > usize::from(u16::MAX) {
        let text = "a name has 1 to 65535 bytes";
        return Err(Failure::new(Code::BadRequest, text));
    }
    if why.len() > WHY_BYTES_MAX {
        let text = format!("a reason has at most {WHY_BYTES_MAX} bytes");
        return Err(Failure::new(Code::BadRequest, text));
    }
    Ok(())
}

/// Ends a ban.
pub(super) fn unban(plane: &Plane, whom: &Whom) -> Outcome {
    change(plane, |bans| {
        let before = bans.len();
        bans.retain(|ban| ban.whom != *whom);
        match bans.len() < before {
            true => Ok(()),
            false => Err(Failure::new(Code::NotFound, "there is no such ban")),
        }
    })?;
    Ok(Reply::Done {
        count: 1,
        next: None,
    })
}

/// One page of bans that have not ended, the oldest first.
pub(super) fn list(plane: &Plane, page: &PageOf) -> Outcome {
    let limit = checked(page)?;
    let after = page.after.as_deref().map(str::parse::<usize>);
    let Ok(after) = after.transpose() else {
        let text = "`after` is not what `next` of a page was";
        return Err(Failure::new(Code::BadRequest, text));
    };
    let (after, now) = (after.unwrap_or(0), seconds(plane));
    let bans = plane.bans.lock();
    let rows: Vec<Ban> = bans.iter().skip(after).take(limit).cloned().collect();
    let end = after.saturating_add(rows.len());
    let next = (end < bans.len()).then(|| end.to_string());
    let rows = rows.into_iter().filter(|ban| !is_over(ban, now)).collect();
    Ok(Reply::Bans(Page { rows, next }))
}

fn is_over(ban: &Ban, now: u64) -> bool {
    ban.until.is_some_and(|until| until <= now)
}

/// Changes the bans: first in the file, then on the shards.
fn change(
    plane: &Plane,
    change: impl FnOnce(&mut Vec<Ban>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let list = &plane.bans;
    let mut bans = list.lock();
    let (mut changed, now) = (bans.clone(), seconds(plane));
    changed.retain(|ban| !is_over(ban, now));
    change(&mut changed)?;
    list.write(&changed).map_err(|error| {
        let text = format!("cannot write the bans: {error}");
        Failure::new(Code::Unavailable, text)
    })?;
    *bans = changed;
    let request = shard::Request::Ban(Arc::new(in_force(&bans)));
    let answers = plane.shards.control_all(&request);
    match answers.iter().all(|(_, reply)| reply.is_some()) {
        true => Ok(()),
        false => Err(silent()),
    }
}

/// Ends the connections of those who are banned; how many.
fn disconnect(plane: &Plane) -> Result<u64, Failure> {
    let ending = ending(shard::EndingKind::Banned, "banned")?;
    let filter = shard::ClientFilter {
        banned: true,
        ..shard::ClientFilter::default()
    };
    let mut done = 0;
    for shard in plane.shards.ids() {
        let mut place = Some(0);
        while let Some(at) = place {
            let request = shard::Request::EndAll {
                filter: filter.clone(),
                at,
                limit: ENDED_MAX,
                ending: ending.clone(),
            };
            let Some(shard::Reply::Ended { count, next }) = plane.shards.control(shard, request)
            else {
                return Err(silent());
            };
            done += count as u64;
            place = next;
        }
    }
    Ok(done)
}
