//! Every target comes from the same kernels: nothing in this crate is compiled for one runtime only.

use std::fs;
use std::path::{Path, PathBuf};

fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("the sources are there");
    let paths = entries.map(|entry| entry.expect("the folder is readable").path());
    paths
        .flat_map(|path| match path.is_dir() {
            true => sources(&path),
            false => vec![path],
        })
        .collect()
}

#[test]
fn no_source_is_conditional_on_a_runtime() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let sources = sources(&root.join("src"));
    assert!(sources.len() > 10);
    for path in sources {
        let text = fs::read_to_string(&path).expect("a source is text");
        for (number, line) in text.lines().enumerate() {
            let is_conditional = ["cfg(", "cfg!(", "cfg_attr("]
                .iter()
                .any(|condition| line.contains(condition));
            let only_for_tests = line.contains("cfg(test)");
            assert!(
                !is_conditional || only_for_tests,
                "{}:{}: {line}",
                path.display(),
                number + 1
            );
        }
    }
}
