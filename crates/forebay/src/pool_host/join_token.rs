//! The token with which a host joins: of the command line, of standard input, or of a file that only its owner can read.
//!
//! The arguments of a process can be read by every user of the host. A file is removed once it is of no use: a token that
//! stayed there would have later starts look for the head at an address that it has left.

use std::fs::{self, File};
use std::io::{BufRead, ErrorKind, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use cluster::trust::Token;

use crate::cli::PoolUpArguments;

/// A token is shorter.
const BYTES_MAX: u64 = 4_096;
const STANDARD_INPUT: &str = "-";

pub struct JoinToken {
    pub token: Token,
    file: Option<PathBuf>,
}

impl JoinToken {
    /// `None`: none is given. Blocks.
    pub fn given(arguments: &PoolUpArguments) -> Result<Option<JoinToken>> {
        let of_text = |text: &str| text.trim().parse::<Token>();
        match (arguments.join.as_deref(), &arguments.join_file) {
            (Some(STANDARD_INPUT), _) => {
                let mut line = String::new();
                let read = std::io::stdin().lock().take(BYTES_MAX).read_line(&mut line);
                read.context("cannot read the token from standard input")?;
                let token = of_text(&line).context("the token on standard input (--join -)")?;
                Ok(Some(JoinToken { token, file: None }))
            }
            (Some(text), _) => {
                let token = text.parse().context("--join")?;
                Ok(Some(JoinToken { token, file: None }))
            }
            (None, Some(file)) => {
                let Some(text) = of_file(file)? else { return Ok(None) };
                let token = of_text(&text)
                    .with_context(|| format!("the token in {} (--join-file)", file.display()))?;
                Ok(Some(JoinToken { token, file: Some(file.clone()) }))
            }
            (None, None) => Ok(None),
        }
    }

    /// The host has joined.
    pub fn used(self) {
        let Some(file) = self.file else { return };
        match fs::remove_file(&file) {
            Err(error) if error.kind() != ErrorKind::NotFound => tracing::warn!(
                file = %file.display(), %error,
                "cannot remove the file of the token, which is of no use any more: remove it"
            ),
            _ => {}
        }
    }
}

/// `None`: there is no file, as after the start that joined.
fn of_file(file: &Path) -> Result<Option<String>> {
    let opened = match File::open(file) {
        Ok(opened) => opened,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => {
            bail!(
                "cannot read {}: {error} (the user of this process must own it: --join-file)",
                file.display()
            )
        }
    };
    if opened.metadata()?.mode() & 0o077 != 0 {
        bail!("{} has a token and can be read by others: chmod 600 {0}", file.display());
    }
    read(opened).with_context(|| format!("cannot read {}", file.display())).map(Some)
}

fn read(from: impl Read) -> Result<String> {
    let mut text = String::new();
    from.take(BYTES_MAX).read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_token_that_others_can_read_is_refused_and_none_is_no_error() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("join-token");
        assert_eq!(of_file(&file).unwrap(), None);
        fs::write(&file, "fb1.x\n").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
        let refused = of_file(&file).unwrap_err().to_string();
        assert!(refused.contains("chmod 600"), "{refused}");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o400)).unwrap();
        assert_eq!(of_file(&file).unwrap().as_deref(), Some("fb1.x\n"));
    }

    #[test]
    fn the_file_of_a_token_is_removed_when_the_host_has_joined() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("join-token");
        let authority = cluster::trust::Fingerprint([1; 32]);
        let token = Token::make(vec!["192.0.2.1:7413".to_owned()], authority, None).unwrap();
        fs::write(&file, format!("{token}\n")).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        let arguments = PoolUpArguments { join_file: Some(file.clone()), ..PoolUpArguments::default() };
        let given = JoinToken::given(&arguments).unwrap().unwrap();
        assert_eq!(given.token.addresses, ["192.0.2.1:7413"]);
        given.used();
        assert!(!file.exists());
        assert!(JoinToken::given(&arguments).unwrap().is_none());
    }
}
