//! Stands in for Google as an issuer of identity tokens. Shapes: Google's pages
//! on ID tokens and on authenticated Pub/Sub push.

use std::sync::{Arc, LazyLock};

use aws_lc_rs::hmac;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::{KeyPair, KeySize};
use aws_lc_rs::signature::{KeyPair as _, RSA_PKCS1_SHA256, RsaEncoding};
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD as BASE64;
use jiff::Timestamp;
use serde_json::{Value, json};

/// What Cloud Run puts in place of a signature that it has checked.
pub const TAKEN: &str = "SIGNATURE_REMOVED_BY_GOOGLE";

/// A key that tokens are signed with.
#[derive(Clone, Debug)]
pub struct Key {
    /// Its name.
    pub id: String,
    pair: Arc<KeyPair>,
}

impl Key {
    /// A new key. It takes a moment to find its primes.
    pub fn new(id: &str) -> Self {
        let Ok(pair) = KeyPair::generate(KeySize::Rsa2048) else {
            panic!("no RSA key");
        };
        let (id, pair) = (id.into(), Arc::new(pair));
        Self { id, pair }
    }

    /// The key that Google signs with now.
    pub fn current() -> Self {
        static KEY: LazyLock<Key> = LazyLock::new(|| Key::new("7d680d8c70d44e94"));
        KEY.clone()
    }

    /// The key that Google signs with next.
    pub fn next() -> Self {
        static KEY: LazyLock<Key> = LazyLock::new(|| Key::new("bdb1b3a0f56c8e17"));
        KEY.clone()
    }

    /// The public part, as it is published.
    pub fn jwk(&self) -> Value {
        let public = self.pair.public_key();
        let modulus = public.modulus().big_endian_without_leading_zero();
        let exponent = public.exponent().big_endian_without_leading_zero();
        json!({
            "kty": "RSA",
            "use": "sig",
            "alg": "RS256",
            "kid": self.id,
            "n": BASE64.encode(modulus),
            "e": BASE64.encode(exponent),
        })
    }

    /// The public part as bytes, for those who take it for a shared secret.
    pub fn public_bytes(&self) -> Vec<u8> {
        self.pair.public_key().as_ref().to_vec()
    }
}

/// A token that is still to be signed.
#[derive(Clone, Debug)]
pub struct Draft {
    header: Value,
    claims: Value,
}

impl Draft {
    /// A token as Pub/Sub push brings it: issued now, good for an hour.
    pub fn new(email: &str, audience: &str, now: Timestamp) -> Self {
        let now = now.as_second();
        Self {
            header: json!({"alg": "RS256", "kid": Key::current().id, "typ": "JWT"}),
            claims: json!({
                "aud": audience,
                "azp": "113774264463038321964",
                "email": email,
                "email_verified": true,
                "exp": now + 3600,
                "iat": now,
                "iss": "https://accounts.google.com",
                "sub": "113774264463038321964",
            }),
        }
    }

    /// With this in the header; null takes it out.
    pub fn header(mut self, name: &str, value: impl Into<Value>) -> Self {
        set(&mut self.header, name, value.into());
        self
    }

    /// With this claim; null takes it out.
    pub fn claim(mut self, name: &str, value: impl Into<Value>) -> Self {
        set(&mut self.claims, name, value.into());
        self
    }

    /// Signed with the current key, as it should be.
    pub fn signed(&self) -> String {
        self.signed_by(&Key::current(), &RSA_PKCS1_SHA256)
    }

    /// Signed with this key in this manner, whatever the header says.
    pub fn signed_by(&self, key: &Key, manner: &'static dyn RsaEncoding) -> String {
        let message = self.message();
        let mut signature = vec![0; key.pair.public_modulus_len()];
        let signed = key.pair.sign(
            manner,
            &SystemRandom::new(),
            message.as_bytes(),
            &mut signature,
        );
        assert!(signed.is_ok(), "an RSA key signs");
        format!("{message}.{}", BASE64.encode(signature))
    }

    /// Signed with a shared secret.
    pub fn signed_with_secret(&self, secret: &[u8]) -> String {
        let message = self.message();
        let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
        let signature = hmac::sign(&key, message.as_bytes());
        format!("{message}.{}", BASE64.encode(signature))
    }

    /// With this text where the signature should be.
    pub fn with_signature(&self, signature: &str) -> String {
        format!("{}.{signature}", self.message())
    }

    fn message(&self) -> String {
        let part = |json: &Value| BASE64.encode(json.to_string());
        format!("{}.{}", part(&self.header), part(&self.claims))
    }
}

fn set(json: &mut Value, name: &str, value: Value) {
    if let Some(object) = json.as_object_mut() {
        if value.is_null() {
            object.remove(name);
        } else {
            object.insert(name.into(), value);
        }
    }
}
