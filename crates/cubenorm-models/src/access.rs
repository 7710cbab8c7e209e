use std::io;
use std::path::{Component, Path, PathBuf};

/// Access of a model to files outside its folder.
///
/// Models need not be trusted, and neither do the paths in them: `sourcePath` and `targetPath` of
/// DxDispatch, `location` of ONNX's external data. By default a model reads and writes below its
/// own folder only. Absolute paths, `..` and symbolic links do not lead out of it.
///
/// # Example
///
/// ```
/// use cubenorm_models::FileAccess;
///
/// let access = FileAccess::new().write_under("target/results");
/// assert!(!access.reads_anywhere());
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FileAccess {
    read_anywhere: bool,
    write_under: Option<PathBuf>,
}

impl FileAccess {
    /// Access below the model's folder only.
    pub fn new() -> Self {
        Self::default()
    }

    /// Allows models to read any file. Relative paths that do not exist in the model's folder are
    /// then resolved from the current directory.
    #[must_use]
    pub fn read_anywhere(mut self, is_allowed: bool) -> Self {
        self.read_anywhere = is_allowed;
        self
    }

    /// Allows models to write below `folder` as well. Relative targets still start at the model's
    /// folder.
    #[must_use]
    pub fn write_under(mut self, folder: impl Into<PathBuf>) -> Self {
        self.write_under = Some(folder.into());
        self
    }

    /// True if models may read any file.
    pub fn reads_anywhere(&self) -> bool {
        self.read_anywhere
    }

    /// Additional folder that models may write to.
    pub fn writes_under(&self) -> Option<&Path> {
        self.write_under.as_deref()
    }

    /// Resolves a file that a model in `folder` reads.
    pub(crate) fn source(&self, folder: &Path, name: &Path) -> Result<PathBuf, Denied> {
        let folder = or_here(folder);
        if self.read_anywhere {
            let own = folder.join(name);
            return Ok(if own.exists() { own } else { name.to_owned() });
        }
        let real = folder.canonicalize()?;
        let start = plain(&std::path::absolute(folder)?);
        let path = plain(&start.join(name));
        // Before the disk is accessed: errors must not reveal which files exist outside.
        if !path.starts_with(&start) && !path.starts_with(&real) {
            return Err(Denied::Outside);
        }
        let path = path.canonicalize()?;
        match path.starts_with(&real) {
            true => Ok(path),
            false => Err(Denied::Outside),
        }
    }

    /// Resolves a file that a model in `folder` writes, without following links.
    /// [`target_file`](Self::target_file) follows them right before the write.
    pub(crate) fn target(&self, folder: &Path, name: &Path) -> Result<PathBuf, Denied> {
        let start = plain(&std::path::absolute(or_here(folder))?);
        let path = plain(&start.join(name));
        for place in self.places(folder) {
            let place = plain(&std::path::absolute(place)?);
            if path.starts_with(&place) && path != place {
                return Ok(path);
            }
        }
        Err(Denied::Outside)
    }

    /// Resolves the links of a target's folder.
    pub(crate) fn target_file(&self, folder: &Path, path: &Path) -> Result<PathBuf, Denied> {
        let name = path.file_name().ok_or(Denied::Outside)?;
        let parent = path.parent().unwrap_or(Path::new("")).canonicalize()?;
        for place in self.places(folder) {
            // A folder that does not exist cannot contain the target.
            let Ok(place) = place.canonicalize() else {
                continue;
            };
            if parent.starts_with(place) {
                return Ok(parent.join(name));
            }
        }
        Err(Denied::Outside)
    }

    fn places<'a>(&'a self, folder: &'a Path) -> impl Iterator<Item = &'a Path> {
        [or_here(folder)].into_iter().chain(self.writes_under())
    }
}

/// Reason why a model may not use a file.
#[derive(Debug)]
pub(crate) enum Denied {
    /// The file is outside the allowed folders.
    Outside,
    /// The path cannot be resolved.
    Io(io::Error),
}

impl From<io::Error> for Denied {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Replaces an empty path, which the system does not resolve.
fn or_here(folder: &Path) -> &Path {
    match folder.as_os_str().is_empty() {
        true => Path::new("."),
        false => folder,
    }
}

/// Removes `.` and `..` from a path.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => (),
            Component::ParentDir => {
                plain.pop();
            }
            component => plain.push(component),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folders() -> (tempfile::TempDir, PathBuf, PathBuf) {
        let root = tempfile::tempdir().unwrap();
        let (model, other) = (root.path().join("model"), root.path().join("other"));
        std::fs::create_dir_all(model.join("sub")).unwrap();
        std::fs::create_dir(&other).unwrap();
        std::fs::write(model.join("own"), "").unwrap();
        std::fs::write(other.join("secret"), "").unwrap();
        (root, model, other)
    }

    #[test]
    fn reads_stay_below_the_folder() {
        let (_root, model, other) = folders();
        let access = FileAccess::new();
        let found = |name: &Path| access.source(&model, name);
        assert!(found(Path::new("own")).is_ok());
        assert!(found(Path::new("sub/../own")).is_ok());
        assert!(found(&model.join("own")).is_ok());
        assert!(matches!(found(Path::new("none")), Err(Denied::Io(_))));
        let secret = other.join("secret");
        for name in [
            Path::new("../other/secret"),
            Path::new("../other/none"),
            &secret,
        ] {
            assert!(matches!(found(name), Err(Denied::Outside)), "{name:?}");
            let anywhere = FileAccess::new().read_anywhere(true);
            assert!(anywhere.source(&model, name).is_ok());
        }
    }

    #[test]
    fn writes_stay_below_the_folders() {
        let (_root, model, other) = folders();
        let access = FileAccess::new();
        let target = |access: &FileAccess, name: &Path| access.target(&model, name);
        assert!(target(&access, Path::new("sub/new")).is_ok());
        let new = other.join("new");
        for name in [Path::new("../other/new"), &new] {
            assert!(matches!(target(&access, name), Err(Denied::Outside)));
            let wider = FileAccess::new().write_under(&other);
            assert_eq!(target(&wider, name).unwrap(), new);
        }
        assert!(matches!(
            target(&access, Path::new(".")),
            Err(Denied::Outside)
        ));
        assert!(matches!(
            target(&access, Path::new("..")),
            Err(Denied::Outside)
        ));
    }

    #[cfg(unix)]
    #[test]
    fn links_do_not_lead_out() {
        let (_root, model, other) = folders();
        std::os::unix::fs::symlink(&other, model.join("link")).unwrap();
        std::os::unix::fs::symlink(other.join("secret"), model.join("file")).unwrap();
        let access = FileAccess::new();
        for name in ["link/secret", "file"] {
            let found = access.source(&model, Path::new(name));
            assert!(matches!(found, Err(Denied::Outside)), "{name}");
        }
        let target = access.target(&model, Path::new("link/new")).unwrap();
        let file = access.target_file(&model, &target);
        assert!(matches!(file, Err(Denied::Outside)));
    }

    #[cfg(unix)]
    #[test]
    fn no_path_leads_out() {
        use std::os::unix::fs::symlink;

        use proptest::prelude::*;

        let (root, model, other) = folders();
        symlink(&other, model.join("link")).unwrap();
        symlink("..", model.join("sub/up")).unwrap();
        symlink("../other/secret", model.join("file")).unwrap();
        symlink("/", model.join("root")).unwrap();
        let real = model.canonicalize().unwrap();
        let absolute = root.path().display().to_string();
        let parts = [
            ".", "..", "", "sub", "up", "link", "file", "root", "own", "other", "model", "secret",
            "new", &absolute,
        ];
        let part = prop::sample::select(parts.map(str::to_owned).to_vec());
        let paths = prop::collection::vec(part, 1..8);
        let access = FileAccess::new();
        proptest!(ProptestConfig::with_cases(20_000), |(parts in paths)| {
            let name = parts.join("/");
            if let Ok(path) = access.source(&model, Path::new(&name)) {
                prop_assert!(path.canonicalize().unwrap().starts_with(&real), "{}", name);
            }
            let Ok(target) = access.target(&model, Path::new(&name)) else {
                return Ok(());
            };
            if let Ok(file) = access.target_file(&model, &target) {
                let folder = file.parent().unwrap();
                prop_assert!(folder.canonicalize().unwrap().starts_with(&real), "{}", name);
            }
        });
    }
}
