//! Money: a whole number of the smallest unit of a currency. No float ever holds a price.

use std::fmt;

use serde::{Deserialize, Serialize};

/// More digits than any price has; keeps sums of all points of an intake far from overflowing.
const DIGITS_MAX: usize = 15;

/// Currencies whose smallest unit is not a hundredth (ISO 4217).
const EXPONENTS: [(&str, u32); 24] = [
    ("BHD", 3),
    ("BIF", 0),
    ("CLF", 4),
    ("CLP", 0),
    ("DJF", 0),
    ("GNF", 0),
    ("IQD", 3),
    ("ISK", 0),
    ("JOD", 3),
    ("JPY", 0),
    ("KMF", 0),
    ("KRW", 0),
    ("KWD", 3),
    ("LYD", 3),
    ("OMR", 3),
    ("PYG", 0),
    ("RWF", 0),
    ("TND", 3),
    ("UGX", 0),
    ("UYI", 0),
    ("VND", 0),
    ("VUV", 0),
    ("XAF", 0),
    ("XPF", 0),
];

/// Why a text is no money.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadMoney {
    #[error("{0:?} is no currency: three capital letters, as in USD")]
    Currency(String),
    #[error("{0:?} is no price: digits with at most one point, as in 31.50")]
    Price(String),
    #[error("{price:?} has more decimals than {currency} knows")]
    Decimals { price: String, currency: Currency },
    #[error("{0:?} is larger than any price")]
    TooLarge(String),
}

/// Three capital letters (ISO 4217).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Currency([u8; 3]);

impl Currency {
    pub const USD: Currency = Currency(*b"USD");

    pub fn new(text: &str) -> Result<Self, BadMoney> {
        match *text.as_bytes() {
            [a, b, c] if [a, b, c].iter().all(u8::is_ascii_uppercase) => Ok(Currency([a, b, c])),
            _ => Err(BadMoney::Currency(shortened(text))),
        }
    }

    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).expect("only ASCII letters are ever put in")
    }

    /// Decimals of a price in it.
    pub fn exponent(self) -> u32 {
        EXPONENTS.iter().find(|(name, _)| *name == self.as_str()).map_or(2, |(_, exponent)| *exponent)
    }
}

impl TryFrom<String> for Currency {
    type Error = BadMoney;
    fn try_from(text: String) -> Result<Self, BadMoney> {
        Currency::new(&text)
    }
}

impl From<Currency> for String {
    fn from(currency: Currency) -> String {
        currency.as_str().to_owned()
    }
}

impl fmt::Display for Currency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for Currency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A price.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Money {
    /// Cents, or what the currency has in their place.
    pub cents: i64,
    pub currency: Currency,
}

impl Money {
    /// Reads `31.50`, `31.5`, `31` or `.5`; what cannot be kept exactly is refused, never rounded.
    pub fn parse(text: &str, currency: Currency) -> Result<Money, BadMoney> {
        let bad = || BadMoney::Price(shortened(text));
        let (whole, part) = text.split_once('.').unwrap_or((text, ""));
        let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        if !digits(whole) || !digits(part) || whole.len() + part.len() == 0 {
            return Err(bad());
        }
        let exponent = currency.exponent() as usize;
        let part = part.trim_end_matches('0');
        if part.len() > exponent {
            return Err(BadMoney::Decimals { price: shortened(text), currency });
        }
        let all = format!("{}{part:0<exponent$}", whole.trim_start_matches('0'));
        match all.len() {
            0 => Ok(Money { cents: 0, currency }),
            1..=DIGITS_MAX => Ok(Money { cents: all.parse().map_err(|_| bad())?, currency }),
            _ => Err(BadMoney::TooLarge(shortened(text))),
        }
    }
}

/// `31.50 USD`
impl fmt::Display for Money {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let exponent = self.currency.exponent();
        let unit = 10_u64.pow(exponent);
        let (sign, cents) = (if self.cents < 0 { "-" } else { "" }, self.cents.unsigned_abs());
        match exponent {
            0 => write!(f, "{sign}{cents} {}", self.currency),
            _ => {
                let width = exponent as usize;
                write!(f, "{sign}{}.{:0width$} {}", cents / unit, cents % unit, self.currency)
            }
        }
    }
}

/// What somebody else sent goes into an error only so far.
fn shortened(text: &str) -> String {
    text.chars().take(40).collect()
}
