//! Threads that are started by the clock.

use countersign_kernel::fault::Fault;
use countersign_kernel::ids::ThreadId;
use countersign_kernel::principal::Principal;
use countersign_kernel::time::Timestamp;

use super::{Engine, RequestError, StartRequest};
use crate::schedule::{Rhythm, RhythmError, jitter};
use crate::store::commands::{CatchUp, NextTick, ScheduleSpec, Tick};
use crate::store::{Accepted, ScheduleView, StoreError};

/// Most ticks that are caught up with at once.
const CATCH_UP_MAX: usize = 10_000;

/// Why a schedule is not taken.
#[derive(Debug, thiserror::Error)]
pub enum ScheduleError {
    /// No schedule has the name.
    #[error("there is no schedule `{0}`")]
    Unknown(String),
    /// Its expression or zone.
    #[error("the schedule `{schedule}`: {problem}")]
    Rhythm {
        /// The schedule.
        schedule: String,
        /// What is wrong.
        problem: RhythmError,
    },
    /// Its graph or input, or the store.
    #[error(transparent)]
    Request(#[from] RequestError),
}

impl From<StoreError> for ScheduleError {
    fn from(error: StoreError) -> Self {
        Self::Request(error.into())
    }
}

/// The time as it stands in the ids of threads: `20270131T023000Z`.
fn stamp(instant: Timestamp) -> String {
    let text = chrono::DateTime::from_timestamp_micros(instant.as_micros());
    text.map_or_else(|| instant.as_micros().to_string(), |time| time.format("%Y%m%dT%H%M%SZ").to_string())
}

fn next_of(rhythm: &Rhythm, spec: &ScheduleSpec, after: Timestamp) -> Option<NextTick> {
    let instant = rhythm.after(after)?;
    Some(NextTick { instant, at: instant.after(jitter(&spec.name, instant, spec.jitter)) })
}

/// At the end of time.
const NEVER: NextTick = NextTick { instant: Timestamp::from_micros(i64::MAX), at: Timestamp::from_micros(i64::MAX) };

/// Which ticks come now, of those from the next one on, and what comes after
/// them.
fn missed(rhythm: &Rhythm, view: &ScheduleView, now: Timestamp) -> (Vec<Timestamp>, NextTick) {
    let spec = &view.spec;
    let within = i64::try_from(spec.catch_within.as_micros()).unwrap_or(i64::MAX);
    let earliest = Timestamp::from_micros(now.as_micros().saturating_sub(within));
    let mut next = view.next;
    if next.at < earliest {
        // As if it had been asked just before the window.
        let before = Timestamp::from_micros(earliest.as_micros().saturating_sub(1));
        next = next_of(rhythm, spec, before).unwrap_or(NEVER);
    }
    let mut come = Vec::new();
    while next.at <= now && come.len() < CATCH_UP_MAX {
        if spec.catch_up == CatchUp::Newest {
            come.clear();
        }
        come.push(next.instant);
        next = next_of(rhythm, spec, next.instant).unwrap_or(NEVER);
    }
    (come, next)
}

impl Engine {
    /// Makes the schedules what is given: new ones and changed ones are put,
    /// others are forgotten. All are checked before any is put.
    ///
    /// # Errors
    /// An expression or a zone that does not read, an unknown graph, an input
    /// that does not fit.
    pub async fn set_schedules(&self, specs: Vec<ScheduleSpec>) -> Result<(), ScheduleError> {
        let now = self.inner.clock.now();
        let mut checked = Vec::new();
        for spec in specs {
            let rhythm = self.rhythm(&spec)?;
            self.check_start(&spec.graph, &spec.input)?;
            let next = next_of(&rhythm, &spec, now).unwrap_or(NEVER);
            checked.push((spec, next));
        }
        let names: Vec<String> = checked.iter().map(|(spec, _)| spec.name.clone()).collect();
        for (spec, next) in checked {
            self.inner.store.put_schedule(spec, next, now).await?;
        }
        self.inner.store.keep_schedules(&names).await?;
        self.inner.timed.notify_one();
        Ok(())
    }

    /// Pauses a schedule, or has it go on: from its next tick, whatever came
    /// during the pause.
    ///
    /// # Errors
    /// [`ScheduleError::Unknown`].
    pub async fn pause_schedule(&self, name: &str, paused: bool) -> Result<(), ScheduleError> {
        let now = self.inner.clock.now();
        let view = self.schedule(name).await?;
        let next = next_of(&self.rhythm(&view.spec)?, &view.spec, now).unwrap_or(NEVER);
        if !self.inner.store.pause_schedule(name, paused, next, now).await? {
            return Err(ScheduleError::Unknown(name.to_owned()));
        }
        self.inner.timed.notify_one();
        Ok(())
    }

    /// Starts a thread of a schedule now, beside its ticks.
    ///
    /// # Errors
    /// [`ScheduleError::Unknown`]; whatever keeps the thread from starting.
    pub async fn fire_schedule(&self, name: &str, by: &Principal) -> Result<ThreadId, ScheduleError> {
        let view = self.schedule(name).await?;
        let now = self.inner.clock.now();
        let thread = self.fresh_id(ThreadId::parse)?;
        let start = StartRequest { thread: Some(thread), ..StartRequest::new(&view.spec.graph, &view.spec.input, by) };
        let (create, messages) = self.creation_of(start)?;
        let thread = create.thread.clone();
        let tick = Tick {
            schedule: name.to_owned(),
            instant: now,
            expected: None,
            next: view.next,
            thread: Some(Box::new(create)),
            error: None,
            by_hand: Some(by.clone()),
            now,
        };
        if let Some(Accepted::Committed(wake)) = self.inner.store.tick(tick).await? {
            messages.into_iter().chain(wake).for_each(|message| self.hand_over(message));
        }
        Ok(thread)
    }

    async fn schedule(&self, name: &str) -> Result<ScheduleView, ScheduleError> {
        let known = self.inner.store.schedules().await?;
        known.into_iter().find(|view| view.spec.name == name).ok_or_else(|| ScheduleError::Unknown(name.to_owned()))
    }

    fn rhythm(&self, spec: &ScheduleSpec) -> Result<Rhythm, ScheduleError> {
        Rhythm::parse(&spec.expression, &spec.zone)
            .map_err(|problem| ScheduleError::Rhythm { schedule: spec.name.clone(), problem })
    }

    /// Has the ticks come that are due, of the flows that this process knows.
    /// Says when there is more to do, if that is known.
    pub(super) async fn tick_due(&self) -> Result<Option<Timestamp>, StoreError> {
        let (due, mut next) = self.inner.store.due_schedules(self.inner.clock.now()).await?;
        for view in due {
            if !self.inner.graphs.contains_key(&view.spec.graph) {
                // Of a newer build, or of another process: for that one.
                continue;
            }
            let after = self.tick_one(&view).await?;
            next = Some(next.map_or(after, |next| next.min(after)));
        }
        Ok(next)
    }

    /// Has the due ticks of one schedule come; says when the next is due.
    async fn tick_one(&self, view: &ScheduleView) -> Result<Timestamp, StoreError> {
        let (spec, now) = (&view.spec, self.inner.clock.now());
        let rhythm = match self.rhythm(spec) {
            Ok(rhythm) => rhythm,
            Err(error) => {
                // It read when it was put: a zone that this build does not know.
                tracing::error!(%error, schedule = spec.name, "a schedule cannot tick");
                return Ok(NEVER.at);
            }
        };
        let (come, after) = missed(&rhythm, view, now);
        let mut expected = view.next.instant;
        let mut nexts = come.iter().skip(1).map(|instant| NextTick { instant: *instant, at: now }).collect::<Vec<_>>();
        nexts.push(after);
        let left_out = come.is_empty().then_some(None);
        for (instant, next) in left_out.into_iter().chain(come.iter().copied().map(Some)).zip(nexts) {
            if !self.tick_at(view, instant, expected, next).await? {
                // Another process was faster; the next look sees how it stands.
                return Ok(after.at);
            }
            expected = next.instant;
        }
        Ok(after.at)
    }

    /// One tick; none if what was missed is too old to come. Says whether this
    /// process did it.
    async fn tick_at(
        &self,
        view: &ScheduleView,
        instant: Option<Timestamp>,
        expected: Timestamp,
        next: NextTick,
    ) -> Result<bool, StoreError> {
        let spec = &view.spec;
        let by = Principal::service(&format!("the schedule {}", spec.name));
        let created = instant.map(|instant| {
            let thread = ThreadId::parse(format!("{}-{}", spec.name, stamp(instant)))
                .map_err(|error| RequestError::InvalidInput(vec![Fault::at("", error.to_string())]))?;
            let start = StartRequest { thread: Some(thread), ..StartRequest::new(&spec.graph, &spec.input, &by) };
            self.creation_of(start)
        });
        let (create, messages, error) = match created {
            None => (None, Vec::new(), None),
            Some(Ok((create, messages))) => (Some(Box::new(create)), messages, None),
            Some(Err(error)) => {
                tracing::error!(%error, schedule = spec.name, "a tick started nothing");
                (None, Vec::new(), Some(error.to_string()))
            }
        };
        let tick = Tick {
            schedule: spec.name.clone(),
            instant: instant.unwrap_or(expected),
            expected: Some(expected),
            next,
            thread: create,
            error,
            by_hand: None,
            now: self.inner.clock.now(),
        };
        match self.inner.store.tick(tick).await? {
            Some(Accepted::Committed(Some(wake))) => {
                tracing::info!(schedule = spec.name, thread = %wake.thread, "a schedule started a thread");
                messages.into_iter().chain([wake]).for_each(|message| self.hand_over(message));
                Ok(true)
            }
            Some(_) => Ok(true),
            None => Ok(false),
        }
    }
}
