//! The shapes of the values that are texts on every wire, for documents about an interface (feature `schema`).
//!
//! Structs and enums derive theirs where they stand; here are those whose text has a form of its own.

use utoipa::openapi::schema::{KnownFormat, ObjectBuilder, Schema, SchemaFormat, Type};
use utoipa::openapi::{Object, RefOr};
use utoipa::{PartialSchema, ToSchema};

use crate::batch::RunId;
use crate::clock::Timestamp;
use crate::event::{EventId, Key, Payload, QueueName, SourceName, Tenant};
use crate::limits;

const NAME: &str = "^[a-z0-9._-]{1,64}$";

fn text(describe: &str) -> ObjectBuilder {
    ObjectBuilder::new().schema_type(Type::String).description(Some(describe))
}

/// NUL is refused everywhere, because not every store keeps it.
fn bounded(describe: &str, least: usize, most: usize) -> Object {
    text(describe).min_length(Some(least)).max_length(Some(most)).pattern(Some("^[^\\u0000]*$")).build()
}

macro_rules! shape {
    ($type:ty, $shape:expr) => {
        impl PartialSchema for $type {
            fn schema() -> RefOr<Schema> {
                RefOr::T(Schema::Object($shape))
            }
        }

        impl ToSchema for $type {}
    };
}

shape!(QueueName, text("The name of a queue.").pattern(Some(NAME)).build());
shape!(SourceName, text("The name of a source.").pattern(Some(NAME)).build());
shape!(
    Key,
    bounded("Who the event belongs to: 1 to 512 bytes of UTF-8 without NUL.", 1, limits::KEY_BYTES_MAX)
);
shape!(Tenant, bounded("The owner; empty for those who have none.", 0, limits::TENANT_BYTES_MAX));
shape!(EventId, bounded("The caller's id of an event, or a made one.", 1, limits::EVENT_ID_BYTES_MAX));
shape!(RunId, text("The id of a run.").pattern(Some("^run_[0-9a-z]+_[0-9a-z]+$")).build());
shape!(
    Timestamp,
    text("A moment of the store's clock, RFC 3339 with milliseconds.")
        .format(Some(SchemaFormat::KnownFormat(KnownFormat::DateTime)))
        .build()
);
shape!(
    Payload,
    ObjectBuilder::new()
        .schema_type(utoipa::openapi::schema::SchemaType::AnyValue)
        .description(Some("Any JSON, kept as it was sent."))
        .build()
);
