//! The form under a request, for each kind of question.

use countersign_kernel::fault::Fault;
use countersign_kernel::question::{Choice, Field, FieldKind, Question, fields};
use countersign_worker::store::views::RequestView;
use serde_json::Value;

use super::answer::{FIELD, Posted, concerns};

/// Texts up to this long are written on one line.
const LINE_MAX: u64 = 120;

/// A form as the page shows it.
#[derive(Debug, Clone)]
pub(super) struct FormView {
    /// The revision that is shown.
    pub(super) revision: u32,
    /// The content that is shown.
    pub(super) content_hash: String,
    /// What to fill in.
    pub(super) fields: Vec<FieldView>,
    /// How to send it.
    pub(super) buttons: Vec<ButtonView>,
    /// What was wrong with what was sent.
    pub(super) errors: Vec<ErrorView>,
}

/// Something to fill in.
#[derive(Debug, Clone)]
pub(super) struct FieldView {
    /// Ties label, control, hint and error together.
    pub(super) id: String,
    /// The control's name in what is posted.
    pub(super) name: String,
    /// What people read.
    pub(super) label: String,
    /// A line under the label.
    pub(super) hint: Option<String>,
    /// Whether it must be filled in.
    pub(super) required: bool,
    /// What it looks like.
    pub(super) control: Control,
    /// What is in it.
    pub(super) value: String,
    /// Grey text in the empty control.
    pub(super) placeholder: Option<String>,
    /// The longest text, in characters.
    pub(super) length_max: Option<u64>,
    /// What to choose from.
    pub(super) options: Vec<OptionView>,
    /// What was wrong with it.
    pub(super) error: Option<String>,
}

/// What a field looks like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Control {
    /// A line of text.
    Line,
    /// Several lines of text.
    Lines,
    /// A date.
    Date,
    /// A whole number.
    Whole,
    /// A number.
    Number,
    /// One of several, all in sight.
    Radios,
    /// Any of several.
    Checks,
    /// One of several, in a list.
    List,
}

/// One of several things to choose from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct OptionView {
    /// What is posted.
    pub(super) value: String,
    /// What people read.
    pub(super) label: String,
    /// Whether it is chosen.
    pub(super) chosen: bool,
}

/// A button that sends the form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ButtonView {
    /// What it posts.
    pub(super) name: &'static str,
    /// With which value.
    pub(super) value: String,
    /// What people read.
    pub(super) label: String,
    /// How it looks: `yes`, `no` or `other`.
    pub(super) look: &'static str,
}

/// A line of the summary of what was wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ErrorView {
    /// The field to go to, if one is concerned.
    pub(super) id: Option<String>,
    /// What was wrong.
    pub(super) text: String,
}

impl FieldView {
    fn new(name: &str, label: &str, control: Control) -> Self {
        Self {
            id: String::new(),
            name: name.to_owned(),
            label: label.to_owned(),
            hint: None,
            required: true,
            control,
            value: String::new(),
            placeholder: None,
            length_max: None,
            options: Vec::new(),
            error: None,
        }
    }

    fn choosing(mut self, choices: &[Choice]) -> Self {
        self.options = choices.iter().map(|choice| option(&choice.value, &choice.label)).collect();
        self
    }

    /// Whether the whole control is a group of smaller ones.
    pub(super) fn is_group(&self) -> bool {
        matches!(self.control, Control::Radios | Control::Checks)
    }

    /// The ids of what describes the control.
    pub(super) fn described_by(&self) -> Option<String> {
        let hint = self.hint.as_ref().map(|_| format!("{}-hint", self.id));
        let error = self.error.as_ref().map(|_| format!("{}-error", self.id));
        let ids: Vec<_> = hint.into_iter().chain(error).collect();
        (!ids.is_empty()).then(|| ids.join(" "))
    }

    /// The member of the answer that the field fills.
    fn member(&self) -> &str {
        self.name.strip_prefix(FIELD).unwrap_or(&self.name)
    }
}

impl FormView {
    /// The form for a question: empty, or with what was `posted` and what is
    /// wrong with it.
    pub(super) fn new(question: &Question, shown: &RequestView, posted: &Posted, faults: &[Fault]) -> Self {
        let (fields, buttons) = parts(question);
        let mut form = Self {
            revision: shown.revision,
            content_hash: shown.content_hash.clone(),
            fields,
            buttons,
            errors: vec![],
        };
        let mut left: Vec<&Fault> = faults.iter().collect();
        for (number, field) in form.fields.iter_mut().enumerate() {
            field.id = format!("field-{number}");
            if let Some(value) = posted.get(&field.name) {
                field.value = value.to_owned();
                for option in &mut field.options {
                    option.chosen = posted.all(&field.name).any(|chosen| chosen == option.value);
                }
            }
            let (own, others): (Vec<&Fault>, Vec<&Fault>) =
                left.into_iter().partition(|fault| concerns(fault, field.member()));
            left = others;
            if !own.is_empty() {
                let text = own.iter().map(|fault| sentence(&fault.message)).collect::<Vec<_>>().join(" ");
                let id = if field.is_group() { format!("{}-0", field.id) } else { field.id.clone() };
                form.errors.push(ErrorView { id: Some(id), text: format!("{}: {text}", field.label) });
                field.error = Some(text);
            }
        }
        form.errors.extend(left.into_iter().map(|fault| ErrorView { id: None, text: sentence(&fault.message) }));
        form
    }
}

/// Fields and buttons of a question.
fn parts(question: &Question) -> (Vec<FieldView>, Vec<ButtonView>) {
    let send = || vec![button("send", "", "Send answer", "yes")];
    match question {
        Question::Approval {} => {
            let mut reason = FieldView::new("reason", "Reason", Control::Lines);
            reason.required = false;
            reason.hint = Some("Kept on record with your decision.".to_owned());
            let yes = button("approved", "true", "Approve", "yes");
            (vec![reason], vec![yes, button("approved", "false", "Reject", "no")])
        }
        Question::Input { placeholder } => {
            let mut field = FieldView::new("value", "Your answer", Control::Line);
            field.placeholder.clone_from(placeholder);
            (vec![field], send())
        }
        Question::Select { options } => {
            (vec![FieldView::new("value", "Choose one", Control::Radios).choosing(options)], send())
        }
        Question::MultiSelect { options } => {
            let mut field = FieldView::new("values", "Choose any number", Control::Checks).choosing(options);
            field.required = false;
            field.hint = Some("None is an answer too.".to_owned());
            (vec![field], send())
        }
        Question::Modal { actions } => {
            let buttons = actions.iter().map(|action| button("action", &action.value, &action.label, "other"));
            (Vec::new(), buttons.collect())
        }
        Question::Unlock { .. } => (Vec::new(), vec![button("unlock", "true", "Unlock", "yes")]),
        // A schema outside the subset was refused when the question was asked.
        Question::Form { schema } => (fields(schema).unwrap_or_default().iter().map(form_field).collect(), send()),
    }
}

fn form_field(field: &Field) -> FieldView {
    let control = match &field.kind {
        FieldKind::Text { max_length } if max_length.is_some_and(|max| max <= LINE_MAX) => Control::Line,
        FieldKind::Text { .. } => Control::Lines,
        FieldKind::Date => Control::Date,
        FieldKind::Choice(_) => Control::List,
        FieldKind::Integer => Control::Whole,
        FieldKind::Number => Control::Number,
        FieldKind::Boolean => Control::Radios,
    };
    let mut view = FieldView::new(&format!("{FIELD}{}", field.name), &field.label, control);
    view.required = field.required;
    view.hint.clone_from(&field.description);
    match &field.kind {
        FieldKind::Text { max_length } => view.length_max = *max_length,
        FieldKind::Choice(options) => {
            if !options.iter().any(String::is_empty) {
                let blank = if field.required { "Choose one" } else { "No answer" };
                view.options.push(option("", blank));
            }
            view.options.extend(options.iter().map(|text| option(text, text)));
        }
        FieldKind::Boolean => {
            view.options = vec![option("true", "Yes"), option("false", "No")];
            if !field.required {
                view.options.push(OptionView { chosen: true, ..option("", "No answer") });
            }
        }
        FieldKind::Date | FieldKind::Integer | FieldKind::Number => {}
    }
    if let Some(default) = &field.default {
        prefill(&mut view, default);
    }
    view
}

/// What stands in a field until somebody changes it.
fn prefill(view: &mut FieldView, default: &Value) {
    let text = default.as_str().map_or_else(|| default.to_string(), str::to_owned);
    if view.options.iter().any(|option| option.value == text) {
        view.options.iter_mut().for_each(|option| option.chosen = option.value == text);
    }
    view.value = text;
}

fn option(value: &str, label: &str) -> OptionView {
    OptionView { value: value.to_owned(), label: label.to_owned(), chosen: false }
}

fn button(name: &'static str, value: &str, label: &str, look: &'static str) -> ButtonView {
    ButtonView { name, value: value.to_owned(), label: label.to_owned(), look }
}

/// A capital letter at the beginning and a full stop at the end.
pub(super) fn sentence(text: &str) -> String {
    let mut chars = text.chars();
    let mut whole: String = chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect());
    if !whole.is_empty() && !whole.ends_with(['.', '!', '?']) {
        whole.push('.');
    }
    whole
}
