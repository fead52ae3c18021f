//! A cursor that was never handed out is refused: the first page again would look like the next one.

use quell_core::error::{ErrorKind, StoreError, StoreResult};
use quell_core::inspect::Inspect;

use super::lanes::Walk;

/// Looks at the cursor of a listing, before anything is read.
pub(super) fn check(request: &Inspect) -> StoreResult<()> {
    let (cursor, known) = match request {
        Inspect::Lanes(filter) if filter.idle || filter.key_prefix.is_some() => {
            (&filter.cursor, by_key as Form)
        }
        Inspect::Lanes(filter) => (&filter.cursor, walk as Form),
        Inspect::Runs(filter) if filter.key.is_some() => (&filter.cursor, runs_of_key as Form),
        Inspect::Runs(filter) => (&filter.cursor, runs as Form),
        Inspect::Audit(filter) => (&filter.cursor, is_number as Form),
        Inspect::Sources(filter) => (&filter.cursor, is_number as Form),
        _ => return Ok(()),
    };
    match cursor {
        Some(text) if !known(text) => {
            let detail = format!("cursor {text:?} is not one that this listing has given");
            Err(StoreError::new(ErrorKind::Invalid, detail))
        }
        _ => Ok(()),
    }
}

type Form = fn(&str) -> bool;

fn is_number(text: &str) -> bool {
    text.parse::<i64>().is_ok()
}

fn by_key(text: &str) -> bool {
    text.split_once('.').is_some_and(|(queue, _)| is_number(queue))
}

fn walk(text: &str) -> bool {
    Walk::parse(text).is_some() && text.split('.').count() == 5
}

fn ended(text: &str) -> bool {
    text.strip_prefix("f.").is_some_and(is_number)
}

/// Behind the walk stands how many runs of the next lane were listed.
fn runs(text: &str) -> bool {
    let lane = text.rsplit_once('.').is_some_and(|(lane, listed)| walk(lane) && is_number(listed));
    lane || ended(text)
}

fn runs_of_key(text: &str) -> bool {
    text.strip_prefix("k.").is_some_and(is_number) || ended(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_that_is_given_is_known_and_others_are_not() {
        assert!(
            walk("0.1.0.-5.7") && runs("0.1.0.-5.7.2") && runs("f.91") && is_number("36") && by_key("3.a.b")
        );
        assert!(runs_of_key("k.20") && runs_of_key("f.91") && by_key("3."));
        for bad in ["", "x", "f.", "f.x", "1.2", "0.1.2.3", "0.1.2.3.x", "0.1.2.3.4.x", "k."] {
            assert!(!walk(bad) && !runs(bad) && !is_number(bad) && !runs_of_key(bad), "{bad}");
        }
        assert!(!by_key("x.a") && !by_key("3"));
    }
}
