//! Numbers of values in encodings. A number stands for the same for ever, and none is
//! used twice.

use super::{BindingType, CloseCause, Repeat, Transport};

/// One table for both directions, so that a new variant needs its number.
macro_rules! numbers {
    ($($name:ident { $($variant:ident = $number:literal,)+ })+) => {$(
        impl $name {
            /// Its number in encodings.
            #[must_use]
            pub const fn number(self) -> u8 {
                match self {
                    $(Self::$variant => $number,)+
                }
            }

            /// The one with this number, if there is one.
            #[must_use]
            pub const fn from_number(number: u8) -> Option<Self> {
                match number {
                    $($number => Some(Self::$variant),)+
                    _ => None,
                }
            }
        }
    )+};
}

numbers! {
    Transport {
        Quic = 1,
        Tcp = 2,
        Tls = 3,
        Ws = 4,
        Wss = 5,
        Unix = 6,
    }
    Repeat {
        Never = 1,
        Lone = 2,
        OnLoss = 3,
        Always = 4,
    }
    BindingType {
        TlsExporter = 1,
        TlsServerEndPoint = 2,
    }
}

impl CloseCause {
    /// Its number in encodings, with the code and the text that go with it, which are 0
    /// and empty where it has none.
    #[must_use]
    pub fn parts(&self) -> (u8, u64, &str) {
        match self {
            Self::Peer { code } => (1, *code, ""),
            Self::Local => (2, 0, ""),
            Self::IdleTimeout => (3, 0, ""),
            Self::HandshakeTimeout => (4, 0, ""),
            Self::AddressGone => (5, 0, ""),
            Self::Failed(text) => (6, 0, text),
        }
    }

    /// The one with these [`CloseCause::parts`], if there is one.
    #[must_use]
    pub fn from_parts(number: u8, code: u64, text: &str) -> Option<Self> {
        Some(match number {
            1 => Self::Peer { code },
            2 => Self::Local,
            3 => Self::IdleTimeout,
            4 => Self::HandshakeTimeout,
            5 => Self::AddressGone,
            6 => Self::failed(text),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_lead_back_to_what_they_stand_for() {
        let known = |number: &u8| {
            let transport = Transport::from_number(*number).map(Transport::number);
            let repeat = Repeat::from_number(*number).map(Repeat::number);
            let binding = BindingType::from_number(*number).map(BindingType::number);
            let cause = CloseCause::from_parts(*number, 7, "why");
            let cause = cause.map(|cause| {
                let (number, code, text) = cause.parts();
                assert_eq!(
                    CloseCause::from_parts(number, code, text),
                    Some(cause.clone())
                );
                number
            });
            for found in [transport, repeat, binding, cause].into_iter().flatten() {
                assert_eq!(found, *number);
            }
            [transport, repeat, binding, cause].map(|found| found.is_some())
        };
        let all: alloc::vec::Vec<_> = (0..=u8::MAX).map(|number| known(&number)).collect();
        let count = |of: usize| all.iter().filter(|found| found[of]).count();
        assert_eq!([count(0), count(1), count(2), count(3)], [6, 4, 2, 6]);
    }
}
