//! Where the servers write, and as whom they run.

use std::fs::{self, DirBuilder};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::process::{Failed, say};

/// Whether we are root, which Postgres does not run as.
pub(super) fn is_root() -> bool {
    let output = Command::new("id").arg("-u").stderr(Stdio::null()).output();
    output.is_ok_and(|output| output.stdout.trim_ascii() == b"0")
}

/// A fresh folder, deleted at the end.
pub(super) struct Folder(PathBuf);

impl Folder {
    /// A folder in `parent`, which others may enter but not write to.
    pub(super) fn new(parent: &Path) -> std::io::Result<Self> {
        let mut number = 0;
        loop {
            let path = parent.join(format!("countersign-servers-{}-{number}", std::process::id()));
            match DirBuilder::new().mode(0o755).create(&path) {
                Ok(()) => return Ok(Self(path)),
                Err(error) if error.kind() == ErrorKind::AlreadyExists => number += 1,
                Err(error) => return Err(error),
            }
        }
    }

    /// Where it is.
    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            say(&format!("{} cannot be deleted: {error}", self.0.display()));
        }
    }
}

/// A line of the list of accounts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Account {
    user: u32,
    group: u32,
}

/// The servers' folder, and the account of those that refuse to run as root.
pub(super) struct Place {
    folder: Folder,
    account: Option<Account>,
}

impl Place {
    /// A fresh folder. Where we are root, it is one that others can reach.
    pub(super) fn new() -> Result<Self, Failed> {
        let account = if is_root() { Some(unprivileged()?) } else { None };
        let parents = [std::env::temp_dir(), PathBuf::from("/tmp"), PathBuf::from("/var/tmp")];
        let parent = parents
            .iter()
            .filter_map(|parent| parent.canonicalize().ok())
            .find(|parent| account.is_none() || open_to_others(parent))
            .ok_or_else(|| Failed("there is no folder for temporary files that others can reach".to_owned()))?;
        let folder = Folder::new(&parent).map_err(|error| Failed(format!("{}: {error}", parent.display())))?;
        Ok(Self { folder, account })
    }

    /// A path in the folder.
    pub(super) fn join(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A new folder for one server alone.
    pub(super) fn make(&self, name: &str) -> Result<PathBuf, Failed> {
        let path = self.join(name);
        DirBuilder::new()
            .mode(0o700)
            .create(&path)
            .and_then(|()| match self.account {
                Some(account) => chown(&path, Some(account.user), Some(account.group)),
                None => Ok(()),
            })
            .map_err(|error| Failed(format!("{}: {error}", path.display())))?;
        Ok(path)
    }

    /// A program that runs in the folder, and never as root.
    pub(super) fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        // Their messages are waited for, so they have to be in English.
        command.current_dir(self.folder.path()).stdin(Stdio::null()).env("LC_ALL", "C");
        if let Some(account) = self.account {
            command.uid(account.user).gid(account.group);
        }
        command
    }
}

/// Whether others may pass through all the folders to this one, and through it.
fn open_to_others(folder: &Path) -> bool {
    folder.ancestors().all(|folder| fs::metadata(folder).is_ok_and(|found| found.mode() & 0o001 != 0))
}

fn unprivileged() -> Result<Account, Failed> {
    let text = fs::read_to_string("/etc/passwd").map_err(|error| Failed(format!("/etc/passwd: {error}")))?;
    ["postgres", "nobody"].iter().find_map(|name| account(&text, name)).ok_or_else(|| {
        Failed("Postgres does not run as root, and there is no account `postgres` or `nobody`".to_owned())
    })
}

/// An account other than root's in the list of accounts.
fn account(list: &str, name: &str) -> Option<Account> {
    let line = list.lines().find(|line| line.split(':').next() == Some(name))?;
    let mut numbers = line.split(':').skip(2);
    let account = Account { user: numbers.next()?.parse().ok()?, group: numbers.next()?.parse().ok()? };
    (account.user != 0).then_some(account)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    const LIST: &str = "root:x:0:0:root:/root:/bin/sh\nbroken\npostgres2:x:7:7::/:/bin/sh\n\
                        postgres:x:101:104:Administrator,,,:/var:/bin/sh\n";

    #[test]
    fn an_account_is_found_by_its_whole_name() {
        assert_eq!(account(LIST, "postgres"), Some(Account { user: 101, group: 104 }));
        assert_eq!(account(LIST, "nobody"), None);
        assert_eq!(account(LIST, "broken"), None);
    }

    #[test]
    fn root_is_not_an_account_to_change_to() {
        assert_eq!(account(LIST, "root"), None);
    }

    #[test]
    fn a_folder_is_new_and_goes_with_its_owner() {
        let parent = std::env::temp_dir();
        let (one, two) = (Folder::new(&parent).expect("a folder"), Folder::new(&parent).expect("a folder"));
        let path = one.path().to_owned();
        assert_ne!(path, two.path());
        fs::write(path.join("file"), "text").expect("a file");
        drop(one);
        assert!(!path.exists());
    }

    #[test]
    fn a_closed_folder_closes_all_in_it() {
        let place = Folder::new(&std::env::temp_dir()).expect("a folder");
        let inner = place.path().join("inner");
        fs::create_dir(&inner).expect("a folder");
        fs::set_permissions(&inner, fs::Permissions::from_mode(0o755)).expect("permissions");
        fs::set_permissions(place.path(), fs::Permissions::from_mode(0o700)).expect("permissions");
        assert!(!open_to_others(&inner));
        assert!(open_to_others(Path::new("/")));
    }
}
