//! Amounts of money: exact, two decimals, a string in JSON (R24).

use std::fmt;
use std::str::FromStr;

use rust_decimal::Decimal;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Most digits before the decimal point.
const WHOLE_DIGITS_MAX: usize = 15;
/// A JSON number of up to this many digits passes through a double unharmed.
const EXACT_DIGITS_MAX: usize = 15;

/// An exact amount with at most two decimals.
///
/// In JSON and in the state it is a string with exactly two, `"1200.00"`, so
/// that equal amounts have equal texts and equal hashes. People read it with
/// thousands separators: `1,200.00`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Money(Decimal);

/// Why something is not an amount of money.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MoneyError {
    /// Not a number as amounts are written.
    #[error("`{0}` is not an amount such as \"1200.00\"")]
    Unreadable(String),
    /// More precise than a cent.
    #[error("`{0}` has more than two decimals")]
    TooPrecise(String),
    /// More digits than any real amount has.
    #[error("`{0}` has more than 15 digits before the decimal point")]
    TooLarge(String),
    /// A JSON number that a double may have rounded.
    #[error("`{0}` may have been rounded as a JSON number; write the amount as a string")]
    Inexact(String),
    /// Neither a string nor a number.
    #[error("expected an amount as a string such as \"1200.00\", not {0}")]
    WrongType(&'static str),
}

impl Money {
    /// `units` and no cents.
    #[must_use]
    pub const fn whole(units: u32) -> Self {
        Self(Decimal::from_parts(units, 0, 0, false, 0))
    }

    /// Whether it is more than nothing.
    #[must_use]
    pub fn is_positive(self) -> bool {
        self.0 > Decimal::ZERO
    }

    /// Reads an amount from JSON: a string, or a number that is exact.
    ///
    /// # Errors
    /// The value is no amount, or a number that may have been rounded.
    pub fn from_json(value: &Value) -> Result<Self, MoneyError> {
        match value {
            Value::String(text) => text.parse(),
            Value::Number(number) => match (number.is_f64(), number.as_f64()) {
                // The shortest text that reads back as the same double is
                // what was written, if that was short enough.
                (true, Some(double)) => {
                    let text = double.to_string();
                    let money = text.parse()?;
                    let digits = text.trim_start_matches(['-', '0', '.']).bytes().filter(u8::is_ascii_digit).count();
                    if digits > EXACT_DIGITS_MAX { Err(MoneyError::Inexact(text)) } else { Ok(money) }
                }
                _ => number.to_string().parse(),
            },
            Value::Null => Err(MoneyError::WrongType("null")),
            Value::Bool(_) => Err(MoneyError::WrongType("a boolean")),
            Value::Array(_) => Err(MoneyError::WrongType("a list")),
            Value::Object(_) => Err(MoneyError::WrongType("an object")),
        }
    }
}

/// Plain amounts: digits, a point and up to two decimals, a minus in front.
impl FromStr for Money {
    type Err = MoneyError;

    fn from_str(text: &str) -> Result<Self, MoneyError> {
        let unreadable = || MoneyError::Unreadable(shortened(text));
        let digits = text.strip_prefix('-').unwrap_or(text);
        let (whole, decimals) = match digits.split_once('.') {
            Some((_, "")) => return Err(unreadable()),
            Some(parts) => parts,
            None => (digits, ""),
        };
        if whole.is_empty() || !whole.bytes().chain(decimals.bytes()).all(|byte| byte.is_ascii_digit()) {
            return Err(unreadable());
        }
        if whole.trim_start_matches('0').len() > WHOLE_DIGITS_MAX {
            return Err(MoneyError::TooLarge(shortened(text)));
        }
        if decimals.trim_end_matches('0').len() > 2 {
            return Err(MoneyError::TooPrecise(shortened(text)));
        }
        let value = Decimal::from_str(text).map_err(|_| unreadable())?;
        // Nothing owed has no sign.
        Ok(Self(if value.is_zero() { Decimal::ZERO } else { value.normalize() }))
    }
}

impl TryFrom<String> for Money {
    type Error = MoneyError;

    fn try_from(text: String) -> Result<Self, MoneyError> {
        text.parse()
    }
}

impl From<Money> for String {
    fn from(money: Money) -> Self {
        format!("{:.2}", money.0)
    }
}

/// As people read it: `1,200.00`.
impl fmt::Display for Money {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = String::from(*self);
        let (sign, digits) = text.strip_prefix('-').map_or(("", text.as_str()), |digits| ("-", digits));
        let (whole, decimals) = digits.split_once('.').unwrap_or((digits, "00"));
        f.write_str(sign)?;
        for (i, digit) in whole.chars().enumerate() {
            if i > 0 && (whole.len() - i).is_multiple_of(3) {
                f.write_str(",")?;
            }
            write!(f, "{digit}")?;
        }
        write!(f, ".{decimals}")
    }
}

/// An amount as ledgers and spreadsheets write it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    /// The amount; credits are negative.
    pub money: Money,
    /// The currency its sign stands for, if it had one.
    pub currency: Option<&'static str>,
}

/// Reads an amount as ledgers and spreadsheets write it: blanks around it,
/// thousands separators, a currency sign, and credits as `-5.00`, `5.00-` or
/// `(5.00)`.
///
/// # Errors
/// It reads as no amount, or could be read as two.
pub fn written(text: &str) -> Result<Written, MoneyError> {
    let unreadable = || MoneyError::Unreadable(shortened(text.trim()));
    let mut rest = text.trim();
    let mut minus = 0;
    let mut currency = None;
    if let Some(inner) = rest.strip_prefix('(').and_then(|rest| rest.strip_suffix(')')) {
        rest = inner.trim();
        minus += 1;
    }
    // A sign and a currency sign may stand in either order, on either side.
    loop {
        if let Some(inner) = rest.strip_prefix('-').or_else(|| rest.strip_suffix('-')) {
            rest = inner.trim();
            minus += 1;
        } else if let Some((inner, code)) = without_currency(rest) {
            if currency.replace(code).is_some() {
                return Err(unreadable());
            }
            rest = inner.trim();
        } else {
            break;
        }
    }
    let (whole, decimals) = rest.split_once('.').map_or((rest, None), |(whole, decimals)| (whole, Some(decimals)));
    if minus > 1 || !separators_fit(whole) {
        return Err(unreadable());
    }
    let plain = whole.replace(',', "");
    let plain = decimals.map_or(plain.clone(), |decimals| format!("{plain}.{decimals}"));
    let money = if minus == 1 { format!("-{plain}").parse() } else { plain.parse() };
    money.map(|money| Written { money, currency }).map_err(|error| match error {
        // Shown as it was written, not as it was taken apart.
        MoneyError::Unreadable(_) => unreadable(),
        other => other,
    })
}

fn without_currency(text: &str) -> Option<(&str, &'static str)> {
    [('£', "GBP"), ('€', "EUR"), ('$', "USD")]
        .into_iter()
        .find_map(|(sign, code)| text.strip_prefix(sign).or_else(|| text.strip_suffix(sign)).map(|rest| (rest, code)))
}

/// Commas stand before each third digit or nowhere, so that a decimal comma
/// is not taken for a separator.
fn separators_fit(whole: &str) -> bool {
    let mut groups = whole.split(',');
    let first = groups.next().map_or(0, str::len);
    let mut separated = false;
    let thirds = groups.all(|group| {
        separated = true;
        group.len() == 3
    });
    thirds && (!separated || (1..=3).contains(&first))
}

fn shortened(text: &str) -> String {
    text.chars().take(40).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn money(text: &str) -> Money {
        text.parse().expect("an amount")
    }

    #[test]
    fn an_amount_has_one_spelling() {
        for same in [json!("1200"), json!("1200.0"), json!("1200.00"), json!("01200.000"), json!(1200), json!(1.2e3)] {
            let read = Money::from_json(&same).expect("an amount");
            assert_eq!(serde_json::to_value(read).expect("a string"), "1200.00", "{same}");
        }
        assert_eq!(Money::from_json(&json!(0.1)), Ok(money("0.10")));
        assert_eq!(String::from(money("-0")), "0.00");
        assert_eq!(money("-1234567.5").to_string(), "-1,234,567.50");
        assert_eq!(money("999").to_string(), "999.00");
    }

    #[test]
    fn what_is_no_amount_says_why() {
        let fault = |value: Value| Money::from_json(&value).expect_err("no amount");
        for text in ["", "-", ".", "1.", ".5", "NaN", "inf", "1e3", "+1", "1_000", "1,000", " 1", "١٢", "--1"] {
            assert_eq!(fault(json!(text)), MoneyError::Unreadable(text.into()));
        }
        assert_eq!(fault(json!("0.001")), MoneyError::TooPrecise("0.001".into()));
        assert_eq!(fault(json!(1.005)), MoneyError::TooPrecise("1.005".into()));
        assert!(matches!(fault(json!("1000000000000000")), MoneyError::TooLarge(_)));
        assert!(matches!(fault(json!(1e300)), MoneyError::TooLarge(_)));
        assert!(matches!(fault(json!(u64::MAX)), MoneyError::TooLarge(_)));
        assert!(matches!(fault(json!(123_456_789_012_345.67)), MoneyError::Inexact(_)));
        assert_eq!(fault(json!(true)), MoneyError::WrongType("a boolean"));
    }

    #[test]
    fn ledgers_write_amounts_in_their_ways() {
        for (text, amount, currency) in [
            ("695", "695.00", None),
            (" 1,009.95 ", "1009.95", None),
            ("£1,000,000", "1000000.00", Some("GBP")),
            ("12.50 €", "12.50", Some("EUR")),
            ("-583.16", "-583.16", None),
            ("583.16-", "-583.16", None),
            ("(583.16)", "-583.16", None),
            ("(£1,583.16)", "-1583.16", Some("GBP")),
            ("-£5", "-5.00", Some("GBP")),
            ("$ -5", "-5.00", Some("USD")),
            ("\u{a0}0.00", "0.00", None),
        ] {
            assert_eq!(written(text), Ok(Written { money: money(amount), currency }), "{text}");
        }
        for text in
            ["", "£", "1,23", "1.234,50", "1,2345", ",123", "1234,567", "(5", "-(-5)", "-5-", "££5", "12 34", "n/a"]
        {
            assert_eq!(written(text), Err(MoneyError::Unreadable(text.into())));
        }
        assert!(matches!(written("1.234"), Err(MoneyError::TooPrecise(_))));
    }

    proptest! {
        #[test]
        fn every_way_of_writing_an_amount_reads_as_that_amount(
            cents in -999_999_999_999_i64..=999_999_999_999,
            style in 0..3_u8, sign in prop::sample::select(vec!["", "£", "€ "]), blanks in "[ \t]{0,2}",
        ) {
            let expected = Money(Decimal::new(cents, 2));
            let plain = Money(Decimal::new(cents.abs(), 2)).to_string();
            let text = match (cents < 0, style) {
                (false, _) => format!("{blanks}{sign}{plain}{blanks}"),
                (true, 0) => format!("{blanks}-{sign}{plain}"),
                (true, 1) => format!("{sign}{plain}-{blanks}"),
                (true, _) => format!("({sign}{plain}){blanks}"),
            };
            prop_assert_eq!(written(&text).map(|read| read.money), Ok(expected));
            // The canonical text reads back as itself, from JSON and from a file.
            let canonical = String::from(expected);
            prop_assert_eq!(Money::from_json(&Value::from(canonical.as_str())), Ok(expected));
            prop_assert_eq!(written(&canonical).map(|read| String::from(read.money)), Ok(canonical));
        }

        #[test]
        fn no_text_makes_the_reader_panic_and_what_it_reads_has_two_decimals(text in "\\PC{0,24}|[-0-9.,£$() ]{0,24}") {
            if let Ok(read) = written(&text) {
                let canonical = String::from(read.money);
                prop_assert_eq!(canonical.rsplit_once('.').map(|(_, decimals)| decimals.len()), Some(2));
                prop_assert_eq!(canonical.parse(), Ok(read.money));
            }
        }
    }
}
