//! What a cache or a bundle has of what was measured, by whatever process.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, PoisonError};

use cubecl::config::{CubeClRuntimeConfig, RuntimeConfig};
use cubecl::environment;
use cubecl::tune::{PersistentCacheKey, PersistentCacheValue};
use cubecl_environment::persistence::{CacheOption, Namespace, Store, StoreOptions};

use super::NAME;
use super::key::TuneKey;

/// Of each key the place of the fastest, and the checksum of what there was to choose from.
pub(super) type Answers = HashMap<TuneKey, (usize, String)>;

/// What CubeCL's tuner keeps them in.
pub(super) type Kept = Store<PersistentCacheKey<TuneKey>, PersistentCacheValue>;

/// A device's, in the active environment.
pub(super) fn store(device: &str) -> Kept {
    let namespace = Namespace::scoped("autotune", format!("{device}/{NAME}"));
    let options = StoreOptions::new().storage(namespace);
    Store::new(options.cache(CacheOption::Lazy))
}

/// Looks into what a device's cache had when it was first looked at, in the environment of that generation.
pub(super) fn look<T>(device: &str, into: impl FnOnce(&Answers) -> T) -> T {
    static CACHES: LazyLock<Mutex<HashMap<String, (u32, Answers)>>> = LazyLock::new(Mutex::default);
    // An entry is inserted at once: what a panicking thread left behind is whole.
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

/// Whether there is an answer that nobody in this process may have asked for yet. CubeCL's tuner tells only with an answer,
/// and measures where it has none.
pub(super) fn is_kept(device: &str, key: &TuneKey, checksum: &str) -> bool {
    look(device, |answers| {
        answers.get(key).is_some_and(|(_, of)| of == checksum)
    })
}
