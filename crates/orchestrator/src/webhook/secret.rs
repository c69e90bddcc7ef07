//! What webhooks are signed with: a key that the receiver knows too.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use std::fmt;
use std::str::FromStr;

/// `whsec_` and a key of 24 to 64 bytes in base64. Never shown by `Debug`.
#[derive(Clone)]
pub struct Secret(Vec<u8>);

const PREFIX: &str = "whsec_";

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a webhook's secret is `whsec_` and 24 to 64 bytes in base64, such as `echo whsec_$(openssl rand -base64 32)` gives"
)]
pub struct BadSecret;

impl FromStr for Secret {
    type Err = BadSecret;

    fn from_str(text: &str) -> Result<Self, BadSecret> {
        let key = text.strip_prefix(PREFIX).and_then(|key| STANDARD.decode(key).ok());
        key.filter(|key| (24..=64).contains(&key.len())).map(Secret).ok_or(BadSecret)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

impl Secret {
    /// The value of `webhook-signature`.
    pub fn sign(&self, id: &str, timestamp: &str, body: &str) -> String {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("a key may have any length");
        mac.update(format!("{id}.{timestamp}.{body}").as_bytes());
        format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// The example of the standard's own documentation.
    #[test]
    fn a_message_is_signed_as_the_standard_does() {
        let secret: Secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".parse().unwrap();

        let signature = secret.sign("msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", r#"{"test": 2432232314}"#);

        assert_eq!(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn a_secret_is_long_enough_and_is_not_shown() {
        for bad in ["", "whsec_", "whsec_c2hvcnQ=", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_not base64"] {
            assert!(bad.parse::<Secret>().is_err(), "{bad}");
        }
        let secret: Secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".parse().unwrap();
        assert_eq!(format!("{secret:?}"), "Secret(…)");
    }
}
