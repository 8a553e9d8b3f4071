//! Where the servers' programs are.

use std::fs;
use std::path::{Path, PathBuf};

/// Where Debian and its kin put Postgres: a folder for each version.
const VERSIONS: &str = "/usr/lib/postgresql";

/// The folder with the programs of Postgres.
pub(super) fn postgres() -> Option<PathBuf> {
    postgres_in(&path(), Path::new(VERSIONS))
}

/// A program on the path.
pub(super) fn program(name: &str) -> Option<PathBuf> {
    path().into_iter().map(|folder| folder.join(name)).find(|file| file.is_file())
}

fn path() -> Vec<PathBuf> {
    std::env::var_os("PATH").map(|path| std::env::split_paths(&path).collect()).unwrap_or_default()
}

/// The first folder of the path that has all, else the newest version.
fn postgres_in(path: &[PathBuf], versions: &Path) -> Option<PathBuf> {
    let whole = |folder: &&PathBuf| ["initdb", "postgres"].iter().all(|name| folder.join(name).is_file());
    if let Some(folder) = path.iter().find(whole) {
        return Some(folder.clone());
    }
    let mut found: Vec<(u32, PathBuf)> = fs::read_dir(versions)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path().join("bin"))))
        .collect();
    found.sort_unstable();
    found.iter().rev().map(|(_, folder)| folder).find(whole).cloned()
}

#[cfg(test)]
mod tests {
    use super::super::place::Folder;
    use super::*;

    fn put(folder: &Path, names: &[&str]) -> PathBuf {
        fs::create_dir_all(folder).expect("a folder");
        for name in names {
            fs::write(folder.join(name), "").expect("a file");
        }
        folder.to_owned()
    }

    #[test]
    fn the_path_comes_first_and_has_to_have_all() {
        let place = Folder::new(&std::env::temp_dir()).expect("a folder");
        let half = put(&place.path().join("half"), &["postgres"]);
        let whole = put(&place.path().join("whole"), &["postgres", "initdb"]);
        let versions = place.path().join("versions");
        let newest = put(&versions.join("17/bin"), &["postgres", "initdb"]);
        assert_eq!(postgres_in(&[half.clone(), whole.clone()], &versions), Some(whole));
        assert_eq!(postgres_in(&[half], &versions), Some(newest));
    }

    #[test]
    fn the_newest_version_is_newest_by_number() {
        let place = Folder::new(&std::env::temp_dir()).expect("a folder");
        put(&place.path().join("9/bin"), &["postgres", "initdb"]);
        let fifteen = put(&place.path().join("15/bin"), &["postgres", "initdb"]);
        put(&place.path().join("18/bin"), &["pg_dump"]);
        put(&place.path().join("old/bin"), &["postgres", "initdb"]);
        assert_eq!(postgres_in(&[], place.path()), Some(fifteen));
    }

    #[test]
    fn nothing_is_found_where_nothing_is() {
        let place = Folder::new(&std::env::temp_dir()).expect("a folder");
        assert_eq!(postgres_in(&[], &place.path().join("missing")), None);
    }
}
