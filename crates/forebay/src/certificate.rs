//! `forebay cert self-signed`.

use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow};
use serde::Serialize;
use types::Clock;

use crate::cli::CertCommand;
use crate::output;
use crate::system::SystemClock;

#[derive(Serialize)]
struct Report {
    certificate: PathBuf,
    key: PathBuf,
}

pub fn run(command: &CertCommand) -> Result<ExitCode> {
    let CertCommand::SelfSigned { hosts, days, out, output } = command;
    let report = self_signed(hosts, *days, out)?;
    output::print(*output, &report, Report::text)?;
    Ok(ExitCode::SUCCESS)
}

impl Report {
    fn text(&self) -> String {
        format!(
            "{}\n{}\nUse it: http.certificate and http.key in the configuration; clients trust it by the first file.\n",
            self.certificate.display(),
            self.key.display()
        )
    }
}

fn self_signed(hosts: &[String], days: u32, out: &Path) -> Result<Report> {
    let now_s = u64::try_from(SystemClock::new().now().seconds).unwrap_or(0);
    let (certificate, key) = auth::cert::self_signed(hosts, days, now_s).map_err(|error| anyhow!(error))?;
    std::fs::create_dir_all(out).with_context(|| format!("cannot create {}", out.display()))?;
    let report = Report { certificate: out.join("certificate.pem"), key: out.join("key.pem") };
    write_new(&report.key, &key, 0o600)?;
    write_new(&report.certificate, &certificate, 0o644)?;
    Ok(report)
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
