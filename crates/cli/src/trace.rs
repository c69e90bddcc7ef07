//! Traces, sent to an OpenTelemetry collector (OTLP over HTTP) if one is named.

use crate::settings::{Settings, Usage};
use opentelemetry::KeyValue;
use opentelemetry::propagation::TextMapPropagator;
use opentelemetry::trace::TracerProvider;
use opentelemetry_otlp::{SpanExporter, WithExportConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{SdkTracerProvider, Tracer};
use std::collections::HashMap;
use telemetry::trace::{Carrier, HEADER, TARGET, carry};
use tracing::{Span, Subscriber};
use tracing_opentelemetry::OpenTelemetrySpanExt;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::registry::LookupSpan;

/// The names under which every program with OpenTelemetry looks for a collector.
const USUAL: [&str; 2] = ["OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"];

/// Sends what is left of the traces when dropped, which may take some seconds; not inside the runtime.
#[derive(Default)]
pub struct Traces(Option<SdkTracerProvider>);

impl Traces {
    /// Begins to send traces of this `service`, if there is a collector to send them to.
    pub fn start(settings: &Settings, service: &'static str) -> anyhow::Result<Self> {
        let named = settings.otlp_endpoint.as_deref();
        if named.is_none() && USUAL.iter().all(|name| std::env::var_os(name).is_none()) {
            return Ok(Traces::default());
        }
        let exporter = SpanExporter::builder().with_http();
        let exporter = match named {
            Some(address) => exporter.with_endpoint(place(address)),
            None => exporter,
        };
        let exporter = exporter
            .build()
            .map_err(|error| Usage(format!("traces cannot be sent, look at otlp_endpoint: {error}")))?;
        let resource = Resource::builder()
            .with_service_name(service)
            .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
            .with_attribute(KeyValue::new("process.pid", i64::from(std::process::id())))
            .build();
        let provider =
            SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource).build();
        carry(TraceContext(TraceContextPropagator::new()));
        Ok(Traces(Some(provider)))
    }

    /// Where spans go, and only those that are part of traces.
    pub fn layer<S>(&self) -> Option<impl Layer<S> + use<S>>
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
    {
        let tracer: Tracer = self.0.as_ref()?.tracer("vodmill");
        let layer = tracing_opentelemetry::layer()
            .with_tracer(tracer)
            .with_location(false)
            .with_threads(false)
            .with_target(false);
        Some(layer.with_filter(filter_fn(|about| about.is_span() && about.target() == TARGET)))
    }
}

impl Drop for Traces {
    fn drop(&mut self) {
        if let Some(provider) = &self.0
            && let Err(error) = provider.shutdown()
        {
            eprintln!("vodmill: the last traces could not be sent: {error}");
        }
    }
}

/// A collector takes traces at `/v1/traces`.
fn place(address: &str) -> String {
    let address = address.trim_end_matches('/');
    if address.ends_with("/v1/traces") {
        address.into()
    } else {
        format!("{address}/v1/traces")
    }
}

struct TraceContext(TraceContextPropagator);

impl Carrier for TraceContext {
    fn current(&self) -> Option<String> {
        let mut written = HashMap::new();
        self.0.inject_context(&Span::current().context(), &mut written);
        written.remove(HEADER)
    }

    fn adopt(&self, span: &Span, context: &str) {
        let read = HashMap::from([(HEADER.to_owned(), context.to_owned())]);
        // Refused only by a span that nobody records.
        let _ = span.set_parent(self.0.extract(&read));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_collectors_address_may_be_given_with_or_without_its_path() {
        for address in
            ["http://c:4318", "http://c:4318/", "http://c:4318/v1/traces", "http://c:4318/v1/traces/"]
        {
            assert_eq!(place(address), "http://c:4318/v1/traces");
        }
    }
}
