//! The live properties of a file: computed from its attributes, the locks and the pools.

use std::sync::Arc;

use api::{Account, Caller, Properties, Property};
use files::Patience;
use http_wire::dav::{ActiveLock, Depth, LiveProperty, LockScope, PropFind, Props, QName, Timeout};
use types::{Access, Attributes, Checksum, FileKind, Name};

use crate::access::FileAccess;
use crate::lock_table::{Lock, Path, Scope};
use crate::path_locks::PathLocks;
use crate::refusal::Refusal;
use crate::representation::{etag, safe_type};
use crate::sums::may_see_sums;

const EXECUTE_BITS: u32 = 0o111;

/// One resource of an answer.
pub(crate) struct Resource<'a> {
    /// As it was asked for, also where a link led elsewhere.
    pub shown: &'a Path,
    /// Without symbolic links on the way.
    pub path: &'a Path,
    pub attributes: &'a Attributes,
}

/// Facts of one resource, as far as they were asked for and the caller may know them.
pub(crate) struct Facts<'a> {
    /// The root has none.
    name: Option<&'a Name>,
    attributes: Attributes,
    pub dead: Vec<Property>,
    checksums: Vec<Checksum>,
    locks: Vec<Lock>,
    /// Used and free bytes.
    space: Option<(u64, u64)>,
}

pub(crate) struct LiveProperties {
    pub access: Arc<FileAccess>,
    pub properties: Arc<dyn Properties>,
    pub locks: Arc<PathLocks>,
}

impl LiveProperties {
    pub async fn gather<'a>(
        &self,
        caller: &Caller,
        resource: &Resource<'a>,
        (asked, patience): (&PropFind, &mut Patience),
    ) -> Result<Facts<'a>, Refusal> {
        let attributes = self.access.files.listed_for(*resource.attributes, None, patience).await?;
        // Metadata like the others: who may see the file's attributes sees them.
        let dead =
            if needs_dead(asked) { self.properties.properties(attributes.file).await? } else { Vec::new() };
        let wants_sums =
            wants(asked, LiveProperty::DcacheChecksums) || wants(asked, LiveProperty::OwncloudChecksums);
        let may_see = wants_sums
            && attributes.kind.is_regular()
            && may_see_sums(caller, resource.path)
            && self.access.judge().allows(&caller.identity, &attributes, Access::READ).await?;
        let checksums = if may_see && !self.access.files.is_being_written(attributes.file) {
            self.properties.checksums(attributes.file).await?
        } else {
            Vec::new()
        };
        let wants_space =
            wants(asked, LiveProperty::QuotaUsedBytes) || wants(asked, LiveProperty::QuotaAvailableBytes);
        let space = if wants_space && attributes.kind.is_directory() {
            Some(self.space(caller, &attributes).await?)
        } else {
            None
        };
        let locks = self.locks.covering(resource.path);
        Ok(Facts { name: resource.shown.last(), attributes, dead, checksums, locks, space })
    }

    /// Used and free, as far as this caller may fill a directory (RFC 4331): of the quota of a tree that it lies in, else
    /// of the caller's own, else of all pools.
    async fn space(&self, caller: &Caller, dir: &Attributes) -> Result<(u64, u64), Refusal> {
        let free: u64 = self.access.files.pools().states().iter().map(|pool| pool.free_bytes).sum();
        let quotas = self.access.files.quotas();
        let room = quotas.room(&caller.identity, dir.file).await?.unwrap_or(u64::MAX);
        let tree = quotas.tree(dir.file).await?;
        let bound = match tree {
            Some(tree) => Some(tree),
            None => quotas.standing(Account::user(caller.identity.uid)).await?,
        };
        let used = match bound {
            Some(standing) => standing.used.bytes(),
            None => self.access.namespace.usage().await?.bytes,
        };
        // Root is not refused, but of a tree's quota all are told the same.
        let left = tree.and_then(|tree| tree.bytes_left).unwrap_or(u64::MAX);
        Ok((used, free.min(room).min(left)))
    }
}

impl Facts<'_> {
    pub fn live_names(&self) -> impl Iterator<Item = LiveProperty> {
        let is_directory = self.attributes.kind.is_directory();
        LiveProperty::ALL.into_iter().filter(move |live| match live {
            LiveProperty::ContentLength | LiveProperty::ContentType | LiveProperty::Executable => {
                !is_directory
            }
            LiveProperty::QuotaAvailableBytes | LiveProperty::QuotaUsedBytes => is_directory,
            LiveProperty::DcacheChecksums | LiveProperty::OwncloudChecksums => !self.checksums.is_empty(),
            _ => true,
        })
    }

    pub fn dead_names(&self) -> impl Iterator<Item = QName> {
        self.dead.iter().filter_map(|property| QName::parse(&property.name))
    }

    pub fn write_dead(&self, name: &QName, props: &mut Props<'_>) -> bool {
        let name = name.to_string();
        let found = self.dead.iter().find(|property| property.name == name);
        found.inspect(|property| props.dead(&property.value)).is_some()
    }

    /// `false`: this resource has no such property.
    pub fn write(&self, live: LiveProperty, props: &mut Props<'_>) -> bool {
        let file = &self.attributes;
        let is_directory = file.kind.is_directory();
        match live {
            LiveProperty::CreationDate => props.time(live, file.birth),
            LiveProperty::DisplayName => {
                let name = self.name.map_or(&b"/"[..], |name| name.as_bytes());
                props.text(live, &String::from_utf8_lossy(name));
            }
            LiveProperty::ContentLength if !is_directory => props.number(live, file.size),
            LiveProperty::ContentType if !is_directory => {
                props.text(live, safe_type(self.name.map_or(&b""[..], |name| name.as_bytes())));
            }
            LiveProperty::ETag => props.text(live, &etag(file).to_string()),
            LiveProperty::LastModified => props.time(live, file.mtime),
            LiveProperty::ResourceType => props.resource_type(is_directory),
            LiveProperty::LockDiscovery => {
                let active: Vec<ActiveLock<'_>> = self.locks.iter().map(active).collect();
                props.lock_discovery(&active);
            }
            LiveProperty::SupportedLock => props.supported_lock(),
            LiveProperty::QuotaAvailableBytes | LiveProperty::QuotaUsedBytes => {
                let Some((used, free)) = self.space else { return false };
                props.number(live, if live == LiveProperty::QuotaUsedBytes { used } else { free });
            }
            LiveProperty::Owner => props.number(live, file.uid.into()),
            LiveProperty::Group => props.number(live, file.gid.into()),
            LiveProperty::Mode => props.mode(file.mode | kind_bits(file.kind)),
            LiveProperty::DcacheChecksums if !self.checksums.is_empty() => {
                props.text(live, &http_wire::digest::digest_text(&self.checksums));
            }
            LiveProperty::OwncloudChecksums if !self.checksums.is_empty() => {
                props.owncloud_checksums(&self.checksums)
            }
            LiveProperty::Executable if !is_directory => props.executable(file.mode & EXECUTE_BITS != 0),
            LiveProperty::ContentLength
            | LiveProperty::ContentType
            | LiveProperty::DcacheChecksums
            | LiveProperty::OwncloudChecksums
            | LiveProperty::Executable => return false,
        }
        true
    }
}

/// Whether the answer needs more of the database than the entries: dead properties, checksums.
fn needs_dead(asked: &PropFind) -> bool {
    match asked {
        PropFind::AllProp { .. } | PropFind::PropName => true,
        PropFind::Props(names) => names.iter().any(|name| LiveProperty::from_qname(name).is_none()),
    }
}

fn wants(asked: &PropFind, live: LiveProperty) -> bool {
    match asked {
        PropFind::PropName => false,
        PropFind::AllProp { include } => {
            live.is_in_allprop() || include.iter().any(|name| LiveProperty::from_qname(name) == Some(live))
        }
        PropFind::Props(names) => names.iter().any(|name| LiveProperty::from_qname(name) == Some(live)),
    }
}

/// As the wire has it, for LOCK and for the `lockdiscovery` property.
pub(crate) fn active(lock: &Lock) -> ActiveLock<'_> {
    ActiveLock {
        scope: if lock.scope == Scope::Exclusive { LockScope::Exclusive } else { LockScope::Shared },
        depth: if lock.is_deep { Depth::Infinity } else { Depth::Zero },
        owner_xml: Some(&lock.owner[..]).filter(|owner| !owner.is_empty()),
        timeout: Timeout::Seconds(u32::try_from(lock.timeout.as_secs()).unwrap_or(u32::MAX)),
        token: &lock.token,
        root_href: &lock.root_href,
    }
}

/// The file type in `st_mode`.
fn kind_bits(kind: FileKind) -> u32 {
    match kind {
        FileKind::Regular => 0o100_000,
        FileKind::Directory => 0o040_000,
        FileKind::Symlink => 0o120_000,
        FileKind::BlockDevice(_) => 0o060_000,
        FileKind::CharacterDevice(_) => 0o020_000,
        FileKind::Fifo => 0o010_000,
        FileKind::Socket => 0o140_000,
    }
}
