//! Names of users and groups of the system that this server runs on, by its name service, both ways.

use std::ffi::{CStr, CString, c_char, c_int};
use std::mem::MaybeUninit;

use anyhow::{Result, bail};
use door_nfs::{LocalNames, NamesUnavailable, OwnerKind};

/// Room for the strings of an entry: a group of thousands of members needs the last.
const ENTRY_BYTES: [usize; 3] = [4 << 10, 64 << 10, 4 << 20];

pub struct SystemNames;

impl LocalNames for SystemNames {
    fn name_of(&self, kind: OwnerKind, id: u32) -> Result<Option<String>, NamesUnavailable> {
        match kind {
            // SAFETY: what `entry` hands over is valid for the call, which keeps none of it.
            #[allow(unsafe_code)]
            OwnerKind::User => entry(
                |found, strings, len, result| unsafe { libc::getpwuid_r(id, found, strings, len, result) },
                |found: &libc::passwd| text(found.pw_name),
            ),
            // SAFETY: as above.
            #[allow(unsafe_code)]
            OwnerKind::Group => entry(
                |found, strings, len, result| unsafe { libc::getgrgid_r(id, found, strings, len, result) },
                |found: &libc::group| text(found.gr_name),
            ),
        }
        // A name that is no text cannot be told.
        .map(Option::flatten)
    }

    fn id_of(&self, kind: OwnerKind, name: &str) -> Result<Option<u32>, NamesUnavailable> {
        let Ok(name) = CString::new(name) else { return Ok(None) };
        match kind {
            // SAFETY: as above, and `name` ends in a zero.
            #[allow(unsafe_code)]
            OwnerKind::User => entry(
                |found, strings, len, result| unsafe {
                    libc::getpwnam_r(name.as_ptr(), found, strings, len, result)
                },
                |found: &libc::passwd| found.pw_uid,
            ),
            // SAFETY: as above.
            #[allow(unsafe_code)]
            OwnerKind::Group => entry(
                |found, strings, len, result| unsafe {
                    libc::getgrnam_r(name.as_ptr(), found, strings, len, result)
                },
                |found: &libc::group| found.gr_gid,
            ),
        }
    }
}

/// The id that a user of the command line names: a number, or a name that this host knows.
pub fn number_of(kind: OwnerKind, text: &str) -> Result<u32> {
    if let Ok(number) = text.parse() {
        return Ok(number);
    }
    let what = match kind {
        OwnerKind::User => "user",
        OwnerKind::Group => "group",
    };
    match SystemNames.id_of(kind, text) {
        Ok(Some(id)) => Ok(id),
        Ok(None) => bail!("{what} {text:?} is not known on this host; give the number"),
        Err(NamesUnavailable) => {
            bail!("the name service of this host cannot look up {what} {text:?}; give the number")
        }
    }
}

/// Calls one of the `_r` functions with room that is enough, and reads what it found while its strings are there.
pub fn entry<T, R>(
    call: impl Fn(*mut T, *mut c_char, usize, *mut *mut T) -> c_int,
    read: impl Fn(&T) -> R,
) -> Result<Option<R>, NamesUnavailable> {
    for bytes in ENTRY_BYTES {
        let mut found = MaybeUninit::<T>::uninit();
        let mut strings = vec![0 as c_char; bytes];
        let mut result = std::ptr::null_mut();
        match call(found.as_mut_ptr(), strings.as_mut_ptr(), strings.len(), &mut result) {
            libc::ERANGE => continue,
            0 if result.is_null() => return Ok(None),
            0 => {
                // SAFETY: the call said that it found an entry, and then `result` is `found`, filled in.
                #[allow(unsafe_code)]
                return Ok(Some(read(unsafe { found.assume_init_ref() })));
            }
            // As some modules of the name service say that there is nobody.
            libc::ENOENT | libc::ESRCH => return Ok(None),
            _ => return Err(NamesUnavailable),
        }
    }
    Err(NamesUnavailable)
}

fn text(name: *const c_char) -> Option<String> {
    if name.is_null() {
        return None;
    }
    // SAFETY: a string of an entry ends in a zero and lives as long as its room, which `entry` still holds.
    #[allow(unsafe_code)]
    let name = unsafe { CStr::from_ptr(name) };
    name.to_str().ok().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_takes_numbers_and_names_that_this_host_knows() {
        assert_eq!(number_of(OwnerKind::User, "3999999999").unwrap(), 3_999_999_999);
        assert_eq!(number_of(OwnerKind::Group, "root").unwrap(), 0);
        for text in ["nobody-has-this-name", "-1", "4294967296", ""] {
            let error = number_of(OwnerKind::Group, text).unwrap_err().to_string();
            assert_eq!(error, format!("group {text:?} is not known on this host; give the number"));
        }
    }

    #[test]
    fn root_has_a_name_both_ways_and_strangers_have_none() {
        for kind in [OwnerKind::User, OwnerKind::Group] {
            assert_eq!(SystemNames.name_of(kind, 0), Ok(Some("root".to_owned())), "{kind:?}");
            assert_eq!(SystemNames.id_of(kind, "root"), Ok(Some(0)));
            assert_eq!(SystemNames.id_of(kind, "nobody-has-this-name"), Ok(None));
            assert_eq!(SystemNames.id_of(kind, "ro\0ot"), Ok(None));
            assert_eq!(SystemNames.name_of(kind, 3_999_999_999), Ok(None));
        }
    }
}
