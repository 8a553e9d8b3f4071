//! The places where the kernel differs from the recordings on purpose, as
//! kinds of difference. Each is a rule of `recordings/semantics.md` that is
//! marked as a choice; `deviations.toml` says why we chose otherwise.

use serde::Deserialize;

use super::compare::{Difference, Seen};
use super::model::{Class, Expect, Op, Scenario, Step};

/// A kind of difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Rule 6: the tasks at fault run again; the reference fails by record.
    ConcurrentUpdate,
    /// Rule 17: a goto or send to an unknown node fails its node.
    UnknownTarget,
    /// Rule 46: a plain answer at a stop answers nothing.
    PlainAnswerAtStop,
    /// Rule 54: a question beside a failure inside a sub-graph is listed.
    QuestionBesideFailure,
    /// Rule 59: a fan-out's tasks are the nodes that ran last.
    FanoutRanLast,
    /// Rule 89: what a command wrote is kept by a later edit.
    CommandKeptByEdit,
    /// Rule 94: every run may do the same number of supersteps, and one that
    /// has finished is no error.
    RecursionLimit,
}

/// An action after which something is not as recorded.
#[derive(Debug)]
pub struct Case<'a> {
    /// The scenario.
    pub scenario: &'a Scenario,
    /// Which of its actions.
    pub number: usize,
    /// What was recorded.
    pub expect: &'a Expect,
    /// What came.
    pub seen: &'a Seen,
    /// In what they differ.
    pub differences: &'a [Difference],
    /// How many questions of the thread were open before.
    pub open_before: usize,
}

impl Kind {
    /// Whether this kind is all there is to a difference.
    #[must_use]
    pub fn explains(self, case: &Case<'_>) -> bool {
        let action = &case.scenario.actions[case.number];
        let only = |members: &[&str]| {
            case.differences.iter().all(|d| members.iter().any(|member| d.member.starts_with(member)))
        };
        let expected = case.expect.error.as_ref().and_then(Option::as_ref).map(|error| error.class);
        let got = case.seen.error.as_ref();
        match self {
            Self::ConcurrentUpdate => {
                expected == Some(Class::ConcurrentUpdate)
                    && got.is_some_and(|error| error.class == Class::ConcurrentUpdate)
                    && only(&["visits of "])
            }
            Self::UnknownTarget => {
                expected.is_none() && got.is_some_and(|error| error.message.ends_with("is no node"))
                    || matches!(action.step, Step::Command { .. })
                        && got.is_some_and(|error| error.class == Class::InvalidUpdate)
            }
            Self::PlainAnswerAtStop => {
                matches!(action.step, Step::Resume { .. })
                    && case.open_before == 0
                    && expected.is_none()
                    && got.is_none()
            }
            Self::QuestionBesideFailure => only(&["interrupts", "status"]) && extra_questions_are_beside_failures(case),
            Self::FanoutRanLast => {
                let ambiguous = expected.is_none() && got.is_some_and(|error| error.class == Class::InvalidUpdate);
                matches!(action.step, Step::UpdateState { as_node: None, .. })
                    && (only(&["next"]) || ambiguous)
                    && case.scenario.graphs.values().any(sends)
            }
            Self::CommandKeptByEdit => {
                let commanded = |before: &super::model::Action| {
                    before.thread == action.thread
                        && matches!(&before.step, Step::Command { update: Some(update), .. } if !update.is_empty())
                };
                matches!(action.step, Step::UpdateState { .. })
                    && only(&["values"])
                    && case.scenario.actions[..case.number].iter().any(commanded)
            }
            Self::RecursionLimit => {
                expected == Some(Class::Recursion) || got.is_some_and(|error| error.class == Class::Recursion)
            }
        }
    }

    /// Whether what comes afterwards cannot be compared any more, because the
    /// thread has taken another course.
    #[must_use]
    pub fn ends_comparison(self) -> bool {
        match self {
            Self::ConcurrentUpdate | Self::QuestionBesideFailure => false,
            Self::UnknownTarget
            | Self::PlainAnswerAtStop
            | Self::FanoutRanLast
            | Self::CommandKeptByEdit
            | Self::RecursionLimit => true,
        }
    }
}

/// Whether all that we show and the reference does not are questions under a
/// root task in which something else failed.
fn extra_questions_are_beside_failures(case: &Case<'_>) -> bool {
    let Some(expected) = &case.expect.interrupts else { return false };
    let questions = &case.seen.view.questions;
    let shown = |path: &[String], payload: &serde_json::Value| {
        questions.iter().any(|question| question.path == path && question.payload == *payload)
    };
    let failed_beside = |path: &[String]| {
        case.seen.view.failed.iter().any(|(failed, _)| failed.len() > 1 && failed.first() == path.first())
    };
    let is_extra = |question: &super::subject::Question| {
        !expected.iter().any(|e| e.path == question.path && e.payload == question.payload)
    };
    expected.iter().filter(|e| !e.stale).all(|e| shown(&e.path, &e.payload))
        && questions.iter().filter(|question| is_extra(question)).all(|question| failed_beside(&question.path))
}

/// Whether a graph starts tasks with arguments.
fn sends(graph: &super::model::Graph) -> bool {
    fn in_ops(ops: &[Op]) -> bool {
        ops.iter().any(|op| match op {
            Op::Send { .. } => true,
            Op::If { then, otherwise, .. } => in_ops(then) || in_ops(otherwise),
            _ => false,
        })
    }
    graph.branches.iter().any(|branch| branch.fanout.is_some())
        || graph.nodes.values().any(|node| node.ops.as_deref().is_some_and(in_ops))
}
