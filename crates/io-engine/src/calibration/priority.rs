//! The idle priority of a thread's I/O: its requests wait for all others, where the device's scheduler knows priorities.

use std::marker::PhantomData;

/// linux/ioprio.h.
const WHO_PROCESS: libc::c_int = 1;
const CLASS_IDLE: libc::c_int = 3;
const CLASS_SHIFT: u32 = 13;

/// Until it is dropped, I/O of this thread is idle I/O. Nothing happens where the kernel refuses.
pub struct IdlePriority {
    before: Option<libc::c_int>,
    /// It is the thread's own, so it stays in it.
    not_send: PhantomData<*const ()>,
}

impl IdlePriority {
    pub fn take() -> IdlePriority {
        let before = read().filter(|_| set(CLASS_IDLE << CLASS_SHIFT));
        IdlePriority { before, not_send: PhantomData }
    }
}

impl Drop for IdlePriority {
    fn drop(&mut self) {
        if let Some(before) = self.before
            && !set(before)
        {
            tracing::warn!("cannot restore the I/O priority of a thread");
        }
    }
}

fn read() -> Option<libc::c_int> {
    // SAFETY: the call takes two numbers and touches no memory of ours; 0 is the calling thread. rustix lacks it.
    #[allow(unsafe_code)]
    let priority = unsafe { libc::syscall(libc::SYS_ioprio_get, WHO_PROCESS, 0) };
    libc::c_int::try_from(priority).ok().filter(|priority| *priority >= 0)
}

fn set(priority: libc::c_int) -> bool {
    // SAFETY: the call takes three numbers and touches no memory of ours; 0 is the calling thread. rustix lacks it.
    #[allow(unsafe_code)]
    let answer = unsafe { libc::syscall(libc::SYS_ioprio_set, WHO_PROCESS, 0, priority) };
    answer == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_priority_of_a_thread_is_idle_for_a_while() {
        let before = read();
        let idle = IdlePriority::take();
        // A sandbox may refuse the call.
        let was_refused = idle.before.is_none();
        assert!(was_refused || read() == Some(CLASS_IDLE << CLASS_SHIFT));
        drop(idle);
        assert_eq!(read(), before);
    }
}
