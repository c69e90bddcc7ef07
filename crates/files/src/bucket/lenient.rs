//! Stores that answer as S3 does, almost.

use async_trait::async_trait;
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpRequest, HttpResponse, HttpService, ReqwestConnector,
};
use object_store::signer::HeaderName;

/// An answer that says which part of an object it is, is taken for that part whatever its status: rclone's server says 200.
#[derive(Debug)]
pub(super) struct Lenient;

impl HttpConnector for Lenient {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        outbound::choose_tls();
        Ok(HttpClient::new(Service(ReqwestConnector::default().connect(options)?)))
    }
}

#[derive(Debug)]
struct Service(HttpClient);

#[async_trait]
impl HttpService for Service {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        const PARTIAL: u16 = 206;
        let mut response = self.0.execute(request).await?;
        let is_part = response.headers().contains_key(HeaderName::from_static("content-range"));
        if let (true, 200, Ok(status)) = (is_part, response.status().as_u16(), PARTIAL.try_into()) {
            *response.status_mut() = status;
        }
        Ok(response)
    }
}
