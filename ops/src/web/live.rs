//! Keeping an open page fresh: its regions, sent again when they change.
//!
//! All who watch share one look a second (see [`Lookout`](crate::overview::Lookout));
//! when nobody watches, nobody looks.

use std::convert::Infallible;
use std::time::{Duration, Instant};

use axum::Extension;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use countersign_worker::store::StoreError;
use futures_util::stream::unfold;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use super::home::{Regions, Waiting, regions, waiting_for};
use super::problem::Problem;
use super::session::Session;
use super::site::Site;
use super::time::Moment;
use crate::overview::{Fresh, Look};
use crate::state::AppState;

/// How often it is looked whether something has changed.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How often a stream on which nothing happens shows that it is alive.
const ALIVE_EVERY: Duration = Duration::from_secs(15);
/// After this a browser has to come again, so that a session that has ended ends
/// its streams too.
const AT_MOST: Duration = Duration::from_mins(15);

/// A page that somebody looks at.
struct Watched {
    state: AppState,
    site: Site,
    session: Session,
    since: Instant,
    /// The last look, and what waited then for whoever watches.
    last: Option<(Look, Waiting)>,
    /// What the page shows, as far as it is known.
    shown: Regions,
    /// What the browser that comes again says it has.
    seen: Option<String>,
    first: bool,
}

/// `GET /overview/events`: an event for each change, with the regions that have
/// changed. Its id tells what all of them hold, so that a browser that comes
/// again gets nothing if nothing has changed.
pub(super) async fn events(
    session: Session,
    State(state): State<AppState>,
    Extension(site): Extension<Site>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let seen = headers.get("last-event-id").and_then(|id| id.to_str().ok()).map(str::to_owned);
    let watched =
        Watched { state, site, session, since: Instant::now(), last: None, shown: Vec::new(), seen, first: true };
    let events = unfold(watched, |mut watched| async move {
        let event = watched.next().await?;
        Some((Ok::<_, Infallible>(event), watched))
    });
    // A proxy that gathers what it passes on would hold events back.
    let unbuffered = (HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));
    let alive = KeepAlive::new().interval(ALIVE_EVERY);
    Ok(([unbuffered], Sse::new(events).keep_alive(alive)).into_response())
}

impl Watched {
    /// The page as it is now. What waits for whoever watches is looked up only
    /// when it may have changed.
    async fn regions(&mut self) -> Result<Regions, StoreError> {
        let look = self.state.lookout.look(&self.state.engine, Fresh::Recent).await?;
        let waiting = match self.last.take() {
            Some((before, waiting)) if !look.asks_anew(&before) => waiting,
            _ => waiting_for(&self.state, &self.site, &self.session).await?,
        };
        let regions = regions(&self.site, &self.session, &look, &waiting);
        self.last = Some((look, waiting));
        Ok(regions)
    }

    /// The next change; nothing more when the browser should come again.
    async fn next(&mut self) -> Option<Event> {
        loop {
            if !std::mem::take(&mut self.first) {
                tokio::select! {
                    () = tokio::time::sleep(LOOK_EVERY) => {}
                    () = self.state.engine.stopping() => return None,
                }
            }
            if self.since.elapsed() > AT_MOST {
                return None;
            }
            let regions = match self.regions().await {
                Ok(regions) => regions,
                Err(error) => {
                    tracing::warn!(%error, "an open page is not kept fresh for now");
                    continue;
                }
            };
            let id = digest(&regions);
            let known = self.seen.take().is_some_and(|seen| seen == id);
            let changed = if known { Map::new() } else { changed(&self.shown, &regions) };
            self.shown = regions;
            if changed.is_empty() {
                continue;
            }
            let at = self.last.as_ref().map(|(look, _)| Moment::of(look.at).exact);
            let data = json!({"at": at, "regions": changed});
            return Some(Event::default().event("overview").id(id).data(data.to_string()));
        }
    }
}

/// The regions that are not as they were.
fn changed(before: &Regions, now: &Regions) -> Map<String, Value> {
    let same = |region: &&(&'static str, String)| !before.contains(region);
    now.iter().filter(same).map(|(name, html)| ((*name).to_owned(), Value::from(html.as_str()))).collect()
}

fn digest(regions: &Regions) -> String {
    let mut hash = Sha256::new();
    for (name, html) in regions {
        hash.update(name);
        hash.update([0]);
        hash.update(html);
        hash.update([0]);
    }
    hex::encode(&hash.finalize()[..8])
}
