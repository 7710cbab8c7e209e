//! Plan cache. A model launches few descriptions again and again, and validating and planning one
//! takes longer than launching it.

use std::any::TypeId;
use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cubecl::device::DeviceId;
use cubecl::prelude::*;
use cubenorm_core::StrategyChoice;
use foldhash::fast::FixedState;

/// Maximum number of buckets. The cache is cleared beyond it: such a caller has sizes that change
/// from call to call.
const MOST: usize = 1024;

/// Maximum number of entries in a bucket.
const MOST_OF_BUCKET: usize = 8;

/// Bounded cache of prepared calls. A look-up hashes borrowed parts, so it allocates nothing.
#[derive(Debug)]
pub struct PlanCache<K, P>(Mutex<Option<ByHash<K, P>>>);

/// Entries by hash. A bucket normally has one entry; more only for hash collisions and keys that
/// contain NaN.
type ByHash<K, P> = HashMap<u64, Vec<(K, Arc<P>)>, BuildHasherDefault<Hashed>>;

/// Borrowed parts of a key.
pub trait Query<K>: Hash {
    /// True if the key has the same parts.
    fn matches(&self, key: &K) -> bool;

    /// Key of the same parts.
    fn to_key(&self) -> K;
}

impl<K, P> Default for PlanCache<K, P> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K, P> PlanCache<K, P> {
    /// An empty cache.
    pub const fn new() -> Self {
        Self(Mutex::new(None))
    }

    /// Result of a key, if it is cached.
    pub fn find(&self, query: &impl Query<K>) -> Option<Arc<P>> {
        let all = self.lock();
        let bucket = all.as_ref()?.get(&hash(query))?;
        let found = bucket.iter().find(|(key, _)| query.matches(key))?;
        Some(found.1.clone())
    }

    /// Caches a result.
    pub fn insert(&self, query: &impl Query<K>, result: Arc<P>) {
        let mut all = self.lock();
        let all = all.get_or_insert_default();
        if all.len() >= MOST {
            all.clear();
        }
        let bucket = all.entry(hash(query)).or_default();
        if bucket.len() >= MOST_OF_BUCKET {
            bucket.clear();
        }
        bucket.push((query.to_key(), result));
    }

    /// Returns the cached result, or calls `make`. Its result is cached unless it fails or `keeps`
    /// says no.
    pub(crate) fn get<E>(
        &self,
        query: &impl Query<K>,
        keeps: impl FnOnce(&P) -> bool,
        make: impl FnOnce() -> Result<P, E>,
    ) -> Result<Arc<P>, E> {
        if let Some(found) = self.find(query) {
            return Ok(found);
        }
        // Not under the lock: the autotuner launches and re-enters this function.
        let result = Arc::new(make()?);
        if keeps(&result) {
            self.insert(query, result.clone());
        }
        Ok(result)
    }

    fn lock(&self) -> MutexGuard<'_, Option<ByHash<K, P>>> {
        // An insertion is atomic: a panicking thread leaves a valid map.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Hash with a fixed seed, so equal keys have equal hashes in a process.
fn hash(query: &impl Hash) -> u64 {
    FixedState::default().hash_one(query)
}

/// Passes a hash through.
#[derive(Debug, Default)]
struct Hashed(u64);

impl Hasher for Hashed {
    fn write(&mut self, _: &[u8]) {
        unreachable!("a bucket's key is its hash");
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// A device and its runtime.
pub type Device = (DeviceId, TypeId);

/// Device and runtime of a client.
pub fn device(client: &Client) -> Device {
    let service = client.service_id();
    (service.device, service.service)
}

impl Query<Self> for Device {
    fn matches(&self, key: &Self) -> bool {
        self == key
    }

    fn to_key(&self) -> Self {
        *self
    }
}

/// Key of a description on a device.
#[derive(Debug)]
pub(crate) struct DescKey<D> {
    device: Device,
    choice: StrategyChoice,
    desc: D,
}

/// Borrowed [`DescKey`].
#[derive(Hash)]
pub(crate) struct DescQuery<'a, D> {
    device: Device,
    choice: StrategyChoice,
    desc: &'a D,
}

impl<'a, D> DescQuery<'a, D> {
    pub(crate) fn new(client: &Client, desc: &'a D, choice: StrategyChoice) -> Self {
        Self {
            device: device(client),
            choice,
            desc,
        }
    }
}

impl<D: Clone + PartialEq + Hash> Query<DescKey<D>> for DescQuery<'_, D> {
    fn matches(&self, key: &DescKey<D>) -> bool {
        self.device == key.device && self.choice == key.choice && *self.desc == key.desc
    }

    fn to_key(&self) -> DescKey<D> {
        DescKey {
            device: self.device,
            choice: self.choice,
            desc: self.desc.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Query<Self> for u32 {
        fn matches(&self, key: &Self) -> bool {
            self == key
        }

        fn to_key(&self) -> Self {
            *self
        }
    }

    #[test]
    fn makes_a_result_once() {
        let cache = PlanCache::<u32, u32>::new();
        let get = |key: u32| cache.get(&key, |_| true, || Ok::<_, ()>(key + 1)).unwrap();
        let first = get(1);
        assert!(Arc::ptr_eq(&first, &get(1)));
        assert_eq!([*get(1), *get(2)], [2, 3]);
    }

    #[test]
    fn keeps_neither_errors_nor_unsettled_results() {
        let cache = PlanCache::<u32, u32>::new();
        assert_eq!(cache.get(&1, |_| true, || Err("no")).unwrap_err(), "no");
        cache.get(&1, |_| false, || Ok::<_, ()>(5)).unwrap();
        assert!(cache.find(&1u32).is_none());
    }

    #[test]
    fn stays_bounded() {
        let cache = PlanCache::<u32, u32>::new();
        for key in 0..5000 {
            cache.insert(&key, Arc::new(key));
        }
        let entries: usize = cache.lock().as_ref().unwrap().values().map(Vec::len).sum();
        assert!(entries <= MOST * MOST_OF_BUCKET, "{entries}");
        assert_eq!(cache.find(&4999u32).as_deref(), Some(&4999));
    }
}
