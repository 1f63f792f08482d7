//! What an owner sees of its stream while it writes nothing: whether it is still its own.

use core::pin::Pin;
use core::time::Duration;

use tokio::time::{Instant, sleep_until};

use crate::api::{Api, AskError, StreamInfo};
use crate::error::GaveUp;
use crate::limits::LOOK_EVERY;

type Answer = Result<StreamInfo, AskError>;

/// Looks at the stream, now and then.
pub(crate) struct Look {
    next: Instant,
    /// A question that is not answered.
    asking: Option<Pin<Box<dyn Future<Output = Answer> + Send>>>,
    /// Since when no question was.
    silent: Option<Instant>,
}

impl Look {
    pub(crate) fn new() -> Self {
        Self {
            next: Instant::now() + LOOK_EVERY,
            asking: None,
            silent: None,
        }
    }

    /// A record was acknowledged, which says as much as an answer.
    pub(crate) fn not_now(&mut self) {
        self.next = Instant::now() + LOOK_EVERY;
        self.silent = None;
    }

    /// The next answer. May be dropped and called again.
    pub(crate) async fn answer(&mut self, api: &Api) -> Answer {
        if self.asking.is_none() {
            sleep_until(self.next).await;
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
        match answer {
            Ok(info) if info.subject() == Some(subject) => {
                self.silent = None;
                Ok(())
            }
            Ok(info) if info.is_before(subject) => Ok(()),
            Ok(_) => Err(GaveUp::TakenOver),
            Err(error) if error.is_not_found() => Err(GaveUp::StreamGone),
            Err(error) => {
                tracing::debug!("NATS: {error}; looking again");
                // From the first question on, so that a process that was stopped for a
                // while asks again before it gives up.
                let since = *self.silent.get_or_insert(now);
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
        let begin = Instant::now();
        let mut judge = |answer, second| {
            let now = begin + Duration::from_secs(second);
            look.judge(answer, "a", patience, now)
        };
        // Stopped for long before it asked.
        assert_eq!(judge(silence(), 100), Ok(()));
        assert_eq!(judge(silence(), 129), Ok(()));
        assert_eq!(judge(info("a"), 130), Ok(()));
        assert_eq!(judge(silence(), 131), Ok(()));
        assert_eq!(judge(silence(), 160), Ok(()));
        assert_eq!(judge(silence(), 161), Err(GaveUp::Silent(30)));
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
