//! The VOMS servers that are trusted to speak for an organisation: `<vomsdir>/<vo>/<host>.lsc`.
//!
//! Such a file names the server's certificate and the authorities above it, one subject per line. Servers are looked up in
//! this table, so no path is ever made of what a client sends. Certificates in the directory, the older way, are not read.

use std::collections::HashMap;

use tracing::warn;

use crate::x509::directory::Listed;
use crate::x509::name::respelled;

const FILE_BYTES_MAX: u64 = 64 * 1024;
const NAMES_MAX: usize = 256;
/// The separator that the VOMS tools write between two chains in one file.
const NEXT_CHAIN: &str = "NEXT CHAIN";

#[derive(Debug, Default)]
pub struct Servers {
    chains: HashMap<(String, String), Vec<Vec<String>>>,
}

impl Servers {
    pub fn read(files: &[Listed]) -> Servers {
        let mut servers = Servers::default();
        for file in files {
            let Some((host, "lsc")) = file.stem_and_extension() else { continue };
            let vo = file.path.parent().and_then(|dir| dir.file_name()).and_then(|name| name.to_str());
            let (Some(vo), Some(content)) = (vo, file.read(FILE_BYTES_MAX)) else { continue };
            let chains = String::from_utf8(content).ok().and_then(|text| chains(&text));
            match chains {
                Some(chains) => {
                    servers.chains.insert((vo.to_owned(), host.to_ascii_lowercase()), chains);
                }
                None => warn!(
                    path = %file.path.display(),
                    "an .lsc file holds the subject of the server's certificate and of its issuer, a line each"
                ),
            }
        }
        servers
    }

    pub fn count(&self) -> usize {
        self.chains.len()
    }

    /// `None`: not trusted here.
    pub fn chains(&self, vo: &str, host: &str) -> Option<&[Vec<String>]> {
        self.chains.get(&(vo.to_owned(), host.to_ascii_lowercase())).map(Vec::as_slice)
    }
}

/// `None` unless every chain names a server and at least one authority.
fn chains(text: &str) -> Option<Vec<Vec<String>>> {
    let mut chains = vec![Vec::new()];
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if line.starts_with('-') && line.contains(NEXT_CHAIN) {
            chains.push(Vec::new());
        } else if line.starts_with('/') {
            chains.last_mut()?.push(respelled(line));
        } else {
            return None;
        }
    }
    chains.retain(|chain| !chain.is_empty());
    let names: usize = chains.iter().map(Vec::len).sum();
    let is_complete = !chains.is_empty() && chains.iter().all(|chain| chain.len() >= 2);
    (is_complete && names <= NAMES_MAX).then_some(chains)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_may_hold_several_chains_and_remarks() {
        let text = "# since May\n/DC=ch/CN=voms.x.org\n/DC=ch/CN=CA\n\n------ NEXT CHAIN ------\n/O=a/Email=b\n/O=c\n";
        let read = chains(text).expect("two chains");
        assert_eq!(read, [vec!["/DC=ch/CN=voms.x.org", "/DC=ch/CN=CA"], vec!["/O=a/emailAddress=b", "/O=c"]]);
    }

    #[test]
    fn a_server_without_its_authority_is_not_enough() {
        assert_eq!(chains("/DC=ch/CN=voms.x.org\n"), None);
        assert_eq!(chains(""), None);
        assert_eq!(chains("-----BEGIN CERTIFICATE-----\n"), None);
    }
}
