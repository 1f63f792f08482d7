//! An error in one sentence.

/// An error and its causes, without those that an error above has quoted.
#[must_use]
pub fn sentence(error: &anyhow::Error) -> String {
    let mut text = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !text.contains(&cause) {
            text.push_str(": ");
            text.push_str(&cause);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use anyhow::Context as _;

    use super::*;

    #[test]
    fn causes_are_said_once() {
        let quoting = anyhow::anyhow!("no room").context("cannot write x: no room");
        assert_eq!(sentence(&quoting), "cannot write x: no room");
        let plain = Err::<(), _>(std::io::Error::other("no room")).context("cannot write x");
        let plain = plain.expect_err("wrong");
        assert_eq!(sentence(&plain), "cannot write x: no room");
    }
}
