//! Names of those who act.

use countersign_kernel::ports::Directory as _;
use countersign_kernel::principal::Principal;

use crate::state::AppState;

/// The name of somebody, with the address that tells namesakes apart.
pub(super) fn name(state: &AppState, principal: &Principal) -> String {
    if !principal.is_person() {
        return format!("service {}", principal.name());
    }
    match state.directory.person(principal) {
        Some(person) if !person.name.is_empty() && person.name != person.email => {
            format!("{} ({})", person.name, person.email)
        }
        Some(person) => person.email,
        None => principal.name().to_owned(),
    }
}

/// Several names in a row.
pub(super) fn names(state: &AppState, principals: &[Principal]) -> String {
    principals.iter().map(|principal| name(state, principal)).collect::<Vec<_>>().join(", ")
}
