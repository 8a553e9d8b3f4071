//! Short ways to say why a message was not handed over.

use countersign_kernel::ports::DeliveryError;

/// Trying again cannot help.
pub(crate) fn permanent(message: impl Into<String>) -> DeliveryError {
    DeliveryError { message: message.into(), retryable: false }
}

/// Trying again may help.
pub(crate) fn transient(message: impl Into<String>) -> DeliveryError {
    DeliveryError { message: message.into(), retryable: true }
}

/// The other side's words, fit for a record: one line of at most 300
/// characters, with everything taken out that looks like a link (some servers
/// quote what they refuse).
pub(crate) fn quotable(text: &str) -> String {
    let words = text.split_whitespace().map(|word| {
        let link = word.contains("://") || word.contains("/d/") || word.len() > 120;
        if link { "[left out]" } else { word }
    });
    let line = words.collect::<Vec<_>>().join(" ");
    line.chars().filter(|c| !c.is_control()).take(300).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_and_line_breaks_are_not_quoted() {
        let text = "5.7.1 spam:\r\n<https://example.com/d/AbC> refused";
        assert_eq!(quotable(text), "5.7.1 spam: [left out] refused");
        assert_eq!(quotable(&"ab ".repeat(500)).chars().count(), 300);
        assert_eq!(quotable(&"x".repeat(500)), "[left out]");
    }
}
