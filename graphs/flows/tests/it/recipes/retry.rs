//! Node policy: attempts, waits, a time limit, and a retry by hand.

use std::future::{pending, ready};
use std::time::Duration;

use countersign_flows::recipes::quote;
use countersign_kernel::driver::RunRequest;
use countersign_kernel::machine::Rest;
use countersign_kernel::ports::Timers;
use futures_util::future::BoxFuture;

use super::*;

/// Notes what is waited for; limits end at once if it says so.
#[derive(Default)]
struct Noted {
    waits: Mutex<Vec<u64>>,
    late: bool,
}

impl Timers for Noted {
    fn wait(&self, wait: Duration) -> BoxFuture<'static, ()> {
        self.waits.lock().expect("whole").push(wait.as_secs());
        ready(()).boxed()
    }

    fn limit(&self, limit: Duration) -> BoxFuture<'static, ()> {
        assert_eq!(limit.as_secs(), 10);
        if self.late { ready(()).boxed() } else { pending().boxed() }
    }
}

/// Something that never replies.
struct Silent;

#[async_trait]
impl Outside for Silent {
    async fn call(&self, _: &str, _: &str, _: &Value) -> Result<Value, OutsideError> {
        pending().await
    }
}

fn begun(outside: Arc<dyn Outside>, timers: Arc<Noted>) -> Driver {
    let mut run = Driver::new(quote(outside).expect("sound")).with_host(|host| host.timers = timers);
    let input = Some(json!({"parcel": "P-1"}));
    now(run.run(RunRequest { input, ..RunRequest::default() })).expect("good input");
    run
}

#[test]
fn a_call_that_fails_now_and_then_is_tried_again_after_growing_waits() {
    let (world, outside) = world();
    world.fail_next(4);
    let timers = Arc::new(Noted::default());
    let mut run = begun(outside, Arc::clone(&timers));
    assert_eq!((run.rest(), titles(&run)), (Rest::Parked, vec!["Ship P-1 for \"price done\"?".into()]));
    assert_eq!(*timers.waits.lock().expect("whole"), [1, 2, 4, 8]);
    assert_eq!((world.count("session"), world.count("price"), run.visits("fetch")), (5, 1, 1));
    answer(&mut run, json!({"approved": true})).expect("open");
    assert_eq!((run.rest(), world.calls().len()), (Rest::Succeeded, 6), "an answer calls nothing again");
}

#[test]
fn a_step_that_succeeded_is_not_done_again_and_the_other_keeps_its_key() {
    let (world, outside) = world();
    let run = begun(Arc::clone(&outside), Arc::default());
    assert_eq!((world.count("session"), world.count("price")), (1, 1));
    drop(run);

    /// Its session is good, its price is not, twice.
    struct Half(Arc<World>);
    #[async_trait]
    impl Outside for Half {
        async fn call(&self, key: &str, what: &str, arguments: &Value) -> Result<Value, OutsideError> {
            if what == "price" && self.0.count("price") < 2 {
                self.0.fail_next(1);
            }
            self.0.call(key, what, arguments).await
        }
    }
    let (world, _) = super::world();
    let run = begun(Arc::new(Half(Arc::clone(&world))), Arc::default());
    assert_eq!((run.rest(), world.count("session"), world.count("price")), (Rest::Parked, 1, 3));
    let keys = world.keys();
    assert!(keys[1] == keys[2] && keys[2] == keys[3] && keys[0] != keys[1], "{keys:?}");
}

#[test]
fn after_the_last_attempt_it_fails_and_a_retry_gives_it_as_many_more() {
    let (world, outside) = world();
    world.fail_next(7);
    let run = begun(Arc::clone(&outside), Arc::default());
    assert_eq!((run.rest(), run.errors()["fetch"]), (Rest::Failed, "no reply: the line is dead"));
    assert_eq!((world.count("session"), run.visits("confirm")), (5, 0));
    let mut run = run.reopen(quote(outside).expect("sound"));
    resume(&mut run, RETRY);
    assert_eq!((run.rest(), world.count("session"), world.count("price")), (Rest::Parked, 8, 1));
}

#[test]
fn an_attempt_that_takes_too_long_is_dropped() {
    let timers = Arc::new(Noted { late: true, ..Noted::default() });
    let run = begun(Arc::new(Silent), Arc::clone(&timers));
    assert_eq!((run.rest(), run.errors()["fetch"]), (Rest::Failed, "timed out after 10s"));
    assert_eq!(*timers.waits.lock().expect("whole"), [1, 2, 4, 8]);
}

#[test]
fn a_refused_price_books_nothing_and_a_bare_answer_is_none() {
    let (_, outside) = world();
    let mut run = begun(outside, Arc::default());
    assert_eq!(faults(answer(&mut run, Value::Null)), [""]);
    answer(&mut run, json!({"approved": false})).expect("open");
    assert_eq!((run.rest(), &run.state()["decision"]["approved"]), (Rest::Succeeded, &json!(false)));
}
