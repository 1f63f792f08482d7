//! What the cluster's secret proves: greetings, entries, and the keys of a link. Each is a
//! use of HMAC-SHA-256 under its own label, with every part behind its length.

use aws_lc_rs::hmac;

use crate::ids::NodeId;

/// Bytes of a proof.
pub(crate) const PROOF_BYTES: usize = 32;

/// Bytes of a number that is used once.
pub(crate) const NONCE_BYTES: usize = 16;

/// A random number that is used once.
pub(crate) type Nonce = [u8; NONCE_BYTES];

/// A proof, or a key.
pub(crate) type Proof = [u8; PROOF_BYTES];

/// The secret of a cluster, for one prefix of subjects.
#[derive(Clone)]
pub(crate) struct Authority {
    key: hmac::Key,
    prefix: String,
}

dunlin_base::opaque_debug!(Authority);

/// Who greets whom, as bytes.
pub(crate) struct Transcript<'a> {
    pub(crate) kind: u8,
    /// Numbers, incarnations and nonces.
    pub(crate) fields: &'a [u8],
}

impl Authority {
    pub(crate) fn new(secret: &[u8], prefix: &str) -> Self {
        Self {
            key: hmac::Key::new(hmac::HMAC_SHA256, secret),
            prefix: prefix.to_owned(),
        }
    }

    fn prove(&self, label: &str, parts: &[&[u8]]) -> Proof {
        derive(
            &self.key,
            label,
            &[&[self.prefix.as_bytes()][..], parts].concat(),
        )
    }

    pub(crate) fn prove_entry(&self, node: NodeId, text: &[u8]) -> Proof {
        self.prove("entry", &[&node.get().to_be_bytes(), text])
    }

    pub(crate) fn is_entry(&self, node: NodeId, text: &[u8], proof: &[u8]) -> bool {
        is_equal(&self.prove_entry(node, text), proof)
    }

    pub(crate) fn prove_greeting(&self, greeting: &Transcript<'_>) -> Proof {
        self.prove("greeting", &[&[greeting.kind], greeting.fields])
    }

    pub(crate) fn is_greeting(&self, greeting: &Transcript<'_>, proof: &Proof) -> bool {
        is_equal(&self.prove_greeting(greeting), proof)
    }

    /// Keys of a link, one for each direction, and its number.
    pub(crate) fn link(&self, fields: &[u8]) -> LinkKeys {
        let [a, b, c, d, e, f, g, h, ..] = self.prove("number", &[fields]);
        LinkKeys {
            from_first: self.prove("from first", &[fields]),
            from_second: self.prove("from second", &[fields]),
            number: u64::from_be_bytes([a, b, c, d, e, f, g, h]),
        }
    }
}

/// What both ends of a link derive from its greetings.
pub(crate) struct LinkKeys {
    /// What the end that greeted first sends is encrypted with it.
    pub(crate) from_first: Proof,
    pub(crate) from_second: Proof,
    pub(crate) number: u64,
}

/// The key of a direction for one of its spans of messages.
pub(crate) fn span_key(direction: &Proof, span: u64) -> Proof {
    let key = hmac::Key::new(hmac::HMAC_SHA256, direction);
    derive(&key, "span", &[&span.to_be_bytes()])
}

fn derive(key: &hmac::Key, label: &str, parts: &[&[u8]]) -> Proof {
    let mut context = hmac::Context::with_key(key);
    let labels = [&b"dunlin-bus 1"[..], label.as_bytes()];
    for part in labels.into_iter().chain(parts.iter().copied()) {
        context.update(&u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
        context.update(part);
    }
    let mut out = [0; PROOF_BYTES];
    let tag = context.sign();
    for (to, from) in out.iter_mut().zip(tag.as_ref()) {
        *to = *from;
    }
    out
}

fn is_equal(ours: &Proof, theirs: &[u8]) -> bool {
    aws_lc_rs::constant_time::verify_slices_are_equal(ours, theirs).is_ok()
}
