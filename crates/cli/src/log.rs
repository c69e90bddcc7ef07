//! The log: to standard error, for people as text or for programs as JSON.
//!
//! What a line is about stands in the spans around it: a worker, and within it an execution with its job and task. So a
//! line about an execution names them all, wherever in the code it is written.
//!
//! Names and messages in it come from workers and files. Whatever they hold, each event is one line of visible characters: it
//! commands no terminal and passes for no other line.

use crate::output;
use crate::settings::{LogFormat, Settings};
use crate::trace::Traces;
use serde_json::{Map, Value};
use std::fmt;
use std::io::IsTerminal;
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::field::MakeExt;
use tracing_subscriber::fmt::format::{self, JsonFields, Writer};
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, FormattedFields};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer};
use wire::text::{printable_cell, printable_json};

/// Standard output is the answer.
pub fn start(settings: &Settings, default: &str, traces: &Traces) {
    let wanted = settings.log.clone().unwrap_or_else(|| default.into());
    let filter = EnvFilter::try_new(&wanted).unwrap_or_else(|error| {
        eprintln!("vodmill: the log filter `{wanted}` cannot be read ({error}); using `info`");
        EnvFilter::new("info")
    });
    // Spans of traces say the same as the others, and more than a line needs.
    let filter = match format!("{}=off", telemetry::trace::TARGET).parse() {
        Ok(none) => filter.add_directive(none),
        Err(_) => filter,
    };
    let log = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let log = match settings.log_format {
        Some(LogFormat::Json) => {
            log.fmt_fields(JsonFields::new()).event_format(Json).with_filter(filter).boxed()
        }
        _ => {
            let log = log.fmt_fields(format::debug_fn(visible_field).delimited(" "));
            log.with_ansi(std::io::stderr().is_terminal()).with_target(false).with_filter(filter).boxed()
        }
    };
    tracing_subscriber::registry().with(log).with(traces.layer()).init();
}

/// Says where something is: to people always, and to whoever collects lines of JSON as one of them.
pub fn address(settings: &Settings, what: &str, address: &str) {
    match settings.log_format {
        Some(LogFormat::Json) => tracing::info!(target: "server", address, "{what} on {address}"),
        _ => output::tell(&format!("{what} on {address}")),
    }
}

/// The message as it is, other fields as `name=value`, without those by which the older `log` says where it comes from.
fn visible_field(writer: &mut Writer<'_>, field: &Field, value: &dyn fmt::Debug) -> fmt::Result {
    let shown = format!("{value:?}");
    match field.name() {
        "message" => write!(writer, "{}", printable_cell(&shown)),
        name if name.starts_with("log.") => Ok(()),
        name => write!(writer, "{name}={}", printable_cell(&shown)),
    }
}

/// One object a line, with everything at its top: what is said, its fields, and those of the spans around it.
struct Json;

impl<S, N> FormatEvent<S, N> for Json
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut time = String::new();
        SystemTime.format_time(&mut Writer::new(&mut time))?;
        let mut line = Line(Map::new());
        line.0.insert("timestamp".into(), time.into());
        line.0.insert("level".into(), event.metadata().level().as_str().into());
        line.0.insert("target".into(), event.metadata().target().into());
        for span in context.event_scope().into_iter().flat_map(|scope| scope.from_root()) {
            if let Some(fields) = span.extensions().get::<FormattedFields<N>>() {
                line.0.extend(serde_json::from_str::<Map<String, Value>>(&fields.fields).unwrap_or_default());
            }
        }
        event.record(&mut line);
        writeln!(writer, "{}", printable_json(&Value::Object(line.0).to_string()))
    }
}

struct Line(Map<String, Value>);

impl Line {
    fn put(&mut self, field: &Field, value: impl Into<Value>) {
        let name = match field.name() {
            // What comes by the older `log` says here where it comes from.
            "log.target" => "target",
            other if other.starts_with("log.") => return,
            other => other,
        };
        self.0.insert(name.into(), value.into());
    }
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put(field, format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value);
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, value);
    }
}
