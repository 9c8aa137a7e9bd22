//! The daemon's log: writes tracing events to `log/aosd.log`.

use std::io;

use aos_model::text::{escape, escape_json};
use aos_store::{Home, LogLimits, LogWriter};
use clap::Args;
use tracing_subscriber::Layer as _;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

/// A longer line is truncated, so that one event cannot fill the log.
const LINE_BYTES_MAX: usize = 16 << 10;

#[derive(Debug, Clone, Args)]
pub(crate) struct LogOptions {
    /// Log level: error, warn, info, debug, trace or off; append `,TARGET=LEVEL` for one crate or module
    #[arg(long = "log", env = "AOS_LOG", value_name = "LEVEL", default_value = "info", value_parser = levels)]
    levels: Targets,
    /// Format of the log
    #[arg(long = "log-format", env = "AOS_LOG_FORMAT", value_enum, default_value_t = Format::Text)]
    format: Format,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    Text,
    Json,
}

/// Starts logging to `log/aosd.log`. Called once, by the daemon, with the home's lock held.
pub(crate) fn start(home: &Home, options: &LogOptions) -> anyhow::Result<()> {
    let lines = Lines { log: home.logs()?.writer(LogLimits::default())?, format: options.format };
    let layer = tracing_subscriber::fmt::layer().with_ansi(false).log_internal_errors(false);
    let layer = match options.format {
        Format::Text => layer.with_writer(lines).boxed(),
        Format::Json => layer.json().flatten_event(true).with_writer(lines).boxed(),
    };
    tracing_subscriber::registry().with(layer).with(options.levels.clone()).try_init()?;
    Ok(())
}

/// Parses `AOS_LOG`. `Targets` itself would accept a misspelt level as the name of a target and log everything from it,
/// so an item without `=` must be a level here.
fn levels(text: &str) -> Result<Targets, String> {
    let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
    let mut levels = Targets::new().with_default(LevelFilter::INFO);
    for item in items {
        let (target, level) =
            item.split_once('=').map_or((None, item), |(target, level)| (Some(target), level));
        let level: LevelFilter = level
            .parse()
            .map_err(|_| format!("`{level}` is not a level; use error, warn, info, debug, trace or off"))?;
        levels = match target {
            Some(target) => levels.with_target(target, level),
            None => levels.with_default(level),
        };
    }
    Ok(levels)
}

/// Writes each event as one escaped line.
struct Lines {
    log: LogWriter,
    format: Format,
}

impl<'a> MakeWriter<'a> for Lines {
    type Writer = &'a Lines;

    fn make_writer(&'a self) -> &'a Lines {
        self
    }
}

impl io::Write for &Lines {
    /// The subscriber passes a whole event in one call.
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        self.log.append(line(&String::from_utf8_lossy(event), self.format).as_bytes());
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn line(event: &str, format: Format) -> String {
    let event = event.trim_end_matches('\n');
    match format {
        Format::Text => {
            let kept = &event[..event.floor_char_boundary(LINE_BYTES_MAX)];
            let cut = if kept.len() < event.len() { " (cut)" } else { "" };
            format!("{}{cut}\n", escape(kept))
        }
        // A truncated object would not be JSON.
        Format::Json if event.len() > LINE_BYTES_MAX => {
            format!("{{\"level\":\"WARN\",\"message\":\"an event of {} bytes was left out\"}}\n", event.len())
        }
        Format::Json => escape_json(event) + "\n",
    }
}

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::*;

    #[test]
    fn levels_are_read_and_misspelt_ones_refused() {
        let default = levels("").unwrap();
        assert!(default.would_enable("aos::daemon", &Level::INFO));
        assert!(!default.would_enable("aos::daemon", &Level::DEBUG));
        let mixed = levels("warn, aos_store=debug").unwrap();
        assert!(!mixed.would_enable("aos::daemon", &Level::INFO));
        assert!(mixed.would_enable("aos_store::sqlite", &Level::DEBUG));
        assert!(levels("aos_store=trace").unwrap().would_enable("aos::daemon", &Level::INFO));
        assert!(!levels("off").unwrap().would_enable("aos::daemon", &Level::ERROR));
        for wrong in ["verbose", "aos=loud", "info,aos_store"] {
            assert!(levels(wrong).unwrap_err().contains("is not a level"), "{wrong}");
        }
    }

    #[test]
    fn an_event_is_one_escaped_line() {
        assert_eq!(line("a\nb\u{1b}[2J\u{202e}\n", Format::Text), "a\\nb\\u{1b}[2J\\u{202e}\n");
        assert_eq!(line("{\"a\":\"\u{9b}\"}\n", Format::Json), "{\"a\":\"\\u009b\"}\n");
        let long = "ä".repeat(LINE_BYTES_MAX);
        assert!(line(&long, Format::Text).ends_with("ä (cut)\n"));
        assert!(line(&long, Format::Json).contains("left out"));
    }
}
