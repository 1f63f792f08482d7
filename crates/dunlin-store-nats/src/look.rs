//! What an owner sees of its stream while it writes nothing: whether it is still its own.

use core::pin::Pin;
use core::time::Duration;

use tokio::time::{Instant, sleep_until};

use crate::api::{Api, AskError, StreamInfo};
use crate::error::GaveUp;
use crate::limits::{ANSWER_WAIT, LOOK_EVERY};

type Answer = Result<StreamInfo, AskError>;

/// Looks at the stream, now and then.
pub(crate) struct Look {
    next: Instant,
    /// A question that is not answered.
    asking: Option<Pin<Box<dyn Future<Output = Answer> + Send>>>,
    /// When it was asked.
    asked: Instant,
    /// When the first of the questions was asked that had no answer.
    silent: Option<Instant>,
    /// The last answer, or a record that was acknowledged since, says that the stream is
    /// this owner's.
    own: bool,
}

impl Look {
    pub(crate) fn new() -> Self {
        Self {
            next: Instant::now() + LOOK_EVERY,
            asking: None,
            asked: Instant::now(),
            silent: None,
            own: true,
        }
    }

    /// A record was acknowledged, which says as much as an answer.
    pub(crate) fn not_now(&mut self) {
        self.next = Instant::now() + LOOK_EVERY;
        self.asking = None;
        self.silent = None;
        self.own = true;
    }

    /// There is a reason to look.
    pub(crate) fn soon(&mut self) {
        self.next = Instant::now();
    }

    /// Whether the stream is this owner's has to be asked, or is being asked.
    pub(crate) fn is_open(&self, now: Instant) -> bool {
        !self.own || self.asking.is_some() || self.next <= now
    }

    /// The next answer. May be dropped and called again.
    pub(crate) async fn answer(&mut self, api: &Api) -> Answer {
        if self.asking.is_none() {
            sleep_until(self.next).await;
            self.asked = Instant::now();
        }
        let question = || -> Pin<Box<dyn Future<Output = Answer> + Send>> {
            let api = api.clone();
            Box::pin(async move { api.info().await })
        };
        let answer = self.asking.get_or_insert_with(question).await;
        self.asking = None;
        self.next = Instant::now() + LOOK_EVERY;
        answer
    }

    /// What an answer means for who wrote to this subject.
    pub(crate) fn judge(
        &mut self,
        answer: Answer,
        subject: &str,
        patience: Duration,
        now: Instant,
    ) -> Result<(), GaveUp> {
        self.own = false;
        match answer {
            Ok(info) if info.subject() == Some(subject) => {
                self.silent = None;
                self.own = true;
                Ok(())
            }
            Ok(info) if info.is_before(subject) => Ok(()),
            Ok(_) => Err(GaveUp::TakenOver),
            Err(error) if error.is_not_found() => Err(GaveUp::StreamGone),
            Err(error) => {
                tracing::debug!("NATS: {error}; looking again");
                let Some(since) = self.silent else {
                    // No longer ago than an answer is waited for: a process that was stopped
                    // for a while asks again before it gives up.
                    let waited = now.duration_since(self.asked).min(ANSWER_WAIT);
                    self.silent = now.checked_sub(waited);
                    return Ok(());
                };
                match now.duration_since(since) >= patience {
                    true => Err(GaveUp::Silent(patience.as_secs())),
                    false => Ok(()),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn info(subject: &str) -> Answer {
        Ok(StreamInfo {
            config: json!({ "subjects": [subject] }),
            first: 1,
            last: 1,
            bytes: 0,
            servers: Vec::new(),
        })
    }

    fn silence() -> Answer {
        Err(AskError::Silent("no answer".to_owned()))
    }

    #[test]
    fn silence_counts_from_the_first_question_on() {
        let patience = Duration::from_secs(30);
        let mut look = Look::new();
        let begin = look.asked;
        let at = |second| begin + Duration::from_secs(second);
        let mut judge = |answer, asked, second| {
            look.asked = at(asked);
            look.judge(answer, "a", patience, at(second))
        };
        // Stopped for long before the answer: it counts for 5 s.
        assert_eq!(judge(silence(), 10, 100), Ok(()));
        assert_eq!(judge(silence(), 119, 124), Ok(()));
        assert_eq!(judge(info("a"), 124, 125), Ok(()));
        assert_eq!(judge(silence(), 127, 130), Ok(()));
        assert_eq!(judge(silence(), 151, 156), Ok(()));
        assert_eq!(judge(silence(), 152, 157), Err(GaveUp::Silent(30)));
    }

    #[test]
    fn an_owner_is_sure_after_an_answer_alone() {
        let mut look = Look::new();
        let now = look.asked;
        assert!(!look.is_open(now));
        assert!(look.is_open(now + LOOK_EVERY + LOOK_EVERY));
        let subject = "p.p.0.9-a";
        let mut sure = |answer| {
            let judged = look.judge(answer, subject, Duration::MAX, now);
            assert_eq!(judged, Ok(()));
            !look.is_open(now)
        };
        assert!(!sure(silence()));
        assert!(sure(info(subject)));
        // A leader that is behind.
        assert!(!sure(info("p.p.0.8-b")));
    }

    #[test]
    fn another_subject_is_another_owner() {
        let judge = |seen: &str| {
            let now = Instant::now();
            Look::new().judge(info(seen), "p.p.0.9-a", Duration::MAX, now)
        };
        assert_eq!(judge("p.p.0.9-a"), Ok(()));
        assert_eq!(judge("p.p.0.9-b"), Err(GaveUp::TakenOver));
        assert_eq!(judge("p.p.0.10-b"), Err(GaveUp::TakenOver));
        // A leader that is behind.
        assert_eq!(judge("p.p.0.8-b"), Ok(()));
        assert_eq!(judge("other"), Err(GaveUp::TakenOver));
    }
}
