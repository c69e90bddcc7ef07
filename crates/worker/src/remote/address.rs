//! Where the server is.

use std::fmt;
use std::str::FromStr;

use reqwest::Url;

/// The server's URL; requests go below it, so that it may live under a path of a larger site.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address(Url);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadAddress {
    #[error("`{0}` is not a URL such as https://vodmill.example.org")]
    NotAUrl(String),
    #[error("a server is reached by http or https, not by `{0}`")]
    Scheme(String),
    #[error("leave user and password out of the server's URL")]
    Credentials,
    #[error("the server's URL ends before any `?` or `#`")]
    Tail,
}

impl FromStr for Address {
    type Err = BadAddress;

    fn from_str(text: &str) -> Result<Self, BadAddress> {
        let mut url = Url::parse(text.trim()).map_err(|_| BadAddress::NotAUrl(without_secrets(text)))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(BadAddress::Scheme(url.scheme().into()));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(BadAddress::Credentials);
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err(BadAddress::Tail);
        }
        if let Ok(mut parts) = url.path_segments_mut() {
            parts.pop_if_empty();
        }
        Ok(Address(url))
    }
}

/// What stands before an `@` may be a password.
fn without_secrets(text: &str) -> String {
    text.rsplit('@').next().unwrap_or_default().into()
}

impl Address {
    /// A place of the API for workers; `parts` may hold any characters.
    pub(crate) fn place<'a>(&self, parts: impl IntoIterator<Item = &'a str>) -> Url {
        self.below(["api", "worker"].into_iter().chain(parts))
    }

    /// Any place of the server's.
    pub fn below<'a>(&self, parts: impl IntoIterator<Item = &'a str>) -> Url {
        let mut url = self.0.clone();
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty().extend(parts);
        }
        url
    }

    /// On this machine, so that no proxy stands between.
    pub fn is_loopback(&self) -> bool {
        match self.0.host_str() {
            Some("localhost" | "[::1]") => true,
            Some(host) => host.parse::<std::net::Ipv4Addr>().is_ok_and(|address| address.is_loopback()),
            None => false,
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.as_str().trim_end_matches('/'))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn requests_go_below_the_url_that_was_given() {
        for (given, place) in [
            ("http://host:8080", "http://host:8080/api/worker/outputs/a%20b/c%3F.m4s"),
            ("https://host/video/", "https://host/video/api/worker/outputs/a%20b/c%3F.m4s"),
        ] {
            let address: Address = given.parse().unwrap();

            assert_eq!(address.place(["outputs"].into_iter().chain("a b/c?.m4s".split('/'))).as_str(), place);
        }
    }

    #[test]
    fn what_is_no_address_says_why_and_keeps_passwords_to_itself() {
        let why = |text: &str| text.parse::<Address>().unwrap_err();

        assert_eq!(why("host:8080"), BadAddress::Scheme("host".into()));
        assert_eq!(why("ftp://host"), BadAddress::Scheme("ftp".into()));
        assert_eq!(why("http://ann:secret@host"), BadAddress::Credentials);
        assert_eq!(why("http://host/?key=secret"), BadAddress::Tail);
        assert!(!why("ann:secret@host").to_string().contains("secret"));
        assert!(!why("//ann:secret@host").to_string().contains("secret"));
    }
}
