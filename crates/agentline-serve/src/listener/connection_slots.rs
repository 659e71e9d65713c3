//! The slots for connections, of which one remote address has only a share.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv6Addr},
    sync::{Arc, Mutex, PoisonError},
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// One address gets at most this part of the slots.
const SHARE: usize = 4;
/// The bits of an IPv6 address that belong to one network. Its hosts can choose the others.
const NETWORK_BITS: u32 = 64;

/// The slots for connections.
#[derive(Debug)]
pub(super) struct ConnectionSlots {
    slots: Arc<Semaphore>,
    /// How many slots one address may have.
    most: usize,
    by_address: Arc<Mutex<HashMap<IpAddr, usize>>>,
}

/// The slot of a connection. It is free again when this value is dropped.
#[derive(Debug)]
pub(super) struct ConnectionSlot {
    _slot: OwnedSemaphorePermit,
    /// `None` for loopback, which has no share.
    address: Option<IpAddr>,
    by_address: Arc<Mutex<HashMap<IpAddr, usize>>>,
}

impl ConnectionSlots {
    pub(super) fn new(slots: usize) -> Self {
        Self {
            slots: Arc::new(Semaphore::new(slots)),
            most: (slots / SHARE).max(1),
            by_address: Arc::default(),
        }
    }

    /// Takes a slot; `None` if all are taken or the address has its share.
    pub(super) fn take(&self, remote: IpAddr) -> Option<ConnectionSlot> {
        let slot = Arc::clone(&self.slots).try_acquire_owned().ok()?;
        let address = counted(remote);
        if let Some(address) = address {
            let mut counts = self.by_address.lock().unwrap_or_else(PoisonError::into_inner);
            let count = counts.entry(address).or_default();
            if *count >= self.most {
                return None;
            }
            *count += 1;
        }
        Some(ConnectionSlot { _slot: slot, address, by_address: Arc::clone(&self.by_address) })
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let Some(address) = self.address else { return };
        let mut counts = self.by_address.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.get_mut(&address) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&address);
            }
        }
    }
}

/// Returns the address by which a connection is counted: the network of an IPv6 address. `None` for loopback.
fn counted(remote: IpAddr) -> Option<IpAddr> {
    match remote.to_canonical() {
        address if address.is_loopback() => None,
        IpAddr::V6(address) => {
            let network = u128::from(address) & (u128::MAX << (128 - NETWORK_BITS));
            Some(Ipv6Addr::from(network).into())
        }
        address => Some(address),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(slots: &ConnectionSlots, address: &str, count: usize) -> Vec<ConnectionSlot> {
        (0..count).filter_map(|_| slots.take(address.parse().unwrap())).collect()
    }

    #[test]
    fn one_address_gets_a_quarter_of_the_slots() {
        let slots = ConnectionSlots::new(16);
        let first = taken(&slots, "192.0.2.1", 16);
        assert_eq!(first.len(), 4);
        assert_eq!(taken(&slots, "::ffff:192.0.2.1", 1).len(), 0, "the same address");
        let network = taken(&slots, "2001:db8::1", 2);
        let other_host = taken(&slots, "2001:db8::ffff:2", 16);
        assert_eq!((network.len(), other_host.len()), (2, 2), "one network has one share");
        let local = taken(&slots, "127.0.0.1", 16);
        assert_eq!(local.len(), 8, "loopback gets all that are left");
        assert_eq!(taken(&slots, "192.0.2.2", 1).len(), 0);
        drop((first, local));
        assert_eq!(taken(&slots, "192.0.2.1", 16).len(), 4);
        drop((network, other_host));
        assert!(slots.by_address.lock().unwrap().is_empty());
        assert_eq!(taken(&ConnectionSlots::new(2), "192.0.2.1", 2).len(), 1);
    }
}
