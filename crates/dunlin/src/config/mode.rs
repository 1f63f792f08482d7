//! Permissions of a file, as configured.

use core::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Permission bits of a file, in octal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mode(pub u32);

impl Mode {
    fn parse(text: &str) -> Result<Self, String> {
        let digits = text.len() >= 3 && text.bytes().all(|byte| byte.is_ascii_digit());
        let bits = u32::from_str_radix(text, 8).ok();
        let bits = bits.filter(|bits| digits && *bits <= 0o777);
        bits.map(Self)
            .ok_or_else(|| format!("`{text}` is no mode of a file such as \"0660\""))
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04o}", self.0)
    }
}

impl<'de> Deserialize<'de> for Mode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).map_err(serde::de::Error::custom)
    }
}

impl Serialize for Mode {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_octal() {
        for (text, bits) in [("0660", 0o660), ("777", 0o777), ("000", 0)] {
            assert_eq!(Mode::parse(text), Ok(Mode(bits)));
        }
        assert_eq!(Mode(0o66).to_string(), "0066");
        for text in ["", "66", "0888", "rw-rw----", "1777", "-660", "+660"] {
            let error = Mode::parse(text).expect_err(text);
            assert!(error.contains("is no mode of a file"), "{error}");
        }
    }
}
