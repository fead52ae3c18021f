//! The names of OpenTelemetry's conventions that are used here, and ours where it has none. The conventions for messaging
//! still move, so the dozen that is used is written down once, with the version that it is from.

pub(super) const SCHEMA: &str = "https://opentelemetry.io/schemas/1.44.0";

pub(super) const SYSTEM: &str = "messaging.system";
pub(super) const OPERATION_NAME: &str = "messaging.operation.name";
/// One of `send`, `receive`, `process` and `settle`.
pub(super) const OPERATION_TYPE: &str = "messaging.operation.type";
pub(super) const DESTINATION: &str = "messaging.destination.name";
/// The key of a lane, where it is wanted.
pub(super) const PARTITION_ID: &str = "messaging.destination.partition.id";
pub(super) const MESSAGE_COUNT: &str = "messaging.batch.message_count";
pub(super) const MESSAGE_ID: &str = "messaging.message.id";
pub(super) const CLIENT_ID: &str = "messaging.client.id";

pub(super) const HTTP_METHOD: &str = "http.request.method";
pub(super) const HTTP_ROUTE: &str = "http.route";
pub(super) const HTTP_STATUS: &str = "http.response.status_code";
pub(super) const ERROR_TYPE: &str = "error.type";

pub(super) const RUN_ID: &str = "quell.run.id";
/// 1 for the first claim of the run.
pub(super) const ATTEMPT: &str = "quell.run.attempt";
pub(super) const FIRED_BY: &str = "quell.run.fired_by";
/// What the handler answered.
pub(super) const OUTCOME: &str = "quell.run.outcome";
/// What became of the run.
pub(super) const STATE: &str = "quell.run.state";
/// Contexts beyond those that are linked.
pub(super) const UNLINKED: &str = "quell.unlinked";
