//! A worker's key.

use std::fmt;

use reqwest::header::HeaderValue;

/// Shown to nobody, not even to who debugs.
#[derive(Clone, PartialEq, Eq)]
pub struct Key(String);

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadKey {
    #[error("the worker's key is empty")]
    Empty,
    #[error("the worker's key holds characters that no key has; was something else pasted?")]
    Characters,
}

impl Key {
    /// White space around it, such as the newline at the end of a file, is no part of it.
    pub fn new(text: &str) -> Result<Self, BadKey> {
        let key = text.trim();
        if key.is_empty() {
            return Err(BadKey::Empty);
        }
        if !key.chars().all(|character| character.is_ascii_graphic()) {
            return Err(BadKey::Characters);
        }
        Ok(Key(key.into()))
    }

    /// For the header `authorization`; also kept out of what HTTP libraries log.
    pub(crate) fn authorization(&self) -> Result<HeaderValue, BadKey> {
        let mut value =
            HeaderValue::from_str(&format!("Bearer {}", self.0)).map_err(|_| BadKey::Characters)?;
        value.set_sensitive(true);
        Ok(value)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(…)")
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_never_shown() {
        let key = Key::new(" vm_abc\n").unwrap();

        assert_eq!(key.authorization().unwrap(), "Bearer vm_abc");
        assert!(!format!("{key:?} {:?}", key.authorization()).contains("abc"));
        assert_eq!(Key::new(" \n"), Err(BadKey::Empty));
        assert_eq!(Key::new("two words"), Err(BadKey::Characters));
    }
}
