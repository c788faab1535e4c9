//! Configuration keys from the environment, for containers: `FOREBAY_`, section and key in capitals.
//!
//! The value is what stands behind `=` in the file; text needs no quotes. A name that is no key is refused, but for those
//! of the project's own tests and those that Kubernetes sets for a service with the name `forebay`.

use std::ffi::OsString;

use anyhow::{Result, anyhow, bail};
use serde::Deserialize;

use super::Config;
use super::reference::key_names;

const PREFIX: &str = "FOREBAY_";
/// Of the project's own tests and benchmarks.
const OTHERS: [&str; 2] = ["FOREBAY_TEST_", "FOREBAY_BENCH_"];

/// As it is printed before the keys.
pub const RULE: &str = "\
#
# An environment variable can also set a key: FOREBAY_, section and key in capitals, joined by _. For example,
# FOREBAY_HTTP_PORT sets http.port, and FOREBAY_DATA sets data. Text needs no quotes there. Lists are written as in this
# file; nfs.export and auth.issuers are lists of inline tables.
# The order is: this file, the environment, options of the command line. The last one wins.
";

impl Config {
    /// Overlaid by the variables of the process.
    pub fn with_environment(self) -> Result<Config> {
        self.overlaid(std::env::vars_os())
    }

    fn overlaid(mut self, variables: impl Iterator<Item = (OsString, OsString)>) -> Result<Config> {
        let mut variables: Vec<_> = variables.filter_map(ours).collect();
        // The same mistake is told first, whatever the order of the environment.
        variables.sort();
        for (name, value) in variables {
            let value = value.into_string().map_err(|_| anyhow!("{name} is not text in UTF-8"))?;
            if is_service_link(&name, &value) {
                continue;
            }
            let Some(key) = key_names().find(|key| variable(key) == name) else {
                bail!("{name} is no configuration key (see: forebay config reference); remove the variable");
            };
            self = self.with(key, &value).map_err(|error| anyhow!("{name}: {error}"))?;
        }
        Ok(self)
    }

    /// Taken as text where the key takes text, else as a value of TOML.
    fn with(&self, key: &str, value: &str) -> Result<Config, String> {
        let as_text = self.set(key, toml::Value::String(value.to_owned()));
        as_text.or_else(|of_text| match value.parse::<toml::Value>() {
            Ok(value) => self.set(key, value),
            Err(_) => Err(of_text),
        })
    }

    fn set(&self, key: &str, value: toml::Value) -> Result<Config, String> {
        let in_line = |message: &str| message.trim().replace('\n', " ");
        let mut whole = toml::Table::try_from(self).map_err(|error| in_line(&error.to_string()))?;
        let (sections, name) = key.rsplit_once('.').unwrap_or(("", key));
        let mut table = &mut whole;
        for section in sections.split('.').filter(|section| !section.is_empty()) {
            let inner = table.get_mut(section).and_then(toml::Value::as_table_mut);
            table = inner.ok_or_else(|| format!("there is no section {section}"))?;
        }
        table.insert(name.to_owned(), value);
        Config::deserialize(toml::Value::Table(whole)).map_err(|error| in_line(error.message()))
    }
}

fn variable(key: &str) -> String {
    format!("{PREFIX}{}", key.replace('.', "_").to_uppercase())
}

fn ours((name, value): (OsString, OsString)) -> Option<(String, OsString)> {
    let name = name.into_string().ok()?;
    let is_ours = name.starts_with(PREFIX) && !OTHERS.iter().any(|others| name.starts_with(others));
    is_ours.then_some((name, value))
}

/// Kubernetes tells each container of the services of its namespace; of one with the name `forebay` or `forebay-http` in
/// variables that begin as ours do.
fn is_service_link(name: &str, value: &str) -> bool {
    let is_address = ["tcp://", "udp://", "sctp://"].iter().any(|scheme| value.starts_with(scheme));
    let is_part = ["_TCP", "_UDP", "_SCTP"].iter().any(|protocol| name.contains(protocol));
    name.contains("_SERVICE_HOST")
        || name.contains("_SERVICE_PORT")
        || name.contains("_PORT") && (is_address || is_part)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::config::{Form, http::Anonymous};

    fn overlaid(variables: &[(&str, &str)]) -> Result<Config> {
        let variables = variables.iter().map(|(name, value)| (OsString::from(name), OsString::from(value)));
        Config::default().overlaid(variables)
    }

    fn refusal(name: &str, value: &str) -> String {
        let error = format!("{:#}", overlaid(&[(name, value)]).unwrap_err());
        assert!(!error.contains('\n'), "{error}");
        error
    }

    #[test]
    fn each_kind_of_key_is_set_by_its_variable() {
        let config = overlaid(&[
            ("FOREBAY_DATA", "/srv/data"),
            ("FOREBAY_LISTEN", "0.0.0.0"),
            ("FOREBAY_HTTP_PORT", "8443"),
            ("FOREBAY_HTTP_SITE", "123"),
            ("FOREBAY_HTTP_PAGE", "false"),
            ("FOREBAY_HTTP_ANONYMOUS", "refuse"),
            ("FOREBAY_HTTP_NAMES", "[\"a.example:443\", \"b.example:443\"]"),
            ("FOREBAY_NFS_DELEGATIONS_WINDOW_S", "7"),
            ("FOREBAY_NFS_EXPORT", "[{ path = \"/a\", clients = [\"*\"] }]"),
            ("FOREBAY_LOG_FORMAT", "json"),
            ("HTTP_PORT", "1"),
            ("FOREBAY", "/a/binary"),
        ]);
        let config = config.unwrap();
        assert_eq!(
            (config.data.to_str(), config.listen.to_string().as_str()),
            (Some("/srv/data"), "0.0.0.0")
        );
        assert_eq!((config.http.port, config.http.site.as_str(), config.http.page), (8443, "123", false));
        assert_eq!(config.http.anonymous, Some(Anonymous::Refuse));
        assert_eq!(config.http.names, ["a.example:443", "b.example:443"]);
        assert_eq!(config.nfs.delegations.window_s, 7);
        assert_eq!((config.nfs.export.len(), config.nfs.export[0].path.as_str()), (1, "/a"));
        assert_eq!(config.log.format, Form::Json);
    }

    #[test]
    fn an_unknown_variable_and_a_wrong_value_are_refused_in_a_line() {
        assert_eq!(
            refusal("FOREBAY_HTTP_PROT", "1"),
            "FOREBAY_HTTP_PROT is no configuration key (see: forebay config reference); remove the variable"
        );
        let error = refusal("FOREBAY_HTTP_PORT", "many");
        assert!(error.starts_with("FOREBAY_HTTP_PORT: ") && error.contains("\"many\""), "{error}");
        let error = refusal("FOREBAY_HTTP_PORT", "70000");
        assert!(error.starts_with("FOREBAY_HTTP_PORT: ") && error.contains("70000"), "{error}");
        let error = refusal("FOREBAY_LOG_LEVEL", "loud");
        assert!(error.contains("loud"), "{error}");
    }

    #[test]
    fn variables_of_services_in_kubernetes_and_of_tests_are_passed_over() {
        let config = overlaid(&[
            ("FOREBAY_SERVICE_HOST", "10.0.0.1"),
            ("FOREBAY_SERVICE_PORT", "2049"),
            ("FOREBAY_SERVICE_PORT_NFS", "2049"),
            ("FOREBAY_PORT", "tcp://10.0.0.1:2049"),
            ("FOREBAY_PORT_2049_TCP", "tcp://10.0.0.1:2049"),
            ("FOREBAY_PORT_2049_TCP_PROTO", "tcp"),
            ("FOREBAY_PORT_2049_TCP_ADDR", "10.0.0.1"),
            ("FOREBAY_HTTP_PORT", "tcp://10.0.0.1:8080"),
            ("FOREBAY_HTTP_SERVICE_HOST", "10.0.0.1"),
            ("FOREBAY_TEST_POSTGRES", "required"),
        ]);
        assert_eq!(config.unwrap(), Config::default());
    }

    #[test]
    fn no_two_keys_have_one_variable_and_none_is_passed_over() {
        let names: Vec<String> = key_names().map(variable).collect();
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len());
        for name in names {
            let is_taken =
                ours((name.clone().into(), OsString::new())).is_some() && !is_service_link(&name, "1");
            assert!(is_taken, "{name}");
        }
    }
}
