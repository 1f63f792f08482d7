//! Tokens that are valid, and those that are not.

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{
    self, ECDSA_P256_SHA256_ASN1_SIGNING, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair,
    Ed25519KeyPair, KeyPair as _, RsaKeyPair,
};
use aws_lc_rs::{hmac, rsa};
use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256};
use serde_json::json;

use super::*;
use crate::config::Config;

/// Of 1,024 bits.
const WEAK_RSA: &str = "-----BEGIN PUBLIC KEY-----
MIGfMA0GCSqGSIb3DQEBAQUAA4GNADCBiQKBgQDCxyGM8uUt3zAM9vz2Wv8eFGzP
7LPbmXLvt7TIFx28qnKuXaVKT690fgdUs1WtIfGo7MhJAVI0Zux/NCKItJpRbalC
UTvCgBNgfsdjIPI0tHQk6LmdVhSzc3FhlZmeXf/tnKFhQfs48dt9PsTXAEAEgWCO
pg3Mp5LlsN7yIQlZLwIDAQAB
-----END PUBLIC KEY-----
";

const SECRET: &str = "a secret that is thirty-two bytes";

fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.expect("after 1970").as_secs()
}

/// Tokens whose keys are fetched from here; they have none yet.
pub(in crate::auth) fn fetched(url: &str, rest: &str) -> Tokens {
    let text =
        format!("[auth]\njwt = {{ jwks_url = \"{url}\", algorithms = [\"ES256\"]{rest} }}\n");
    let config = Config::parse(Path::new("f"), &text).expect("valid");
    Tokens::load(&config.auth.jwt.expect("given")).expect("no file")
}

/// Verifies with these keys, and the rest of the inline table.
fn load(keys: &str, rest: &str) -> Result<Tokens, TokenError> {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("keys");
    std::fs::write(&path, keys).expect("written");
    let text = format!(
        "[auth]\njwt = {{ key_file = \"{}\", {rest} }}\n",
        path.display()
    );
    let config = Config::parse(Path::new("f"), &text).expect("valid");
    Tokens::load(&config.auth.jwt.expect("given"))
}

impl Tokens {
    /// As [`Tokens::verify`], of a client that says nothing else.
    fn valid(&mut self, token: &str) -> Option<Valid> {
        self.verify(token, Said::default()).ok()
    }
}

fn sign(header: &Value, claims: &Value, sign: impl Fn(&[u8]) -> Vec<u8>) -> String {
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let signed = format!("{}.{}", part(header), part(claims));
    let signature = sign(signed.as_bytes());
    format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
}

fn hmac_of(secret: &str, message: &[u8]) -> Vec<u8> {
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    hmac::sign(&key, message).as_ref().to_vec()
}

/// A key pair of P-256: its public key in PEM and as a point, and what it signs.
pub(in crate::auth) struct Pair(KeyPair, EcdsaKeyPair);

impl Pair {
    pub(in crate::auth) fn new() -> Self {
        let pair = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).expect("a key");
        let der = pair.serialize_der();
        let signs = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &der);
        Self(pair, signs.expect("PKCS #8"))
    }

    fn sign(&self, message: &[u8]) -> Vec<u8> {
        let signature = self.1.sign(&SystemRandom::new(), message);
        signature.expect("signed").as_ref().to_vec()
    }

    pub(in crate::auth) fn token(&self, claims: &Value) -> String {
        sign(&json!({"alg": "ES256"}), claims, |it| self.sign(it))
    }

    /// As [`Pair::token`], and says by which key it is signed.
    pub(in crate::auth) fn named(&self, id: &str, claims: &Value) -> String {
        let header = json!({"alg": "ES256", "kid": id});
        sign(&header, claims, |it| self.sign(it))
    }

    pub(in crate::auth) fn jwk(&self, id: &str) -> Value {
        let point = self.1.public_key().as_ref();
        let (x, y) = point[1..].split_at(32);
        let part = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        json!({"kty": "EC", "crv": "P-256", "kid": id, "x": part(x), "y": part(y)})
    }
}

/// Claims that are valid for `a_token...`, with one changed or without it.
pub(in crate::auth) fn claims(name: &str, value: Value) -> Value {
    let mut claims = json!({
        "sub": "alice", "aud": ["other", "dunlin"], "iss": "me", "exp": now() + 100,
    });
    let map = claims.as_object_mut().expect("a map");
    match value {
        Value::Null => drop(map.remove(name)),
        value => drop(map.insert(name.into(), value)),
    }
    claims
}

#[test]
fn a_token_lets_in_no_longer_than_the_broker_allows() {
    let pair = Pair::new();
    let pem = pair.0.public_key_pem();
    let year = 365 * 24 * 60 * 60;
    let lifetime = |rest: &str, secs: u64| {
        let rest = format!("algorithms = [\"ES256\"]{rest}");
        let mut tokens = load(&pem, &rest).expect("a public key");
        let token = pair.token(&claims("exp", json!(now() + secs)));
        tokens.valid(&token).expect("valid").lifetime.as_secs()
    };
    assert_eq!(lifetime("", year), 24 * 60 * 60);
    assert_eq!(lifetime(", max_lifetime = \"1h\"", year), 60 * 60);
    let brief = lifetime(", max_lifetime = \"1h\", leeway = \"0s\"", 100);
    assert!((98..=100).contains(&brief), "{brief}");
}

#[test]
fn a_token_is_what_its_claims_say_and_no_other_is_valid() {
    let pair = Pair::new();
    let rest =
        "algorithms = [\"ES256\"], audience = [\"dunlin\"], issuer = \"me\", leeway = \"1s\"";
    let mut tokens = load(&pair.0.public_key_pem(), rest).expect("a public key");
    let whole = claims("x", json!(1));
    let valid = tokens.valid(&pair.token(&whole)).expect("valid");
    assert_eq!(valid.user, "alice");
    let secs = valid.lifetime.as_secs();
    assert!((99..=101).contains(&secs), "{secs}");
    for (name, value) in [
        ("exp", json!(now() - 10)),
        ("exp", json!("tomorrow")),
        ("exp", Value::Null),
        ("nbf", json!(now() + 60)),
        ("aud", json!("other")),
        ("aud", json!(["other"])),
        ("aud", Value::Null),
        ("iss", json!("you")),
        ("iss", Value::Null),
        ("sub", Value::Null),
        ("sub", json!("")),
        ("sub", json!(7)),
        ("sub", json!("x".repeat(USER_BYTES_MAX + 1))),
        ("x", json!("x".repeat(TOKEN_BYTES_MAX))),
    ] {
        let token = pair.token(&claims(name, value.clone()));
        assert_eq!(tokens.valid(&token), None, "{name} {value}");
    }
    // Signed by another, with the public key as a secret, not at all, changed.
    assert_eq!(tokens.valid(&Pair::new().token(&whole)), None);
    let pem = pair.0.public_key_pem();
    for algorithm in ["HS256", "ES256", "none", "None", ""] {
        let header = json!({ "alg": algorithm });
        let confused = sign(&header, &whole, |it| hmac_of(&pem, it));
        assert_eq!(tokens.valid(&confused), None, "{algorithm}");
        assert_eq!(tokens.valid(&sign(&header, &whole, |_| vec![])), None);
    }
    let critical = json!({"alg": "ES256", "crit": ["exp"]});
    let critical = sign(&critical, &whole, |it| pair.sign(it));
    assert_eq!(tokens.valid(&critical), None);
    let token = pair.token(&whole);
    let (signed, _) = token.rsplit_once('.').expect("three parts");
    for text in [
        signed,
        &format!("{signed}."),
        "",
        ".",
        "..",
        "a.b.c",
        &token[1..],
    ] {
        assert_eq!(tokens.valid(text), None, "{text}");
    }
}

#[test]
fn the_key_of_a_set_is_chosen_by_its_id() {
    let (first, second) = (Pair::new(), Pair::new());
    let encrypts = json!({"kty": "RSA", "use": "enc", "n": "AQAB", "e": "AQAB"});
    let set = json!({ "keys": [first.jwk("1"), encrypts, second.jwk("2"), {"kty": "?"}] });
    let rest = "algorithms = [\"ES256\", \"RS256\"], user_claim = \"name\"";
    let mut tokens = load(&set.to_string(), rest).expect("a key set");
    let claims = json!({ "name": "bob", "exp": now() + 5, "aud": "any" });
    for (id, is_valid) in [("", true), ("2", true), ("1", false), ("3", false)] {
        let header = match id {
            "" => json!({"alg": "ES256"}),
            id => json!({"alg": "ES256", "kid": id}),
        };
        let verified = tokens.valid(&sign(&header, &claims, |it| second.sign(it)));
        let user = verified.map(|valid| valid.user);
        assert_eq!(user, is_valid.then(|| Text::from("bob")), "{id:?}");
    }
}

#[test]
fn the_configuration_knows_the_same_algorithms() {
    let names = keys::ALGORITHMS.map(|(name, _)| name);
    assert_eq!(names, crate::config::JWT_ALGORITHMS);
}

#[test]
fn keys_of_every_kind_verify() {
    let claims = json!({ "sub": "carol", "exp": now() + 5 });
    let valid = |keys: &str, algorithm: &str, token: &str| {
        let rest = format!("algorithms = [\"{algorithm}\"]");
        let mut tokens = load(keys, &rest).expect("keys");
        let user = tokens.valid(token).map(|valid| valid.user);
        assert_eq!(user, Some(Text::from("carol")), "{algorithm}");
    };
    let header = |algorithm: &str| json!({ "alg": algorithm });
    let secret = sign(&header("HS256"), &claims, |it| hmac_of(SECRET, it));
    valid(SECRET, "HS256", &secret);
    let oct = json!({"keys": [{"kty": "oct", "k": URL_SAFE_NO_PAD.encode(SECRET)}]});
    valid(&oct.to_string(), "HS256", &secret);
    let ed = Ed25519KeyPair::generate().expect("a key");
    let token = sign(&header("EdDSA"), &claims, |it| {
        ed.sign(it).as_ref().to_vec()
    });
    let x = URL_SAFE_NO_PAD.encode(ed.public_key().as_ref());
    let set = json!({"keys": [{"kty": "OKP", "crv": "Ed25519", "x": x}]});
    valid(&set.to_string(), "EdDSA", &token);
    let key = RsaKeyPair::generate(rsa::KeySize::Rsa2048).expect("a key");
    let public = key.public_key();
    let part = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
    let n = part(public.modulus().big_endian_without_leading_zero());
    let e = part(public.exponent().big_endian_without_leading_zero());
    let set = json!({"keys": [{"kty": "RSA", "n": n, "e": e}]});
    for (algorithm, how) in [
        ("RS256", &signature::RSA_PKCS1_SHA256),
        ("PS512", &signature::RSA_PSS_SHA512),
    ] {
        let token = sign(&header(algorithm), &claims, |it| {
            let mut signature = vec![0; key.public_modulus_len()];
            let signed = key.sign(how, &SystemRandom::new(), it, &mut signature);
            signed.expect("signed");
            signature
        });
        valid(&set.to_string(), algorithm, &token);
    }
}

#[test]
fn keys_that_cannot_be_used_are_said() {
    for (keys, rest, why) in [
        ("short", "[\"HS256\"]", "a secret of less than 32 bytes"),
        (SECRET, "[\"RS256\"]", "a secret is no key for RS256"),
        (
            "-----BEGIN PUBLIC KEY-----\nx\n",
            "[\"RS256\"]",
            "no public key",
        ),
        ("{\"keys\": 7}", "[\"RS256\"]", "`keys` is missing"),
        ("{\"keys\": []}", "[\"RS256\"]", "no key for any of"),
    ] {
        let rest = format!("algorithms = {rest}");
        let error = load(keys, &rest).expect_err(why).to_string();
        assert!(error.contains(why), "{error}");
    }
}

/// A set of keys, of which this one is the number `at`, from 1.
fn set_with(pair: &Pair, at: usize, more: usize, name: bool) -> String {
    let others = (0..more).map(|_| Pair::new());
    let mut keys: Vec<Value> = others.map(|other| other.jwk("other")).collect();
    keys.insert(at - 1, pair.jwk("mine"));
    for key in &mut keys {
        if !name {
            key.as_object_mut().expect("a map").remove("kid");
        }
    }
    json!({ "keys": keys }).to_string()
}

const ES256: &str = "algorithms = [\"ES256\"]";

#[test]
fn a_token_costs_few_checks_of_signatures() {
    let pair = Pair::new();
    let whole = claims("x", json!(1));
    let named = |id: &str| {
        let header = json!({"alg": "ES256", "kid": id});
        sign(&header, &whole, |it| pair.sign(it))
    };
    for (at, name, token, is_valid) in [
        (4, false, pair.token(&whole), true),
        (5, false, pair.token(&whole), false),
        (5, true, pair.token(&whole), false),
        // What names its key is not kept from it by others.
        (5, true, named("mine"), true),
        (5, false, named("mine"), false),
        (2, false, named("mine"), true),
    ] {
        let mut tokens = load(&set_with(&pair, at, 5, name), ES256).expect("a key set");
        let valid = tokens.valid(&token).is_some();
        assert_eq!(valid, is_valid, "{at} {name}");
    }
}

#[test]
fn headers_that_say_something_else_are_refused() {
    let pair = Pair::new();
    let mut tokens = load(&set_with(&pair, 1, 1, true), ES256).expect("a key set");
    let whole = claims("x", json!(1));
    let token = |header: &Value| sign(header, &whole, |it| pair.sign(it));
    for (name, value, is_valid) in [
        ("typ", json!("JWT"), true),
        ("typ", json!("at+jwt"), true),
        ("typ", json!("application/AT+JWT"), true),
        ("kid", json!("mine"), true),
        // Keys that come with a token, or from where it says, are not looked at.
        ("jwk", pair.jwk("mine"), true),
        ("jku", json!("http://127.0.0.1:9/"), true),
        // Another key, or no text.
        ("kid", json!("other"), false),
        ("kid", json!(7), false),
        ("kid", json!(["mine"]), false),
        ("kid", Value::Null, false),
        // Tokens for something else.
        ("typ", json!("logout+jwt"), false),
        ("typ", json!("dpop+jwt"), false),
        ("typ", json!(7), false),
        ("crit", json!([]), false),
        ("crit", Value::Null, false),
        ("alg", json!("none"), false),
        ("alg", json!("es256"), false),
        ("alg", json!(["ES256"]), false),
    ] {
        let mut header = json!({"alg": "ES256"});
        let map = header.as_object_mut().expect("a map");
        map.insert(name.into(), value.clone());
        let valid = tokens.valid(&token(&header)).is_some();
        assert_eq!(valid, is_valid, "{name} {value}");
    }
    // A key of its own, by which it is signed.
    let forger = Pair::new();
    let header = json!({"alg": "ES256", "jwk": forger.jwk("mine")});
    let forged = sign(&header, &whole, |it| forger.sign(it));
    assert_eq!(tokens.valid(&forged), None);
}

/// A token whose parts are these texts.
fn raw(pair: &Pair, header: &str, claims: &str) -> String {
    let part = |text: &str| URL_SAFE_NO_PAD.encode(text);
    let signed = format!("{}.{}", part(header), part(claims));
    let signature = pair.sign(signed.as_bytes());
    format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
}

#[test]
fn a_member_that_comes_twice_makes_a_token_invalid() {
    let pair = Pair::new();
    let mut tokens = load(&pair.0.public_key_pem(), ES256).expect("a public key");
    let exp = now() + 100;
    let once = format!(r#"{{"sub":"alice","exp":{exp}}}"#);
    let header = r#"{"alg":"ES256"}"#;
    assert!(tokens.valid(&raw(&pair, header, &once)).is_some());
    for claims in [
        format!(r#"{{"sub":"alice","sub":"root","exp":{exp}}}"#),
        format!(r#"{{"sub":"alice","\u0073ub":"root","exp":{exp}}}"#),
        format!(r#"{{"exp":1,"sub":"alice","exp":{exp}}}"#),
    ] {
        assert_eq!(tokens.valid(&raw(&pair, header, &claims)), None, "{claims}");
    }
    for header in [
        r#"{"alg":"none","alg":"ES256"}"#,
        r#"{"alg":"ES256","alg":"ES256"}"#,
    ] {
        assert_eq!(tokens.valid(&raw(&pair, header, &once)), None, "{header}");
    }
}

#[test]
fn numbers_and_names_have_bounds() {
    let pair = Pair::new();
    let mut tokens = load(&pair.0.public_key_pem(), ES256).expect("a public key");
    let header = r#"{"alg":"ES256"}"#;
    let exp = now() + 100;
    for (claims, is_valid) in [
        (format!(r#"{{"sub":"a","exp":{exp}.5}}"#), true),
        (format!(r#"{{"sub":"a","exp":{exp},"iat":{exp}}}"#), true),
        (r#"{"sub":"a","exp":1e18}"#.into(), true),
        (r#"{"sub":"a","exp":18446744073709551615}"#.into(), false),
        (r#"{"sub":"a","exp":1e300}"#.into(), false),
        (r#"{"sub":"a","exp":1e999}"#.into(), false),
        (r#"{"sub":"a","exp":-1}"#.into(), false),
        (r#"{"sub":"a","exp":true}"#.into(), false),
        (r#"{"sub":"a","exp":null}"#.into(), false),
        (r#"{"sub":"a","exp":[9999999999]}"#.into(), false),
        (format!(r#"{{"sub":"a","exp":{exp},"nbf":"0"}}"#), false),
        (format!(r#"{{"sub":"a","exp":{exp},"nbf":null}}"#), false),
        (format!(r#"{{"sub":"a","exp":{exp},"nbf":1e300}}"#), false),
        (format!(r#"{{"sub":"a","exp":{exp},"iat":"0"}}"#), false),
        (format!(r#"{{"sub":"a\u0000b","exp":{exp}}}"#), false),
        (format!(r#"{{"sub":"a\nb","exp":{exp}}}"#), false),
        (format!(r#"{{"sub":["a"],"exp":{exp}}}"#), false),
        (format!(r#"{{"sub":"\ud800","exp":{exp}}}"#), false),
        (format!(r#"[{{"sub":"a","exp":{exp}}}]"#), false),
        (format!(r#"{{"sub":"a","exp":{exp}}} "#), true),
        (format!(r#"{{"sub":"a","exp":{exp}}}x"#), false),
        ("[".repeat(4000), false),
    ] {
        let valid = tokens.valid(&raw(&pair, header, &claims)).is_some();
        assert_eq!(valid, is_valid, "{claims}");
    }
    let long = format!("{}.", "A".repeat(1 << 20));
    assert_eq!(tokens.valid(&long.repeat(3)), None);
}

#[test]
fn base64_has_one_form() {
    let pair = Pair::new();
    let mut tokens = load(&pair.0.public_key_pem(), ES256).expect("a public key");
    let token = pair.token(&claims("x", json!(1)));
    assert!(tokens.valid(&token).is_some());
    let (signed, signature) = token.rsplit_once('.').expect("three parts");
    // 64 bytes end in a character of which 4 bits count: here they are not 0.
    let alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let last = alphabet.find(&signature[signature.len() - 1..]);
    let at = last.expect("of the alphabet") + 1;
    let changed = format!(
        "{}{}",
        &signature[..signature.len() - 1],
        &alphabet[at..=at]
    );
    for signature in [
        changed,
        format!("{signature}="),
        format!("{signature}=="),
        format!("{signature}\n"),
        format!(" {signature}"),
        format!("{signature}A"),
    ] {
        let token = format!("{signed}.{signature}");
        assert_eq!(tokens.valid(&token), None, "{signature}");
    }
    // The form that TLS uses, of the same two numbers.
    let der = pair.0.serialize_der();
    let asn1 = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &der);
    let asn1 = asn1
        .expect("PKCS #8")
        .sign(&SystemRandom::new(), signed.as_bytes());
    let asn1 = URL_SAFE_NO_PAD.encode(asn1.expect("signed").as_ref());
    assert_eq!(tokens.valid(&format!("{signed}.{asn1}")), None);
}

#[test]
fn keys_are_used_only_for_what_they_are_for() {
    let pair = Pair::new();
    let token = pair.token(&claims("x", json!(1)));
    let both = "algorithms = [\"ES256\", \"ES384\", \"EdDSA\", \"HS256\"]";
    for (name, value, is_valid) in [
        ("alg", json!("ES256"), true),
        ("key_ops", json!(["sign", "verify"]), true),
        ("use", json!("sig"), true),
        ("alg", json!("ES384"), false),
        ("alg", json!("ECDH-ES"), false),
        ("key_ops", json!(["deriveBits"]), false),
        ("key_ops", json!("verify"), false),
        ("use", json!("enc"), false),
        ("crv", json!("P-384"), false),
        ("crv", json!("secp256k1"), false),
        ("crv", Value::Null, false),
    ] {
        let mut key = pair.jwk("mine");
        key.as_object_mut()
            .expect("a map")
            .insert(name.into(), value.clone());
        // Another, so that the set can be used at all.
        let set = json!({ "keys": [key, Pair::new().jwk("other")] });
        let mut tokens = load(&set.to_string(), both).expect("a key set");
        let valid = tokens.valid(&token).is_some();
        assert_eq!(valid, is_valid, "{name} {value}");
    }
    // A key for agreement is none for signatures, though it has the same length.
    let ed = Ed25519KeyPair::generate().expect("a key");
    let x = URL_SAFE_NO_PAD.encode(ed.public_key().as_ref());
    let set = json!({"keys": [{"kty": "OKP", "crv": "X25519", "x": x}]});
    let error = load(&set.to_string(), both).expect_err("none for it");
    assert!(error.to_string().contains("no key for any of"), "{error}");
}

#[test]
fn weak_keys_and_public_secrets_are_refused() {
    let weak = RsaKeyPair::generate(rsa::KeySize::Rsa2048).expect("a key");
    let modulus = weak.public_key().modulus();
    let n = URL_SAFE_NO_PAD.encode(&modulus.big_endian_without_leading_zero()[..128]);
    let short = json!({"keys": [{"kty": "RSA", "n": n, "e": "AQAB"}]}).to_string();
    let pem = Pair::new().0.public_key_pem();
    let (after, before) = (format!("# a key\n{pem}"), format!("\u{feff}{pem}"));
    for (keys, algorithms, why) in [
        (SECRET, "\"HS384\"", "a secret of less than 48 bytes"),
        (
            SECRET,
            "\"HS256\", \"HS512\"",
            "a secret of less than 64 bytes",
        ),
        (
            SECRET,
            "\"HS256\", \"RS256\"",
            "a secret is no key for RS256",
        ),
        (&short, "\"RS256\"", "RSA keys have 2048"),
        (WEAK_RSA, "\"RS256\"", "an RSA key of less than 2048"),
        // Who has the public key would have the secret.
        (&after, "\"HS256\"", "text before a key in PEM"),
        (&before, "\"HS256\"", "no key for any of"),
    ] {
        let rest = format!("algorithms = [{algorithms}]");
        let error = load(keys, &rest).expect_err(why).to_string();
        assert!(error.contains(why), "{why}: {error}");
    }
    // A set whose secret is long enough for one of two.
    let oct = json!({"keys": [{"kty": "oct", "k": URL_SAFE_NO_PAD.encode(SECRET)}]});
    let tokens = load(&oct.to_string(), "algorithms = [\"HS256\", \"HS512\"]");
    let mut tokens = tokens.expect("a key");
    let whole = claims("x", json!(1));
    let token = sign(&json!({"alg": "HS512"}), &whole, |it| {
        let key = hmac::Key::new(hmac::HMAC_SHA512, SECRET.as_bytes());
        hmac::sign(&key, it).as_ref().to_vec()
    });
    assert_eq!(tokens.valid(&token), None);
    let token = sign(&json!({"alg": "HS256"}), &whole, |it| hmac_of(SECRET, it));
    assert!(tokens.valid(&token).is_some());
}

#[test]
fn a_token_says_who_its_client_is() {
    let pair = Pair::new();
    let pem = pair.0.public_key_pem();
    let rest = "algorithms = [\"ES256\"], user_name = \"same\", client_id_claim = \"cid\"";
    let mut tokens = load(&pem, rest).expect("a public key");
    let mut verify = |claims: &Value, user_name, client_id| {
        let said = Said {
            user_name,
            client_id,
        };
        tokens.verify(&pair.token(claims), said).is_ok()
    };
    let own = claims("cid", json!("pump-7"));
    assert!(verify(&own, Some("alice"), Some("pump-7")));
    assert!(!verify(&own, Some("bob"), Some("pump-7")));
    assert!(!verify(&own, Some(""), Some("pump-7")));
    assert!(!verify(&own, Some("alice"), Some("pump-8")));
    // What is not said cannot be wrong.
    assert!(verify(&own, None, None));
    for claims in [claims("cid", Value::Null), claims("cid", json!(7))] {
        assert!(!verify(&claims, Some("alice"), Some("pump-7")), "{claims}");
    }
}

#[test]
fn a_token_has_rules_where_that_is_wanted() {
    let pair = Pair::new();
    let pem = pair.0.public_key_pem();
    let rules = |rest: &str, claims: &Value| {
        let mut tokens = load(&pem, &format!("algorithms = [\"ES256\"]{rest}")).expect("a key");
        let valid = tokens.valid(&pair.token(claims))?;
        Some(valid.rules.map(|rules| rules.text().to_owned()))
    };
    let acl = claims("acl", json!({"pub": ["d/%c"]}));
    let read = ", rules_claim = \"acl\"";
    assert_eq!(rules("", &acl), Some(None));
    assert_eq!(rules(read, &acl), Some(Some("write d/%c\n".into())));
    // Nothing is allowed by a token that says nothing.
    assert_eq!(
        rules(read, &claims("acl", Value::Null)),
        Some(Some(String::new()))
    );
    assert_eq!(rules(read, &claims("acl", json!(7))), None);
}

#[test]
fn a_token_has_groups_and_limits_where_that_is_wanted() {
    let pair = Pair::new();
    let pem = pair.0.public_key_pem();
    let own = |rest: &str, claims: &Value| {
        let mut tokens = load(&pem, &format!("algorithms = [\"ES256\"]{rest}")).expect("a key");
        let valid = tokens.valid(&pair.token(claims))?;
        Some(valid.rules.map(|rules| rules.text().to_owned()))
    };
    let read = ", limits_claim = \"limits\", groups_claim = \"groups\"";
    let limits = claims("limits", json!({"messages": 5}));
    assert_eq!(own("", &limits), Some(None));
    let open = "open\nlimit messages 5\n".to_owned();
    assert_eq!(own(read, &limits), Some(Some(open)));
    // Where rules are wanted too, a token without them allows nothing.
    let both = format!("{read}, rules_claim = \"acl\"");
    assert_eq!(own(&both, &limits), Some(Some("limit messages 5\n".into())));
    let groups = claims("groups", json!("ops"));
    assert_eq!(own(read, &groups), Some(Some("open\ngroup ops\n".into())));
    for wrong in [
        json!({"messages": 0.5}),
        json!(["messages"]),
        json!({"x": 1}),
    ] {
        assert_eq!(own(read, &claims("limits", wrong.clone())), None, "{wrong}");
    }
    assert_eq!(own(read, &claims("groups", json!(7))), None);
}

/// Keys are taken away from under it, so that only what is known can be valid.
#[test]
fn a_token_that_comes_again_is_compared_with_everything_but_its_key() {
    let pair = Pair::new();
    let rest = "algorithms = [\"ES256\"], leeway = \"0s\", user_name = \"same\", \
                client_id_claim = \"cid\"";
    let begin = now();
    let token = pair.token(&json!({
        "sub": "alice", "cid": "pump-7", "nbf": begin, "exp": begin + 100,
    }));
    let load_for = |pair: &Pair| load(&pair.0.public_key_pem(), rest).expect("a public key");
    let mut tokens = load_for(&pair);
    let said = |user_name, client_id| Said {
        user_name: Some(user_name),
        client_id: Some(client_id),
    };
    let his = said("alice", "pump-7");
    let at = |secs| Duration::from_secs(begin) + Duration::from_millis(secs);
    let first = tokens.verify_at(&token, his, at(50_000)).expect("valid");
    assert_eq!(first.lifetime, Duration::from_secs(50));
    tokens.keys = load_for(&Pair::new()).keys;
    let again = tokens.verify_at(&token, his, at(99_999)).expect("known");
    assert_eq!(again.lifetime, Duration::from_millis(1));
    assert_eq!((again.user, again.rules), (first.user, None));
    // Its time, and who sends it.
    let before = Duration::from_secs(begin - 1);
    for (said, time) in [
        (his, at(100_000)),
        (his, before),
        (said("bob", "pump-7"), at(0)),
        (said("alice", "pump-8"), at(0)),
    ] {
        let valid = tokens.verify_at(&token, said, time);
        let is_refused = matches!(valid, Err(Refused::Invalid(_)));
        assert!(is_refused, "{said:?} {time:?}: {valid:?}");
    }
    // Another one, however alike: what is refused is not known either.
    for twice in [false, true] {
        for place in 0..token.len() {
            let mut other = token.clone().into_bytes();
            other[place] = if other[place] == b'A' { b'B' } else { b'A' };
            let other = String::from_utf8(other).expect("ASCII");
            let valid = tokens.verify_at(&other, his, at(0));
            let is_refused = matches!(valid, Err(Refused::Invalid(_)));
            assert!(is_refused, "{place} {twice}: {valid:?}");
        }
    }
    assert!(tokens.verify_at(&token, his, at(0)).is_ok());
}

#[test]
fn other_keys_know_no_token_of_the_former_ones() {
    let (pair, other) = (Pair::new(), Pair::new());
    let token = pair.token(&claims("x", json!(1)));
    let mut tokens = fetched("http://127.0.0.1:1/", "");
    let keys = |pair: &Pair| Fetched::of(&json!({"keys": [pair.jwk("1")]}).to_string(), "ES256");
    tokens.set_keys(keys(&pair));
    assert!(tokens.valid(&token).is_some() && tokens.valid(&token).is_some());
    tokens.set_keys(keys(&other));
    assert_eq!(tokens.valid(&token), None);
    tokens.set_keys(keys(&pair));
    assert!(tokens.valid(&token).is_some());
    // A reload goes on with the keys that were fetched.
    let mut next = fetched("http://127.0.0.1:1/", "");
    next.adopt(tokens);
    assert!(next.valid(&token).is_some());
    next.adopt(fetched("http://127.0.0.1:1/", ""));
    assert_eq!(next.verify(&token, Said::default()), Err(Refused::NoKey));
}

#[test]
fn the_same_keys_again_keep_what_is_known() {
    let (pair, other) = (Pair::new(), Pair::new());
    let token = pair.token(&claims("x", json!(1)));
    let set = |id: &str| Fetched::of(&json!({"keys": [pair.jwk(id)]}).to_string(), "ES256");
    for (again, is_known) in [
        (set("1"), true),
        (Fetched::none(), true),
        // The same key in another set.
        (set("2"), false),
    ] {
        let mut tokens = fetched("http://127.0.0.1:1/", "");
        tokens.set_keys(set("1"));
        assert!(tokens.valid(&token).is_some());
        tokens.set_keys(again);
        // No key there is has signed it: it is known, or refused.
        tokens.keys = load(&other.0.public_key_pem(), ES256).expect("a key").keys;
        assert_eq!(tokens.valid(&token).is_some(), is_known);
    }
}

#[test]
fn a_megabyte_is_no_token() {
    let pair = Pair::new();
    let mut tokens = load(&pair.0.public_key_pem(), "algorithms = [\"ES256\"]").expect("a key");
    let long = claims("more", json!("x".repeat(1024 * 1024)));
    assert_eq!(
        tokens.verify(&pair.token(&long), Said::default()),
        Err(Refused::Invalid("it is too long"))
    );
}

#[test]
fn the_log_says_what_is_wrong_with_a_token() {
    let pair = Pair::new();
    let more = "algorithms = [\"ES256\"], audience = [\"us\"], issuer = \"them\", \
        leeway = \"0s\", user_name = \"same\", client_id_claim = \"id\", rules_claim = \"acl\"";
    let mut tokens = load(&pair.0.public_key_pem(), more).expect("a key");
    let right = json!({
        "sub": "alice", "exp": now() + 60, "aud": "us", "iss": "them", "id": "pump-7", "acl": ""
    });
    let said = Said {
        user_name: Some("alice"),
        client_id: Some("pump-7"),
    };
    assert!(tokens.verify(&pair.token(&right), said).is_ok());
    let cases = [
        ("exp", json!(now() - 60), "expired"),
        ("exp", json!("soon"), "a time"),
        ("nbf", json!(now() + 60), "not valid yet"),
        ("aud", json!("others"), "audience"),
        ("iss", json!("others"), "issuer"),
        ("sub", json!(7), "no user"),
        ("sub", json!("bob"), "user name"),
        ("id", json!("pump-8"), "client identifier"),
        ("acl", json!(7), "rules"),
    ];
    let mut why = |token: &str| match tokens.verify(token, said) {
        Err(Refused::Invalid(why)) => why,
        other => panic!("{token}: {other:?}"),
    };
    for (claim, value, word) in cases {
        let mut wrong = right.clone();
        wrong[claim] = value;
        let why = why(&pair.token(&wrong));
        assert!(why.contains(word), "{wrong}: {why}");
    }
    let mut endless = right.clone();
    endless.as_object_mut().expect("an object").remove("exp");
    assert!(why(&pair.token(&endless)).contains("no end"));
    assert!(why(&Pair::new().token(&right)).contains("signature"));
    assert!(why("no token").contains("no JSON Web Token"));
}
