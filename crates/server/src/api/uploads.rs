//! A video comes in one request: its bytes as the body, or as the part `file` of a form, or only its address.

use crate::app::App;
use crate::auth::Admin;
use crate::body::{self, Json, Query};
use crate::ingest::{Received, Wish, too_large};
use crate::problem::{Error, Result};
use axum::body::Body;
use axum::extract::multipart::Field;
use axum::extract::{FromRequest, Multipart, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use bytes::Bytes;
use futures_util::{Stream, StreamExt, TryStreamExt};
use media::settings::Settings;
use rules::placement::{BadCapability, Pool};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{Object, Schema, SchemaFormat, Type};
use utoipa::{IntoParams, PartialSchema, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use wire::http::Problem;

pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(upload))
}

/// What is wanted, beside a body that is the file itself.
#[derive(Default, Deserialize, IntoParams)]
#[serde(default)]
#[into_params(parameter_in = Query)]
pub struct UploadQuery {
    /// The file's name.
    pub name: Option<String>,
    pub title: Option<String>,
    pub slug: Option<String>,
    pub user: Option<String>,
    pub priority: Option<i64>,
    pub early_playback: Option<bool>,
    /// The pool of remote workers that makes it.
    pub pool: Option<String>,
    /// As JSON.
    pub settings: Option<String>,
}

impl UploadQuery {
    pub(crate) fn wish(&self) -> Result<Wish> {
        let settings = self.settings.as_deref().map(serde_json::from_str::<Settings>).transpose();
        let pool = self.pool.as_deref().map(str::parse).transpose();
        let pool: std::result::Result<Option<Pool>, BadCapability> = pool;
        Ok(Wish {
            title: self.title.clone(),
            slug: self.slug.clone(),
            user: self.user.clone(),
            priority: self.priority,
            early_playback: self.early_playback.unwrap_or(false),
            pool: pool.map_err(|bad| Error::unprocessable("bad_pool", bad.to_string()))?,
            settings: settings
                .map_err(|error| Error::unprocessable("bad_settings", format!("settings: {error}")))?
                .unwrap_or_default(),
        })
    }
}

/// A file that the server is to fetch: beside its address, all that a [`Wish`] has.
struct Import;

impl ToSchema for Import {}

/// One object, and not `allOf` of two: each of them would refuse what only the other has.
impl PartialSchema for Import {
    fn schema() -> RefOr<Schema> {
        let url = Object::builder()
            .schema_type(Type::String)
            .format(Some(SchemaFormat::Custom("uri".into())))
            .max_length(Some(8000))
            .description(Some("`https://` or `http://`, of the internet."));
        match Wish::schema() {
            RefOr::T(Schema::Object(mut wish)) => {
                wish.properties.insert("url".into(), url.into());
                wish.required.push("url".into());
                RefOr::T(Schema::Object(wish))
            }
            other => other,
        }
    }
}

/// A form, its fields first and its file last.
#[derive(ToSchema)]
#[allow(dead_code)]
struct Form {
    title: Option<String>,
    slug: Option<String>,
    user: Option<String>,
    priority: Option<i64>,
    early_playback: Option<bool>,
    pool: Option<String>,
    settings: Option<String>,
    #[schema(value_type = String, format = Binary)]
    file: Vec<u8>,
}

#[derive(Serialize, Deserialize, ToSchema)]
pub struct Uploaded {
    pub id: i64,
    pub slug: String,
    pub job: i64,
    /// Not known yet of a file that is still to be fetched.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
}

/// Add a video: its bytes as the body, as the part `file` of a form, or its address
///
/// Of large files over bad lines, rather use the resumable upload: tus 1.0 at `/api/uploads`.
#[utoipa::path(post, path = "/api/videos", tag = "videos", params(UploadQuery), security(("admin" = [])),
    request_body(content((Import = "application/json"), (Vec<u8> = "application/octet-stream"), (Form = "multipart/form-data"))),
    responses((status = 201, body = Uploaded), (status = 202, body = Uploaded, description = "it will be fetched"),
              (status = "4XX", body = Problem, content_type = "application/problem+json")))]
async fn upload(
    _: Admin,
    State(app): State<App>,
    Query(query): Query<UploadQuery>,
    headers: HeaderMap,
    request: Request,
) -> Result<(StatusCode, Json<Uploaded>)> {
    let declared = headers.get(header::CONTENT_LENGTH).and_then(|it| it.to_str().ok()?.parse::<u64>().ok());
    if declared.is_some_and(|bytes| bytes > app.options.max_upload_bytes) {
        return Err(too_large(app.options.max_upload_bytes));
    }
    let is_import = is(&headers, "application/json");
    if app.data.bucket().is_none() && !is_import {
        app.room.room_for(declared.unwrap_or(0)).map_err(Error::Full)?;
    }
    if is_import {
        let uploaded = import(&app, request).await?;
        return Ok((StatusCode::ACCEPTED, Json(uploaded)));
    }
    let (name, wish, received) = if is_form(&headers) {
        form(&app, request).await?
    } else {
        let name = query.name.clone().unwrap_or_else(|| "video".into());
        let wish = query.wish()?;
        let received = app.ingest.receive(&name, request.into_body().into_data_stream()).await?;
        (name, wish, received)
    };
    // A body that ended early without its connection breaking would be half a video.
    if let Some(declared) = declared.filter(|declared| !is_form(&headers) && *declared != received.bytes) {
        let _ = app.data.remove_source(&received.path).await;
        return Err(Error::Invalid(format!("{declared} bytes were declared, and {} came", received.bytes)));
    }
    let uploaded = accept(&app, &received, &name, &wish, None).await?;
    Ok((StatusCode::CREATED, Json(uploaded)))
}

pub(crate) async fn accept(
    app: &App,
    received: &Received,
    name: &str,
    wish: &Wish,
    upload: Option<&str>,
) -> Result<Uploaded> {
    let (id, job) = app.ingest.accept(received, name, wish, upload).await?;
    let slug = app.store.entry(id).await?.slug;
    let (bytes, sha256) = (Some(received.bytes), Some(received.sha256.clone()));
    Ok(Uploaded { id: id.0, slug, job: job.0, bytes, sha256 })
}

async fn import(app: &App, request: Request) -> Result<Uploaded> {
    let body = body::read(request, &body::Limit::of_settings(app)).await?;
    let mut asked: Map<String, Value> = serde_json::from_slice(&body)
        .map_err(|error| Error::Invalid(format!("the body must be an object of JSON: {error}")))?;
    let Some(Value::String(url)) = asked.remove("url") else {
        return Err(Error::Invalid("`url` is missing: the address of the file to fetch".into()));
    };
    let wish = Wish::deserialize(Value::Object(asked)).map_err(|error| Error::Invalid(error.to_string()))?;
    let (id, job) = app.ingest.import(&url, &wish).await?;
    let slug = app.store.entry(id).await?.slug;
    Ok(Uploaded { id: id.0, slug, job: job.0, bytes: None, sha256: None })
}

fn is_form(headers: &HeaderMap) -> bool {
    is(headers, "multipart/form-data")
}

fn is(headers: &HeaderMap, wanted: &str) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    kind.is_some_and(|kind| kind.starts_with(wanted))
}

/// Fields of a form before its file, and what each may have.
const MOST_FIELDS: usize = 16;
const LONGEST_FIELD: usize = 64 << 10;

/// What may come of a form before its file: the reader of forms would hold headers of any length in memory.
const LONGEST_FORM: u64 = 2 << 20;

async fn text(mut part: Field<'_>, name: &str) -> Result<String> {
    let mut text = Vec::new();
    while let Some(block) = part.chunk().await.map_err(|error| Error::Invalid(error.body_text()))? {
        if text.len() + block.len() > LONGEST_FIELD {
            return Err(Error::TooLarge(format!("{name}: a field may have {LONGEST_FIELD} bytes")));
        }
        text.extend_from_slice(&block);
    }
    String::from_utf8(text).map_err(|_| Error::Invalid(format!("{name}: not UTF-8")))
}

/// How much of a form may still come, until its file begins.
#[derive(Clone)]
struct Budget(Arc<AtomicU64>);

impl Default for Budget {
    fn default() -> Self {
        Budget(Arc::new(AtomicU64::new(LONGEST_FORM)))
    }
}

impl Budget {
    const LIFTED: u64 = u64::MAX;

    /// The file begins. Its length is limited where it is written.
    fn lift(&self) {
        self.0.store(Self::LIFTED, Ordering::Relaxed);
    }

    fn limit<E: std::error::Error + Send + Sync + 'static>(
        self,
        body: impl Stream<Item = Result<Bytes, E>> + Send + 'static,
    ) -> impl Stream<Item = std::io::Result<Bytes>> + Send + 'static {
        futures_util::stream::unfold(
            (Box::pin(body), self, false),
            |(mut body, budget, is_later)| async move {
                if is_later {
                    // The reader of forms takes what there is until it has to wait: it must be able to look at it, also
                    // before it learns that this was all.
                    tokio::task::yield_now().await;
                }
                let block = body.next().await?.map_err(std::io::Error::other);
                let block = block.and_then(|block| budget.take(block));
                Some((block, (body, budget, true)))
            },
        )
    }

    fn take(&self, block: Bytes) -> std::io::Result<Bytes> {
        let left = self.0.load(Ordering::Relaxed);
        if left != Self::LIFTED {
            let left = left.checked_sub(block.len() as u64).ok_or_else(|| {
                std::io::Error::other(format!("the form has more than {LONGEST_FORM} bytes before its file"))
            })?;
            self.0.store(left, Ordering::Relaxed);
        }
        Ok(block)
    }
}

/// Fields first, the file last: so it can be written to the disk as it comes.
async fn form(app: &App, request: Request<Body>) -> Result<(String, Wish, Received)> {
    let (head, body) = request.into_parts();
    let budget = Budget::default();
    let request = Request::from_parts(head, Body::from_stream(budget.clone().limit(body.into_data_stream())));
    let mut parts =
        Multipart::from_request(request, &()).await.map_err(|error| Error::Invalid(error.body_text()))?;
    let (mut query, mut fields) = (UploadQuery::default(), 0);
    while let Some(part) = parts.next_field().await.map_err(|error| Error::Invalid(error.body_text()))? {
        let field = part.name().unwrap_or_default().to_owned();
        fields += 1;
        if fields > MOST_FIELDS {
            return Err(Error::TooLarge(format!("the form has more than {MOST_FIELDS} fields")));
        }
        if field == "file" {
            budget.lift();
            let name = part.file_name().unwrap_or("video").to_owned();
            let wish = query.wish()?;
            let received = app.ingest.receive(&name, part.map_err(|error| error.body_text())).await?;
            return Ok((name, wish, received));
        }
        let text = text(part, &field).await?;
        let number =
            |text: &str| text.parse().map_err(|_| Error::Invalid(format!("{field}: `{text}` is no number")));
        match field.as_str() {
            "title" => query.title = Some(text),
            "slug" => query.slug = Some(text),
            "user" => query.user = Some(text),
            "priority" => query.priority = Some(number(&text)?),
            "early_playback" => query.early_playback = Some(text == "true"),
            "pool" => query.pool = Some(text),
            "settings" => query.settings = Some(text),
            _ => {
                let field: String = field.chars().take(100).collect();
                return Err(Error::Invalid(format!("the form has an unknown field `{field}`")));
            }
        }
    }
    Err(Error::Invalid("the form has no part `file`; it must come last".into()))
}
