//! What may go wrong with a server of Kafka, and what follows from it.

use core::fmt;

use crate::target::Failure;

/// What went wrong.
#[derive(Debug, thiserror::Error)]
pub(super) enum KafkaError {
    /// The connection does not come, or ended.
    #[error("{0}")]
    Connection(#[from] std::io::Error),
    /// The time for it is over.
    #[error("it did not answer in time")]
    Time,
    /// An answer is not what the protocol says.
    #[error("an answer is malformed")]
    Malformed,
    /// An answer is longer than one of this protocol is.
    #[error("an answer of {0} bytes is too long")]
    TooLong(usize),
    /// The server is too old, or too new.
    #[error("it takes no version of {0} that the sink has")]
    Version(&'static str),
    /// The server says so.
    #[error("{what}: {code}{}{}", if why.is_empty() { "" } else { ", " }, why)]
    Answer {
        /// About what.
        what: &'static str,
        /// Its number.
        code: Code,
        /// In words.
        why: String,
    },
    /// The server or the sink does not believe the other.
    #[error("SCRAM: {0}")]
    Scram(dunlin_sasl::scram::ScramError),
    /// No server takes rows for a partition at the moment.
    #[error("partition {0} has no leader")]
    NoLeader(usize),
}

impl From<KafkaError> for Failure {
    fn from(error: KafkaError) -> Self {
        let why = format!("Kafka: {error}");
        match error {
            KafkaError::Answer { code, .. } if code.is_refusal() => Self::Refused(why),
            _ => Self::Later(why),
        }
    }
}

/// A number by which a server says what is wrong; 0: nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Code(pub(super) i16);

impl Code {
    pub(super) const LEADER_NOT_AVAILABLE: Self = Self(5);
    const OUT_OF_ORDER_SEQUENCE_NUMBER: Self = Self(45);
    const DUPLICATE_SEQUENCE_NUMBER: Self = Self(46);
    const INVALID_PRODUCER_EPOCH: Self = Self(47);
    const INVALID_PRODUCER_ID_MAPPING: Self = Self(49);
    const UNKNOWN_PRODUCER_ID: Self = Self(59);

    /// An error unless nothing is wrong.
    pub(super) fn check(self, what: &'static str, why: Option<&str>) -> Result<(), KafkaError> {
        match self {
            Self(0) => Ok(()),
            code => {
                let why = why.unwrap_or_default().to_owned();
                Err(KafkaError::Answer { what, code, why })
            }
        }
    }

    /// The records are in the partition: now, or since an attempt whose answer was lost.
    pub(super) const fn is_stored(self) -> bool {
        matches!(self, Self(0) | Self::DUPLICATE_SEQUENCE_NUMBER)
    }

    /// The server does not know how far the producer came: another one begins.
    pub(super) const fn ends_producer(self) -> bool {
        matches!(
            self,
            Self::OUT_OF_ORDER_SEQUENCE_NUMBER
                | Self::INVALID_PRODUCER_EPOCH
                | Self::INVALID_PRODUCER_ID_MAPPING
                | Self::UNKNOWN_PRODUCER_ID
        )
    }

    /// It is about the records: one that is too long, or that the topic does not take.
    const fn is_refusal(self) -> bool {
        matches!(self.0, 10 | 18 | 32 | 87)
    }

    const fn name(self) -> &'static str {
        match self.0 {
            1 => "OFFSET_OUT_OF_RANGE",
            2 => "CORRUPT_MESSAGE",
            3 => "UNKNOWN_TOPIC_OR_PARTITION",
            5 => "LEADER_NOT_AVAILABLE",
            6 => "NOT_LEADER_OR_FOLLOWER",
            7 => "REQUEST_TIMED_OUT",
            8 => "BROKER_NOT_AVAILABLE",
            10 => "MESSAGE_TOO_LARGE",
            13 => "NETWORK_EXCEPTION",
            14 => "COORDINATOR_LOAD_IN_PROGRESS",
            15 => "COORDINATOR_NOT_AVAILABLE",
            17 => "INVALID_TOPIC_EXCEPTION",
            18 => "RECORD_LIST_TOO_LARGE",
            19 => "NOT_ENOUGH_REPLICAS",
            20 => "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
            29 => "TOPIC_AUTHORIZATION_FAILED",
            31 => "CLUSTER_AUTHORIZATION_FAILED",
            32 => "INVALID_TIMESTAMP",
            33 => "UNSUPPORTED_SASL_MECHANISM",
            34 => "ILLEGAL_SASL_STATE",
            35 => "UNSUPPORTED_VERSION",
            45 => "OUT_OF_ORDER_SEQUENCE_NUMBER",
            46 => "DUPLICATE_SEQUENCE_NUMBER",
            47 => "INVALID_PRODUCER_EPOCH",
            49 => "INVALID_PRODUCER_ID_MAPPING",
            56 => "KAFKA_STORAGE_ERROR",
            58 => "SASL_AUTHENTICATION_FAILED",
            59 => "UNKNOWN_PRODUCER_ID",
            87 => "INVALID_RECORD",
            89 => "THROTTLING_QUOTA_EXCEEDED",
            _ => "error",
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name(), self.0)
    }
}
