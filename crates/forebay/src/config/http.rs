//! `[http]` and `[auth]`: the HTTP door and who may use it.

use std::path::PathBuf;

use anyhow::{Result, anyhow, bail};
use serde::{Deserialize, Serialize};
use types::Network;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Http {
    pub enabled: bool,
    pub port: u16,
    pub certificate: Option<PathBuf>,
    pub key: Option<PathBuf>,
    pub plain_networks: Vec<String>,
    pub site: String,
    pub names: Vec<String>,
    pub anonymous: Option<Anonymous>,
    pub page: bool,
    pub access_log: Option<PathBuf>,
    pub metrics_networks: Vec<String>,
    pub redirect: Redirect,
    pub pool_port: u16,
    pub checksums: Vec<String>,
    pub connections_max: u32,
    pub locks_max: u32,
    pub lock_timeout_s: u32,
    pub uploads_max: u32,
    pub uploads_per_caller_max: u32,
    pub recall_patience_ms: u32,
    pub copies_max: u32,
    pub copy_streams_max: u32,
    pub copy_requires_checksum: bool,
    pub copy_ca: Vec<PathBuf>,
    pub copy_allows_plain: Option<bool>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Anonymous {
    Refuse,
    Read,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Redirect {
    Never,
    Auto,
    Always,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Auth {
    pub passwords: Option<PathBuf>,
    pub mapping: Option<PathBuf>,
    pub macaroon_validity_max_s: u64,
    pub clock_skew_s: u64,
    pub certificates: Option<PathBuf>,
    pub vomsdir: PathBuf,
    pub crl_required: bool,
    pub issuers: Vec<Issuer>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Issuer {
    pub url: String,
    #[serde(default)]
    pub profile: Profile,
    #[serde(default = "root_path")]
    pub base_path: String,
    pub audiences: Vec<String>,
    #[serde(default)]
    pub uid: Option<u32>,
    #[serde(default)]
    pub gid: Option<u32>,
    #[serde(default)]
    pub groups: Vec<u32>,
    #[serde(default)]
    pub members_may_read: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Profile {
    Wlcg,
    Scitokens,
    #[default]
    Auto,
}

fn root_path() -> String {
    "/".to_owned()
}

impl Default for Http {
    fn default() -> Http {
        Http {
            enabled: true,
            port: 8080,
            certificate: None,
            key: None,
            plain_networks: Vec::new(),
            site: "forebay".to_owned(),
            names: Vec::new(),
            anonymous: None,
            page: true,
            access_log: None,
            metrics_networks: Vec::new(),
            redirect: Redirect::Auto,
            pool_port: 8081,
            checksums: vec!["adler32".to_owned(), "crc32c".to_owned()],
            connections_max: 4_096,
            locks_max: 100_000,
            lock_timeout_s: 3_600,
            uploads_max: 1_000,
            uploads_per_caller_max: 250,
            recall_patience_ms: 10_000,
            copies_max: 100,
            copy_streams_max: 8,
            copy_requires_checksum: false,
            copy_ca: Vec::new(),
            copy_allows_plain: None,
        }
    }
}

impl Default for Auth {
    fn default() -> Auth {
        Auth {
            passwords: None,
            mapping: None,
            macaroon_validity_max_s: 604_800,
            clock_skew_s: 60,
            certificates: None,
            vomsdir: PathBuf::from("/etc/grid-security/vomsdir"),
            crl_required: false,
            issuers: Vec::new(),
        }
    }
}

impl Http {
    pub fn validate(&self) -> Result<()> {
        if self.certificate.is_some() != self.key.is_some() {
            bail!("http.certificate and http.key go together: give both or none");
        }
        self.parsed_plain_networks()?;
        super::check_checksums("http.checksums", &self.checksums)?;
        for (key, value) in [
            ("connections_max", self.connections_max),
            ("locks_max", self.locks_max),
            ("lock_timeout_s", self.lock_timeout_s),
            ("uploads_max", self.uploads_max),
            ("uploads_per_caller_max", self.uploads_per_caller_max),
            ("copies_max", self.copies_max),
            ("copy_streams_max", self.copy_streams_max),
        ] {
            if value == 0 {
                bail!("http.{key} = 0 is outside 1 to {}", u32::MAX);
            }
        }
        Ok(())
    }

    pub fn parsed_plain_networks(&self) -> Result<Vec<Network>> {
        let networks = self.plain_networks.iter().map(|text| {
            let network: Network = text.parse().map_err(|error| anyhow!("http.plain_networks: {error}"))?;
            if network.prefix_bits() == 0 {
                bail!("http.plain_networks: {text:?} has every address: name the closed networks only");
            }
            Ok(network)
        });
        networks.collect()
    }
}

impl Auth {
    pub fn validate(&self) -> Result<()> {
        for issuer in &self.issuers {
            if issuer.audiences.is_empty() {
                bail!(
                    "auth.issuers: {} has no audiences; give the names of this server that its tokens contain",
                    issuer.url
                );
            }
            if issuer.uid.is_some() != issuer.gid.is_some() {
                bail!("auth.issuers: {} needs both uid and gid, or neither", issuer.url);
            }
            if !issuer.base_path.starts_with('/') {
                bail!(
                    "auth.issuers: base_path {:?} of {} does not begin with /",
                    issuer.base_path,
                    issuer.url
                );
            }
        }
        Ok(())
    }
}
