//! How well an item fits an intake, from 0 to 100, by the words of its title.
//!
//! What an intake does not know does not count. What it knows counts by its weight: the year and the mintmark are there or
//! not, of a denomination, a series and a title as many words as the item has of them. Words are compared in lower case, with
//! everything else but letters and digits between them; digits and letters that touch are two words, so `1oz` is `1 oz`.
//!
//! A mintmark is a letter or two, which may stand anywhere in a title for something else. It counts only directly behind the
//! year (`1921-D`, `1921 D`, `1921D`) or before the word mint (`D mint`), and the `s` of `the 1920s` is none.
//!
//! Three things refuse an item whatever else it has: a word that excludes (a replica is not the thing, unless the intake is
//! one itself), a required attribute that the intake knows and the item does not show, and too little strength.

use crate::intake::{About, Attribute};

/// The strength of an item that has everything.
pub const STRENGTH_MAX: u8 = 100;

/// Parts of a weight that single words of an attribute are counted in.
const PARTS: u64 = 1_000_000;

/// What makes an item fit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MatchRules {
    pub weights: Weights,
    /// Words, or several in a row, that an item must not have.
    pub exclude: Vec<String>,
    /// What an item must show if the intake knows it.
    pub require: Vec<Attribute>,
    /// 0 to 100: what is weaker is not kept.
    pub min_strength: u8,
}

impl Default for MatchRules {
    fn default() -> Self {
        let exclude = ["replica", "copy", "reproduction", "counterfeit", "fake", "fantasy", "not genuine"];
        MatchRules {
            weights: Weights::default(),
            exclude: exclude.map(str::to_owned).into(),
            // Two years or two mints of one series are two things with two prices.
            require: vec![Attribute::Year, Attribute::Mintmark],
            min_strength: 50,
        }
    }
}

/// What each attribute counts beside the others; none counts for more than the 4 billion that a number holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Weights {
    pub year: u32,
    pub mintmark: u32,
    pub denomination: u32,
    pub series: u32,
    pub title: u32,
}

impl Default for Weights {
    fn default() -> Self {
        Weights { year: 30, mintmark: 20, denomination: 15, series: 25, title: 10 }
    }
}

impl Weights {
    fn of(&self, attribute: Attribute) -> u64 {
        u64::from(match attribute {
            Attribute::Year => self.year,
            Attribute::Mintmark => self.mintmark,
            Attribute::Denomination => self.denomination,
            Attribute::Series => self.series,
            Attribute::Title => self.title,
        })
    }
}

/// What a title says of an item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fit {
    /// It fits so well.
    Fits(u8),
    /// It fits so little.
    Weak(u8),
    /// It lacks what is required.
    Lacks(Attribute),
    /// It has a word that excludes it.
    Excluded(String),
}

impl Fit {
    /// How well it fits, if it does.
    pub fn strength(&self) -> Option<u8> {
        match self {
            Fit::Fits(strength) => Some(*strength),
            Fit::Weak(_) | Fit::Lacks(_) | Fit::Excluded(_) => None,
        }
    }
}

/// The rules for one intake, ready for many titles.
pub struct Matcher<'a> {
    rules: &'a MatchRules,
    /// What the intake knows.
    known: Vec<(Attribute, Vec<String>)>,
    /// Phrases that refuse an item.
    exclude: Vec<Vec<String>>,
}

impl<'a> Matcher<'a> {
    pub fn new(rules: &'a MatchRules, about: &About) -> Self {
        let words_of = |attribute| (attribute, words(about.get(attribute).unwrap_or_default()));
        let known: Vec<_> =
            Attribute::ALL.into_iter().map(words_of).filter(|(_, words)| !words.is_empty()).collect();
        let own = |phrase: &Vec<String>| known.iter().any(|(_, words)| has_phrase(words, phrase));
        let phrases = rules.exclude.iter().map(|text| words(text));
        let exclude = phrases.filter(|phrase| !phrase.is_empty() && !own(phrase)).collect();
        Matcher { rules, known, exclude }
    }

    /// How well an item of this title fits.
    pub fn fit(&self, title: &str) -> Fit {
        let title = words(title);
        if let Some(phrase) = self.exclude.iter().find(|phrase| has_phrase(&title, phrase)) {
            return Fit::Excluded(phrase.join(" "));
        }
        let (mut all, mut has) = (0, 0);
        for (attribute, wanted) in &self.known {
            let share = self.share(*attribute, wanted, &title);
            if share < PARTS && self.rules.require.contains(attribute) {
                return Fit::Lacks(*attribute);
            }
            all += self.rules.weights.of(*attribute) * PARTS;
            has += self.rules.weights.of(*attribute) * share;
        }
        // Nothing that counts is known: nothing fits.
        let strength = (has * u64::from(STRENGTH_MAX)).checked_div(all).unwrap_or(0);
        let strength = u8::try_from(strength).unwrap_or(STRENGTH_MAX).min(STRENGTH_MAX);
        match strength >= self.rules.min_strength {
            true => Fit::Fits(strength),
            false => Fit::Weak(strength),
        }
    }

    /// How much of an attribute a title shows, in parts.
    fn share(&self, attribute: Attribute, wanted: &[String], title: &[String]) -> u64 {
        let shown = match attribute {
            Attribute::Mintmark if self.has_mintmark(wanted, title) => wanted.len(),
            Attribute::Mintmark => 0,
            Attribute::Year if has_phrase(title, wanted) => wanted.len(),
            Attribute::Year => 0,
            _ => wanted.iter().filter(|word| title.contains(word)).count(),
        };
        let number = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        PARTS * number(shown) / number(wanted.len())
    }

    fn has_mintmark(&self, wanted: &[String], title: &[String]) -> bool {
        let year = self.known.iter().find(|(attribute, _)| *attribute == Attribute::Year);
        title.windows(wanted.len()).enumerate().any(|(at, words)| {
            let behind_year = match year {
                Some((_, year)) => title[..at].ends_with(year),
                None => title[..at].last().is_some_and(|word| is_year(word)),
            };
            let next = title.get(at + wanted.len()).map(String::as_str);
            words == wanted && (behind_year || matches!(next, Some("mint" | "mintmark" | "mintmarked")))
        })
    }
}

/// The words of a text: runs of letters and runs of digits, in lower case. An apostrophe belongs to its word.
fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let apart = |c: char| !c.is_alphanumeric() && !is_apostrophe(c);
    for piece in text.split(apart) {
        let piece: String = piece.chars().filter(|c| !is_apostrophe(*c)).collect();
        if is_decade(&piece) {
            words.push(piece);
            continue;
        }
        let mut word = String::new();
        let mut digits = false;
        for c in piece.chars() {
            if c.is_numeric() != digits && !word.is_empty() {
                words.push(std::mem::take(&mut word));
            }
            digits = c.is_numeric();
            word.extend(c.to_lowercase());
        }
        if !word.is_empty() {
            words.push(word);
        }
    }
    words
}

fn is_apostrophe(c: char) -> bool {
    matches!(c, '\'' | '\u{2019}')
}

/// `1920s`, but not `1920S`, which was struck in San Francisco.
fn is_decade(piece: &str) -> bool {
    piece.strip_suffix("0s").is_some_and(|rest| rest.len() == 3 && rest.bytes().all(|b| b.is_ascii_digit()))
}

fn is_year(word: &str) -> bool {
    word.len() == 4 && word.bytes().all(|byte| byte.is_ascii_digit())
}

fn has_phrase(words: &[String], phrase: &[String]) -> bool {
    words.windows(phrase.len()).any(|some| some == phrase)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn about(year: &str, mintmark: &str, denomination: &str, series: &str, title: &str) -> About {
        let known = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        About {
            year: known(year),
            mintmark: known(mintmark),
            denomination: known(denomination),
            series: known(series),
            title: known(title),
        }
    }

    fn fit(about: &About, title: &str) -> Fit {
        Matcher::new(&MatchRules::default(), about).fit(title)
    }

    #[test]
    fn a_mintmark_is_found_however_it_is_written() {
        let coin = about("1921", "D", "", "Morgan Dollar", "");
        for title in [
            "1921-D Morgan Dollar",
            "1921 D Morgan Dollar",
            "1921D Morgan Dollar",
            "MORGAN DOLLAR 1921-d silver",
            "Morgan Dollar (1921 D)",
            "1921 Morgan Dollar, D mint",
            "1921 Morgan Dollar D-Mint",
        ] {
            assert_eq!(fit(&coin, title), Fit::Fits(100), "{title}");
        }
        for title in [
            "1921 Morgan Dollar",
            "1921-S Morgan Dollar",
            "1921 Morgan D Dollar",
            "1921 Morgan Dollar DDO",
            "1922-D 1921 Morgan Dollar",
        ] {
            assert_eq!(fit(&coin, title), Fit::Lacks(Attribute::Mintmark), "{title}");
        }
        let carson = about("1885", "CC", "", "Morgan Dollar", "");
        assert_eq!(fit(&carson, "1885CC Morgan Dollar"), Fit::Fits(100));
        assert_eq!(fit(&carson, "1885-C Morgan Dollar"), Fit::Lacks(Attribute::Mintmark));
        let any_year = about("", "S", "", "Morgan Dollar", "");
        assert_eq!(fit(&any_year, "Morgan Dollar 1881S"), Fit::Fits(100));
        assert_eq!(fit(&any_year, "Morgan Dollar's S"), Fit::Lacks(Attribute::Mintmark));
    }

    #[test]
    fn a_decade_is_no_mintmark() {
        let coin = about("1920", "S", "", "Walking Liberty", "");
        assert_eq!(fit(&coin, "1920S Walking Liberty"), Fit::Fits(100));
        assert_eq!(fit(&coin, "Walking Liberty, from the 1920s"), Fit::Lacks(Attribute::Year));
    }

    #[test]
    fn what_the_intake_does_not_know_does_not_count() {
        let only_series = about("", "", "", "American Silver Eagle", "");
        assert_eq!(fit(&only_series, "2024 American Silver Eagle 1 oz"), Fit::Fits(100));
        assert_eq!(fit(&only_series, "Silver Eagle"), Fit::Fits(66));
        assert_eq!(fit(&only_series, "Gold Eagle"), Fit::Weak(33));
        assert_eq!(fit(&only_series, "Maple Leaf"), Fit::Weak(0));
        let nothing = MatchRules { min_strength: 0, ..MatchRules::default() };
        assert_eq!(Matcher::new(&nothing, &About::default()).fit("Eagle"), Fit::Fits(0));
    }

    #[test]
    fn weights_say_how_much_each_attribute_counts() {
        let coin = about("1921", "", "One Dollar", "Morgan", "rare toned");
        // 30 + 15 + 25 + 10 are known; half of the denomination and nothing of the title are shown.
        assert_eq!(fit(&coin, "Morgan Dollar 1921"), Fit::Fits(78));
        assert_eq!(fit(&coin, "Morgan One Dollar 1921 rare & TONED"), Fit::Fits(100));
        let rules = MatchRules {
            weights: Weights { title: 0, denomination: 0, ..Weights::default() },
            ..MatchRules::default()
        };
        assert_eq!(Matcher::new(&rules, &coin).fit("Morgan Dollar 1921"), Fit::Fits(100));
    }

    #[test]
    fn another_year_is_another_thing() {
        let coin = about("1921", "", "", "Morgan Dollar", "");
        assert_eq!(fit(&coin, "1922 Morgan Dollar"), Fit::Lacks(Attribute::Year));
        assert_eq!(fit(&coin, "19210 Morgan Dollar"), Fit::Lacks(Attribute::Year));
        let free = MatchRules { require: Vec::new(), ..MatchRules::default() };
        assert_eq!(Matcher::new(&free, &coin).fit("1922 Morgan Dollar"), Fit::Weak(45));
    }

    #[test]
    fn a_replica_is_excluded_unless_the_intake_is_one() {
        let coin = about("", "", "", "Morgan Dollar", "");
        assert_eq!(fit(&coin, "Morgan Dollar REPLICA"), Fit::Excluded("replica".into()));
        assert_eq!(fit(&coin, "Morgan Dollar (not  genuine)"), Fit::Excluded("not genuine".into()));
        assert_eq!(fit(&coin, "Morgan Dollar genuine"), Fit::Fits(100));
        assert_eq!(fit(&coin, "Morgan Dollar photocopy"), Fit::Fits(100));
        let copy = about("", "", "", "Morgan Dollar copy", "");
        assert_eq!(fit(&copy, "Morgan Dollar Copy"), Fit::Fits(100));
    }

    #[test]
    fn words_are_compared_without_case_signs_and_spaces() {
        let coin = about("", "", "1oz", "Österreich’s Philharmoniker", "");
        for title in ["ÖSTERREICH'S PHILHARMONIKER 1 OZ", "österreichs\u{a0}philharmoniker/1-Oz"] {
            assert_eq!(fit(&coin, title), Fit::Fits(100), "{title}");
        }
        assert_eq!(words("MS-65+ $1, 1/2oz"), ["ms", "65", "1", "1", "2", "oz"]);
    }
}
