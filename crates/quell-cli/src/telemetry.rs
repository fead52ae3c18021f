//! Spans for a tracing system, when the environment names a collector.
//!
//! OpenTelemetry's own variables decide, and there are no settings beside them: `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT` or
//! `OTEL_EXPORTER_OTLP_ENDPOINT` switch it on, `OTEL_SDK_DISABLED=true` and `OTEL_TRACES_EXPORTER=none` off again. Unless it is
//! on nothing is made: no provider, no thread, no connection. Which spans there are is `quell/src/spans.rs`.
//!
//! A collector that is away costs spans and nothing else: they wait in a bounded queue, those beyond it are dropped, and the
//! end of a command waits for the last of them a bounded time.

use std::time::Duration;

use opentelemetry_otlp::SpanExporter;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SdkTracerProvider;
use quell::spans::{self, Recording};

/// How long the end of a command waits for the last spans to be sent.
const FLUSH_MAX: Duration = Duration::from_secs(2);
/// Also the keys of lanes, which may name people.
const KEYS: &str = "QUELL_TRACE_KEYS";

/// Spans are recorded as long as this lives.
pub(crate) struct Telemetry(Option<SdkTracerProvider>);

impl Telemetry {
    /// As the environment says. What is wrong there is told, and the command goes on without.
    pub(crate) fn start() -> Telemetry {
        match wanted(variable) {
            Ok(false) => return Telemetry(None),
            Ok(true) => {}
            Err(problem) => {
                tracing::warn!("spans are not recorded: {problem}");
                return Telemetry(None);
            }
        }
        // As everywhere here, TLS is done by ring; somebody may have said so before.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let exporter = match SpanExporter::builder().with_http().build() {
            Ok(exporter) => exporter,
            Err(error) => {
                tracing::warn!(%error, "spans are not recorded: the exporter cannot be made");
                return Telemetry(None);
            }
        };
        let provider =
            SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource()).build();
        spans::record(&provider, Recording { keys: is_true(variable(KEYS).as_deref()) });
        Telemetry(Some(provider))
    }

    /// Sends what is left. Not from inside the runtime: it waits.
    pub(crate) fn end(self) {
        if let Some(provider) = self.0
            && let Err(error) = provider.shutdown_with_timeout(FLUSH_MAX)
        {
            tracing::warn!(%error, "the last spans were not sent");
        }
    }
}

/// Who records: by the variables, else `quell`.
fn resource() -> Resource {
    let resource = Resource::builder().build();
    let name =
        resource.iter().find(|(key, _)| key.as_str() == "service.name").map(|(_, value)| value.to_string());
    match name {
        Some(name) if !name.starts_with("unknown_service") => resource,
        _ => Resource::builder().with_service_name("quell").build(),
    }
}

/// Empty is as good as not set, as OpenTelemetry says of all of its variables.
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.trim().is_empty())
}

/// Whether spans are to be sent, or why they cannot be.
fn wanted(variable: impl Fn(&str) -> Option<String>) -> Result<bool, String> {
    let signal = |of: &str| variable(&format!("OTEL_EXPORTER_OTLP_TRACES_{of}"));
    let value = |of: &str| signal(of).or_else(|| variable(&format!("OTEL_EXPORTER_OTLP_{of}")));
    if value("ENDPOINT").is_none() || is_true(variable("OTEL_SDK_DISABLED").as_deref()) {
        return Ok(false);
    }
    match variable("OTEL_TRACES_EXPORTER").as_deref().map(str::trim) {
        None | Some("otlp") => {}
        Some("none") => return Ok(false),
        Some(other) => return Err(format!("OTEL_TRACES_EXPORTER is {other:?}; otlp and none are possible")),
    }
    match value("PROTOCOL").as_deref().map(str::trim) {
        None | Some("http/protobuf") => Ok(true),
        Some(other) => Err(format!(
            "OTEL_EXPORTER_OTLP_PROTOCOL is {other:?}; only http/protobuf is spoken, usually on port 4318"
        )),
    }
}

/// Anything but `true` is false, as OpenTelemetry says.
fn is_true(value: Option<&str>) -> bool {
    value.is_some_and(|value| value.trim().eq_ignore_ascii_case("true"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn by(variables: &[(&str, &str)]) -> Result<bool, String> {
        wanted(|name| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn an_endpoint_switches_it_on_and_the_usual_variables_off_again() {
        let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318");
        assert_eq!(by(&[]), Ok(false));
        assert_eq!(by(&[("OTEL_SERVICE_NAME", "x")]), Ok(false));
        assert_eq!(by(&[endpoint]), Ok(true));
        assert_eq!(
            by(&[("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://127.0.0.1:4318/v1/traces")]),
            Ok(true)
        );
        assert_eq!(by(&[endpoint, ("OTEL_SDK_DISABLED", "True")]), Ok(false));
        assert_eq!(by(&[endpoint, ("OTEL_SDK_DISABLED", "1")]), Ok(true), "only true is true");
        assert_eq!(by(&[endpoint, ("OTEL_TRACES_EXPORTER", "none")]), Ok(false));
        assert_eq!(by(&[endpoint, ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")]), Ok(true));
    }

    #[test]
    fn what_cannot_be_done_is_said() {
        let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4317");
        assert!(
            by(&[endpoint, ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")]).unwrap_err().contains("http/protobuf")
        );
        assert!(by(&[endpoint, ("OTEL_TRACES_EXPORTER", "zipkin")]).unwrap_err().contains("zipkin"));
        let both = [
            endpoint,
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
            ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/protobuf"),
        ];
        assert_eq!(by(&both), Ok(true), "the one for traces counts");
    }
}
