//! Warm start of the autotuner: the fastest knobs of similar problems.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use super::kept;
use super::key::TuneKey;

/// For each device, the keys of this process and the indices of their knobs.
type Known = HashMap<String, HashMap<TuneKey, usize>>;

static KNOWN: LazyLock<Mutex<Known>> = LazyLock::new(Mutex::default);

fn known() -> MutexGuard<'static, Known> {
    // An insertion is atomic: a panicking thread leaves a valid map.
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Records the fastest knobs of a key.
pub(super) fn remember(device: &str, key: TuneKey, place: usize) {
    known()
        .entry(device.to_owned())
        .or_default()
        .insert(key, place);
}

/// Index of the fastest knobs of the nearest key in size, among the keys of this process and the
/// [cached](kept) ones.
pub(super) fn nearest(device: &str, key: &TuneKey) -> Option<usize> {
    let distance = |(other, place): (&TuneKey, usize)| {
        // Ties go to the smaller problem, so the result does not depend on the map's order.
        Some(((key.distance(other)?, other.rows, other.cols), place))
    };
    let kept = kept::poll(device, |answers| {
        let answers = answers.iter().map(|(key, (place, _))| (key, *place));
        answers.filter_map(distance).min()
    });
    let known = known();
    let known = known.get(device).into_iter().flatten();
    let known = known.map(|(key, place)| (key, *place));
    let nearest = known.filter_map(distance).chain(kept).min();
    nearest.map(|(_, place)| place)
}

#[cfg(test)]
mod tests {
    use cubecl::config::{CubeClRuntimeConfig, RuntimeConfig};
    use cubecl::environment;
    use cubecl::tune::{PersistentCacheKey, PersistentCacheValue};

    use super::*;

    fn key(rows: usize, cols: usize) -> TuneKey {
        TuneKey {
            operation: "forward".into(),
            dtypes: "f32/f32".into(),
            layout: "x1+1v".into(),
            rows,
            cols,
            vector: 4,
            candidates: vec![0, 3, 5],
        }
    }

    #[test]
    fn takes_nearest_size_of_same_operation_and_device() {
        let device = "warm-test";
        assert_eq!(nearest(device, &key(64, 64)), None);
        remember(device, key(1024, 512), 3);
        remember(device, key(64, 1024), 5);
        remember("another", key(64, 64), 0);
        let other = TuneKey {
            operation: "backward".into(),
            ..key(64, 64)
        };
        remember(device, other, 0);
        assert_eq!(nearest(device, &key(64, 64)), Some(5));
        assert_eq!(nearest(device, &key(2048, 256)), Some(3));
    }

    #[test]
    fn uses_results_cached_by_another_process() {
        let root = std::env::temp_dir().join(format!("cubenorm-kept-{}", std::process::id()));
        std::fs::create_dir_all(&root).unwrap();
        // Reading CubeCL's configuration activates its environment, so it comes first.
        CubeClRuntimeConfig::get();
        environment::set_root(&root);
        environment::activate("kept");
        let device = "kept-test";
        remember(device, key(64, 4096), 3);
        let entry = PersistentCacheKey {
            key: key(64, 1024),
            checksum: "of these".into(),
        };
        let value = PersistentCacheValue {
            fastest_index: 5,
            results: Vec::new(),
            bounds: None,
            limit: None,
        };
        kept::store(device).insert(entry, value).unwrap();
        assert_eq!(nearest(device, &key(64, 512)), Some(5));
        assert_eq!(
            nearest(device, &key(64, 2048)),
            Some(5),
            "the smaller of two"
        );
        assert_eq!(nearest(device, &key(64, 8192)), Some(3));
        assert!(kept::is_kept(device, &key(64, 1024), "of these"));
        assert!(!kept::is_kept(device, &key(64, 1024), "of others"));
        assert!(!kept::is_kept(device, &key(64, 512), "of these"));
        std::fs::remove_dir_all(&root).unwrap();
    }
}
