//! How many connections there may be, in all and of one address, which has no more than are free.

use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use types::Shares;

pub(crate) struct Admission {
    /// Held for a count.
    present: Mutex<Shares>,
}

/// Given back when dropped.
pub(crate) struct ConnectionPlace {
    admission: Arc<Admission>,
    address: IpAddr,
}

impl Admission {
    pub fn new(connections_max: usize) -> Arc<Admission> {
        Arc::new(Admission { present: Mutex::new(Shares::new(connections_max as u64)) })
    }

    pub fn admit(self: &Arc<Admission>, address: IpAddr) -> Option<ConnectionPlace> {
        let mut present = self.present.lock();
        if !present.may_have(address, 1) {
            return None;
        }
        present.take(address, 1);
        Some(ConnectionPlace { admission: Arc::clone(self), address })
    }
}

impl Drop for ConnectionPlace {
    fn drop(&mut self) {
        self.admission.present.lock().give_back(self.address, 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_takes_no_more_places_than_it_leaves_however_many_there_are() {
        for connections_max in [64, 64 << 10] {
            let admission = Admission::new(connections_max);
            let mut places = Vec::new();
            let taken = [1, 2, 3].map(|last| {
                let before = places.len();
                places.extend(std::iter::from_fn(|| admission.admit(IpAddr::from([10, 0, 0, last]))));
                places.len() - before
            });
            assert_eq!(taken, [2, 4, 8].map(|part| connections_max / part));
            drop(places);
            assert_eq!(admission.present.lock().total(), 0);
        }
    }
}
