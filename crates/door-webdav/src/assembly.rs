//! The front put together from its parts, from the lowest up.

use std::sync::Arc;

use file_state::Holder;
use files::{RegisterError, UploadBounds, UploadsAtPools, UploadsInParts};

use crate::access::FileAccess;
use crate::admission::Admission;
use crate::changes::Changes;
use crate::collections::Collections;
use crate::completions::LocalCompletions;
use crate::conditions::Conditions;
use crate::deletes::Deletes;
use crate::front::Front;
use crate::front_config::{FrontConfig, FrontServices, NAME};
use crate::get::Reads;
use crate::live::LiveProperties;
use crate::lock::Locking;
use crate::macaroons::Macaroons;
use crate::own_urls::OwnUrls;
use crate::path_locks::PathLocks;
use crate::propfind::PropertyListing;
use crate::proppatch::PropertyPatches;
use crate::put::{PartialPuts, Puts};
use crate::redirects::Redirects;
use crate::relocate::beside::Replacements;
use crate::relocate::copier::TreeCopier;
use crate::relocate::copies::Copies;
use crate::relocate::ends::EndsResolver;
use crate::relocate::moves::Moves;
use crate::relocate::survey::Surveyor;
use crate::removals::Removals;
use crate::resolve::Resolver;
use crate::tasks::Tasks;
use crate::third_party::ThirdPartyCopies;
use crate::tpc::RunningCopies;
use crate::upload::Uploading;
use crate::well_known::WellKnown;

/// Requests that change names or properties. They are few as long as their clients wait, and go on when those are gone.
const CHANGES_MAX: usize = 4_096;

/// Parts that several handlers ask.
struct Parts {
    access: Arc<FileAccess>,
    resolver: Arc<Resolver>,
    own_urls: Arc<OwnUrls>,
    locks: Arc<PathLocks>,
    conditions: Arc<Conditions>,
    uploading: Arc<Uploading>,
    redirects: Arc<Redirects>,
    removals: Arc<Removals>,
    tasks: Arc<Tasks>,
}

impl Front {
    /// Registers the door with the files: that is what can fail.
    pub fn new(services: FrontServices, config: FrontConfig) -> Result<Arc<Front>, RegisterError> {
        let parts = Parts::new(&services, &config)?;
        let (copies, moves) = relocation(&services, &parts);
        let puts = puts(&services, &config, &parts);
        Ok(Arc::new(Front {
            admission: Admission {
                authenticator: Arc::clone(&services.authenticator),
                own_urls: Arc::clone(&parts.own_urls),
            },
            completions: LocalCompletions {
                access: Arc::clone(&parts.access),
                uploading: Arc::clone(&parts.uploading),
                at_pools: Arc::clone(&puts.at_pools),
            },
            reads: reads(&services, &config, &parts),
            puts,
            listing: listing(&services, &parts),
            changes: changes(&parts, moves),
            locking: locking(&services, &config, &parts),
            copies,
            third_party: third_party(&services, &config, &parts),
            macaroons: Macaroons { authenticator: services.authenticator },
            well_known: WellKnown {
                namespace: services.namespace,
                files: services.files,
                clock: services.clock,
                site: config.site,
                authorities: config.authorities,
                is_tls: config.is_tls,
            },
        }))
    }
}

impl Parts {
    fn new(services: &FrontServices, config: &FrontConfig) -> Result<Parts, RegisterError> {
        let FrontServices { namespace, files, clock, .. } = services;
        let door = files.register(NAME)?;
        let access = Arc::new(FileAccess {
            files: Arc::clone(files),
            namespace: Arc::clone(namespace),
            requests: Holder::of(door, 1),
            patience: config.recall_patience,
        });
        let resolver = Arc::new(Resolver { namespace: Arc::clone(namespace) });
        let own_urls =
            Arc::new(OwnUrls { authorities: config.authorities.clone(), reserved: config.reserved });
        let locks = Arc::new(PathLocks::new(
            config.locks_max,
            Holder::of(door, 2),
            (Arc::clone(files), Arc::clone(clock)),
            config.recall_patience,
        ));
        let conditions = Arc::new(Conditions {
            resolver: Arc::clone(&resolver),
            own_urls: Arc::clone(&own_urls),
            locks: Arc::clone(&locks),
        });
        let uploading = Arc::new(Uploading {
            access: Arc::clone(&access),
            conditions: Arc::clone(&conditions),
            locks: Arc::clone(&locks),
            checksums: config.checksums.clone(),
        });
        let redirects = Arc::new(Redirects {
            files: Arc::clone(files),
            clock: Arc::clone(clock),
            ticket_keys: services.ticket_keys.clone(),
            mode: config.redirect,
        });
        let removals = Arc::new(Removals { access: Arc::clone(&access) });
        let tasks = Arc::new(Tasks::new(CHANGES_MAX));
        Ok(Parts { access, resolver, own_urls, locks, conditions, uploading, redirects, removals, tasks })
    }
}

fn reads(services: &FrontServices, config: &FrontConfig, parts: &Parts) -> Reads {
    Reads {
        access: Arc::clone(&parts.access),
        resolver: Arc::clone(&parts.resolver),
        conditions: Arc::clone(&parts.conditions),
        redirects: Arc::clone(&parts.redirects),
        clock: Arc::clone(&services.clock),
        random: Arc::clone(&services.random),
        page: config.page.clone(),
    }
}

fn puts(services: &FrontServices, config: &FrontConfig, parts: &Parts) -> Puts {
    let FrontConfig { uploads_max: all_max, uploads_per_caller_max: per_caller_max, .. } = *config;
    let bounds = UploadBounds { all_max, per_caller_max };
    Puts {
        access: Arc::clone(&parts.access),
        uploading: Arc::clone(&parts.uploading),
        redirects: Arc::clone(&parts.redirects),
        at_pools: Arc::new(UploadsAtPools::new(bounds, Arc::clone(&services.clock))),
        partial: PartialPuts {
            uploading: Arc::clone(&parts.uploading),
            in_parts: UploadsInParts::new(bounds, Arc::clone(&services.clock)),
        },
    }
}

fn listing(services: &FrontServices, parts: &Parts) -> PropertyListing {
    PropertyListing {
        access: Arc::clone(&parts.access),
        resolver: Arc::clone(&parts.resolver),
        conditions: Arc::clone(&parts.conditions),
        live: Arc::new(LiveProperties {
            access: Arc::clone(&parts.access),
            properties: Arc::clone(&services.properties),
            locks: Arc::clone(&parts.locks),
        }),
    }
}

fn changes(parts: &Parts, moves: Moves) -> Changes {
    Changes {
        tasks: Arc::clone(&parts.tasks),
        collections: Arc::new(Collections {
            access: Arc::clone(&parts.access),
            resolver: Arc::clone(&parts.resolver),
            conditions: Arc::clone(&parts.conditions),
            locks: Arc::clone(&parts.locks),
        }),
        deletes: Arc::new(Deletes {
            resolver: Arc::clone(&parts.resolver),
            conditions: Arc::clone(&parts.conditions),
            locks: Arc::clone(&parts.locks),
            removals: Arc::clone(&parts.removals),
        }),
        moves: Arc::new(moves),
        patches: Arc::new(PropertyPatches {
            access: Arc::clone(&parts.access),
            resolver: Arc::clone(&parts.resolver),
            conditions: Arc::clone(&parts.conditions),
            locks: Arc::clone(&parts.locks),
        }),
    }
}

fn locking(services: &FrontServices, config: &FrontConfig, parts: &Parts) -> Locking {
    Locking {
        access: Arc::clone(&parts.access),
        resolver: Arc::clone(&parts.resolver),
        conditions: Arc::clone(&parts.conditions),
        locks: Arc::clone(&parts.locks),
        uploading: Arc::clone(&parts.uploading),
        clock: Arc::clone(&services.clock),
        random: Arc::clone(&services.random),
        timeout_max: config.lock_timeout_max,
    }
}

fn third_party(services: &FrontServices, config: &FrontConfig, parts: &Parts) -> ThirdPartyCopies {
    ThirdPartyCopies {
        access: Arc::clone(&parts.access),
        resolver: Arc::clone(&parts.resolver),
        conditions: Arc::clone(&parts.conditions),
        uploading: Arc::clone(&parts.uploading),
        properties: Arc::clone(&services.properties),
        own_urls: Arc::clone(&parts.own_urls),
        running: RunningCopies::new(
            services.client.clone(),
            config.copies.clone(),
            Arc::clone(&services.copy_counts),
        ),
    }
}

/// COPY and MOVE inside the instance.
fn relocation(services: &FrontServices, parts: &Parts) -> (Copies, Moves) {
    let ends = Arc::new(EndsResolver {
        resolver: Arc::clone(&parts.resolver),
        conditions: Arc::clone(&parts.conditions),
        own_urls: Arc::clone(&parts.own_urls),
    });
    let surveyor = Arc::new(Surveyor { access: Arc::clone(&parts.access) });
    let copier = Arc::new(TreeCopier {
        access: Arc::clone(&parts.access),
        uploading: Arc::clone(&parts.uploading),
        properties: Arc::clone(&services.properties),
        removals: Arc::clone(&parts.removals),
    });
    let replacements = Replacements {
        access: Arc::clone(&parts.access),
        locks: Arc::clone(&parts.locks),
        copier: Arc::clone(&copier),
        removals: Arc::clone(&parts.removals),
        surveyor: Arc::clone(&surveyor),
        tasks: Arc::clone(&parts.tasks),
        random: Arc::clone(&services.random),
    };
    let copies = Copies {
        access: Arc::clone(&parts.access),
        ends: Arc::clone(&ends),
        conditions: Arc::clone(&parts.conditions),
        locks: Arc::clone(&parts.locks),
        copier,
        replacements: Arc::new(replacements),
        tasks: Arc::clone(&parts.tasks),
    };
    let moves = Moves {
        access: Arc::clone(&parts.access),
        resolver: Arc::clone(&parts.resolver),
        ends,
        conditions: Arc::clone(&parts.conditions),
        locks: Arc::clone(&parts.locks),
        removals: Arc::clone(&parts.removals),
        surveyor,
    };
    (copies, moves)
}
