//! Installed Vulkan drivers, found as the Vulkan loader finds them.

use std::{
    collections::BTreeSet,
    env,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
};

/// A driver's manifest, which `VK_DRIVER_FILES` selects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Driver {
    pub manifest: PathBuf,
}

impl Driver {
    /// A short name: a known driver's own, else the manifest's.
    pub(crate) fn name(&self) -> &str {
        let file = self
            .manifest
            .file_name()
            .and_then(|name| name.to_str())
            .unwrap_or("unknown");
        match file {
            _ if file.starts_with("lvp_icd") => "lavapipe",
            _ if file.starts_with("vk_swiftshader_icd") => "swiftshader",
            _ => file.split_once("_icd").map_or(file, |(name, _)| name),
        }
    }

    /// True if the driver computes on the processor, so that it runs on every machine.
    pub(crate) fn is_cpu_vulkan(&self) -> bool {
        matches!(self.name(), "lavapipe" | "swiftshader")
    }
}

/// The drivers that a Vulkan program sees.
pub(crate) fn drivers() -> Vec<Driver> {
    let chosen = ["VK_DRIVER_FILES", "VK_ICD_FILENAMES"]
        .into_iter()
        .find_map(env::var_os);
    let places = match chosen {
        Some(files) => env::split_paths(&files).collect(),
        None => folders(&|name| env::var_os(name)),
    };
    distinct(places.iter().flat_map(|place| manifests(place)).collect())
}

/// The CPU Vulkan drivers. SwiftShader counts if a Chromium brings it, though no loader looks
/// there.
pub(crate) fn software_drivers() -> Vec<Driver> {
    let chromium = [
        "/usr/lib/chromium",
        "/usr/lib/chromium-browser",
        "/opt/google/chrome",
    ];
    let hidden = chromium
        .iter()
        .map(|folder| Path::new(folder).join("vk_swiftshader_icd.json"))
        .filter(|manifest| manifest.is_file());
    let seen = drivers().into_iter().map(|driver| driver.manifest);
    let mut found = distinct(seen.chain(hidden).collect());
    found.retain(Driver::is_cpu_vulkan);
    found
}

/// True if a GPU is there with a driver of its own. The drivers' manifests come together in one
/// package, so the device has to be there too.
pub(crate) fn has_gpu() -> bool {
    let node = |entry: fs::DirEntry| entry.file_name().to_string_lossy().starts_with("renderD");
    let render = fs::read_dir("/dev/dri")
        .into_iter()
        .flatten()
        .flatten()
        .any(node);
    let nvidia = Path::new("/dev/nvidiactl").exists();
    (render || nvidia) && drivers().iter().any(|driver| !driver.is_cpu_vulkan())
}

/// The loader's search path on Linux.
fn folders(variable: &dyn Fn(&str) -> Option<OsString>) -> Vec<PathBuf> {
    let list = |name: &str, default: &str| {
        let value = variable(name).filter(|value| !value.is_empty());
        env::split_paths(&value.unwrap_or_else(|| default.into())).collect::<Vec<_>>()
    };
    let home = |name: &str, below: &str| {
        let set = variable(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from);
        set.or_else(|| variable("HOME").map(|home| Path::new(&home).join(below)))
    };
    let bases = [
        home("XDG_CONFIG_HOME", ".config").into_iter().collect(),
        list("XDG_CONFIG_DIRS", "/etc/xdg"),
        vec!["/etc".into()],
        home("XDG_DATA_HOME", ".local/share").into_iter().collect(),
        list("XDG_DATA_DIRS", "/usr/local/share:/usr/share"),
    ];
    let bases = bases.into_iter().flatten();
    bases.map(|base| base.join("vulkan/icd.d")).collect()
}

/// The manifests in a folder, or the path itself if it is a manifest.
fn manifests(path: &Path) -> Vec<PathBuf> {
    let is_manifest = |path: &PathBuf| path.extension().is_some_and(|e| e == "json");
    if path.is_file() {
        return vec![path.to_owned()];
    }
    // A folder that is not there holds no driver.
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    let mut found: Vec<_> = entries
        .map(|entry| entry.path())
        .filter(is_manifest)
        .collect();
    found.sort();
    found
}

fn distinct(manifests: Vec<PathBuf>) -> Vec<Driver> {
    let mut seen = BTreeSet::new();
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    manifests
        .into_iter()
        .filter(|manifest| seen.insert(real(manifest)))
        .map(|manifest| Driver { manifest })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn driver(file: &str) -> Driver {
        Driver {
            manifest: Path::new("/x").join(file),
        }
    }

    #[test]
    fn cpu_drivers_are_known_by_their_manifest() {
        assert_eq!(driver("lvp_icd.x86_64.json").name(), "lavapipe");
        assert_eq!(driver("vk_swiftshader_icd.json").name(), "swiftshader");
        assert_eq!(driver("intel_hasvk_icd.x86_64.json").name(), "intel_hasvk");
        assert_eq!(driver("nvidia.json").name(), "nvidia.json");
        assert!(driver("lvp_icd.aarch64.json").is_cpu_vulkan());
        assert!(!driver("radeon_icd.x86_64.json").is_cpu_vulkan());
    }

    #[test]
    fn the_search_path_is_the_loaders() {
        let below = |variables: &[(&str, &str)]| -> Vec<String> {
            let value = |name: &str| {
                let found = variables.iter().find(|(other, _)| *other == name);
                found.map(|(_, value)| value.into())
            };
            let folders = folders(&value).into_iter();
            let folders = folders.map(|folder| folder.display().to_string());
            folders
                .map(|folder| folder.replace("/vulkan/icd.d", ""))
                .collect()
        };
        let fresh = [
            "/home/me/.config",
            "/etc/xdg",
            "/etc",
            "/home/me/.local/share",
        ];
        let system = ["/usr/local/share", "/usr/share"];
        assert_eq!(
            below(&[("HOME", "/home/me")]),
            [&fresh[..], &system].concat()
        );
        // An empty variable is none.
        let set = [("XDG_DATA_DIRS", "/a:/b"), ("XDG_CONFIG_DIRS", "")];
        assert_eq!(below(&set), ["/etc/xdg", "/etc", "/a", "/b"]);
    }

    #[test]
    fn only_manifests_count_and_each_once() {
        let folder = env::temp_dir().join(format!("cubenorm-icd-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        for file in ["b.json", "a.json", "readme.txt"] {
            fs::write(folder.join(file), "{}").unwrap();
        }
        let found = manifests(&folder);
        let again = manifests(&folder.join("a.json"));
        let drivers = distinct(found.iter().chain(&again).cloned().collect());
        fs::remove_dir_all(&folder).unwrap();

        let names: Vec<_> = drivers.iter().map(Driver::name).collect();
        assert_eq!(names, ["a.json", "b.json"]);
        assert!(manifests(&folder).is_empty());
    }
}
