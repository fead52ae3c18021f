//! What a form of ours sends: pairs of names and texts.

use axum::body::Body;
use http::Request;
use http::header::CONTENT_TYPE;
use quell::quell_core::audit::signed;

use crate::auth::Principal;
use crate::body;
use crate::error::{Answer, Problem};

pub(super) struct Form(Vec<(String, String)>);

impl Form {
    /// A button without fields sends nothing, and that is a form, too.
    pub(super) async fn read(request: Request<Body>, most: usize) -> Answer<Form> {
        let typed = request.headers().contains_key(CONTENT_TYPE);
        if typed && body::media_type(request.headers())? != "application/x-www-form-urlencoded" {
            return Err(Problem::unsupported("send it as a form"));
        }
        let bytes = body::read(request, most).await?;
        Ok(Form(form_urlencoded::parse(&bytes).into_owned().collect()))
    }

    /// What a field holds, if it holds anything.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        let fields = self.0.iter().filter(|(field, _)| field == name);
        fields.map(|(_, text)| text.trim()).find(|text| !text.is_empty())
    }

    pub(super) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(field, _)| field == name).map(|(_, text)| text.as_str())
    }

    /// Fields whose name begins so, with the rest of the name.
    pub(super) fn named<'a>(&'a self, start: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.0.iter().filter_map(move |(field, text)| Some((field.strip_prefix(start)?, text.as_str())))
    }

    /// Who does this and, if they said it in the field `why`, for what reason: for the audit trail.
    pub(super) fn actor(&self, principal: &Principal) -> String {
        signed(&principal.actor(), self.text("why"))
    }
}
