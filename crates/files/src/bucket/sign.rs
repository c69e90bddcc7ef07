//! URLs by which somebody without credentials may read or write one object, for a while.

use super::{Bucket, Error, Kind, Result};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use object_store::signer::{HeaderMap, HeaderName, HeaderValue, Method, SignedUrlOptions};
use std::time::Duration;

/// Who has it may do what it was signed for. Not to be logged.
#[derive(Clone)]
pub struct Signed {
    pub url: String,
    /// To be sent with it, as they are.
    pub headers: Vec<(String, String)>,
}

/// What an object is to be. The store compares: all known ones know the MD5, and S3 also the SHA-256.
#[derive(Debug, Clone, Copy)]
pub struct Digests<'a> {
    pub md5: &'a [u8],
    pub sha256: &'a [u8],
}

impl Bucket {
    /// None where the credentials at hand cannot sign.
    pub async fn sign_get(&self, name: &str, lives: Duration) -> Result<Option<Signed>> {
        self.sign(Method::GET, name, lives, HeaderMap::new()).await
    }

    /// A URL by which this object, and no other, can be put under the name.
    pub async fn sign_put(
        &self,
        name: &str,
        lives: Duration,
        digests: Digests<'_>,
    ) -> Result<Option<Signed>> {
        let mut headers = HeaderMap::new();
        header(&mut headers, "content-md5", STANDARD.encode(digests.md5));
        match self.0.kind {
            Kind::Aws => header(&mut headers, "x-amz-checksum-sha256", STANDARD.encode(digests.sha256)),
            #[cfg(feature = "gcp")]
            Kind::Gcp => {}
            #[cfg(feature = "azure")]
            Kind::Azure => header(&mut headers, "x-ms-blob-type", "BlockBlob".into()),
        }
        self.sign(Method::PUT, name, lives, headers).await
    }

    async fn sign(
        &self,
        method: Method,
        name: &str,
        lives: Duration,
        headers: HeaderMap,
    ) -> Result<Option<Signed>> {
        use object_store::Error as E;
        let (place, signer) = (self.place(name)?, &self.0.signer);
        let options = headers.iter().fold(SignedUrlOptions::new(), |options, (name, value)| {
            options.with_signed_header(name.clone(), value.clone())
        });
        let signed = match signer.signed_url_opts(method.clone(), &place, lives, &options).await {
            // Its headers cannot be bound to the signature there; they are compared all the same.
            Err(E::NotSupported { .. }) => signer.signed_url(method, &place, lives).await,
            signed => signed,
        };
        let url = match signed {
            Ok(url) => url.to_string(),
            Err(E::NotSupported { .. } | E::NotImplemented { .. } | E::Unauthenticated { .. }) => {
                return Ok(None);
            }
            Err(error) => return Err(Error::of(name, error)),
        };
        let text = |value: &HeaderValue| value.to_str().unwrap_or_default().to_owned();
        let headers = headers.iter().map(|(name, value)| (name.to_string(), text(value))).collect();
        Ok(Some(Signed { url, headers }))
    }
}

fn header(headers: &mut HeaderMap, name: &'static str, value: String) {
    if let Ok(value) = HeaderValue::try_from(value) {
        headers.insert(HeaderName::from_static(name), value);
    }
}
