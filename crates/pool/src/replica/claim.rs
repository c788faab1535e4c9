//! The claims of a ticket about its replica.

use api::{Birth, Presence, Ticket};
use types::Epoch;

#[derive(Clone, Copy, Debug)]
pub struct Claim {
    pub epoch: Epoch,
    pub birth: Birth,
    pub presence: Presence,
}

impl Claim {
    pub fn of(ticket: &Ticket) -> Claim {
        Claim { epoch: ticket.epoch, birth: ticket.birth, presence: ticket.presence }
    }
}
