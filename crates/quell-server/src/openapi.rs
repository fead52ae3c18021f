//! The document about the interface, made from the routes themselves.

use utoipa::openapi::path::Operation;
use utoipa::openapi::response::{Response, ResponseBuilder};
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{ContentBuilder, PathItem, Ref, RefOr};
use utoipa::{Modify, OpenApi, ToSchema};

use crate::control::{LaneAction, QueueAction};
use crate::error::ProblemDocument;

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Quell",
        description = "Bursts of events become one orderly run per key. Events in, work out, and everything to see and \
                       control it. Errors are problem documents (RFC 9457); their `code` is what programs compare.",
        license(name = "MIT OR Apache-2.0"),
    ),
    tags(
        (name = "events", description = "Events in"),
        (name = "work", description = "Work out, for pull workers of any language"),
        (name = "read", description = "Looking"),
        (name = "operate", description = "Steering"),
        (name = "sources", description = "Outside parties with limits"),
        (name = "schedules", description = "Events by the calendar"),
        (name = "hooks", description = "What webhooks have brought"),
        (name = "admin", description = "Tokens, erasing, and the configuration file"),
        (name = "health", description = "For machines that watch machines"),
    ),
    components(schemas(LaneAction, QueueAction, ProblemDocument)),
    modifiers(&Security),
)]
pub(crate) struct Document;

struct Security;

impl Modify for Security {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        let bearer = HttpBuilder::new()
            .scheme(HttpAuthScheme::Bearer)
            .description(Some(
                "Made by `quell token create`; on loopback none is needed while there is none.",
            ))
            .build();
        let components = document.components.get_or_insert_with(Default::default);
        components.add_security_scheme("token", SecurityScheme::Http(bearer));
    }
}

/// What any operation may answer besides its own: they are the same everywhere, so they are said once.
pub(crate) fn add_common_answers(document: &mut utoipa::openapi::OpenApi) {
    for item in document.paths.paths.values_mut() {
        for operation in operations(item) {
            let secured = operation
                .security
                .as_ref()
                .is_some_and(|list| list.iter().any(|one| *one != Default::default()));
            if secured {
                answer(operation, "401", "No token, or one that is not known here");
                answer(operation, "403", "The token does not allow this");
                answer(operation, "429", "Too much at once: see Retry-After");
            }
            if operation.request_body.is_some()
                || operation.parameters.as_ref().is_some_and(|list| !list.is_empty())
            {
                answer(operation, "400", "Not as it should be");
            }
            if operation.request_body.is_some() {
                answer(operation, "408", "The body came too slowly");
                answer(operation, "413", "The body is too large");
                answer(operation, "415", "Not a content type that is taken");
            }
            answer(operation, "421", "This server is not asked for by that name");
            answer(operation, "500", "The server or its store is not as it should be");
            answer(
                operation,
                "503",
                "The store cannot be reached, or nobody knows whether it was done: repeat it",
            );
        }
    }
}

fn operations(item: &mut PathItem) -> impl Iterator<Item = &mut Operation> {
    let PathItem { get, put, post, delete, patch, .. } = item;
    [get, put, post, delete, patch].into_iter().filter_map(Option::as_mut)
}

fn answer(operation: &mut Operation, status: &str, description: &str) {
    let schema = Ref::from_schema_name(ProblemDocument::name());
    let content = ContentBuilder::new().schema(Some(schema)).build();
    let response: Response =
        ResponseBuilder::new().description(description).content("application/problem+json", content).build();
    operation.responses.responses.entry(status.to_owned()).or_insert(RefOr::T(response));
}
