//! Reading a caller's input: every fault at once, each where it is.

use std::collections::BTreeSet;

use countersign_kernel::fault::Fault;
use serde_json::{Map, Value};

use crate::money::Money;

/// The longest text that a field takes, in characters.
const TEXT_MAX: usize = 500;

/// Takes the members of an object one by one and gathers what is wrong.
pub(crate) struct Fields<'a> {
    members: Option<&'a Map<String, Value>>,
    at: String,
    known: BTreeSet<&'static str>,
    faults: Vec<Fault>,
}

impl<'a> Fields<'a> {
    /// Reads `value`, which stands at the JSON pointer `at`.
    pub(crate) fn of(value: &'a Value, at: impl Into<String>) -> Self {
        let at = at.into();
        let members = value.as_object();
        let faults = if members.is_some() { Vec::new() } else { vec![Fault::at(&at, "expected an object")] };
        Self { members, at, known: BTreeSet::new(), faults }
    }

    /// A member that need not be there; `null` counts as left out.
    pub(crate) fn optional(&mut self, name: &'static str) -> Option<&'a Value> {
        self.known.insert(name);
        self.members?.get(name).filter(|value| !value.is_null())
    }

    fn required(&mut self, name: &'static str) -> Option<&'a Value> {
        let value = self.optional(name);
        if value.is_none() && self.members.is_some() {
            self.fault(name, "is missing");
        }
        value
    }

    /// A text that is not blank; blanks around it are taken off.
    pub(crate) fn text(&mut self, name: &'static str) -> String {
        let Some(value) = self.required(name) else { return String::new() };
        let text = value.as_str().map(str::trim);
        match text {
            None => self.fault(name, "expected a text"),
            Some("") => self.fault(name, "is empty"),
            Some(text) if text.chars().count() > TEXT_MAX => {
                self.fault(name, format!("has more than {TEXT_MAX} characters"));
            }
            Some(_) => {}
        }
        text.unwrap_or_default().to_owned()
    }

    /// More than nothing, to the cent.
    pub(crate) fn amount(&mut self, name: &'static str) -> Money {
        match self.required(name).map(Money::from_json) {
            Some(Ok(money)) if money.is_positive() => return money,
            Some(Ok(_)) => self.fault(name, "must be more than zero"),
            Some(Err(problem)) => self.fault(name, problem.to_string()),
            None => {}
        }
        Money::whole(0)
    }

    /// A currency code; case is folded.
    pub(crate) fn currency(&mut self, name: &'static str) -> String {
        let code = self.text(name).to_uppercase();
        if !code.is_empty() && !is_currency(&code) {
            self.fault(name, "expected a currency code of three letters such as EUR");
        }
        code
    }

    /// Yes or no; no if left out.
    pub(crate) fn flag(&mut self, name: &'static str) -> bool {
        let value = self.optional(name);
        let flag = value.and_then(Value::as_bool);
        if value.is_some() && flag.is_none() {
            self.fault(name, "expected true or false");
        }
        flag.unwrap_or(false)
    }

    /// Adds a fault at a member.
    pub(crate) fn fault(&mut self, name: &str, message: impl Into<String>) {
        let fault = Fault::at_member(name, message);
        self.faults.push(Fault { pointer: format!("{}{}", self.at, fault.pointer), ..fault });
    }

    /// All faults; members that nobody asked for among them.
    pub(crate) fn finish(mut self) -> Vec<Fault> {
        let unknown: Vec<&String> =
            self.members.iter().flat_map(|m| m.keys()).filter(|name| !self.known.contains(name.as_str())).collect();
        let names = self.known.iter().copied().collect::<Vec<_>>().join(", ");
        for name in unknown {
            self.fault(name, format!("is unknown here; expected {names}"));
        }
        self.faults
    }
}

/// Whether a text looks like a code of ISO 4217.
pub(crate) fn is_currency(code: &str) -> bool {
    code.len() == 3 && code.bytes().all(|byte| byte.is_ascii_uppercase())
}
