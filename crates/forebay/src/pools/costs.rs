//! CPU time of a pool's work, and the share of reads that memory served, as `forebay pool iostat` shows them.

use pool::{RequestCpu, ResidencyBytes};
use serde::{Deserialize, Serialize};
use types::display::Size;

use super::times::nanoseconds;

/// The CPU time of requests of one kind in one mode. Short ones are measured by samples.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KindCpu {
    pub kind: String,
    pub mode: String,
    /// Of the requests that were measured, each counted for those that it stands for.
    pub bytes: u64,
    /// Of the same requests.
    pub cpu_ns: u64,
}

/// Bytes of reads, by whether they were in memory when they were asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Residency {
    pub resident_bytes: u64,
    pub missing_bytes: u64,
    /// Nobody looked, or HTTP sent them from the page cache.
    pub unknown_bytes: u64,
}

impl KindCpu {
    pub fn is_like(&self, kind: &str, mode: &str) -> bool {
        self.kind == kind && self.mode == mode
    }

    pub fn since(&self, earlier: &[KindCpu]) -> KindCpu {
        let before = earlier.iter().find(|before| before.is_like(&self.kind, &self.mode));
        // Of a server that was started anew meanwhile.
        let before = before.filter(|before| before.bytes <= self.bytes && before.cpu_ns <= self.cpu_ns);
        let (bytes, cpu_ns) = before.map_or((0, 0), |before| (before.bytes, before.cpu_ns));
        KindCpu { bytes: self.bytes - bytes, cpu_ns: self.cpu_ns - cpu_ns, ..self.clone() }
    }

    pub fn cell(&self) -> String {
        seconds_per_gb(self.cpu_ns, self.bytes)
    }
}

/// For a gigabyte of 10⁹ bytes.
pub fn seconds_per_gb(cpu_ns: u64, bytes: u64) -> String {
    // Nanoseconds for a byte are seconds for a gigabyte.
    if bytes == 0 { "-".to_owned() } else { format!("{:.3}", cpu_ns as f64 / bytes as f64) }
}

impl Residency {
    pub fn since(self, earlier: Residency) -> Residency {
        // Of a server that was started anew meanwhile.
        let since = |now: u64, before: u64| now.checked_sub(before).unwrap_or(now);
        Residency {
            resident_bytes: since(self.resident_bytes, earlier.resident_bytes),
            missing_bytes: since(self.missing_bytes, earlier.missing_bytes),
            unknown_bytes: since(self.unknown_bytes, earlier.unknown_bytes),
        }
    }

    /// Without a line end.
    pub fn line(self) -> String {
        let Residency { resident_bytes, missing_bytes, unknown_bytes } = self;
        let known = resident_bytes.saturating_add(missing_bytes);
        let share = match known {
            0 => String::new(),
            known => format!(" ({:.1} %)", 100.0 * resident_bytes as f64 / known as f64),
        };
        let [resident, known, unknown] = [resident_bytes, known, unknown_bytes].map(Size);
        format!("{resident}{share} of {known} were in memory when they were read; {unknown} unknown")
    }
}

impl From<&RequestCpu> for KindCpu {
    fn from(request: &RequestCpu) -> KindCpu {
        KindCpu {
            kind: request.kind.label().to_owned(),
            mode: request.mode.label().to_owned(),
            bytes: request.cpu.bytes,
            cpu_ns: nanoseconds(request.cpu.time),
        }
    }
}

impl From<ResidencyBytes> for Residency {
    fn from(bytes: ResidencyBytes) -> Residency {
        let ResidencyBytes { resident, missing, unknown } = bytes;
        Residency { resident_bytes: resident, missing_bytes: missing, unknown_bytes: unknown }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cpu(kind: &str, bytes: u64, cpu_ns: u64) -> KindCpu {
        KindCpu { kind: kind.to_owned(), mode: "direct".to_owned(), bytes, cpu_ns }
    }

    #[test]
    fn cpu_is_shown_for_a_gigabyte_and_for_an_interval() {
        assert_eq!(cpu("read", 2_000_000_000, 500_000_000).cell(), "0.250");
        assert_eq!(cpu("read", 0, 0).cell(), "-");
        let before = [cpu("write", 5, 5), cpu("read", 10, 100)];
        assert_eq!(cpu("read", 30, 400).since(&before), cpu("read", 20, 300));
        assert_eq!(cpu("read", 9, 400).since(&before), cpu("read", 9, 400), "the server was restarted");
        assert_eq!(cpu("read", 9, 400).since(&[]), cpu("read", 9, 400));
    }

    #[test]
    fn the_share_in_memory_is_that_of_the_bytes_that_are_known() {
        let now = Residency { resident_bytes: 3 << 20, missing_bytes: 1 << 20, unknown_bytes: 1 << 10 };
        let line = "3.0 MiB (75.0 %) of 4.0 MiB were in memory when they were read; 1.0 KiB unknown";
        assert_eq!(now.line(), line);
        let idle = "0 B of 0 B were in memory when they were read; 0 B unknown";
        assert_eq!(now.since(now).line(), idle);
        let restarted = Residency { resident_bytes: 1, ..Residency::default() };
        assert_eq!(restarted.since(now), restarted);
    }
}
