//! What has to be reached, and what we want to be known for.

use crate::Workload;
use crate::figures::Figure;
use crate::place::Backend;

/// Which side of the bar is good.
#[derive(Debug, Clone, Copy)]
enum Good {
    AtLeast,
    AtMost,
}

struct Bar {
    workload: Workload,
    backend: Backend,
    metric: &'static str,
    good: Good,
    bar: f64,
    goal: f64,
}

const fn bar(workload: Workload, backend: Backend, metric: &'static str, good: Good, bar: f64, goal: f64) -> Bar {
    Bar { workload, backend, metric, good, bar, goal }
}

use Backend::{Postgres, Sqlite};
use Good::{AtLeast, AtMost};
use Workload::{W1, W2, W3, W4, W5};

/// For the worker as it is by default, with its events.
const BARS: [Bar; 20] = [
    bar(W1, Sqlite, "steps_per_s_1_of_limit_seq", AtLeast, 0.55, 0.8),
    bar(W1, Postgres, "steps_per_s_1_of_limit_seq", AtLeast, 0.5, 0.75),
    bar(W1, Sqlite, "steps_per_s_64_of_limit_batch", AtLeast, 0.5, 0.7),
    bar(W1, Postgres, "steps_per_s_64_of_limit_batch", AtLeast, 0.25, 0.5),
    bar(W2, Sqlite, "parked_per_s", AtLeast, 2000.0, 5000.0),
    bar(W2, Postgres, "parked_per_s", AtLeast, 2000.0, 5000.0),
    bar(W2, Sqlite, "resume_p50_ms", AtMost, 2.5, 1.2),
    bar(W2, Postgres, "resume_p50_ms", AtMost, 3.0, 1.5),
    bar(W2, Sqlite, "resume_p99_ms", AtMost, 8.0, 3.0),
    bar(W2, Postgres, "resume_p99_ms", AtMost, 8.0, 4.0),
    bar(W2, Sqlite, "resumed_per_s", AtLeast, 2500.0, 6000.0),
    bar(W2, Postgres, "resumed_per_s", AtLeast, 2500.0, 6000.0),
    bar(W3, Sqlite, "db_mib", AtMost, 2.0, 1.2),
    bar(W3, Postgres, "db_mib", AtMost, 2.5, 1.5),
    bar(W3, Sqlite, "last100_over_first100", AtMost, 1.15, 1.05),
    bar(W3, Postgres, "last100_over_first100", AtMost, 1.15, 1.05),
    bar(W4, Sqlite, "other90_runs", AtMost, 90.0, 90.0),
    bar(W4, Sqlite, "resume_ms", AtMost, 8.0, 4.0),
    bar(W5, Postgres, "p99_20000_over_500", AtMost, 1.2, 1.05),
    bar(W5, Postgres, "rss_growth_mib", AtMost, 8.0, 2.0),
];

/// How a figure does by its bar, in words; `None` if it has none.
pub(crate) fn verdict(figure: &Figure) -> Option<String> {
    let of = figure.of;
    if of.variant.contains("no events") || of.variant == "1000000 parked" {
        return None;
    }
    let same = |bar: &&Bar| bar.workload == of.workload && bar.backend == of.backend && bar.metric == of.metric;
    let bar = BARS.iter().find(same)?;
    let (sign, reached, best) = match bar.good {
        AtLeast => (">=", figure.median() >= bar.bar, figure.median() >= bar.goal),
        AtMost => ("<=", figure.median() <= bar.bar, figure.median() <= bar.goal),
    };
    let word = match (best, reached) {
        (true, _) => "goal reached",
        (false, true) => "reached",
        (false, false) => "MISSED",
    };
    Some(format!("{word} ({sign} {}, goal {})", bar.bar, bar.goal))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::Of;

    fn verdict_of(variant: &'static str, value: f64) -> Option<String> {
        let of = Of { workload: W2, backend: Sqlite, variant, metric: "parked_per_s" };
        verdict(&Figure { of, values: vec![value] })
    }

    #[test]
    fn bars_are_for_the_worker_as_it_is_by_default() {
        assert_eq!(verdict_of("", 1999.0).as_deref(), Some("MISSED (>= 2000, goal 5000)"));
        assert_eq!(verdict_of("", 2000.0).as_deref(), Some("reached (>= 2000, goal 5000)"));
        assert_eq!(verdict_of("", 5000.0).as_deref(), Some("goal reached (>= 2000, goal 5000)"));
        assert_eq!(verdict_of("no events", 1.0), None);
    }
}
