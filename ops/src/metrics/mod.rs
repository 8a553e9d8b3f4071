//! What Prometheus reads.
//!
//! Gauges say how everything stands, the same from every process of a database
//! (they come from one look, see [`overview`](crate::overview)); counters and
//! histograms are this process's own, since it started. Labels are bounded: flows,
//! kinds, channels, routes, never threads or people.

mod http;
mod own;
mod standing;

use std::fmt;

use countersign_worker::engine::Engine;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, prometheus_text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

pub(crate) use self::http::{HttpMetrics, count};
use self::own::Own;
use self::standing::Standing;
use crate::overview::Look;

/// What stands before every name.
const PREFIX: &str = "countersign";

/// The kind of text that [`text`] makes.
pub(crate) const CONTENT_TYPE: &str = prometheus_text::CONTENT_TYPE;

/// All metrics, in Prometheus' text format.
///
/// # Errors
/// Never for what is in here; the encoder's signature wants it.
pub(crate) fn text(engine: &Engine, look: &Look, http: &HttpMetrics) -> Result<String, fmt::Error> {
    let mut registry = Registry::with_prefix(PREFIX);
    http.register(&mut registry);
    let tally = std::sync::Arc::clone(engine.store().tally());
    registry.register_collector(Box::new(Own { tally, busy: engine.busy() }));
    registry.register_collector(Box::new(Standing { look: look.clone() }));
    let mut text = String::new();
    prometheus_text::encode(&mut text, &registry)?;
    Ok(text)
}

type Labels<'a> = Vec<(&'static str, &'a str)>;

/// Writes a metric with a sample for each set of labels.
fn family<'a, M: EncodeMetric>(
    encoder: &mut DescriptorEncoder<'_>,
    (name, help): (&str, &str),
    kind: MetricType,
    samples: impl IntoIterator<Item = (Labels<'a>, M)>,
) -> fmt::Result {
    let mut metric = encoder.encode_descriptor(name, help, None, kind)?;
    for (labels, value) in samples {
        value.encode(metric.encode_family(&labels)?)?;
    }
    Ok(())
}

/// Writes a metric without labels.
fn single(encoder: &mut DescriptorEncoder<'_>, (name, help): (&str, &str), value: &impl EncodeMetric) -> fmt::Result {
    value.encode(encoder.encode_descriptor(name, help, None, value.metric_type())?)
}
