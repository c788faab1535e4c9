//! `forebay cert self-signed`.

use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow};
use types::Clock;

use crate::system::SystemClock;

pub fn self_signed(hosts: &[String], days: u32, out: &Path) -> Result<ExitCode> {
    let now_s = u64::try_from(SystemClock::new().now().seconds).unwrap_or(0);
    let (certificate, key) = auth::cert::self_signed(hosts, days, now_s).map_err(|error| anyhow!(error))?;
    std::fs::create_dir_all(out).with_context(|| format!("cannot make {}", out.display()))?;
    let (certificate_file, key_file) = (out.join("certificate.pem"), out.join("key.pem"));
    write_new(&key_file, &key, 0o600)?;
    write_new(&certificate_file, &certificate, 0o644)?;
    println!("{}\n{}", certificate_file.display(), key_file.display());
    println!(
        "Use it: http.certificate and http.key in the configuration; clients trust it by the first file."
    );
    Ok(ExitCode::SUCCESS)
}

/// A key that is in use is not overwritten by a second call.
fn write_new(file: &Path, text: &str, mode: u32) -> Result<()> {
    use std::io::Write;
    let mut options = std::fs::OpenOptions::new();
    let opened = options.write(true).create_new(true).mode(mode).open(file);
    let mut opened = opened.map_err(|error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => {
            anyhow!("{} exists; move it away or choose another --out", file.display())
        }
        _ => anyhow!("cannot write {}: {error}", file.display()),
    })?;
    opened
        .write_all(text.as_bytes())
        .and_then(|()| opened.sync_all())
        .with_context(|| format!("cannot write {}", file.display()))
}
