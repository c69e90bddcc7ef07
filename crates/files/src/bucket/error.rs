//! What can go wrong with a bucket, as far as anybody acts on it.

use std::io;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("there is no {0} in the storage")]
    NotFound(String),
    #[error("there is a {0} in the storage already")]
    Taken(String),
    /// What was read of it and what could be read now do not belong together.
    #[error("{0} was replaced in the storage while it was read")]
    Changed(String),
    #[error(
        "the storage refuses {name}: {why}; do its credentials allow reading, writing, listing and deleting?"
    )]
    Refused { name: String, why: String },
    /// Worth another try, later.
    #[error("the storage cannot be used now ({name}): {why}")]
    Away { name: String, why: String },
    #[error("this machine's disk")]
    Disk(#[from] io::Error),
}

/// A setting that names no storage.
#[derive(Debug, thiserror::Error)]
pub enum BadAddress {
    #[error(
        "`{0}` names no storage: file:///FOLDER, s3://BUCKET/PREFIX, gs://BUCKET/PREFIX or az://CONTAINER/PREFIX"
    )]
    NotAUrl(String),
    #[error("this program was built without {0}")]
    NotBuilt(&'static str),
    #[error("cannot use {url}: {why}")]
    Unusable { url: String, why: String },
}

impl Error {
    /// Whether the storage itself is away, full or overburdened; it is not, where it makes no sense of the request.
    pub fn is_absence(&self) -> bool {
        const LATER: [u16; 2] = [408, 429];
        match self {
            Error::Away { why, .. } => status(why).is_none_or(|code| code >= 500 || LATER.contains(&code)),
            Error::NotFound(_) | Error::Taken(_) | Error::Changed(_) => false,
            Error::Refused { .. } | Error::Disk(_) => false,
        }
    }

    pub(super) fn of(name: &str, error: object_store::Error) -> Self {
        use object_store::Error as E;
        let name = name.to_owned();
        match error {
            E::NotFound { .. } => Error::NotFound(name),
            E::AlreadyExists { .. } | E::Precondition { .. } => Error::Taken(name),
            E::PermissionDenied { source, .. } | E::Unauthenticated { source, .. } => {
                Error::Refused { name, why: told(&*source) }
            }
            error => {
                let why = told(&error);
                match status(&why) {
                    Some(404) => Error::NotFound(name),
                    Some(401 | 403) => Error::Refused { name, why },
                    _ => Error::Away { name, why },
                }
            }
        }
    }
}

/// A listing that fails tells the status in words only.
fn status(why: &str) -> Option<u16> {
    why.split_once("status code: ")?.1.get(..3)?.parse().ok()
}

/// With its causes, and without what follows the `?` of a URL: signatures stand there.
pub(super) fn told(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    without_queries(&text)
}

fn without_queries(text: &str) -> String {
    let word = |word: &str| match word.split_once('?') {
        Some((before, _)) if before.contains("://") => format!("{before}?…"),
        _ => word.to_owned(),
    };
    text.split_whitespace().map(word).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_found_in_words() {
        assert_eq!(status("Server returned non-2xx status code: 403 Forbidden: <Error>"), Some(403));
        assert_eq!(status("no status code: …"), None);
        assert_eq!(status("error sending request"), None);
    }

    #[test]
    fn only_what_says_nothing_of_the_request_is_an_absence() {
        let away = |why: &str| Error::Away { name: "a".into(), why: why.into() }.is_absence();

        assert!(away("error sending request: connection refused"));
        assert!(away("Server returned non-2xx status code: 503 Slow Down"));
        assert!(away("Server returned non-2xx status code: 507 Insufficient Storage"));
        assert!(!away("Server returned non-2xx status code: 400 EntityTooLarge"));
        assert!(!Error::Refused { name: "a".into(), why: "403".into() }.is_absence());
    }

    #[test]
    fn signatures_are_not_told() {
        let told =
            without_queries("error sending request for url (http://host/b/a?X-Amz-Signature=123) why?");

        assert_eq!(told, "error sending request for url (http://host/b/a?… why?");
    }
}
