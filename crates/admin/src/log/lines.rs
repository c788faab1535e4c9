//! The form of a line: text for people, JSON for collectors, and for the journal the priority in front.

use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{self, FmtContext, FormatEvent, FormatFields, MakeWriter};
use tracing_subscriber::registry::LookupSpan;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Text,
    /// One object for each line.
    Json,
}

#[derive(Clone, Copy, Debug)]
pub struct Lines {
    pub form: Form,
    pub has_colours: bool,
    /// Lines begin with `<N>` (sd-daemon(3)), and text has no time: the journal keeps both beside the line.
    pub is_journal: bool,
}

impl Lines {
    pub(super) fn layer<S, W>(self, writer: W) -> Box<dyn Layer<S> + Send + Sync>
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
        W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
    {
        let has_colours = self.has_colours && self.form == Form::Text && !self.is_journal;
        let lines = fmt::layer().with_writer(writer).with_ansi(has_colours);
        match (self.form, self.is_journal) {
            (Form::Text, false) => lines.boxed(),
            (Form::Text, true) => lines.event_format(Prioritised(fmt::format().without_time())).boxed(),
            (Form::Json, false) => lines.json().boxed(),
            (Form::Json, true) => lines.json().map_event_format(Prioritised).boxed(),
        }
    }
}

/// The priority of syslog(3) in front of each line; the journal takes it off again.
struct Prioritised<F>(F);

impl<S, N, F> FormatEvent<S, N> for Prioritised<F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> std::fmt::Result {
        write!(writer, "<{}>", priority(*event.metadata().level()))?;
        self.0.format_event(context, writer, event)
    }
}

fn priority(level: Level) -> u8 {
    match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        Level::DEBUG | Level::TRACE => 7,
    }
}
