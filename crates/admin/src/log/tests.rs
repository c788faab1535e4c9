//! The filter under a real subscriber: what is written at which levels.

use parking_lot::Mutex;
use testkit::clock::ManualClock;
use tracing::{debug, debug_span, error, info, info_span, trace, warn};

use super::*;

#[derive(Clone, Default)]
struct Written(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Written {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Written {
    /// Lines since the last call.
    fn lines(&self) -> Vec<String> {
        let bytes = std::mem::take(&mut *self.0.lock());
        String::from_utf8(bytes).unwrap().lines().map(str::to_owned).collect()
    }
}

/// Interests are kept for the whole process, so tests that change levels take turns.
static TURN: Mutex<()> = Mutex::new(());

fn with_log(test: impl FnOnce(&LogControl, &ManualClock, &Written)) {
    let _turn = TURN.lock();
    let clock = Arc::new(ManualClock::new(0));
    let control = LogControl::new(Level::INFO, Arc::<ManualClock>::clone(&clock));
    let written = Written::default();
    let writer = written.clone();
    let lines =
        tracing_subscriber::fmt::layer().with_ansi(false).without_time().with_writer(move || writer.clone());
    let subscriber = tracing_subscriber::registry().with(control.filter()).with(lines);
    tracing::subscriber::with_default(subscriber, || test(&control, &clock, &written));
}

fn levels(json: &str) -> LogLevels {
    serde_json::from_str(json).unwrap()
}

#[test]
fn the_global_level_changes_at_run_time() {
    with_log(|control, _, written| {
        let say = || {
            debug!("quiet");
            info!("loud");
        };
        say();
        assert_eq!(written.lines(), [" INFO forebay_admin::log::tests: loud"]);
        control.set(&levels(r#"{"level":"debug"}"#)).unwrap();
        say();
        assert_eq!(written.lines().len(), 2);
        control.set(&levels(r#"{"level":"error"}"#)).unwrap();
        say();
        assert_eq!(written.lines().len(), 0);
        control.set(&LogLevels::default()).unwrap();
        say();
        assert_eq!(written.lines().len(), 1);
    });
}

#[test]
fn levels_that_are_not_understood_change_nothing() {
    with_log(|control, _, _| {
        let before = levels(r#"{"level":"warn","doors":{"nfs":"debug"}}"#);
        control.set(&before).unwrap();
        assert!(control.set(&levels(r#"{"level":"loud"}"#)).is_err());
        assert_eq!(control.levels(), before);
    });
}

#[test]
fn without_a_global_level_the_configured_one_is_shown() {
    with_log(|control, _, _| assert_eq!(control.levels().level.as_deref(), Some("info")));
}

#[test]
fn a_doors_own_lines_have_the_doors_level() {
    with_log(|control, _, written| {
        control.set(&levels(r#"{"level":"info","doors":{"nfs":"debug","http":"warn"}}"#)).unwrap();
        debug!(target: "forebay_door_nfs::mds", "nfs");
        debug!(target: "forebay_namespace", "other");
        info!(target: "forebay_http_server", "http");
        assert_eq!(written.lines(), ["DEBUG forebay_door_nfs::mds: nfs"]);
    });
}

#[test]
fn other_crates_are_heard_within_a_request_of_a_door() {
    with_log(|control, _, written| {
        control.set(&levels(r#"{"doors":{"http":"debug"}}"#)).unwrap();
        let say = |what| debug!(target: "forebay_namespace", "{what}");
        say("outside");
        info_span!(target: "forebay", "request", door = "nfs").in_scope(|| say("nfs"));
        debug_span!(target: "forebay", "request", door = "http").in_scope(|| say("http"));
        debug!(target: "forebay_namespace", door = "http", "field");
        let lines = written.lines();
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert!(lines[0].ends_with("http") && lines[1].contains("field"), "{lines:?}");
    });
}

#[test]
fn everything_a_client_does_is_heard() {
    with_log(|control, _, written| {
        control.set(&levels(r#"{"level":"error","clients":{"192.0.2.1":"trace"}}"#)).unwrap();
        let say = || {
            info_span!("inner").in_scope(|| trace!(target: "forebay_pool", "step"));
        };
        say();
        let peer: std::net::SocketAddr = "[::ffff:192.0.2.1]:700".parse().unwrap();
        debug_span!("request", client = %peer).in_scope(say);
        let other: std::net::SocketAddr = "192.0.2.2:700".parse().unwrap();
        debug_span!("request", client = %other).in_scope(say);
        assert_eq!(written.lines().len(), 1);
        info!(peer = %peer, "by an event's own field");
        info!(client = "192.0.2.1", "by text");
        info!(client = 17, "an id is no address");
        assert_eq!(written.lines().len(), 2);
        let late = debug_span!("request", client = tracing::field::Empty);
        late.record("client", tracing::field::display(peer));
        late.in_scope(say);
        assert_eq!(written.lines().len(), 1);
    });
}

#[test]
fn a_client_of_no_level_of_its_own_costs_no_line() {
    with_log(|control, _, written| {
        control.set(&levels(r#"{"clients":{"192.0.2.1":"debug"}}"#)).unwrap();
        trace!(client = "192.0.2.1", "finer than asked");
        debug!("nobody's");
        assert!(written.lines().is_empty());
        info!("as before");
        assert_eq!(written.lines().len(), 1);
    });
}

#[test]
fn a_span_below_the_level_does_not_exist_while_nobody_looks() {
    with_log(|control, _, _| {
        let is_there = || !debug_span!("request", client = "192.0.2.1").is_disabled();
        assert!(!is_there());
        control.set(&levels(r#"{"clients":{"192.0.2.1":"info"}}"#)).unwrap();
        assert!(is_there());
        control.set(&LogLevels::default()).unwrap();
        assert!(!is_there());
    });
}

#[test]
fn macros_of_finer_levels_end_at_one_comparison_while_nobody_looks() {
    with_log(|control, _, _| {
        use tracing::level_filters::LevelFilter;
        assert_eq!(LevelFilter::current(), LevelFilter::INFO);
        control.set(&levels(r#"{"clients":{"192.0.2.1":"trace"}}"#)).unwrap();
        assert_eq!(LevelFilter::current(), LevelFilter::TRACE);
        control.set(&LogLevels::default()).unwrap();
        assert_eq!(LevelFilter::current(), LevelFilter::INFO);
    });
}

#[test]
fn repeated_warnings_are_ten_in_ten_seconds_and_then_one_line() {
    with_log(|control, clock, written| {
        let complain = |times: u32| (0..times).for_each(|number| warn!(number, "disk is slow"));
        complain(25);
        assert_eq!(written.lines().len(), 10);
        control.tick();
        assert_eq!(written.lines().len(), 0, "the window is not over");
        clock.advance(10);
        control.tick();
        let lines = written.lines();
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(lines[0].contains("left_out=15") && lines[0].contains("log/tests.rs"), "{lines:?}");
        control.tick();
        assert_eq!(written.lines().len(), 0, "told once");
        complain(11);
        assert_eq!(written.lines().len(), 10, "a new window");
    });
}

#[test]
fn another_callsite_and_quieter_lines_are_not_limited() {
    with_log(|_, _, written| {
        (0..20).for_each(|_| error!("one"));
        assert_eq!(written.lines().len(), 10);
        warn!("another");
        (0..20).for_each(|_| info!("said often"));
        assert_eq!(written.lines().len(), 21);
    });
}

#[test]
fn lines_left_out_before_a_new_window_are_still_reported() {
    with_log(|control, clock, written| {
        let complain = |times: u32| (0..times).for_each(|_| warn!("again"));
        complain(12);
        clock.advance(30);
        complain(1);
        written.lines();
        control.tick();
        assert!(written.lines()[0].contains("left_out=2"));
    });
}

/// Lines of a log of this form about one warning in a span and one error.
fn lines_of(lines: Lines) -> Vec<String> {
    let _turn = TURN.lock();
    let written = Written::default();
    let writer = written.clone();
    let subscriber = tracing_subscriber::registry().with(lines.layer(move || writer.clone()));
    tracing::subscriber::with_default(subscriber, || {
        info_span!("request", door = "http").in_scope(|| warn!(path = "/a \"b\"", "is \n slow"));
        error!(count = 3, "failed");
    });
    written.lines()
}

#[test]
fn json_is_one_object_for_each_line_with_the_fields_of_event_and_spans() {
    let lines = lines_of(Lines { form: Form::Json, has_colours: true, is_journal: false });
    assert_eq!(lines.len(), 2, "{lines:?}");
    let objects: Vec<serde_json::Value> =
        lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(objects[0]["level"], "WARN");
    assert_eq!(objects[0]["target"], "forebay_admin::log::tests");
    assert_eq!(objects[0]["fields"]["message"], "is \n slow");
    assert_eq!(objects[0]["fields"]["path"], "/a \"b\"");
    assert_eq!(objects[0]["span"]["door"], "http");
    assert_eq!(objects[1]["fields"]["count"], 3);
    assert!(objects[1]["timestamp"].as_str().unwrap().ends_with('Z'), "{}", objects[1]);
}

#[test]
fn lines_for_the_journal_begin_with_their_priority_in_either_form() {
    let text = lines_of(Lines { form: Form::Text, has_colours: true, is_journal: true });
    assert_eq!(text.last().unwrap(), "<3>ERROR forebay_admin::log::tests: failed count=3");
    assert!(text[0].starts_with("<4> WARN request{door=\"http\"}: "), "{text:?}");
    let json = lines_of(Lines { form: Form::Json, has_colours: false, is_journal: true });
    let object = json[0].strip_prefix("<4>").unwrap();
    assert_eq!(serde_json::from_str::<serde_json::Value>(object).unwrap()["level"], "WARN");
}

#[test]
fn a_newly_configured_level_is_in_force_unless_an_administrator_has_set_one() {
    with_log(|control, _, written| {
        control.set_configured(Level::ERROR);
        info!("quiet now");
        assert!(written.lines().is_empty());
        control.set(&levels(r#"{"level":"info"}"#)).unwrap();
        control.set_configured(Level::WARN);
        info!("as was set");
        assert_eq!(written.lines().len(), 1);
        assert_eq!(control.levels().level.as_deref(), Some("info"));
    });
}
