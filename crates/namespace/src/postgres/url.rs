//! A connection string as libpq has it. Its parameters about TLS to the server are taken out here, as the driver knows
//! only some of them.

use std::path::PathBuf;
use std::str::FromStr;

use percent_encoding::percent_decode_str;
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};

/// A parsed connection string.
#[derive(Clone, Debug)]
pub struct Url {
    pub config: Config,
    pub trust: Trust,
}

/// How TLS authenticates the server, and the head to it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trust {
    pub check: Check,
    pub roots: Option<Roots>,
    pub own: Option<Own>,
}

/// Checks of the server's certificate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Check {
    #[default]
    Nothing,
    /// The authority that signed it.
    Authority,
    /// The authority, and the name of the requested host.
    Name,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Roots {
    /// Authorities that the operating system trusts.
    System,
    File(PathBuf),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Own {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

/// The parameters that are read here.
#[derive(Default)]
struct Parameters {
    mode: Option<String>,
    roots: Option<String>,
    certificate: Option<String>,
    key: Option<String>,
}

impl Parameters {
    fn place(&mut self, key: &str) -> Option<&mut Option<String>> {
        match key {
            "sslmode" => Some(&mut self.mode),
            "sslrootcert" => Some(&mut self.roots),
            "sslcert" => Some(&mut self.certificate),
            "sslkey" => Some(&mut self.key),
            _ => None,
        }
    }

    /// The mode for the driver, and how far the server's certificate is checked.
    fn mode(&self) -> Result<(SslMode, Check), String> {
        let is_system = self.roots.as_deref() == Some("system");
        let found = match self.mode.as_deref() {
            None if is_system => (SslMode::Require, Check::Name),
            None | Some("prefer") => (SslMode::Prefer, Check::Nothing),
            Some("disable") => (SslMode::Disable, Check::Nothing),
            // If authorities are given, they are checked, as in libpq.
            Some("require") if self.roots.is_some() => (SslMode::Require, Check::Authority),
            Some("require") => (SslMode::Require, Check::Nothing),
            Some("verify-ca") => (SslMode::Require, Check::Authority),
            Some("verify-full") => (SslMode::Require, Check::Name),
            Some(other) => {
                return Err(format!(
                    "sslmode={other} is none of disable, prefer, require, verify-ca and verify-full"
                ));
            }
        };
        match found.1 {
            Check::Nothing if self.roots.is_some() => {
                Err("sslrootcert is looked at with sslmode=verify-full (or verify-ca) only".to_owned())
            }
            // Anybody has a certificate of one of those.
            Check::Authority if is_system => Err("sslrootcert=system needs sslmode=verify-full".to_owned()),
            Check::Authority | Check::Name if self.roots.is_none() => Err(
                "who may sign the server's certificate is not said: sslrootcert=FILE, or sslrootcert=system"
                    .to_owned(),
            ),
            _ => Ok(found),
        }
    }

    fn trust(self, check: Check) -> Result<Trust, String> {
        let roots = self.roots.map(|roots| match roots.as_str() {
            "system" => Roots::System,
            file => Roots::File(file.into()),
        });
        let own = match (self.certificate, self.key) {
            (None, None) => None,
            (Some(certificate), Some(key)) => Some(Own { certificate: certificate.into(), key: key.into() }),
            _ => return Err("sslcert and sslkey are given together or not at all".to_owned()),
        };
        Ok(Trust { check, roots, own })
    }
}

impl FromStr for Url {
    type Err = String;

    fn from_str(text: &str) -> Result<Url, String> {
        let mut ours = Parameters::default();
        let is_url = text.starts_with("postgres://") || text.starts_with("postgresql://");
        let theirs = if is_url { split_url(text, &mut ours)? } else { split_pairs(text, &mut ours)? };
        let mut config = Config::from_str(&theirs).map_err(|error| {
            let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}"));
            format!("{error}{}", cause.unwrap_or_default())
        })?;
        let hosts = config.get_hosts().len();
        if hosts == 0 {
            return Err("it names no host".to_owned());
        }
        if ![0, 1, hosts].contains(&config.get_ports().len())
            || ![0, hosts].contains(&config.get_hostaddrs().len())
        {
            return Err("it has not as many ports or addresses as hosts".to_owned());
        }
        refuse_misread(&config)?;
        let (mode, check) = ours.mode()?;
        config.ssl_mode(mode);
        Ok(Url { config, trust: ours.trust(check)? })
    }
}

/// Refuses parameters that the driver would misread.
fn refuse_misread(config: &Config) -> Result<(), String> {
    let is_socket = |host: &Host| matches!(host, Host::Unix(_));
    // It would go there, and in plain text, as to a socket.
    if !config.get_hostaddrs().is_empty() && config.get_hosts().iter().any(is_socket) {
        return Err("hostaddr does not go with a Unix socket".to_owned());
    }
    // The rest of a password, which is not to be shown.
    let is_cut = |host: &Host| matches!(host, Host::Tcp(name) if name.contains('@'));
    if config.get_hosts().iter().any(is_cut) {
        return Err("it has more than one @: write @ in a password as %40".to_owned());
    }
    Ok(())
}

/// Takes out the parameters that are read here; returns the rest for the driver.
fn split_url(text: &str, ours: &mut Parameters) -> Result<String, String> {
    // A password may hold a question mark.
    let host = text.find('@').map_or(0, |at| at + 1);
    let Some(question) = text[host..].find('?').map(|at| host + at) else { return Ok(text.to_owned()) };
    let mut theirs = Vec::new();
    for parameter in text[question + 1..].split('&') {
        let (key, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        match ours.place(key) {
            Some(place) => {
                let value = percent_decode_str(value).decode_utf8();
                *place = Some(value.map_err(|_| format!("{key} is not UTF-8"))?.into_owned());
            }
            None => theirs.push(parameter),
        }
    }
    let rest = &text[..question];
    Ok(if theirs.is_empty() { rest.to_owned() } else { format!("{rest}?{}", theirs.join("&")) })
}

/// Of `key=value key='value'`.
fn split_pairs(text: &str, ours: &mut Parameters) -> Result<String, String> {
    let mut theirs = String::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let (key, behind) = rest.split_once('=').ok_or("a parameter has no value")?;
        let behind = behind.trim_start();
        let (value, len) = unquoted(behind).ok_or("a quote is not closed")?;
        let end = rest.len() - behind.len() + len;
        match ours.place(key.trim()) {
            Some(place) => *place = Some(value),
            None => {
                theirs.push_str(&rest[..end]);
                theirs.push(' ');
            }
        }
        rest = rest[end..].trim_start();
    }
    Ok(theirs)
}

/// The value at the start, and how many bytes it takes.
fn unquoted(text: &str) -> Option<(String, usize)> {
    let is_quoted = text.starts_with('\'');
    let mut value = String::new();
    let mut characters = text.char_indices().skip(usize::from(is_quoted));
    while let Some((at, character)) = characters.next() {
        match character {
            '\'' if is_quoted => return Some((value, at + 1)),
            '\\' => value.extend(characters.next().map(|(_, escaped)| escaped)),
            space if space.is_whitespace() && !is_quoted => return Some((value, at)),
            other => value.push(other),
        }
    }
    (!is_quoted).then_some((value, text.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Url, String> {
        text.parse()
    }

    fn said(parameters: &str) -> (SslMode, Trust) {
        let url = parse(&format!("postgres://user:p%3Fw?d@host/names?{parameters}")).unwrap();
        assert_eq!(url.config.get_dbname(), Some("names"));
        assert_eq!(url.config.get_password(), Some(&b"p?w?d"[..]));
        (url.config.get_ssl_mode(), url.trust)
    }

    #[test]
    fn a_url_says_how_far_the_server_is_looked_at() {
        let file = || Some(Roots::File("/ca.pem".into()));
        let trust = |check, roots| Trust { check, roots, own: None };
        for (parameters, mode, wanted) in [
            ("connect_timeout=3", SslMode::Prefer, trust(Check::Nothing, None)),
            ("sslmode=disable", SslMode::Disable, trust(Check::Nothing, None)),
            ("sslmode=prefer", SslMode::Prefer, trust(Check::Nothing, None)),
            ("sslmode=require&channel_binding=require", SslMode::Require, trust(Check::Nothing, None)),
            ("sslmode=require&sslrootcert=/ca.pem", SslMode::Require, trust(Check::Authority, file())),
            ("sslrootcert=%2Fca.pem&sslmode=verify-ca", SslMode::Require, trust(Check::Authority, file())),
            ("sslmode=verify-full&sslrootcert=/ca.pem", SslMode::Require, trust(Check::Name, file())),
            ("sslrootcert=system", SslMode::Require, trust(Check::Name, Some(Roots::System))),
        ] {
            assert_eq!(said(parameters), (mode, wanted), "{parameters}");
        }
        let own = Own { certificate: "/c".into(), key: "/k".into() };
        assert_eq!(said("sslmode=require&sslcert=/c&sslkey=/k").1.own, Some(own));
    }

    #[test]
    fn pairs_say_the_same_as_a_url() {
        let url =
            parse("host=a,b port = 1,2 sslmode='verify-full' sslrootcert='/c\\'a b.pem' user=u dbname=d")
                .unwrap();
        assert_eq!((url.config.get_hosts().len(), url.config.get_ports()), (2, &[1, 2][..]));
        assert_eq!((url.config.get_user(), url.config.get_dbname()), (Some("u"), Some("d")));
        assert_eq!(url.trust.roots, Some(Roots::File("/c'a b.pem".into())));
        assert_eq!((url.config.get_ssl_mode(), url.trust.check), (SslMode::Require, Check::Name));
    }

    #[test]
    fn parameters_that_check_less_than_they_seem_to_are_refused() {
        for (parameters, reason) in [
            ("sslmode=verify-full", "sslrootcert=FILE"),
            ("sslmode=verify-ca", "sslrootcert=FILE"),
            ("sslrootcert=/ca.pem", "sslmode=verify-full"),
            ("sslmode=prefer&sslrootcert=/ca.pem", "sslmode=verify-full"),
            ("sslmode=require&sslrootcert=system", "sslmode=verify-full"),
            ("sslmode=allow", "none of"),
            ("sslcert=/c", "together"),
            ("sslcrl=/c", "sslcrl"),
        ] {
            let refused = parse(&format!("postgres://host/names?{parameters}")).unwrap_err();
            assert!(refused.contains(reason), "{parameters}: {refused}");
        }
        let refused = parse("postgres://user:p@secret@host/names").unwrap_err();
        assert!(refused.contains("%40") && !refused.contains("secret"), "{refused}");
        for text in [
            "postgres://%2Frun/names?hostaddr=127.0.0.1&sslmode=verify-full&sslrootcert=/ca.pem",
            "host=/run,b hostaddr=127.0.0.1,127.0.0.2",
        ] {
            let refused = parse(text).unwrap_err();
            assert!(refused.contains("hostaddr"), "{text}: {refused}");
        }
        for text in ["postgres://[", "host='a", "host", "postgres:///names", "host=a,b port=1,2,3"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
