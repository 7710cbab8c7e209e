//! What descriptions come to, remembered: a model launches the same few again and again, and to validate
//! and plan one costs more than to launch it.

use std::any::TypeId;
use std::collections::HashMap;
use std::hash::{BuildHasher, Hash};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cubecl::device::DeviceId;
use cubecl::prelude::*;
use cubenorm_core::StrategyChoice;

/// Descriptions that are remembered at most. Then all are forgotten: who has so many has sizes that
/// change from call to call.
const MOST: usize = 1024;

/// Descriptions of the same hash that are remembered at most.
const MOST_ALIKE: usize = 8;

/// What descriptions of one kind come to, on each device and for each choice.
pub(crate) struct Memo<D, P>(Mutex<Option<ByHash<D, P>>>);

/// Descriptions of the same hash are few, mostly one; more are such as are not equal to themselves, as one with a
/// number that is none.
type ByHash<D, P> = HashMap<u64, Vec<Remembered<D, P>>>;

/// A device and the runtime there.
pub(super) type Device = (DeviceId, TypeId);

/// A client's.
pub(super) fn device(client: &Client) -> Device {
    let service = client.service_id();
    (service.device, service.service)
}

struct Remembered<D, P> {
    device: Device,
    choice: StrategyChoice,
    desc: D,
    result: Arc<P>,
}

impl<D: Clone + PartialEq + Hash, P> Memo<D, P> {
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(None))
    }

    /// What is remembered, or what `make` comes to, which is remembered unless it fails.
    pub(crate) fn get<E>(
        &self,
        client: &Client,
        desc: &D,
        choice: StrategyChoice,
        make: impl FnOnce() -> Result<P, E>,
    ) -> Result<Arc<P>, E> {
        let device = device(client);
        let hash = Hasher::default().hash_one((&device, choice, desc));
        let is_same =
            |it: &&Remembered<D, P>| it.device == device && it.choice == choice && it.desc == *desc;
        if let Some(all) = self.lock().as_ref()
            && let Some(found) = all.get(&hash).and_then(|list| list.iter().find(is_same))
        {
            return Ok(found.result.clone());
        }
        // Not under the lock: tuning launches, and so comes back here.
        let result = Arc::new(make()?);
        let mut all = self.lock();
        let all = all.get_or_insert_default();
        if all.len() >= MOST {
            all.clear();
        }
        let list = all.entry(hash).or_default();
        if list.len() >= MOST_ALIKE {
            list.clear();
        }
        list.push(Remembered {
            device,
            choice,
            desc: desc.clone(),
            result: result.clone(),
        });
        Ok(result)
    }

    fn lock(&self) -> MutexGuard<'_, Option<ByHash<D, P>>> {
        // A map that a panicking thread left behind is whole: entries are put in at once.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The same hash for the same description all through a process.
type Hasher = std::hash::BuildHasherDefault<std::hash::DefaultHasher>;
