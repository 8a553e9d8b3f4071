//! Takes settings out of the file and the environment, and notes every fault
//! instead of stopping at the first.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt::Display;
use std::ops::RangeInclusive;

use toml::{Table, Value};

use super::fault::ConfigFault;
use super::variables::Variables;

/// Where values come from and where faults go.
pub(super) struct Reader<'a> {
    file: &'a str,
    env: &'a dyn Variables,
    faults: RefCell<Vec<ConfigFault>>,
    /// The variables that mean something.
    variables: RefCell<BTreeSet<String>>,
    /// Every setting that was asked for, so that a test can compare them with
    /// the reference.
    asked: RefCell<Vec<String>>,
}

/// A value with the place it came from.
pub(super) struct Found<T> {
    pub(super) value: T,
    pub(super) place: String,
}

/// One table of the file, with its part of the environment.
pub(super) struct Section<'r> {
    reader: &'r Reader<'r>,
    path: String,
    table: Table,
    known: Vec<&'static str>,
    /// Whether variables override this table; entries of lists have none.
    overridable: bool,
}

enum Raw {
    File(Value),
    Variable(String),
}

impl<'a> Reader<'a> {
    pub(super) fn new(file: &'a str, env: &'a dyn Variables) -> Self {
        let (faults, variables, asked) = Default::default();
        Self { file, env, faults, variables, asked }
    }

    pub(super) fn fault(&self, place: impl Into<String>, problem: impl Display, remedy: impl Display) {
        self.faults.borrow_mut().push(ConfigFault {
            place: place.into(),
            problem: problem.to_string(),
            remedy: remedy.to_string(),
        });
    }

    pub(super) fn into_parts(self) -> (Vec<ConfigFault>, Vec<String>) {
        (self.faults.into_inner(), self.asked.into_inner())
    }

    /// The value of a variable; empty counts as not set.
    pub(super) fn variable(&self, name: &str) -> Option<String> {
        self.variables.borrow_mut().insert(name.to_owned());
        self.env.get(name).map(|text| text.trim().to_owned()).filter(|text| !text.is_empty())
    }

    /// The variables that were asked for, or would have been.
    pub(super) fn known_variables(&self) -> BTreeSet<String> {
        self.variables.borrow().clone()
    }

    /// The names of all variables that there are.
    pub(super) fn all_variables(&self) -> Vec<String> {
        self.env.names()
    }

    pub(super) fn has_faults(&self) -> bool {
        !self.faults.borrow().is_empty()
    }

    pub(super) fn root(&self, table: Table) -> Section<'_> {
        Section { reader: self, path: String::new(), table, known: Vec::new(), overridable: true }
    }
}

impl<'r> Section<'r> {
    pub(super) fn reader(&self) -> &'r Reader<'r> {
        self.reader
    }

    /// Where `key` stands in the file, as faults name it.
    pub(super) fn place(&self, key: &str) -> String {
        format!("`{}` in {}", self.path_of(key), self.reader.file)
    }

    /// Whether the file gives `key` a value, usable or not. What is not usable
    /// is a fault of its own when it is read, and not missing besides.
    pub(super) fn holds(&self, key: &str) -> bool {
        self.table.contains_key(key)
    }

    fn path_of(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    /// The variable that overrides `key`.
    pub(super) fn variable_of(&self, key: &str) -> String {
        match self.path_of(key).as_str() {
            "data_dir" => "COUNTERSIGN_DATA".to_owned(),
            path => format!("COUNTERSIGN_{}", path.replace('.', "_").to_uppercase()),
        }
    }

    /// Keys that are not read this time: their variables do no harm.
    pub(super) fn leave(self, keys: &[&str]) {
        let names = keys.iter().map(|key| self.variable_of(key));
        self.reader.variables.borrow_mut().extend(names);
    }

    fn take(&mut self, key: &'static str) -> Option<Found<Raw>> {
        self.known.push(key);
        self.reader.asked.borrow_mut().push(self.path_of(key));
        let in_file = self.table.remove(key);
        if self.overridable {
            let name = self.variable_of(key);
            if let Some(text) = self.reader.variable(&name) {
                return Some(Found { value: Raw::Variable(text), place: format!("variable {name}") });
            }
        }
        in_file.map(|value| Found { value: Raw::File(value), place: self.place(key) })
    }

    fn mistyped(&self, place: String, value: &Value, wanted: &str) {
        self.reader.fault(place, format!("this is {}", kind(value)), format!("write {wanted}"));
    }

    /// A text; blank is a fault.
    pub(super) fn text(&mut self, key: &'static str) -> Option<Found<String>> {
        let found = self.take(key)?;
        let value = match found.value {
            Raw::Variable(text) | Raw::File(Value::String(text)) => text.trim().to_owned(),
            Raw::File(other) => {
                self.mistyped(found.place, &other, "a text in quotes");
                return None;
            }
        };
        if value.is_empty() {
            self.reader.fault(found.place, "this is empty", "give a value or leave the line out");
            return None;
        }
        Some(Found { value, place: found.place })
    }

    /// A text that means something; `remedy` says what is expected.
    pub(super) fn parsed<T, E: Display>(
        &mut self,
        key: &'static str,
        parse: impl Fn(&str) -> Result<T, E>,
        remedy: &str,
    ) -> Option<T> {
        let found = self.text(key)?;
        match parse(&found.value) {
            Ok(value) => Some(value),
            Err(error) => {
                self.reader.fault(found.place, format!("`{}` cannot be used: {error}", found.value), remedy);
                None
            }
        }
    }

    /// A whole number within `range`.
    pub(super) fn whole(&mut self, key: &'static str, default: u64, range: RangeInclusive<u64>) -> u64 {
        let wanted = format!("a whole number from {} to {}", range.start(), range.end());
        let Some(found) = self.take(key) else { return default };
        let (number, shown) = match &found.value {
            Raw::Variable(text) => (text.replace('_', "").parse().ok(), text.clone()),
            Raw::File(Value::Integer(number)) => (u64::try_from(*number).ok(), number.to_string()),
            Raw::File(other) => {
                self.mistyped(found.place, other, &wanted);
                return default;
            }
        };
        match number.filter(|number| range.contains(number)) {
            Some(number) => number,
            None => {
                self.reader.fault(found.place, format!("`{shown}` is out of range"), format!("write {wanted}"));
                default
            }
        }
    }

    /// Yes or no.
    pub(super) fn flag(&mut self, key: &'static str, default: bool) -> bool {
        let Some(found) = self.take(key) else { return default };
        match &found.value {
            Raw::File(Value::Boolean(flag)) => return *flag,
            Raw::Variable(text) if matches!(text.as_str(), "true" | "1" | "yes") => return true,
            Raw::Variable(text) if matches!(text.as_str(), "false" | "0" | "no") => return false,
            Raw::Variable(text) => {
                self.reader.fault(found.place, format!("`{text}` is neither"), "write `true` or `false`");
            }
            Raw::File(other) => self.mistyped(found.place, other, "`true` or `false`"),
        }
        default
    }

    /// A list of texts; from a variable, separated by commas.
    pub(super) fn texts(&mut self, key: &'static str) -> Found<Vec<String>> {
        let Some(found) = self.take(key) else { return Found { value: Vec::new(), place: self.place(key) } };
        let items = match found.value {
            Raw::Variable(text) => text.split(',').map(str::to_owned).collect(),
            Raw::File(Value::Array(items)) => {
                let wanted = items.len();
                let texts: Vec<String> = items.into_iter().filter_map(text_of).collect();
                if texts.len() != wanted {
                    self.reader.fault(&found.place, "not every entry is a text", "write each entry in quotes");
                }
                texts
            }
            Raw::File(other) => {
                self.mistyped(found.place.clone(), &other, "a list of texts, as in [\"a\", \"b\"]");
                Vec::new()
            }
        };
        let value = items.iter().map(|item| item.trim().to_owned()).filter(|item| !item.is_empty()).collect();
        Found { value, place: found.place }
    }

    /// The table `key`, empty if it is not there.
    pub(super) fn section(&mut self, key: &'static str) -> Section<'r> {
        self.optional_section(key).unwrap_or_else(|| self.inner(self.path_of(key), Table::new(), self.overridable))
    }

    /// The table `key`, if the file has it.
    pub(super) fn optional_section(&mut self, key: &'static str) -> Option<Section<'r>> {
        self.known.push(key);
        match self.table.remove(key)? {
            Value::Table(table) => Some(self.inner(self.path_of(key), table, self.overridable)),
            other => {
                self.mistyped(self.place(key), &other, &format!("a section, [{}]", self.path_of(key)));
                None
            }
        }
    }

    /// The entries of the list of tables `key`.
    pub(super) fn entries(&mut self, key: &'static str) -> Vec<Section<'r>> {
        self.known.push(key);
        let path = self.path_of(key);
        let wanted = format!("one section [[{path}]] per entry");
        let items = match self.table.remove(key) {
            None => return Vec::new(),
            Some(Value::Array(items)) => items,
            Some(other) => {
                self.mistyped(self.place(key), &other, &wanted);
                return Vec::new();
            }
        };
        let mut sections = Vec::new();
        for (i, item) in items.into_iter().enumerate() {
            // Counted as people count: the first entry is 1.
            let path = format!("{path}[{}]", i + 1);
            match item {
                Value::Table(table) => sections.push(self.inner(path, table, false)),
                other => self.mistyped(format!("`{path}` in {}", self.reader.file), &other, &wanted),
            }
        }
        sections
    }

    fn inner(&self, path: String, table: Table, overridable: bool) -> Section<'r> {
        Section { reader: self.reader, path, table, known: Vec::new(), overridable }
    }

    /// Ends the section: whatever nobody asked for is unknown.
    pub(super) fn finish(self) {
        for key in self.table.keys() {
            self.reader.fault(
                self.place(key),
                "there is no such setting",
                format!("correct or remove it; known here: {}", self.known.join(", ")),
            );
        }
    }
}

fn text_of(value: Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text),
        _ => None,
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::String(_) => "a text",
        Value::Integer(_) => "a whole number",
        Value::Float(_) => "a fraction",
        Value::Boolean(_) => "true or false",
        Value::Datetime(_) => "a date",
        Value::Array(_) => "a list",
        Value::Table(_) => "a section",
    }
}
