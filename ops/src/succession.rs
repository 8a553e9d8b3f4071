//! What stands in the place of a question that no longer waits.

use countersign_worker::store::views::{InterruptFilter, InterruptView};
use countersign_worker::store::{Store, StoreError};

/// Open points of a thread that are looked at; a thread that asks more at once
/// is a batch, whose slots are told apart by their addresses anyway.
const LOOKED_AT: u32 = 500;

/// The open point that asks at the place of one that was superseded, if there
/// is one: at the same address, else, if that is clear, at the same place in
/// another superstep.
///
/// # Errors
/// Only of the store.
pub(crate) async fn successor(store: &dyn Store, view: &InterruptView) -> Result<Option<InterruptView>, StoreError> {
    if view.status != "superseded" {
        return Ok(None);
    }
    let filter = InterruptFilter {
        status: Some("open".to_owned()),
        thread: Some(view.thread.clone()),
        ..InterruptFilter::default()
    };
    let mut open = store.interrupts(&filter, None, LOOKED_AT).await?;
    open.retain(|other| {
        matches!(other.kind.as_str(), "break" | "pause") == matches!(view.kind.as_str(), "break" | "pause")
    });
    if let Some(at) = open.iter().position(|other| other.address == view.address) {
        return Ok(Some(open.swap_remove(at)));
    }
    let place = place(&view.address);
    let mut alike = open.into_iter().filter(|other| self::place(&other.address) == place);
    Ok(alike.next().filter(|_| alike.next().is_none()))
}

/// An address without the numbers of supersteps: `expense/manager` of
/// `expense/manager@0`.
fn place(address: &str) -> String {
    let mut place = String::with_capacity(address.len());
    let mut rest = address;
    while let Some((before, after)) = rest.split_once('@') {
        place.push_str(before);
        rest = after.trim_start_matches(|c: char| c.is_ascii_digit());
    }
    place.push_str(rest);
    place
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_has_no_supersteps() {
        assert_eq!(place("expense/manager@0"), "expense/manager");
        assert_eq!(place("g/sub@1/inner@12/pay[3]:call@7x"), "g/sub/inner/pay[3]:callx");
        assert_eq!(place("g"), "g");
    }
}
