//! The layer that says which events and spans there are.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use parking_lot::RwLock;
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::Interest;
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

use super::levels::{DOORS, Door, Plan, Verbosity, slot, verbosity};
use super::subject::Subject;
use super::{LogState, OWN_TARGET};

pub struct LogFilter {
    pub(super) shared: Arc<LogState>,
}

/// The plan in force, in a form that every thread reads without waiting. While it changes an event may be judged by
/// half of the old one.
#[derive(Default)]
pub(super) struct Switches {
    by_target: [AtomicU8; DOORS],
    by_door: [AtomicU8; DOORS],
    by_field_max: AtomicU8,
    /// Read only where some client has a level. Leaf lock.
    clients: RwLock<Vec<(IpAddr, Verbosity)>>,
}

impl Switches {
    pub fn turn(&self, plan: Plan) {
        let by_field_max = plan.by_field_max();
        *self.clients.write() = plan.clients;
        for number in 0..DOORS {
            self.by_target[number].store(plan.by_target[number], Ordering::Relaxed);
            self.by_door[number].store(plan.by_door[number], Ordering::Relaxed);
        }
        self.by_field_max.store(by_field_max, Ordering::Release);
    }

    fn of_target(&self, target: &str) -> Verbosity {
        self.by_target[slot(Door::of_target(target))].load(Ordering::Relaxed)
    }

    fn by_field_max(&self) -> Verbosity {
        self.by_field_max.load(Ordering::Acquire)
    }

    fn of_subject(&self, subject: &Subject) -> Verbosity {
        let door = self.by_door[slot(subject.door)].load(Ordering::Relaxed);
        let client = subject.client.map_or(0, |client| {
            let clients = self.clients.read();
            clients.iter().find(|(known, _)| *known == client).map_or(0, |(_, wanted)| *wanted)
        });
        door.max(client)
    }

    fn most(&self) -> Verbosity {
        let targets = self.by_target.iter().map(|switch| switch.load(Ordering::Relaxed)).max().unwrap_or(0);
        targets.max(self.by_field())
    }

    /// How far events have to be looked at for their fields. Spans carry these fields, so they are kept then whatever
    /// the global level is, but for those of the finest level.
    fn by_field(&self) -> Verbosity {
        match self.by_field_max() {
            0 => 0,
            wanted => wanted.max(verbosity(Level::DEBUG)),
        }
    }

    fn might_pass(&self, metadata: &Metadata<'_>) -> bool {
        let limit = if metadata.is_span() { self.by_field() } else { self.by_field_max() };
        verbosity(*metadata.level()) <= limit
    }

    fn passes(&self, metadata: &Metadata<'_>) -> bool {
        verbosity(*metadata.level()) <= self.of_target(metadata.target())
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for LogFilter {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        let switches = &self.shared.switches;
        if switches.passes(metadata) {
            Interest::always()
        } else if switches.might_pass(metadata) {
            Interest::sometimes()
        } else {
            Interest::never()
        }
    }

    fn enabled(&self, metadata: &Metadata<'_>, _: Context<'_, S>) -> bool {
        let switches = &self.shared.switches;
        switches.passes(metadata) || switches.might_pass(metadata)
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(match self.shared.switches.most() {
            0 => LevelFilter::OFF,
            1 => LevelFilter::ERROR,
            2 => LevelFilter::WARN,
            3 => LevelFilter::INFO,
            4 => LevelFilter::DEBUG,
            _ => LevelFilter::TRACE,
        })
    }

    fn event_enabled(&self, event: &Event<'_>, context: Context<'_, S>) -> bool {
        let metadata = event.metadata();
        let level = verbosity(*metadata.level());
        let switches = &self.shared.switches;
        // Without levels by field, every event that comes here has passed already.
        if switches.by_field_max() != 0
            && !switches.passes(metadata)
            && level > switches.of_subject(&subject(event, &context))
        {
            return false;
        }
        level > verbosity(Level::WARN)
            || metadata.target() == OWN_TARGET
            || self.shared.limiter.admit(metadata, self.shared.clock.monotonic())
    }

    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        if self.shared.switches.by_field_max() != 0 {
            keep(id, &context, |subject| attributes.record(subject));
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        if self.shared.switches.by_field_max() != 0 {
            keep(id, &context, |subject| values.record(subject));
        }
    }
}

/// Adds what fields say to what is known of the span.
fn keep<S: Subscriber + for<'a> LookupSpan<'a>>(
    id: &Id,
    context: &Context<'_, S>,
    record: impl FnOnce(&mut Subject),
) {
    let Some(span) = context.span(id) else { return };
    let mut extensions = span.extensions_mut();
    let mut subject = extensions.get_mut::<Subject>().copied().unwrap_or_default();
    record(&mut subject);
    if !subject.is_nobody() {
        extensions.replace(subject);
    }
}

fn subject<S: Subscriber + for<'a> LookupSpan<'a>>(event: &Event<'_>, context: &Context<'_, S>) -> Subject {
    let mut subject = Subject::default();
    event.record(&mut subject);
    let mut spans = context.event_scope(event).into_iter().flatten();
    while !subject.is_complete()
        && let Some(span) = spans.next()
    {
        if let Some(outer) = span.extensions().get::<Subject>() {
            subject = subject.or(*outer);
        }
    }
    subject
}
