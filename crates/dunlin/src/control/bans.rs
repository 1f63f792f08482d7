//! Bans: made, ended and listed; in force on all shards when they are in the file.

use std::sync::Arc;

use dunlin_broker::control::values as shard;

use super::banlist::in_force;
use super::clients::ending;
use super::plane::{Outcome, Plane, checked, silent};
use super::values::{BANS_MAX, Ban, Code, Failure, Page, PageOf, Reply, WHY_BYTES_MAX, Whom};

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

/// One page of bans that have not ended, in the order of whom they keep out, which holds
/// while bans are made and end.
pub(super) fn list(plane: &Plane, page: &PageOf) -> Outcome {
    let limit = checked(page)?;
    let after = page.after.as_deref();
    let (rows, next) = some(&plane.bans.lock(), after, limit, seconds(plane));
    Ok(Reply::Bans(Page { rows, next }))
}

/// At most so many bans after this one, and the last of them if there are more.
fn some(bans: &[Ban], after: Option<&str>, limit: usize, now: u64) -> (Vec<Ban>, Option<String>) {
    let key = |ban: &Ban| serde_json::to_string(&ban.whom).unwrap_or_default();
    let lasting = bans.iter().filter(|ban| !is_over(ban, now));
    let mut found: Vec<(String, &Ban)> = lasting
        .map(|ban| (key(ban), ban))
        .filter(|(key, _)| after.is_none_or(|after| after < key.as_str()))
        .collect();
    found.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
    let more = found.len() > limit;
    found.truncate(limit);
    let next = found.last().filter(|_| more).map(|(key, _)| key.clone());
    (
        found.into_iter().map(|(_, ban)| ban.clone()).collect(),
        next,
    )
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
                limit: usize::MAX,
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

#[cfg(test)]
mod tests {
    use super::*;

    fn ban(name: &str, until: Option<u64>) -> Ban {
        Ban {
            whom: Whom::User(name.into()),
            until,
            why: String::new(),
        }
    }

    fn names(bans: &[Ban]) -> Vec<String> {
        let name = |ban: &Ban| match &ban.whom {
            Whom::User(name) => name.clone(),
            other => panic!("{other:?}"),
        };
        bans.iter().map(name).collect()
    }

    /// What ends and what is made between two pages moves no other from one to the next.
    #[test]
    fn pages_stay_right_while_bans_change() {
        let mut bans: Vec<Ban> = ["d", "b", "a", "e", "c"].map(|name| ban(name, None)).into();
        bans.push(ban("bb", Some(5)));
        let (first, next) = some(&bans, None, 2, 10);
        assert_eq!(names(&first), ["a", "b"]);
        // The first two end, one comes before and one behind.
        bans.retain(|ban| {
            !names(core::slice::from_ref(ban))
                .concat()
                .starts_with(['a', 'b'])
        });
        bans.extend([ban("A", None), ban("f", None)]);
        let (second, next) = some(&bans, next.as_deref(), 2, 10);
        assert_eq!(names(&second), ["c", "d"]);
        let (third, next) = some(&bans, next.as_deref(), 2, 10);
        assert_eq!((names(&third), next), (vec!["e".into(), "f".into()], None));
        assert_eq!(names(&some(&bans, None, 9, 0).0).len(), 5);
    }
}
