//! The values of a source's templates: what is known of the intake, what the event adds, and where in the pages we are.

use crate::adapter::Query;
use crate::intake::About;

/// Where in the pages a request is.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct At {
    pub(super) page: Option<u64>,
    pub(super) offset: Option<u64>,
    pub(super) limit: Option<u32>,
}

/// The value of a name; `query_params` win over the intake, and neither over the paging.
pub(super) fn value(query: Query<'_>, at: At, name: &str) -> Option<String> {
    let paging = match name {
        "page" => Some(at.page),
        "offset" => Some(at.offset),
        "limit" => Some(at.limit.map(u64::from)),
        _ => None,
    };
    match paging {
        Some(number) => number.map(|number| number.to_string()),
        None => query.params.get(name).cloned().or_else(|| known(query, name)),
    }
}

fn known(query: Query<'_>, name: &str) -> Option<String> {
    let About { year, mintmark, denomination, series, title } = query.about;
    let part = |name: &str, own: &Option<String>| query.params.get(name).or(own.as_ref()).cloned();
    match name {
        "year" => year.clone(),
        "mintmark" => mintmark.clone(),
        "denomination" => denomination.clone(),
        "series" => series.clone(),
        "title" => title.clone(),
        "query" => {
            let parts = [
                part("year", year),
                part("mintmark", mintmark),
                part("denomination", denomination),
                part("series", series),
                part("title", title),
            ];
            let words: Vec<String> = parts.into_iter().flatten().collect();
            Some(words.join(" ")).filter(|query| !query.trim().is_empty()).map(|query| one_line(&query))
        }
        _ => None,
    }
}

/// Every run of white space is one space, and there is none at the ends.
pub(super) fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn params_win_over_the_intake_and_the_paging_over_both() {
        let about =
            About { year: Some("1881".into()), series: Some(" Morgan  Dollar ".into()), ..About::default() };
        let none = BTreeMap::new();
        let query = Query { about: &about, params: &none };
        let at = At { page: Some(3), offset: None, limit: Some(50) };
        let of = |query, name: &str| value(query, at, name);
        assert_eq!(of(query, "year").as_deref(), Some("1881"));
        assert_eq!(of(query, "query").as_deref(), Some("1881 Morgan Dollar"));
        assert_eq!((of(query, "mintmark"), of(query, "offset"), of(query, "grade")), (None, None, None));
        let pairs = [("year", "1882"), ("grade", "MS65"), ("page", "9")];
        let params = pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let query = Query { about: &about, params: &params };
        assert_eq!(of(query, "query").as_deref(), Some("1882 Morgan Dollar"));
        assert_eq!((of(query, "grade").as_deref(), of(query, "page").as_deref()), (Some("MS65"), Some("3")));
        let about = About::default();
        assert_eq!(of(Query { about: &about, params: &none }, "query"), None);
    }
}
