//! The metadata server put together from its parts, from the lowest up.

use std::sync::Arc;

use file_state::Door;
use nfs4::FsId4;
use nfs4_state::Adaptive;
use nfs4_state::stateid::ClientState;
use parking_lot::Mutex;
use tokio::sync::Mutex as AsyncMutex;

use super::Mds;
use super::clients::Clients;
use super::copy::{Copies, Offloads};
use super::counts::Counts;
use super::departures::Departures;
use super::device::Devices;
use super::drain::Drain;
use super::exports::Exports;
use super::fencing::Fencing;
use super::file_system::FileSystem;
use super::grants::Grants;
use super::homes::Homes;
use super::layouts::Layouts;
use super::lost_locks::{LostLocks, LostRecords};
use super::offers::Offers;
use super::open::Opening;
use super::recaller::ClientRecaller;
use super::recalls::Recalls;
use super::reports::Reports;
use crate::exports::ExportTable;
use crate::head_config::{HeadConfig, HeadServices};
use crate::session_ops::Sessions;

impl Mds {
    /// `generation` changes with every start.
    pub fn new(
        services: HeadServices,
        config: HeadConfig,
        (sessions, generation, door): (Arc<Sessions>, u32, Door),
        exports: ExportTable,
        lost_records: LostRecords,
    ) -> Mds {
        let states = ClientState::new(generation, door, services.files.share());
        let fs = Arc::new(file_system(&services, &config, door));
        let clients = Arc::new(Clients::new(fs, sessions, states));
        let grants = Arc::new(Grants {
            clients: Arc::clone(&clients),
            fencing: Fencing::new(Arc::clone(&clients)),
            adaptive: Mutex::new(Adaptive::new(config.delegations)),
            counts: Counts::default(),
        });
        let recalls = Arc::new(Recalls::new(Arc::clone(&grants)));
        clients.fs.files.recall_through(door, Arc::new(ClientRecaller(Arc::downgrade(&recalls))));
        let lost_locks = Arc::new(LostLocks {
            clients: Arc::clone(&clients),
            grants: Arc::clone(&grants),
            records: services.records,
            written: AsyncMutex::new(lost_records),
        });
        let devices = Arc::new(Devices::new(Arc::clone(&clients), generation));
        let drain = Arc::new(Drain::new(Arc::clone(&recalls), Arc::clone(&devices)));
        let (offloads, reports) = (Offloads::new(generation), Arc::<Reports>::default());
        Mds {
            exports: Exports {
                clients: Arc::clone(&clients),
                table: exports,
                homes: Homes::new(services.lineage),
            },
            opening: Opening {
                clients: Arc::clone(&clients),
                grants: Arc::clone(&grants),
                lost_locks: Arc::clone(&lost_locks),
            },
            layouts: Layouts {
                clients: Arc::clone(&clients),
                grants: Arc::clone(&grants),
                drain: Arc::clone(&drain),
                devices: Arc::clone(&devices),
                reports: Arc::clone(&reports),
                ticket_keys: services.ticket_keys,
            },
            copies: Copies {
                clients: Arc::clone(&clients),
                offloads: Arc::clone(&offloads),
                answer_within: config.copy_answer,
            },
            departures: Departures {
                clients: Arc::clone(&clients),
                grants: Arc::clone(&grants),
                offloads,
                devices,
                reports,
                releasing: AsyncMutex::default(),
            },
            clients,
            grants,
            recalls,
            lost_locks,
            drain,
        }
    }
}

fn file_system(services: &HeadServices, config: &HeadConfig, door: Door) -> FileSystem {
    FileSystem {
        namespace: Arc::clone(&services.namespace),
        xattrs: Arc::clone(&services.xattrs),
        files: Arc::clone(&services.files),
        door,
        clock: Arc::clone(&services.clock),
        handle_key: services.handle_key.clone(),
        fsid: fsid(&config.instance),
        owners: config.owners.clone(),
        lease: config.lease,
        offers: Offers {
            delegations: config.delegations.mode,
            write_delegations: config.delegations.write,
            layout_bytes_min: config.layout_bytes_min,
        },
    }
}

fn fsid(instance: &[u8; 16]) -> FsId4 {
    let (high, low) = instance.split_at(8);
    let word = |bytes: &[u8]| bytes.iter().fold(0_u64, |word, byte| word << 8 | u64::from(*byte));
    // Linux makes one device number of both; neither may be zero.
    FsId4 { major: word(high) | 1, minor: word(low) }
}
