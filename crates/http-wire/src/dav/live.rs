//! The properties that the server computes. Every other property is dead: kept as it was given.

use super::{DAV, QName};

/// Grid middleware reads the POSIX mode here, in octal with the file type (davix takes it for `st_mode` as it is).
pub const LCGDM: &str = "LCGDM:";
/// dCache's checksums, in the form of a `Digest` header.
pub const DCACHE: &str = "http://www.dcache.org/2013/webdav";
/// mod_dav's `executable`; davfs2 and cadaver read and set it.
pub const APACHE: &str = "http://apache.org/dav/props/";
/// ownCloud's checksums; rclone compares them.
pub const OWNCLOUD: &str = "http://owncloud.org/ns";

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LiveProperty {
    CreationDate,
    DisplayName,
    ContentLength,
    ContentType,
    ETag,
    LastModified,
    LockDiscovery,
    ResourceType,
    SupportedLock,
    QuotaAvailableBytes,
    QuotaUsedBytes,
    /// `{DAV:}owner`, where davix expects digits rather than the reference of RFC 3744.
    Owner,
    /// `{DAV:}group`, digits likewise.
    Group,
    Mode,
    DcacheChecksums,
    OwncloudChecksums,
    Executable,
}

impl LiveProperty {
    /// In the order in which an answer lists them. davix lets `resourcetype` correct what it read before.
    pub const ALL: [LiveProperty; 17] = [
        LiveProperty::CreationDate,
        LiveProperty::DisplayName,
        LiveProperty::ContentLength,
        LiveProperty::ContentType,
        LiveProperty::ETag,
        LiveProperty::LastModified,
        LiveProperty::ResourceType,
        LiveProperty::LockDiscovery,
        LiveProperty::SupportedLock,
        LiveProperty::QuotaAvailableBytes,
        LiveProperty::QuotaUsedBytes,
        LiveProperty::Owner,
        LiveProperty::Group,
        LiveProperty::Mode,
        LiveProperty::DcacheChecksums,
        LiveProperty::OwncloudChecksums,
        LiveProperty::Executable,
    ];

    pub fn from_qname(name: &QName) -> Option<LiveProperty> {
        LiveProperty::ALL
            .into_iter()
            .find(|live| live.local() == name.local && live.namespace() == name.namespace)
    }

    pub fn qname(self) -> QName {
        QName { namespace: self.namespace().to_owned(), local: self.local().to_owned() }
    }

    pub const fn namespace(self) -> &'static str {
        match self {
            LiveProperty::Mode => LCGDM,
            LiveProperty::DcacheChecksums => DCACHE,
            LiveProperty::OwncloudChecksums => OWNCLOUD,
            LiveProperty::Executable => APACHE,
            _ => DAV,
        }
    }

    pub const fn local(self) -> &'static str {
        match self {
            LiveProperty::CreationDate => "creationdate",
            LiveProperty::DisplayName => "displayname",
            LiveProperty::ContentLength => "getcontentlength",
            LiveProperty::ContentType => "getcontenttype",
            LiveProperty::ETag => "getetag",
            LiveProperty::LastModified => "getlastmodified",
            LiveProperty::LockDiscovery => "lockdiscovery",
            LiveProperty::ResourceType => "resourcetype",
            LiveProperty::SupportedLock => "supportedlock",
            LiveProperty::QuotaAvailableBytes => "quota-available-bytes",
            LiveProperty::QuotaUsedBytes => "quota-used-bytes",
            LiveProperty::Owner => "owner",
            LiveProperty::Group => "group",
            LiveProperty::Mode => "mode",
            LiveProperty::DcacheChecksums => "Checksums",
            LiveProperty::OwncloudChecksums => "checksums",
            LiveProperty::Executable => "executable",
        }
    }

    /// Whether `allprop` includes it: what RFC 4918 §15 defines and no more (RFC 4331 §2, RFC 3744 §5).
    pub const fn is_in_allprop(self) -> bool {
        match self {
            LiveProperty::CreationDate
            | LiveProperty::DisplayName
            | LiveProperty::ContentLength
            | LiveProperty::ContentType
            | LiveProperty::ETag
            | LiveProperty::LastModified
            | LiveProperty::LockDiscovery
            | LiveProperty::ResourceType
            | LiveProperty::SupportedLock => true,
            LiveProperty::QuotaAvailableBytes
            | LiveProperty::QuotaUsedBytes
            | LiveProperty::Owner
            | LiveProperty::Group
            | LiveProperty::Mode
            | LiveProperty::DcacheChecksums
            | LiveProperty::OwncloudChecksums
            | LiveProperty::Executable => false,
        }
    }

    /// Whether PROPPATCH is refused with `cannot-modify-protected-property`. RFC 4918 §15.2 and §15.5 would have names
    /// and types settable; here they follow from the entry's name, as it does for every other door.
    pub const fn is_protected(self) -> bool {
        !matches!(self, LiveProperty::Executable)
    }

    /// The name with the prefix that [`super::Multistatus`] declares at its root.
    pub(super) const fn tag(self) -> &'static str {
        match self {
            LiveProperty::CreationDate => "D:creationdate",
            LiveProperty::DisplayName => "D:displayname",
            LiveProperty::ContentLength => "D:getcontentlength",
            LiveProperty::ContentType => "D:getcontenttype",
            LiveProperty::ETag => "D:getetag",
            LiveProperty::LastModified => "D:getlastmodified",
            LiveProperty::LockDiscovery => "D:lockdiscovery",
            LiveProperty::ResourceType => "D:resourcetype",
            LiveProperty::SupportedLock => "D:supportedlock",
            LiveProperty::QuotaAvailableBytes => "D:quota-available-bytes",
            LiveProperty::QuotaUsedBytes => "D:quota-used-bytes",
            LiveProperty::Owner => "D:owner",
            LiveProperty::Group => "D:group",
            LiveProperty::Mode => "L:mode",
            LiveProperty::DcacheChecksums => "C:Checksums",
            LiveProperty::OwncloudChecksums => "O:checksums",
            LiveProperty::Executable => "A:executable",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_live_property_is_found_by_its_name_and_no_other() {
        for live in LiveProperty::ALL {
            assert_eq!(LiveProperty::from_qname(&live.qname()), Some(live));
            assert!(live.tag().ends_with(&format!(":{}", live.local())));
        }
        for (namespace, local) in [("", "getetag"), ("LCGDM:", "getetag"), ("DAV:", "getcontentlanguage")] {
            assert_eq!(LiveProperty::from_qname(&QName::new(namespace, local).unwrap()), None);
        }
    }
}
