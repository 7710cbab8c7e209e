//! Plan cache. A model launches few descriptions again and again, and validating and planning one
//! takes longer than launching it.

use std::any::TypeId;
use std::collections::HashMap;
use std::hash::{BuildHasher, Hash};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cubecl::device::DeviceId;
use cubecl::prelude::*;
use cubenorm_core::StrategyChoice;

/// Maximum number of entries. The cache is cleared beyond it: such a caller has sizes that change
/// from call to call.
const MOST: usize = 1024;

/// Maximum number of entries in a bucket.
const MOST_OF_BUCKET: usize = 8;

/// Cached results of descriptions, per device and choice.
pub(crate) struct PlanCache<D, P>(Mutex<Option<ByHash<D, P>>>);

/// Entries by hash. A bucket normally has one entry; more only for hash collisions and descriptions
/// that contain NaN.
type ByHash<D, P> = HashMap<u64, Vec<Entry<D, P>>>;

/// A device and its runtime.
pub(super) type Device = (DeviceId, TypeId);

/// Device and runtime of a client.
pub(super) fn device(client: &Client) -> Device {
    let service = client.service_id();
    (service.device, service.service)
}

struct Entry<D, P> {
    device: Device,
    choice: StrategyChoice,
    desc: D,
    result: Arc<P>,
}

impl<D: Clone + PartialEq + Hash, P> PlanCache<D, P> {
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(None))
    }

    /// Returns the cached result, or calls `make` and caches its result unless it fails.
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
            |it: &&Entry<D, P>| it.device == device && it.choice == choice && it.desc == *desc;
        if let Some(all) = self.lock().as_ref()
            && let Some(found) = all.get(&hash).and_then(|list| list.iter().find(is_same))
        {
            return Ok(found.result.clone());
        }
        // Not under the lock: the autotuner launches and re-enters this function.
        let result = Arc::new(make()?);
        let mut all = self.lock();
        let all = all.get_or_insert_default();
        if all.len() >= MOST {
            all.clear();
        }
        let list = all.entry(hash).or_default();
        if list.len() >= MOST_OF_BUCKET {
            list.clear();
        }
        list.push(Entry {
            device,
            choice,
            desc: desc.clone(),
            result: result.clone(),
        });
        Ok(result)
    }

    fn lock(&self) -> MutexGuard<'_, Option<ByHash<D, P>>> {
        // An insertion is atomic: a panicking thread leaves a valid map.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Hasher with a fixed seed, so equal descriptions have equal hashes in a process.
type Hasher = std::hash::BuildHasherDefault<std::hash::DefaultHasher>;
