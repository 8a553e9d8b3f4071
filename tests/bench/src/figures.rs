//! What was measured, over the processes that measured it.

use crate::Workload;
use crate::place::Backend;

/// What a figure is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Of {
    pub(crate) workload: Workload,
    pub(crate) backend: Backend,
    /// What is special about it; empty if nothing is.
    pub(crate) variant: &'static str,
    pub(crate) metric: &'static str,
}

/// A figure: one value of each process.
#[derive(Debug, Clone)]
pub(crate) struct Figure {
    pub(crate) of: Of,
    pub(crate) values: Vec<f64>,
}

impl Figure {
    /// The middle value.
    pub(crate) fn median(&self) -> f64 {
        let mut sorted = self.values.clone();
        sorted.sort_by(f64::total_cmp);
        match sorted.len() {
            0 => f64::NAN,
            len if len % 2 == 1 => sorted[len / 2],
            len => f64::midpoint(sorted[len / 2 - 1], sorted[len / 2]),
        }
    }

    /// The smallest value.
    pub(crate) fn min(&self) -> f64 {
        self.values.iter().copied().fold(f64::INFINITY, f64::min)
    }

    /// The largest value.
    pub(crate) fn max(&self) -> f64 {
        self.values.iter().copied().fold(f64::NEG_INFINITY, f64::max)
    }
}

/// All figures, in the order in which they came.
#[derive(Debug, Default)]
pub(crate) struct Figures(pub(crate) Vec<Figure>);

impl Figures {
    /// One more value.
    pub(crate) fn add(&mut self, of: Of, value: f64) {
        match self.0.iter_mut().find(|figure| figure.of == of) {
            Some(figure) => figure.values.push(value),
            None => self.0.push(Figure { of, values: vec![value] }),
        }
    }

    fn find(&self, of: Of) -> Option<&Figure> {
        self.0.iter().find(|figure| figure.of == of)
    }

    /// Adds what follows from the others: ratios of medians, and differences.
    pub(crate) fn derive(&mut self) {
        let derived: Vec<Figure> = self.0.iter().filter_map(|figure| self.derived(figure)).flatten().collect();
        self.0.extend(derived);
    }

    fn derived(&self, figure: &Figure) -> Option<Vec<Figure>> {
        let of = figure.of;
        let one = |metric, value| Figure { of: Of { metric, ..of }, values: vec![value] };
        let limit = |metric| self.find(Of { workload: Workload::Limit, variant: "", metric, ..of }).map(Figure::median);
        let of_500 = || self.find(Of { variant: "500 parked", ..of }).map(Figure::median);
        match (of.workload, of.variant, of.metric) {
            (Workload::W1, _, "steps_per_s_1") => {
                Some(vec![one("steps_per_s_1_of_limit_seq", figure.median() / limit("seq_per_s")?)])
            }
            (Workload::W1, _, "steps_per_s_64") => {
                Some(vec![one("steps_per_s_64_of_limit_batch", figure.median() / limit("batch_per_s")?)])
            }
            (Workload::W5, "20000 parked", "p99_ms") => {
                Some(vec![one("p99_20000_over_500", figure.median() / of_500()?)])
            }
            (Workload::W5, "1000000 parked", "p99_ms") => {
                Some(vec![one("p99_1000000_over_500", figure.median() / of_500()?)])
            }
            (Workload::W5, "20000 parked" | "1000000 parked", "rss_mib") => {
                Some(vec![one("rss_growth_mib", figure.median() - of_500()?)])
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(workload: Workload, variant: &'static str, metric: &'static str) -> Of {
        Of { workload, backend: Backend::Sqlite, variant, metric }
    }

    #[test]
    fn a_figure_is_the_median_of_its_processes() {
        let mut figures = Figures::default();
        for value in [3.0, 1.0, 2.0] {
            figures.add(of(Workload::W3, "", "db_mib"), value);
        }
        let [figure] = figures.0.as_slice() else { panic!("{figures:?}") };
        assert_eq!((figure.median(), figure.min(), figure.max()), (2.0, 1.0, 3.0));
    }

    #[test]
    fn ratios_are_of_medians_on_the_same_backend() {
        let mut figures = Figures::default();
        figures.add(of(Workload::Limit, "", "seq_per_s"), 1000.0);
        figures.add(of(Workload::W1, "chain", "steps_per_s_1"), 600.0);
        figures.add(of(Workload::W5, "500 parked", "rss_mib"), 20.0);
        figures.add(of(Workload::W5, "20000 parked", "rss_mib"), 23.0);
        figures.derive();
        let ratio = figures.find(of(Workload::W1, "chain", "steps_per_s_1_of_limit_seq")).expect("a ratio");
        assert_eq!(ratio.median(), 0.6);
        let growth = figures.find(of(Workload::W5, "20000 parked", "rss_growth_mib")).expect("a difference");
        assert_eq!(growth.median(), 3.0);
    }
}
