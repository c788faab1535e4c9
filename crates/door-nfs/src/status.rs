//! Semantic errors as NFS status codes: the only place where they meet.

use api::{NamespaceError, PoolError, SelectError};
use files::FilesError;
use nfs4::NfsStat4;
use types::{NameError, XattrNameError};

pub(crate) fn of_namespace(error: NamespaceError) -> NfsStat4 {
    match error {
        NamespaceError::NotFound => NfsStat4::NoEnt,
        NamespaceError::Stale(_) => NfsStat4::Stale,
        NamespaceError::Exists => NfsStat4::Exist,
        NamespaceError::NotDirectory => NfsStat4::NotDir,
        NamespaceError::IsDirectory => NfsStat4::IsDir,
        NamespaceError::NotSymlink | NamespaceError::NotRegular => NfsStat4::WrongType,
        NamespaceError::NotEmpty => NfsStat4::NotEmpty,
        NamespaceError::AccessDenied => NfsStat4::Access,
        NamespaceError::NotPermitted => NfsStat4::Perm,
        NamespaceError::Cycle => NfsStat4::Inval,
        NamespaceError::TooManyLinks => NfsStat4::MLink,
        NamespaceError::BadCookie => NfsStat4::BadCookie,
        NamespaceError::NoSpace => NfsStat4::NoSpc,
        NamespaceError::QuotaExceeded => NfsStat4::DQuot,
        NamespaceError::ReadOnly(_) => NfsStat4::RoFs,
        NamespaceError::Moved | NamespaceError::Busy => NfsStat4::Delay,
        NamespaceError::Database(reason) => {
            tracing::error!(%reason, "namespace failed an NFS operation");
            NfsStat4::Io
        }
    }
}

/// Of an operation on an extended attribute (RFC 8276 §8.4).
pub(crate) fn of_xattr(error: impl Into<FilesError>) -> NfsStat4 {
    match error.into() {
        FilesError::Namespace(NamespaceError::NotFound) => NfsStat4::NoXattr,
        error => of_files(error),
    }
}

/// At the head, where I/O goes through it.
pub(crate) fn of_pool(error: PoolError) -> NfsStat4 {
    match error {
        PoolError::NoSpace(_) => NfsStat4::NoSpc,
        PoolError::TooLarge => NfsStat4::FBig,
        PoolError::Busy(_) => NfsStat4::Delay,
        PoolError::Fenced => NfsStat4::Stale,
        PoolError::ReadOnlyTicket => NfsStat4::OpenMode,
        PoolError::Unsupported(_) => NfsStat4::NotSupp,
        PoolError::Unknown(_) => of_silent_pool(&error),
        PoolError::NoReplica(_) | PoolError::Offline(_) | PoolError::Io { .. } => {
            tracing::warn!(%error, "pool failed an I/O through the head");
            NfsStat4::Io
        }
    }
}

/// At the data server. STALE makes the Linux client drop the layout and go to the head, where it gets a new one or the
/// data itself (`ff_layout_async_handle_error_v4`).
pub(crate) fn of_data_server(error: PoolError) -> NfsStat4 {
    match error {
        PoolError::Fenced | PoolError::NoReplica(_) | PoolError::ReadOnlyTicket => NfsStat4::Stale,
        PoolError::NoSpace(_) => NfsStat4::NoSpc,
        PoolError::TooLarge => NfsStat4::FBig,
        PoolError::Busy(_) => NfsStat4::Delay,
        PoolError::Unsupported(_) => NfsStat4::NotSupp,
        PoolError::Unknown(_) => of_silent_pool(&error),
        PoolError::Offline(_) | PoolError::Io { .. } => {
            tracing::warn!(%error, "pool failed an I/O");
            NfsStat4::Io
        }
    }
}

/// The client asks again, and loses no data that it would take an error for.
fn of_silent_pool(error: &PoolError) -> NfsStat4 {
    tracing::warn!(%error, "client is told to try again");
    NfsStat4::Delay
}

pub(crate) fn of_files(error: FilesError) -> NfsStat4 {
    match error {
        FilesError::Namespace(error) => of_namespace(error),
        FilesError::Pool(error) => of_pool(error),
        FilesError::Select(error) => of_select(error),
        FilesError::Recalled | FilesError::Shortened | FilesError::Moved => NfsStat4::Delay,
        FilesError::Denied => NfsStat4::Locked,
        FilesError::TooLarge => NfsStat4::FBig,
        FilesError::Limit(_) => NfsStat4::ServerFault,
        // No operation of this protocol is an upload or has a path.
        FilesError::Upload(_) | FilesError::Path(_) => NfsStat4::ServerFault,
    }
}

/// Of a name that is to be removed or moved away, as Windows knows it (RFC 8881 §18.25.4). Linux tries again for about a
/// second and then says EBUSY.
pub(crate) fn of_removal(error: FilesError) -> NfsStat4 {
    match error {
        FilesError::Denied => NfsStat4::FileOpen,
        error => of_files(error),
    }
}

pub(crate) fn of_select(error: SelectError) -> NfsStat4 {
    match error {
        SelectError::NoSpace => NfsStat4::NoSpc,
        SelectError::Away => NfsStat4::Delay,
        SelectError::Unavailable | SelectError::NoLocation => NfsStat4::Io,
    }
}

pub(crate) fn of_name(error: NameError) -> NfsStat4 {
    match error {
        NameError::Empty => NfsStat4::Inval,
        NameError::TooLong => NfsStat4::NameTooLong,
        NameError::BadCharacter => NfsStat4::BadChar,
        NameError::Dot => NfsStat4::BadName,
    }
}

pub(crate) fn of_xattr_name(error: XattrNameError) -> NfsStat4 {
    match error {
        XattrNameError::Empty => NfsStat4::Inval,
        XattrNameError::TooLong => NfsStat4::NameTooLong,
        XattrNameError::Nul => NfsStat4::BadChar,
    }
}
