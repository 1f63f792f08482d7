//! An error in one sentence.

use core::error::Error;

/// An error and its causes, without those that an error above has quoted.
#[must_use]
pub fn sentence(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let causes = core::iter::successors(error.source(), |&cause| cause.source());
    for cause in causes.map(ToString::to_string) {
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
        assert_eq!(sentence(quoting.as_ref()), "cannot write x: no room");
        let plain = Err::<(), _>(std::io::Error::other("no room")).context("cannot write x");
        let plain = plain.expect_err("wrong");
        assert_eq!(sentence(plain.as_ref()), "cannot write x: no room");
    }
}
