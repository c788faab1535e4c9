//! GETXATTR, SETXATTR, LISTXATTRS and REMOVEXATTR: extended attributes of users (RFC 8276 §8.4).
//!
//! Names travel without the `user.` that Linux puts before them (RFC 8276 §5). A listing is told in pages; its cookies are
//! the namespace's and stay valid whatever else is set or removed.

use api::{Cookie, ListedXattr, SetXattr, XATTR_BYTES_MAX};
use nfs4::{
    Component4, GetXattr4Args, GetXattr4ResOk, ListXattrs4Args, ListXattrs4ResOk, NfsStat4, RemoveXattr4Args,
    RemoveXattr4ResOk, SetXattr4Args, SetXattr4ResOk, SetXattrOption4,
};
use types::XattrName;
use xdr::Opaque;

use super::directory;
use super::file_system::FileSystem;
use crate::context::Compound;
use crate::status;

/// Cookie, number of names and `eof`: a listing without a name.
const EMPTY_LEN: usize = 8 + 4 + 4;
/// Operation number and status before a result.
const HEADER_LEN: usize = 8;

pub(super) async fn get(
    compound: &Compound,
    fs: &FileSystem,
    args: &GetXattr4Args,
) -> Result<GetXattr4ResOk, NfsStat4> {
    let (file, name) = (compound.file()?, name(&args.name)?);
    let found = fs.xattrs.xattr(&compound.identity, file, &name).await;
    Ok(GetXattr4ResOk { value: Opaque(found.map_err(status::of_xattr)?) })
}

pub(super) async fn set(
    compound: &Compound,
    fs: &FileSystem,
    args: &SetXattr4Args,
) -> Result<SetXattr4ResOk, NfsStat4> {
    let (file, name) = (compound.file()?, name(&args.key)?);
    if args.value.len() > XATTR_BYTES_MAX {
        return Err(NfsStat4::Xattr2Big);
    }
    let how = match args.option {
        SetXattrOption4::Either => SetXattr::Either,
        SetXattrOption4::Create => SetXattr::Create,
        SetXattrOption4::Replace => SetXattr::Replace,
    };
    let named = (name, args.value.0.clone());
    let changed = fs.files.set_xattr(fs.by(compound), file, named, how).await;
    Ok(SetXattr4ResOk { info: directory::change_info(changed.map_err(status::of_xattr)?) })
}

pub(super) async fn remove(
    compound: &Compound,
    fs: &FileSystem,
    args: &RemoveXattr4Args,
) -> Result<RemoveXattr4ResOk, NfsStat4> {
    let (file, name) = (compound.file()?, name(&args.name)?);
    let changed = fs.files.remove_xattr(fs.by(compound), file, name).await;
    Ok(RemoveXattr4ResOk { info: directory::change_info(changed.map_err(status::of_xattr)?) })
}

pub(super) async fn list(
    compound: &Compound,
    fs: &FileSystem,
    args: &ListXattrs4Args,
) -> Result<ListXattrs4ResOk, NfsStat4> {
    let listed = fs.xattrs.xattrs(&compound.identity, compound.file()?, Cookie(args.cookie)).await;
    let listed = listed.map_err(status::of_xattr)?;
    let (asked, room) = (args.maxcount as usize, compound.reply_room.saturating_sub(HEADER_LEN));
    page(&listed, args.cookie, asked.min(room)).ok_or({
        // If the reply's room is the smaller limit, `maxcount` is not to blame.
        if room < asked { NfsStat4::RepTooBig } else { NfsStat4::TooSmall }
    })
}

fn name(component: &Component4) -> Result<XattrName, NfsStat4> {
    XattrName::new(component.as_bytes()).map_err(status::of_xattr_name)
}

/// As many names as fit, in so many bytes of `LISTXATTRS4resok`. `None`: not even one, or not even none.
fn page(listed: &[ListedXattr], cookie: u64, bytes_max: usize) -> Option<ListXattrs4ResOk> {
    let mut left = bytes_max.checked_sub(EMPTY_LEN)?;
    let fitting = listed.iter().take_while(|listed| {
        let len = 4 + listed.name.as_bytes().len().next_multiple_of(4);
        let fits = len <= left;
        left = left.saturating_sub(len);
        fits
    });
    let fitting: Vec<&ListedXattr> = fitting.collect();
    let last = fitting.last().map(|listed| listed.cookie.0);
    if last.is_none() && !listed.is_empty() {
        return None;
    }
    Some(ListXattrs4ResOk {
        cookie: last.unwrap_or(cookie),
        names: fitting.iter().map(|listed| Component4::from(listed.name.as_bytes())).collect(),
        eof: fitting.len() == listed.len(),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use xdr::{Encoder, Xdr};

    use super::*;

    fn encoded_len(page: &ListXattrs4ResOk) -> usize {
        let mut encoder = Encoder::new();
        page.encode(&mut encoder);
        encoder.len()
    }

    fn listed(names: &[Vec<u8>]) -> Vec<ListedXattr> {
        let cookies = (3..).step_by(7).map(Cookie);
        let names = names.iter().map(|name| XattrName::new(name).unwrap());
        names.zip(cookies).map(|(name, cookie)| ListedXattr { name, cookie }).collect()
    }

    #[test]
    fn a_file_without_extended_attributes_lists_none_and_that_is_all() {
        let none = ListXattrs4ResOk { cookie: 0, names: Vec::new(), eof: true };
        assert_eq!(page(&[], 0, EMPTY_LEN), Some(none));
        assert_eq!(page(&[], 0, EMPTY_LEN - 1), None);
    }

    proptest! {
        /// For pages of any size: every name once and in order, no page larger than asked for, and no page that could
        /// have held one more.
        #[test]
        fn pages_have_every_name_once_and_fill_what_was_asked(
            names in prop::collection::vec(prop::collection::vec(1_u8.., 1..=XattrName::BYTES_MAX), 0..40),
            counts in prop::collection::vec(0_usize..600, 1..40),
        ) {
            let all = listed(&names);
            let (mut seen, mut cookie) = (Vec::new(), 0);
            for count in counts.iter().cycle().take(4000) {
                let behind: Vec<ListedXattr> =
                    all.iter().filter(|listed| listed.cookie.0 > cookie).cloned().collect();
                let next_len = behind.first().map_or(0, |next| 4 + next.name.as_bytes().len().next_multiple_of(4));
                let Some(page) = page(&behind, cookie, *count) else {
                    prop_assert!(*count < EMPTY_LEN + next_len);
                    if counts.iter().all(|count| *count < EMPTY_LEN + next_len) {
                        return Ok(());
                    }
                    continue;
                };
                prop_assert!(encoded_len(&page) <= *count);
                prop_assert!(page.eof || !page.names.is_empty());
                if let Some(next) = behind.get(page.names.len()) {
                    let next_len = 4 + next.name.as_bytes().len().next_multiple_of(4);
                    prop_assert!(encoded_len(&page) + next_len > *count);
                }
                seen.extend(page.names.iter().map(|name| name.as_bytes().to_vec()));
                cookie = page.cookie;
                if page.eof {
                    break;
                }
            }
            prop_assert_eq!(seen, names);
        }
    }
}
