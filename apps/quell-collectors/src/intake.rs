//! An intake: a thing whose price is wanted, and the key of its lane at a source.
//!
//! Checked when it is made, so that its id can stand in a key and in a cache key, and what is known of it can be searched for.

use quell::quell_core::clock::Timestamp;
use quell::quell_core::event::{SourceName, Tenant};
use serde::{Deserialize, Serialize};

use crate::money::Currency;

/// Ids are typed by people and stand in keys of lanes beside the name of a source.
pub const ID_BYTES_MAX: usize = 64;

/// Bytes of one attribute: far more than the longest series has, and all five of them still fit into a cache key.
pub const ATTRIBUTE_BYTES_MAX: usize = 160;

/// A thing whose price is wanted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Intake {
    pub tenant: Tenant,
    /// `[A-Za-z0-9._-]{1,64}`, so that it can stand in a key.
    pub id: String,
    #[serde(flatten)]
    pub about: About,
    /// What it is valued in.
    pub currency: Currency,
    pub created_at: Timestamp,
}

/// What is known of a thing. All of it may be missing but the title or the series: something must be searched for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct About {
    pub year: Option<String>,
    pub mintmark: Option<String>,
    pub denomination: Option<String>,
    pub series: Option<String>,
    pub title: Option<String>,
}

/// Why something cannot be an intake.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadIntake {
    #[error("{0:?} is no id of an intake: 1 to 64 characters of A-Z, a-z, 0-9, '.', '_' and '-'")]
    Id(String),
    #[error("an intake needs a series or a title: something must be searched for")]
    Nothing,
    #[error("the {attribute} of an intake has {bytes} bytes; at most {ATTRIBUTE_BYTES_MAX} are allowed")]
    TooLong { attribute: Attribute, bytes: usize },
    #[error("the {0} of an intake has a control character in it")]
    Control(Attribute),
}

impl Intake {
    /// Texts are trimmed, and an empty one is a missing one.
    pub fn new(
        tenant: Tenant,
        id: &str,
        about: About,
        currency: Currency,
        created_at: Timestamp,
    ) -> Result<Intake, BadIntake> {
        check_id(id)?;
        Ok(Intake { tenant, id: id.to_owned(), about: about.checked()?, currency, created_at })
    }

    /// The lane in which this intake is collected from a source: neither part can have a colon.
    pub fn lane(&self, source: &SourceName) -> String {
        lane(&self.id, source)
    }
}

/// The key of the lane of an intake at a source.
pub fn lane(intake: &str, source: &SourceName) -> String {
    format!("{intake}:{source}")
}

/// Refuses what cannot be the id of an intake.
pub fn check_id(id: &str) -> Result<(), BadIntake> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    match !id.is_empty() && id.len() <= ID_BYTES_MAX && id.bytes().all(allowed) {
        true => Ok(()),
        false => Err(BadIntake::Id(id.chars().take(ID_BYTES_MAX).collect())),
    }
}

/// One of the things that may be known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Attribute {
    Year,
    Mintmark,
    Denomination,
    Series,
    Title,
}

impl Attribute {
    /// In the order of the cache key.
    pub const ALL: [Attribute; 5] =
        [Attribute::Year, Attribute::Mintmark, Attribute::Denomination, Attribute::Series, Attribute::Title];

    pub fn as_str(self) -> &'static str {
        match self {
            Attribute::Year => "year",
            Attribute::Mintmark => "mintmark",
            Attribute::Denomination => "denomination",
            Attribute::Series => "series",
            Attribute::Title => "title",
        }
    }

    pub fn named(name: &str) -> Option<Attribute> {
        Attribute::ALL.into_iter().find(|attribute| attribute.as_str() == name)
    }
}

impl std::fmt::Display for Attribute {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.as_str())
    }
}

impl About {
    /// What is known of one attribute.
    pub fn get(&self, attribute: Attribute) -> Option<&str> {
        match attribute {
            Attribute::Year => self.year.as_deref(),
            Attribute::Mintmark => self.mintmark.as_deref(),
            Attribute::Denomination => self.denomination.as_deref(),
            Attribute::Series => self.series.as_deref(),
            Attribute::Title => self.title.as_deref(),
        }
    }

    /// Trimmed, without empty texts, and refused when it says nothing or too much.
    pub fn checked(&self) -> Result<About, BadIntake> {
        let read = |attribute: Attribute| -> Result<Option<String>, BadIntake> {
            let text = self.get(attribute).map(str::trim).filter(|text| !text.is_empty());
            match text {
                Some(text) if text.len() > ATTRIBUTE_BYTES_MAX => {
                    Err(BadIntake::TooLong { attribute, bytes: text.len() })
                }
                Some(text) if text.contains(char::is_control) => Err(BadIntake::Control(attribute)),
                text => Ok(text.map(str::to_owned)),
            }
        };
        let checked = About {
            year: read(Attribute::Year)?,
            mintmark: read(Attribute::Mintmark)?,
            denomination: read(Attribute::Denomination)?,
            series: read(Attribute::Series)?,
            title: read(Attribute::Title)?,
        };
        match checked.series.is_some() || checked.title.is_some() {
            true => Ok(checked),
            false => Err(BadIntake::Nothing),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(id: &str, about: About) -> Result<Intake, BadIntake> {
        Intake::new(Tenant::none(), id, about, Currency::USD, Timestamp::from_millis(0))
    }

    fn titled(title: &str) -> About {
        About { title: Some(title.to_owned()), ..About::default() }
    }

    #[test]
    fn an_id_can_stand_in_a_key() {
        for good in ["a", "coin-1", "A.b_9", &"x".repeat(64)] {
            let intake = made(good, titled("Eagle")).unwrap();
            let source = SourceName::new("ebay").unwrap();
            assert_eq!(intake.lane(&source), format!("{good}:ebay"));
        }
        for bad in ["", "a:b", "a b", "ü", "a/b", "a\n", &"x".repeat(65)] {
            assert!(matches!(made(bad, titled("Eagle")), Err(BadIntake::Id(_))), "{bad:?}");
        }
    }

    #[test]
    fn something_must_be_searched_for() {
        let year = About { year: Some("1921".into()), ..About::default() };
        assert_eq!(made("a", year.clone()), Err(BadIntake::Nothing));
        assert_eq!(made("a", titled("  \u{a0} ")), Err(BadIntake::Nothing));
        assert!(made("a", About { series: Some("Morgan".into()), ..year }).is_ok());
    }

    #[test]
    fn texts_are_trimmed_and_bounded() {
        let about = About { mintmark: Some(" ".into()), ..titled("  Eagle \u{2003}") };
        let intake = made("a", about).unwrap();
        assert_eq!((intake.about.title.as_deref(), intake.about.mintmark), (Some("Eagle"), None));
        let long = made("a", titled(&"é".repeat(81))).unwrap_err();
        assert_eq!(long, BadIntake::TooLong { attribute: Attribute::Title, bytes: 162 });
        assert_eq!(made("a", titled("a\0b")), Err(BadIntake::Control(Attribute::Title)));
    }
}
