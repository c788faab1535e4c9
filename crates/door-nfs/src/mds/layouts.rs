//! The parts of the MDS that grant and take back layouts.

use std::sync::Arc;

use api::TicketKeys;

use super::clients::Clients;
use super::device::Devices;
use super::drain::Drain;
use super::grants::Grants;
use super::reports::Reports;

pub(crate) struct Layouts {
    pub clients: Arc<Clients>,
    pub grants: Arc<Grants>,
    pub drain: Arc<Drain>,
    pub devices: Arc<Devices>,
    pub reports: Arc<Reports>,
    pub ticket_keys: TicketKeys,
}
