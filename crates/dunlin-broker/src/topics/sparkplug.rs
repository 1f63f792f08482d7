//! What a Sparkplug Aware MQTT Server does (Sparkplug 3.0, chapter 10): birth messages
//! of edge nodes and devices are retained as their certificates.

use alloc::format;
use alloc::string::String;

/// The namespace of Sparkplug B.
const NAMESPACE: &str = "spBv1.0/";

/// In front of the topics of certificates, to which no client publishes.
pub(crate) const CERTIFICATES: &str = "$sparkplug/certificates/";

/// The topic of a certificate, if the message of this topic is a birth.
pub(crate) fn certificate(topic: &str) -> Option<String> {
    let rest = topic.strip_prefix(NAMESPACE)?;
    let mut levels = rest.split('/');
    let (_, kind, _) = (levels.next()?, levels.next()?, levels.next()?);
    let device = levels.next();
    let is_birth = match kind {
        "NBIRTH" => device.is_none(),
        "DBIRTH" => device.is_some(),
        _ => false,
    };
    let is_whole = levels.next().is_none() && !rest.split('/').any(str::is_empty);
    (is_birth && is_whole).then(|| format!("{CERTIFICATES}{topic}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn births_have_certificates() {
        for (topic, is_birth) in [
            ("spBv1.0/g/NBIRTH/n", true),
            ("spBv1.0/g/DBIRTH/n/d", true),
            ("spBv1.0/g/NBIRTH/n/d", false),
            ("spBv1.0/g/DBIRTH/n", false),
            ("spBv1.0/g/DBIRTH/n/d/x", false),
            ("spBv1.0/g/NBIRTH/", false),
            ("spBv1.0//NBIRTH/n", false),
            ("spBv1.0/g/NDATA/n", false),
            ("spBv1.0/STATE/h", false),
            ("x/spBv1.0/g/NBIRTH/n", false),
            ("spAv1.0/g/NBIRTH/n", false),
            ("$sparkplug/certificates/spBv1.0/g/NBIRTH/n", false),
        ] {
            let want = is_birth.then(|| format!("$sparkplug/certificates/{topic}"));
            assert_eq!(certificate(topic), want, "{topic}");
        }
    }
}
