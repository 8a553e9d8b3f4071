//! What comes from the command line, a file or standard input.

use std::io::{ErrorKind, Read as _};
use std::path::Path;

use serde_json::Value;

use super::exit::Exit;
use super::failure::CliError;

/// A JSON value given as itself, as a file's name, or as `-`.
///
/// A text that begins like an object, array or string, or is `null`, `true`,
/// `false` or a number, is JSON; anything else names a file.
pub(super) fn json(text: &str) -> Result<Value, CliError> {
    let usage = |what: String| CliError::new(Exit::Usage, what);
    let trimmed = text.trim();
    if trimmed.starts_with(['{', '[', '"']) {
        return serde_json::from_str(trimmed).map_err(|error| usage(format!("the JSON cannot be read: {error}")));
    }
    let scalar: Option<Value> = serde_json::from_str(trimmed).ok();
    if let Some(scalar) = scalar {
        return Ok(scalar);
    }
    if trimmed.is_empty() {
        return Err(usage("there is no JSON; {} is an empty object".to_owned()));
    }
    let path = Path::new(text);
    let neither = || format!("`{text}` is neither JSON nor the name of a file");
    let bytes = match std::fs::metadata(path) {
        Err(error) if text != "-" && error.kind() != ErrorKind::PermissionDenied => return Err(usage(neither())),
        _ => read_bytes(path)?,
    };
    let bytes = bytes.strip_prefix(&[0xef, 0xbb, 0xbf]).unwrap_or(&bytes);
    serde_json::from_slice(bytes).map_err(|error| usage(format!("{}: this is no JSON: {error}", path.display())))
}

/// The file's bytes, standard input's for `-`.
pub(super) fn read_bytes(path: &Path) -> Result<Vec<u8>, CliError> {
    let read = if path == Path::new("-") {
        let mut bytes = Vec::new();
        std::io::stdin().lock().read_to_end(&mut bytes).map(|_| bytes)
    } else {
        std::fs::read(path)
    };
    read.map_err(|error| CliError::new(Exit::Usage, format!("{}: cannot be read: {error}", path.display())))
}

#[cfg(test)]
mod tests {
    use serde_json::json as value;

    use super::*;

    #[test]
    fn json_is_told_from_a_file() {
        assert_eq!(json(" {\"a\": 1} "), Ok(value!({"a": 1})));
        for (text, scalar) in [("null", value!(null)), ("true", value!(true)), (" -1.5 ", value!(-1.5))] {
            assert_eq!(json(text), Ok(scalar));
        }
        for (bad, said) in [("{", "cannot be read"), ("", "no JSON"), ("x", "neither JSON nor")] {
            let error = json(bad).expect_err(bad);
            assert_eq!(error.exit, Exit::Usage);
            assert!(error.message.contains(said), "{error}");
            assert!(!error.message.contains("os error"), "{error}");
        }
    }
}
