//! Autotune results in CubeCL's persistent cache or in a bundle, from any process.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, PoisonError};

use cubecl::config::{CubeClRuntimeConfig, RuntimeConfig};
use cubecl::environment;
use cubecl::tune::{PersistentCacheKey, PersistentCacheValue};
use cubecl_environment::persistence::{CacheOption, Namespace, Store, StoreOptions};

use super::NAME;
use super::key::TuneKey;

/// For each key, the index of the fastest candidate and the checksum of the candidates.
pub(super) type Answers = HashMap<TuneKey, (usize, String)>;

/// Persistent cache of CubeCL's autotuner.
pub(super) type Kept = Store<PersistentCacheKey<TuneKey>, PersistentCacheValue>;

/// Cache of a device in the active environment.
pub(super) fn store(device: &str) -> Kept {
    let namespace = Namespace::scoped("autotune", format!("{device}/{NAME}"));
    let options = StoreOptions::new().storage(namespace);
    Store::new(options.cache(CacheOption::Lazy))
}

/// Reads a snapshot of a device's cache, taken at the first read in the current environment.
pub(super) fn poll<T>(device: &str, into: impl FnOnce(&Answers) -> T) -> T {
    static CACHES: LazyLock<Mutex<HashMap<String, (u32, Answers)>>> = LazyLock::new(Mutex::default);
    // An insertion is atomic: a panicking thread leaves a valid map.
    let mut caches = CACHES.lock().unwrap_or_else(PoisonError::into_inner);
    let now = environment::generation();
    let cache = caches
        .entry(device.to_owned())
        .or_insert_with(|| (now, read(device)));
    if cache.0 != now {
        *cache = (now, read(device));
    }
    into(&cache.1)
}

fn read(device: &str) -> Answers {
    let mut answers = Answers::new();
    if !CubeClRuntimeConfig::get().autotune.disable_cache {
        store(device).scan(|kept, value| {
            answers.insert(kept.key, (value.fastest_index, kept.checksum));
        });
    }
    answers
}

/// True if the cache has a result for these candidates. CubeCL's autotuner has no such query:
/// without a result it measures.
pub(super) fn is_kept(device: &str, key: &TuneKey, checksum: &str) -> bool {
    poll(device, |answers| {
        answers.get(key).is_some_and(|(_, of)| of == checksum)
    })
}
