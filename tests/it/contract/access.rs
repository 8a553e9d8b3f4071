//! API tokens.

use countersign_worker::store::views::TokenRecord;

use super::place::{Place, at};

contract!(
    a_token_is_found_by_its_hash,
    a_replaced_token_is_known_by_its_new_hash_only,
    an_unknown_or_revoked_token_is_nothing,
    tokens_that_are_not_revoked_are_listed_by_name,
);

fn token(name: &str) -> TokenRecord {
    TokenRecord { name: name.into(), scopes: vec!["answer".into()], graphs: Some(vec!["expense".into()]) }
}

async fn a_token_is_found_by_its_hash(place: &Place) {
    let unlimited = TokenRecord { graphs: None, scopes: vec!["admin".into(), "operate".into()], ..token("root") };
    place.store.put_token(&token("desk"), "h1", at(0)).await.expect("stored");
    place.store.put_token(&unlimited, "h2", at(0)).await.expect("stored");
    assert_eq!(place.store.token("h1").await.expect("read"), Some(token("desk")));
    assert_eq!(place.store.token("h2").await.expect("read"), Some(unlimited));
}

async fn a_replaced_token_is_known_by_its_new_hash_only(place: &Place) {
    place.store.put_token(&token("desk"), "old", at(0)).await.expect("stored");
    let wider = TokenRecord { scopes: vec!["answer".into(), "threads:read".into()], ..token("desk") };
    place.store.put_token(&wider, "new", at(1)).await.expect("stored");
    assert_eq!(place.store.token("old").await.expect("read"), None);
    assert_eq!(place.store.token("new").await.expect("read"), Some(wider));
}

async fn an_unknown_or_revoked_token_is_nothing(place: &Place) {
    assert_eq!(place.store.token("h").await.expect("read"), None);
    place.store.put_token(&token("desk"), "h", at(0)).await.expect("stored");
    assert!(place.store.revoke_token("desk", at(1)).await.expect("revoked"));
    assert!(!place.store.revoke_token("desk", at(1)).await.expect("no failure"), "it was gone");
    assert!(!place.store.revoke_token("unknown", at(1)).await.expect("no failure"));
    assert_eq!(place.store.token("h").await.expect("read"), None);
    place.store.put_token(&token("desk"), "h", at(2)).await.expect("stored");
    assert!(place.store.token("h").await.expect("read").is_some(), "issued again");
}

async fn tokens_that_are_not_revoked_are_listed_by_name(place: &Place) {
    for name in ["till", "desk", "lost"] {
        place.store.put_token(&token(name), name, at(0)).await.expect("stored");
    }
    place.store.revoke_token("lost", at(1)).await.expect("revoked");
    assert_eq!(place.store.tokens().await.expect("listed"), [token("desk"), token("till")]);
}
