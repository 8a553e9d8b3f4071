//! Who may decide a request, and when it is decided (R17).
//!
//! Pure: a store calls [`Policy::judge`] inside the transaction that records a
//! vote, so that the rule and the record cannot disagree.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::canonical::canonical_text;
use crate::principal::{Approver, Principal};

/// Held by one who may stand in for every role: the local administrator, as
/// long as nobody is configured (R18). No configured role can be named so.
pub const EVERY_ROLE: &str = "*";

/// The rule under which a request is decided.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Policy {
    /// Who may answer. Judged when voting, so a role means its members then.
    pub approvers: Vec<Approver>,
    /// How many equal votes decide. A rejection of an approval decides alone.
    #[serde(default = "one")]
    pub need: u32,
    /// Whether the votes must come from different people (always true today:
    /// votes are unique per person).
    #[serde(default = "yes")]
    pub distinct: bool,
    /// Who may not answer although an approver: the starter, say, or whoever
    /// decided an earlier stage (four eyes).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub excluding: Vec<Principal>,
}

fn one() -> u32 {
    1
}

fn yes() -> bool {
    true
}

impl Default for Policy {
    fn default() -> Self {
        Self { approvers: Vec::new(), need: 1, distinct: true, excluding: Vec::new() }
    }
}

/// The one who votes, with the roles held at this moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Voter {
    /// Who votes.
    pub principal: Principal,
    /// The roles that the directory gives them now.
    pub roles: Vec<String>,
}

/// A vote on record.
#[derive(Debug, Clone, PartialEq)]
pub struct Vote {
    /// Who voted.
    pub principal: Principal,
    /// The answer they gave, already valid for the question.
    pub value: Value,
}

/// Why somebody may not vote.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Neither the person nor any of their roles is among the approvers.
    #[error("not among the approvers")]
    NotAnApprover,
    /// Excluded by name, for instance because they decided an earlier stage.
    #[error("excluded from this decision")]
    Excluded,
}

/// What a new vote leads to.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    /// More votes are needed.
    Waiting {
        /// Equal votes so far, the new one included.
        have: u32,
        /// Votes needed.
        need: u32,
    },
    /// The request is decided.
    Decided {
        /// The answer to hand to the graph.
        answer: Value,
        /// Whose votes it rests on.
        by: Vec<Principal>,
    },
}

impl Policy {
    /// Whether `voter` may vote at all.
    ///
    /// # Errors
    /// The [`Refusal`] that applies; exclusion wins over membership.
    pub fn admit(&self, voter: &Voter) -> Result<(), Refusal> {
        if self.excluding.contains(&voter.principal) {
            return Err(Refusal::Excluded);
        }
        let listed = self.approvers.iter().any(|approver| match approver {
            Approver::Principal(principal) => *principal == voter.principal,
            Approver::Role(role) => voter.roles.iter().any(|held| held == role || held == EVERY_ROLE),
        });
        if listed { Ok(()) } else { Err(Refusal::NotAnApprover) }
    }

    /// What `votes` plus `new` lead to. The caller has admitted the voter and
    /// checked that they have not voted before.
    ///
    /// A rejection (`{"approved": false}`) decides at once. Any other answer
    /// decides when `need` people gave it; the last one's wording (a reason,
    /// say) is what the graph receives.
    #[must_use]
    pub fn judge(&self, votes: &[Vote], new: &Vote) -> Verdict {
        if approved(&new.value) == Some(false) {
            return Verdict::Decided { answer: new.value.clone(), by: vec![new.principal.clone()] };
        }
        let side = side_of(&new.value);
        let mut by: Vec<Principal> =
            votes.iter().filter(|vote| side_of(&vote.value) == side).map(|vote| vote.principal.clone()).collect();
        by.push(new.principal.clone());
        let have = u32::try_from(by.len()).unwrap_or(u32::MAX);
        let need = self.need.max(1);
        if have >= need { Verdict::Decided { answer: new.value.clone(), by } } else { Verdict::Waiting { have, need } }
    }
}

fn approved(value: &Value) -> Option<bool> {
    value.get("approved").and_then(Value::as_bool)
}

/// What must be equal for two votes to count together: the decision of an
/// approval without its reason, the whole answer of any other kind.
fn side_of(value: &Value) -> String {
    match approved(value) {
        Some(approved) => approved.to_string(),
        None => canonical_text(value),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::principal::{person, role};

    fn vote(who: &str, value: Value) -> Vote {
        Vote { principal: Principal::person(who), value }
    }

    fn voter(who: &str, roles: &[&str]) -> Voter {
        Voter { principal: Principal::person(who), roles: roles.iter().map(|r| (*r).to_owned()).collect() }
    }

    #[test]
    fn only_approvers_who_are_not_excluded_are_admitted() {
        let policy = Policy {
            approvers: vec![role("finance"), person("ann@example.com")],
            excluding: vec![Principal::person("bob@example.com")],
            ..Policy::default()
        };
        assert_eq!(policy.admit(&voter("Ann@Example.com", &[])), Ok(()));
        assert_eq!(policy.admit(&voter("cy@example.com", &["finance"])), Ok(()));
        assert_eq!(policy.admit(&voter("cy@example.com", &["sales"])), Err(Refusal::NotAnApprover));
        assert_eq!(policy.admit(&voter("cy@example.com", &[EVERY_ROLE])), Ok(()));
        assert_eq!(policy.admit(&voter("bob@example.com", &[EVERY_ROLE])), Err(Refusal::Excluded));
        assert_eq!(policy.admit(&voter("bob@example.com", &["finance"])), Err(Refusal::Excluded));
    }

    #[test]
    fn two_of_two_wait_for_the_second_and_differing_reasons_count_together() {
        let policy = Policy { need: 2, ..Policy::default() };
        let first = vote("a@x", json!({"approved": true}));
        assert_eq!(policy.judge(&[], &first), Verdict::Waiting { have: 1, need: 2 });
        let second = vote("b@x", json!({"approved": true, "reason": "fine"}));
        assert_eq!(
            policy.judge(&[first], &second),
            Verdict::Decided {
                answer: json!({"approved": true, "reason": "fine"}),
                by: vec![Principal::person("a@x"), Principal::person("b@x")],
            }
        );
    }

    #[test]
    fn one_rejection_decides_whatever_the_need() {
        let policy = Policy { need: 3, ..Policy::default() };
        let yes = vote("a@x", json!({"approved": true}));
        let no = vote("b@x", json!({"approved": false, "reason": "no"}));
        assert!(matches!(policy.judge(&[yes], &no), Verdict::Decided { by, .. } if by == [Principal::person("b@x")]));
    }

    #[test]
    fn different_choices_do_not_add_up() {
        let policy = Policy { need: 2, ..Policy::default() };
        let red = vote("a@x", json!({"value": "red"}));
        assert_eq!(policy.judge(&[red], &vote("b@x", json!({"value": "blue"}))), Verdict::Waiting { have: 1, need: 2 });
    }
}
