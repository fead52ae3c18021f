//! The document about the interface, made from the routes themselves.

use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::{Modify, OpenApi};

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
        (name = "admin", description = "Tokens, and erasing"),
        (name = "health", description = "For machines that watch machines"),
    ),
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
