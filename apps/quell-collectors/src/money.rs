//! Money: a whole number of the smallest unit of a currency. No float ever holds a price.
//!
//! A text is read exactly or not at all: what has more decimals than its currency, a sign, an exponent or a separator of
//! thousands is refused with a reason, because a guess about money is a wrong price that nobody notices.

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
        f.pad(self.as_str())
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

    /// The price without its currency, with all decimals: `31.50`.
    pub fn amount(&self) -> String {
        let exponent = self.currency.exponent();
        let unit = 10_u64.pow(exponent);
        let (sign, cents) = (if self.cents < 0 { "-" } else { "" }, self.cents.unsigned_abs());
        match exponent as usize {
            0 => format!("{sign}{cents}"),
            width => format!("{sign}{}.{:0width$}", cents / unit, cents % unit),
        }
    }
}

/// `31.50 USD`
impl fmt::Display for Money {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{} {}", self.amount(), self.currency))
    }
}

/// What somebody else sent goes into an error only so far.
fn shortened(text: &str) -> String {
    text.chars().take(40).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(text: &str, currency: &str) -> Result<i64, BadMoney> {
        Money::parse(text, Currency::new(currency).unwrap()).map(|money| money.cents)
    }

    #[test]
    fn prices_are_read_exactly() {
        let cases = [
            ("31.50", "USD", 3150),
            ("31.5", "USD", 3150),
            ("31", "USD", 3100),
            (".5", "USD", 50),
            ("31.", "USD", 3100),
            ("0.05", "USD", 5),
            ("0", "USD", 0),
            ("0.00", "USD", 0),
            ("0031.50", "USD", 3150),
            ("31.5000", "USD", 3150),
            ("4500", "JPY", 4500),
            ("4500.0", "JPY", 4500),
            ("0", "JPY", 0),
            ("1.234", "BHD", 1234),
            ("0.0001", "CLF", 1),
            ("9999999999999.99", "USD", 999_999_999_999_999),
            ("999999999999999", "JPY", 999_999_999_999_999),
        ];
        for (text, currency, cents) in cases {
            assert_eq!(read(text, currency), Ok(cents), "{text} {currency}");
        }
    }

    #[test]
    fn what_is_no_price_is_refused_and_never_guessed() {
        let texts = [
            "NaN", "nan", "inf", "-inf", "-5", "-0", "+5", "1e3", "1E3", "1,000.00", "1.000,00", "1 000",
            " 5", "5 ", "$5", "5 USD", "0x10", "1_000", "", ".", "..5", "1.2.3", "٣", "１", "½", "null",
        ];
        for text in texts {
            assert_eq!(read(text, "USD"), Err(BadMoney::Price(text.to_owned())), "{text:?}");
        }
        for (text, currency) in [("31.505", "USD"), ("0.001", "EUR"), ("4500.5", "JPY"), ("1.2345", "KWD")] {
            assert!(matches!(read(text, currency), Err(BadMoney::Decimals { .. })), "{text} {currency}");
        }
        for (text, currency) in [("10000000000000.00", "USD"), ("1000000000000000", "JPY")] {
            assert_eq!(read(text, currency), Err(BadMoney::TooLarge(text.to_owned())));
        }
        let Err(BadMoney::TooLarge(shown)) = read(&"9".repeat(10_000), "USD") else {
            panic!("it is too large")
        };
        assert_eq!(shown.len(), 40, "what somebody else sent is shown only so far");
    }

    #[test]
    fn a_currency_is_three_capital_letters() {
        for bad in ["", "usd", "US", "USDT", "U1D", "ÜSD", "US "] {
            assert_eq!(Currency::new(bad), Err(BadMoney::Currency(bad.to_owned())), "{bad:?}");
        }
        let read: Result<Currency, _> = serde_json::from_str("\"usd\"");
        assert!(read.unwrap_err().to_string().contains("three capital letters"));
        assert_eq!(serde_json::to_string(&Currency::USD).unwrap(), "\"USD\"");
    }

    #[test]
    fn money_is_shown_with_all_its_decimals() {
        let shown = |cents, currency| Money { cents, currency: Currency::new(currency).unwrap() }.to_string();
        assert_eq!(shown(3150, "USD"), "31.50 USD");
        assert_eq!(shown(5, "USD"), "0.05 USD");
        assert_eq!(shown(-5, "USD"), "-0.05 USD");
        assert_eq!(shown(4500, "JPY"), "4500 JPY");
        assert_eq!(shown(1234, "BHD"), "1.234 BHD");
        assert_eq!(format!("{:>12}|", Money { cents: 1, currency: Currency::USD }), "    0.01 USD|");
    }

    proptest! {
        #[test]
        fn what_is_shown_is_read_back(
            cents in 0..=999_999_999_999_999_i64,
            currency in prop::sample::select(vec!["USD", "JPY", "BHD", "CLF", "EUR"]),
            zeros in "0{0,3}",
        ) {
            let money = Money { cents, currency: Currency::new(currency).unwrap() };
            let text = format!("{zeros}{}", money.amount());
            prop_assert_eq!(Money::parse(&text, money.currency), Ok(money));
        }

        #[test]
        fn nothing_that_can_be_typed_makes_it_panic(text in any::<String>()) {
            if let Ok(money) = Money::parse(&text, Currency::USD) {
                prop_assert!(money.cents >= 0 && text.bytes().all(|b| b.is_ascii_digit() || b == b'.'));
            }
        }
    }
}
