//! The probe of a real directory: two unnamed files, of which nothing is left when the process ends in any way.

use std::fs::File;
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::fs::{
    Advice, AtFlags, Mode as Permissions, OFlags, fadvise, fcntl_setfl, fdatasync, ftruncate, openat,
    unlinkat,
};
use rustix::io::{Errno, ReadWriteFlags, preadv2, pwritev2, retry_on_intr};
use rustix::time::{ClockId, clock_gettime};

use super::cost::{Access, SIZES};
use super::measure::{Probe, Series};
use crate::mode::Mode;

/// `RWF_DONTCACHE`, Linux 6.14. rustix does not name it.
const DONTCACHE: ReadWriteFlags = ReadWriteFlags::from_bits_retain(0x80);
/// Disks take this for direct I/O. A device that asks for more is measured without it.
const ALIGNMENT_BYTES: usize = 4096;
const BUFFER_BYTES: usize = SIZES[SIZES.len() - 1] as usize;

pub struct FileProbe {
    read_file: OwnedFd,
    write_file: OwnedFd,
    buffer: Buffer,
    modes: Vec<Mode>,
}

impl FileProbe {
    pub fn new(dir: &File) -> Result<FileProbe, Errno> {
        let mut probe = FileProbe {
            read_file: unnamed_file(dir, "calibration-read.tmp")?,
            write_file: unnamed_file(dir, "calibration-write.tmp")?,
            buffer: Buffer::new(),
            modes: Vec::new(),
        };
        for mode in Mode::ALL {
            match probe.try_write(mode) {
                Ok(()) => probe.modes.push(mode),
                Err(Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS) if mode != Mode::Buffered => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(probe)
    }

    fn try_write(&mut self, mode: Mode) -> Result<(), Errno> {
        set_direct(&self.write_file, mode)?;
        write(&self.write_file, self.buffer.bytes(ALIGNMENT_BYTES), 0, flags_of(mode))
    }
}

impl Probe for FileProbe {
    fn modes(&self) -> Vec<Mode> {
        self.modes.clone()
    }

    fn now(&self) -> Instant {
        Instant::now()
    }

    fn cpu(&self) -> Duration {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        // Neither is negative, and the second is below 1e9.
        Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
    }

    fn pause(&mut self, time: Duration) {
        std::thread::sleep(time);
    }

    fn fill(&mut self, offset: u64, length: u64) -> Result<(), Errno> {
        set_direct(&self.read_file, Mode::Buffered)?;
        // A file system that compresses or shares equal blocks would read less than it says.
        self.buffer.fill_with_noise(offset);
        let bytes = self.buffer.bytes(length as usize);
        write(&self.read_file, bytes, offset, ReadWriteFlags::empty())?;
        retry_on_intr(|| fdatasync(&self.read_file))?;
        drop_pages(&self.read_file)
    }

    fn begin(&mut self, series: &Series) -> Result<(), Errno> {
        match series.access {
            Access::Write => {
                retry_on_intr(|| ftruncate(&self.write_file, 0))?;
                // Otherwise the sync of this series pays for the blocks that the last one has left.
                retry_on_intr(|| fdatasync(&self.write_file))?;
                set_direct(&self.write_file, series.mode)
            }
            Access::ReadSequential | Access::ReadRandom => {
                drop_pages(&self.read_file)?;
                set_direct(&self.read_file, series.mode)
            }
        }
    }

    fn operate(&mut self, series: &Series, offset: u64) -> Result<(), Errno> {
        let (length, flags) = (series.request_bytes as usize, flags_of(series.mode));
        match series.access {
            Access::Write => write(&self.write_file, self.buffer.bytes(length), offset, flags),
            Access::ReadSequential | Access::ReadRandom => {
                read(&self.read_file, self.buffer.bytes_mut(length), offset, flags)
            }
        }
    }

    fn settle(&mut self, series: &Series) -> Result<(), Errno> {
        match series.access {
            Access::Write => retry_on_intr(|| fdatasync(&self.write_file)),
            Access::ReadSequential | Access::ReadRandom => Ok(()),
        }
    }
}

/// A file without a name; where the file system has no such files, one whose name is removed at once.
fn unnamed_file(dir: &File, name: &str) -> Result<OwnedFd, Errno> {
    let open = |path, flags| {
        let flags = OFlags::RDWR | OFlags::CLOEXEC | flags;
        retry_on_intr(|| openat(dir, path, flags, Permissions::RUSR | Permissions::WUSR))
    };
    match open(".", OFlags::TMPFILE) {
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => {}
        opened => return opened,
    }
    // A crash between the two calls of an earlier run has left it.
    match unlinkat(dir, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(errno) => return Err(errno),
    }
    let file = open(name, OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW)?;
    unlinkat(dir, name, AtFlags::empty())?;
    Ok(file)
}

fn flags_of(mode: Mode) -> ReadWriteFlags {
    match mode {
        Mode::Uncached => DONTCACHE,
        Mode::Buffered | Mode::Direct => ReadWriteFlags::empty(),
    }
}

fn set_direct(file: impl AsFd, mode: Mode) -> Result<(), Errno> {
    let flags = match mode {
        Mode::Direct => OFlags::DIRECT,
        Mode::Buffered | Mode::Uncached => OFlags::empty(),
    };
    fcntl_setfl(file, flags)
}

fn drop_pages(file: impl AsFd) -> Result<(), Errno> {
    fadvise(file, 0, None, Advice::DontNeed)
}

fn write(file: impl AsFd, mut bytes: &[u8], mut offset: u64, flags: ReadWriteFlags) -> Result<(), Errno> {
    while !bytes.is_empty() {
        let written = retry_on_intr(|| pwritev2(&file, &[IoSlice::new(bytes)], offset, flags))?;
        if written == 0 {
            return Err(Errno::IO);
        }
        (bytes, offset) = (&bytes[written..], offset + written as u64);
    }
    Ok(())
}

fn read(file: impl AsFd, mut bytes: &mut [u8], mut offset: u64, flags: ReadWriteFlags) -> Result<(), Errno> {
    while !bytes.is_empty() {
        let done = retry_on_intr(|| preadv2(&file, &mut [IoSliceMut::new(bytes)], offset, flags))?;
        if done == 0 {
            return Err(Errno::IO);
        }
        (bytes, offset) = (&mut bytes[done..], offset + done as u64);
    }
    Ok(())
}

/// Bytes whose address is a multiple of `ALIGNMENT_BYTES`.
struct Buffer {
    memory: Vec<u8>,
    start: usize,
}

impl Buffer {
    fn new() -> Buffer {
        let memory = vec![0; BUFFER_BYTES + ALIGNMENT_BYTES];
        let start = memory.as_ptr().align_offset(ALIGNMENT_BYTES);
        assert!(start < ALIGNMENT_BYTES, "an address of bytes can be aligned");
        Buffer { memory, start }
    }

    fn bytes(&self, length: usize) -> &[u8] {
        &self.memory[self.start..][..length]
    }

    fn bytes_mut(&mut self, length: usize) -> &mut [u8] {
        &mut self.memory[self.start..][..length]
    }

    fn fill_with_noise(&mut self, seed: u64) {
        let mut state = seed ^ 0x9e37_79b9_7f4a_7c15;
        for word in self.bytes_mut(BUFFER_BYTES).as_chunks_mut::<8>().0 {
            // xorshift64 of Marsaglia: not 0 at first, so never.
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            *word = state.to_ne_bytes();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_leaves_no_name_and_can_always_do_buffered() {
        let dir = tempfile::tempdir().unwrap();
        let probe = FileProbe::new(&File::open(dir.path()).unwrap()).unwrap();
        assert!(probe.modes().contains(&Mode::Buffered));
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn the_buffer_is_aligned_and_its_noise_differs() {
        let mut buffer = Buffer::new();
        assert_eq!(buffer.bytes(1).as_ptr().addr() % ALIGNMENT_BYTES, 0);
        buffer.fill_with_noise(0);
        let first = buffer.bytes(64).to_vec();
        buffer.fill_with_noise(4 << 20);
        assert_ne!(buffer.bytes(64), first);
        assert_eq!(buffer.bytes_mut(BUFFER_BYTES).len(), BUFFER_BYTES);
    }
}
