//! Autotune results in CubeCL's persistent cache or in a bundle, from any process.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, PoisonError};

use cubecl::config::{CubeClRuntimeConfig, RuntimeConfig};
use cubecl::environment;
use cubecl::tune::{PersistentCacheKey, PersistentCacheValue};
use cubecl_environment::persistence::{CacheOption, Namespace, Store, StoreOptions};

use super::NAME;
use super::key::TuneKey;

/// Checksum of the candidates of each key that has a result.
type Results = HashMap<TuneKey, String>;

/// True if the cache has a result for these candidates. CubeCL's autotuner has no such query:
/// without a result it measures.
///
/// The cache is read once for each device and environment.
pub(super) fn is_kept(device: &str, key: &TuneKey, checksum: &str) -> bool {
    static CACHES: LazyLock<Mutex<HashMap<String, (u32, Results)>>> = LazyLock::new(Mutex::default);
    // An insertion is atomic: a panicking thread leaves a valid map.
    let mut caches = CACHES.lock().unwrap_or_else(PoisonError::into_inner);
    let now = environment::generation();
    let cache = caches
        .entry(device.to_owned())
        .or_insert_with(|| (now, read(device)));
    if cache.0 != now {
        *cache = (now, read(device));
    }
    cache.1.get(key).is_some_and(|of| of == checksum)
}

fn read(device: &str) -> Results {
    let mut results = Results::new();
    if !CubeClRuntimeConfig::get().autotune.disable_cache {
        store(device).scan(|kept, _| {
            results.insert(kept.key, kept.checksum);
        });
    }
    results
}

/// Persistent cache of CubeCL's autotuner for a device, in the active environment.
fn store(device: &str) -> Store<PersistentCacheKey<TuneKey>, PersistentCacheValue> {
    let namespace = Namespace::scoped("autotune", format!("{device}/{NAME}"));
    let options = StoreOptions::new().storage(namespace);
    Store::new(options.cache(CacheOption::Lazy))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(rows: usize) -> TuneKey {
        TuneKey {
            operation: "forward".into(),
            dtypes: "f32/f32".into(),
            layout: "x1+1v".into(),
            rows,
            cols: 1024,
            vector: 4,
            candidates: vec![0, 3, 5],
        }
    }

    #[test]
    fn finds_results_of_another_process() {
        let root = std::env::temp_dir().join(format!("cubenorm-kept-{}", std::process::id()));
        std::fs::create_dir_all(&root).unwrap();
        // Reading CubeCL's configuration activates its environment, so it comes first.
        CubeClRuntimeConfig::get();
        environment::set_root(&root);
        environment::activate("kept");
        let device = "kept-test";
        let entry = PersistentCacheKey {
            key: key(64),
            checksum: "of these".into(),
        };
        let value = PersistentCacheValue {
            fastest_index: 5,
            results: Vec::new(),
            bounds: None,
            limit: None,
        };
        store(device).insert(entry, value).unwrap();
        assert!(is_kept(device, &key(64), "of these"));
        assert!(!is_kept(device, &key(64), "of others"));
        assert!(!is_kept(device, &key(32), "of these"));
        std::fs::remove_dir_all(&root).unwrap();
    }
}
