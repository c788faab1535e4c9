//! Levels as people name them, checked and compiled to what the filter compares.

use std::net::IpAddr;

use tracing::Level;

use crate::instance::LogLevels;

/// Clients with a level of their own: this is for looking at a few, not for configuration.
pub const CLIENTS_MAX: usize = 32;

/// How much is written: 0 nothing, 1 errors, … 5 everything.
pub(super) type Verbosity = u8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Door {
    Nfs = 1,
    Http = 2,
}

/// Slots of arrays by door; the first is for what belongs to none.
pub(super) const DOORS: usize = 3;

/// The crates whose lines are a door's own.
const TARGETS: &[(&str, Door)] = &[
    ("forebay_door_nfs", Door::Nfs),
    ("forebay_nfs4", Door::Nfs),
    ("forebay_oncrpc", Door::Nfs),
    ("forebay_door_webdav", Door::Http),
    ("forebay_http_", Door::Http),
    ("forebay_admin", Door::Http),
];

impl Door {
    pub fn by_name(name: &str) -> Option<Door> {
        match name {
            "nfs" => Some(Door::Nfs),
            "http" => Some(Door::Http),
            _ => None,
        }
    }

    pub fn of_target(target: &str) -> Option<Door> {
        TARGETS.iter().find(|(prefix, _)| target.starts_with(prefix)).map(|(_, door)| *door)
    }
}

/// The slot of a door, or of none.
pub(super) fn slot(door: Option<Door>) -> usize {
    door.map_or(0, |door| door as usize)
}

/// The levels in force.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    /// By the crate that logs.
    pub by_target: [Verbosity; DOORS],
    /// By the door whose request it is, whichever crate logs; 0 where this adds nothing.
    pub by_door: [Verbosity; DOORS],
    pub clients: Vec<(IpAddr, Verbosity)>,
}

impl Plan {
    pub fn of_global(level: Level) -> Plan {
        Plan { by_target: [verbosity(level); DOORS], ..Plan::default() }
    }

    pub fn new(levels: &LogLevels, configured: Level) -> Result<Plan, String> {
        let global = levels.level.as_deref().map_or(Ok(configured), by_name)?;
        let mut plan = Plan::of_global(global);
        for (name, level) in &levels.doors {
            let door =
                Door::by_name(name).ok_or_else(|| format!("{name:?} is no door; there are nfs and http"))?;
            let wanted = verbosity(by_name(level)?);
            plan.by_target[door as usize] = wanted;
            if wanted > verbosity(global) {
                plan.by_door[door as usize] = wanted;
            }
        }
        if levels.clients.len() > CLIENTS_MAX {
            return Err(format!("at most {CLIENTS_MAX} clients can have a level of their own"));
        }
        for (address, level) in &levels.clients {
            plan.clients.push((address.to_canonical(), verbosity(by_name(level)?)));
        }
        Ok(plan)
    }

    /// Beyond this no field of an event matters; 0 where none ever does.
    pub fn by_field_max(&self) -> Verbosity {
        let clients = self.clients.iter().map(|(_, wanted)| *wanted);
        self.by_door.iter().copied().chain(clients).max().unwrap_or(0)
    }
}

pub(super) fn verbosity(level: Level) -> Verbosity {
    match level {
        Level::ERROR => 1,
        Level::WARN => 2,
        Level::INFO => 3,
        Level::DEBUG => 4,
        Level::TRACE => 5,
    }
}

pub(super) fn name(level: Level) -> &'static str {
    match level {
        Level::ERROR => "error",
        Level::WARN => "warn",
        Level::INFO => "info",
        Level::DEBUG => "debug",
        Level::TRACE => "trace",
    }
}

fn by_name(text: &str) -> Result<Level, String> {
    [Level::ERROR, Level::WARN, Level::INFO, Level::DEBUG, Level::TRACE]
        .into_iter()
        .find(|level| name(*level) == text)
        .ok_or_else(|| format!("{text:?} is no level; there are error, warn, info, debug and trace"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn levels(json: &str) -> LogLevels {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn a_door_has_its_own_level_and_the_rest_the_global_one() {
        let plan =
            Plan::new(&levels(r#"{"level":"warn","doors":{"nfs":"debug","http":"error"}}"#), Level::INFO);
        let plan = plan.unwrap();
        assert_eq!(plan.by_target, [2, 4, 1]);
        assert_eq!(plan.by_door, [0, 4, 0]);
        assert_eq!(plan.by_field_max(), 4);
    }

    #[test]
    fn without_a_level_the_configured_one_counts() {
        assert_eq!(Plan::new(&levels("{}"), Level::INFO).unwrap(), Plan::of_global(Level::INFO));
        assert_eq!(Plan::of_global(Level::INFO).by_field_max(), 0);
    }

    #[test]
    fn unknown_levels_and_doors_are_named_in_the_error() {
        for (json, word) in [
            (r#"{"level":"loud"}"#, "loud"),
            (r#"{"doors":{"ftp":"info"}}"#, "ftp"),
            (r#"{"doors":{"nfs":"INFO"}}"#, "INFO"),
            (r#"{"clients":{"192.0.2.1":""}}"#, "level"),
        ] {
            let error = Plan::new(&levels(json), Level::INFO).unwrap_err();
            assert!(error.contains(word), "{error}");
        }
    }

    #[test]
    fn only_so_many_clients_have_a_level() {
        let mut many = LogLevels::default();
        for number in 0..=CLIENTS_MAX {
            many.clients.insert(IpAddr::V4(u32::try_from(number).unwrap().into()), "debug".to_owned());
        }
        assert!(Plan::new(&many, Level::INFO).is_err());
        many.clients.pop_first();
        assert!(Plan::new(&many, Level::INFO).is_ok());
    }

    #[test]
    fn crates_belong_to_doors() {
        assert_eq!(Door::of_target("forebay_door_nfs::mds::open"), Some(Door::Nfs));
        assert_eq!(Door::of_target("forebay_nfs4_state::table"), Some(Door::Nfs));
        assert_eq!(Door::of_target("forebay_http_server::h1"), Some(Door::Http));
        assert_eq!(Door::of_target("forebay_namespace::committer"), None);
        assert_eq!(Door::of_target("forebay::up"), None);
    }
}
