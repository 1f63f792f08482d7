//! Wall time in the forms that mosquitto_sub prints. Always UTC.

use std::time::{SystemTime, UNIX_EPOCH};

use time::{OffsetDateTime, UtcDateTime};

/// A moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct WallTime(OffsetDateTime);

impl WallTime {
    /// This one.
    pub(super) fn now() -> Self {
        let since = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        Self((UtcDateTime::UNIX_EPOCH + since).into())
    }

    /// `2026-11-21T09:23:51+0000`.
    pub(super) fn iso_8601(self) -> String {
        format!("{}T{}+0000", self.strftime('F'), self.strftime('T'))
    }

    /// `2026-11-21T09:23:51.662859Z+0000`, as in mosquitto's JSON.
    pub(super) fn iso_8601_micros(self) -> String {
        let micros = self.0.microsecond();
        format!(
            "{}T{}.{micros:06}Z+0000",
            self.strftime('F'),
            self.strftime('T')
        )
    }

    /// `1795253031.662997397`.
    pub(super) fn unix(self) -> String {
        format!("{}.{:09}", self.0.unix_timestamp(), self.0.nanosecond())
    }

    /// One conversion of `strftime`; those that depend on a language are
    /// English, unknown ones are left out.
    pub(super) fn strftime(self, specifier: char) -> String {
        let t = self.0;
        let hour12 = (t.hour() + 11) % 12 + 1;
        let month = t.month().to_string();
        let weekday = t.weekday().to_string();
        let short = |text: &str| text.chars().take(3).collect::<String>();
        match specifier {
            'A' => weekday,
            'a' => short(&weekday),
            'B' => month,
            'b' | 'h' => short(&month),
            'C' => format!("{:02}", t.year() / 100),
            'c' => format!(
                "{} {} {:2} {} {}",
                short(&weekday),
                short(&month),
                t.day(),
                self.strftime('T'),
                t.year()
            ),
            'D' | 'x' => format!(
                "{:02}/{:02}/{:02}",
                u8::from(t.month()),
                t.day(),
                t.year() % 100
            ),
            'd' => format!("{:02}", t.day()),
            'e' => format!("{:2}", t.day()),
            'F' => format!("{}-{:02}-{:02}", t.year(), u8::from(t.month()), t.day()),
            'H' => format!("{:02}", t.hour()),
            'I' => format!("{hour12:02}"),
            'j' => format!("{:03}", t.ordinal()),
            'k' => format!("{:2}", t.hour()),
            'l' => format!("{hour12:2}"),
            'M' => format!("{:02}", t.minute()),
            'm' => format!("{:02}", u8::from(t.month())),
            'N' => format!("{:09}", t.nanosecond()),
            'n' => "\n".into(),
            'p' => (if t.hour() < 12 { "AM" } else { "PM" }).into(),
            'R' => format!("{:02}:{:02}", t.hour(), t.minute()),
            'S' => format!("{:02}", t.second()),
            's' => t.unix_timestamp().to_string(),
            'T' | 'X' => format!("{:02}:{:02}:{:02}", t.hour(), t.minute(), t.second()),
            't' => "\t".into(),
            'u' => t.weekday().number_from_monday().to_string(),
            'V' => format!("{:02}", t.iso_week()),
            'w' => t.weekday().number_days_from_sunday().to_string(),
            'Y' => t.year().to_string(),
            'y' => format!("{:02}", t.year() % 100),
            'Z' => "UTC".into(),
            'z' => "+0000".into(),
            _ => String::new(),
        }
    }

    /// A given moment, for tests.
    #[cfg(test)]
    pub(super) fn from_unix_nanos(nanos: i128) -> Self {
        Self(OffsetDateTime::from_unix_timestamp_nanos(nanos).expect("in range"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_known_moment_in_all_forms() {
        let at = WallTime::from_unix_nanos(1_795_253_031_662_997_397);
        assert_eq!(at.iso_8601(), "2026-11-21T09:23:51+0000");
        assert_eq!(at.iso_8601_micros(), "2026-11-21T09:23:51.662997Z+0000");
        assert_eq!(at.unix(), "1795253031.662997397");
        let cases = [
            ('A', "Saturday"),
            ('b', "Nov"),
            ('c', "Sat Nov 21 09:23:51 2026"),
            ('D', "11/21/26"),
            ('I', "09"),
            ('j', "325"),
            ('p', "AM"),
            ('N', "662997397"),
            ('?', ""),
        ];
        for (specifier, want) in cases {
            assert_eq!(at.strftime(specifier), want, "{specifier}");
        }
    }
}
