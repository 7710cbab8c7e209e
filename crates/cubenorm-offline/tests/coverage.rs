//! Coverage of the catalogue.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use cubenorm_core::{DType, Strategy};
use cubenorm_offline::{Case, Found, Profile, Work, survey};
use strum::IntoEnumIterator;

fn found(profile: &Profile) -> Vec<Found> {
    survey(profile, &Case::all()).expect("every case is right")
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../kernels/src")
}

/// The launched functions of `kernels`.
fn kernel_items() -> BTreeSet<String> {
    let mut items = BTreeSet::new();
    for path in sources(&root()) {
        let text = fs::read_to_string(&path).expect("a source is text");
        for after in text.split("#[cube(launch").skip(1) {
            let function = after
                .split("fn ")
                .nth(1)
                .expect("an attribute is on a function");
            let name = function.split(['<', '(']).next().unwrap_or_default();
            items.insert(name.to_owned());
        }
    }
    items
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("the sources are there");
    let paths = entries.map(|entry| entry.expect("the folder is readable").path());
    let below = paths.flat_map(|path| match path.is_dir() {
        true => sources(&path),
        false => vec![path],
    });
    below.collect()
}

#[test]
fn gpu_reaches_every_kernel_strategy_and_dtype() {
    let found = found(&Profile::nvidia(90));
    let names: BTreeSet<String> = found.iter().map(|it| it.name.to_owned()).collect();
    assert_eq!(names, kernel_items());
    for dtype in DType::ALL {
        for name in ["normalize", "gradient"] {
            let of = |it: &&Found| it.dtype == dtype && it.name == name;
            let strategies: BTreeSet<Strategy> = found
                .iter()
                .filter(of)
                .filter_map(|it| it.strategy)
                .collect();
            assert_eq!(
                strategies,
                BTreeSet::from(Strategy::ALL),
                "{name} in {dtype}"
            );
        }
    }
}

#[test]
fn every_device_reaches_every_kernel() {
    for profile in Profile::all() {
        let found = found(&profile);
        let names: BTreeSet<String> = found.iter().map(|it| it.name.to_owned()).collect();
        let mut expected = kernel_items();
        // Only a cluster of cubes has words to set to zero.
        let has_clusters = [80, 90, 100].map(|sm| Profile::nvidia(sm).name);
        if !has_clusters.contains(&profile.name) {
            expected.remove("fill");
        }
        assert_eq!(names, expected, "{}", profile.name);
    }
}

#[test]
fn kernel_sources_are_independent_of_runtimes() {
    for path in sources(&root()) {
        let text = fs::read_to_string(&path).expect("a source is text");
        // Unit tests run on the host.
        let conditions = text.matches("cfg").count() - text.matches("#[cfg(test)]").count();
        assert_eq!(conditions, 0, "{}", path.display());
    }
}

#[test]
fn every_activation_is_reached_forward_and_backward() {
    let cases = Case::all();
    for kind in cubenorm_core::ActivationKind::iter() {
        let forward = |case: &Case| matches!(&case.work, Work::Forward(desc) if desc.activation.kind() == kind);
        let backward = |case: &Case| matches!(&case.work, Work::Backward(desc) if desc.norm.activation.kind() == kind);
        assert!(cases.iter().any(forward), "{kind:?} forward");
        assert!(cases.iter().any(backward), "{kind:?} backward");
    }
}

#[test]
fn every_device_lists_each_kernel_once() {
    for profile in Profile::all() {
        let found = found(&profile);
        assert!(found.len() > 50, "{}: {}", profile.name, found.len());
        let ids: Vec<_> = found.iter().map(|it| it.kernel.id()).collect();
        for (place, id) in ids.iter().enumerate() {
            assert!(!ids[..place].contains(id), "{}: {id:?} twice", profile.name);
        }
        assert!(found.iter().any(|it| it.is_hot), "{}", profile.name);
    }
}
