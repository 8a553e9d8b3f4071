//! The data folder: one process owns it, workers may use it beside that one,
//! and its secrets are readable by its user only (R31).

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use countersign_kernel::ports::Ids;
use countersign_notifier::LinkKeys;
use serde::{Deserialize, Serialize};

use super::StartError;
use crate::config::DATABASE_FILE;

/// The folder of what is kept on this machine.
#[derive(Debug)]
pub struct DataFolder {
    path: PathBuf,
    /// None for a process that is not the folder's owner.
    lock: Option<File>,
}

/// What personal links, sessions and cursors are signed with.
#[derive(Serialize, Deserialize)]
struct SecretFile {
    /// The name of the present key.
    kid: String,
    /// The present key, hex.
    secret: String,
    /// Older keys that still verify: name and hex.
    #[serde(default)]
    older: Vec<(String, String)>,
    /// Raised when a restored backup must not honour links of its future.
    #[serde(default)]
    epoch: u32,
}

impl DataFolder {
    /// Creates the folder if needed and takes it.
    ///
    /// # Errors
    /// Another process has it, or it cannot be written.
    pub fn open(path: &Path) -> Result<Self, StartError> {
        let failed = |source| StartError::Folder { folder: path.display().to_string(), source };
        make(path).map_err(failed)?;
        let mut lock = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path.join("lock"))
            .map_err(failed)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(StartError::AlreadyRunning { address: announced(&mut lock).map_err(failed)? });
            }
            Err(TryLockError::Error(source)) => return Err(failed(source)),
        }
        // What stands there is of a process that has ended.
        lock.set_len(0).map_err(failed)?;
        Ok(Self { path: path.to_owned(), lock: Some(lock) })
    }

    /// Creates the folder if needed and uses it beside the process that has it,
    /// if one has.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn beside(path: &Path) -> Result<Self, StartError> {
        make(path).map_err(|source| StartError::Folder { folder: path.display().to_string(), source })?;
        Ok(Self { path: path.to_owned(), lock: None })
    }

    /// Makes the file of a database, if there is none, which nobody else can
    /// read: SQLite gives its other files the same mode, and the folder may be
    /// one that everybody may look into.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn make_database(&self, file: &Path) -> Result<(), StartError> {
        match create_private(file) {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => Err(self.failed(error)),
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// Where the process listens that has the folder, if one has it. Makes and
    /// keeps nothing.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn owner(path: &Path) -> Result<Option<String>, StartError> {
        let failed = |source| StartError::Folder { folder: path.display().to_string(), source };
        let mut lock = match File::open(path.join("lock")) {
            Ok(lock) => lock,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(error)),
        };
        match lock.try_lock_shared() {
            Ok(()) => Ok(None),
            Err(TryLockError::WouldBlock) => announced(&mut lock).map(Some).map_err(failed),
            Err(TryLockError::Error(source)) => Err(failed(source)),
        }
    }

    /// The database.
    #[must_use]
    pub fn database(&self) -> PathBuf {
        Self::database_of(&self.path)
    }

    /// The database of a folder that this process need not have.
    #[must_use]
    pub fn database_of(path: &Path) -> PathBuf {
        path.join(DATABASE_FILE)
    }

    /// The demo ledger.
    #[must_use]
    pub fn ledger(&self) -> PathBuf {
        self.path.join("ledger.db")
    }

    /// Says where the server listens, for commands that look for it.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn announce(&self, address: &str) -> Result<(), StartError> {
        let Some(mut lock) = self.lock.as_ref() else { return Ok(()) };
        lock.seek(SeekFrom::Start(0))
            .and_then(|_| lock.set_len(0))
            .and_then(|()| lock.write_all(address.as_bytes()))
            .map_err(|source| self.failed(source))
    }

    /// Gives the folder back.
    pub fn release(self) {
        let Some(lock) = self.lock else { return };
        if let Err(error) = lock.set_len(0).and_then(|()| lock.unlock()) {
            tracing::warn!(%error, "the data folder's lock could not be released; it ends with the process");
        }
    }

    /// The keys of links and sessions: those of the file that is named, which
    /// must be there, else those of this folder, which its owner makes at the
    /// first start. A process beside the owner makes none: links that nobody
    /// else can verify would be of no use.
    ///
    /// # Errors
    /// The file cannot be read or written, or is damaged or missing.
    pub fn keys(&self, named: Option<&Path>, ids: &dyn Ids) -> Result<LinkKeys, StartError> {
        let path = named.map_or_else(|| self.path.join("secret.json"), Path::to_owned);
        let text = if named.is_some() || self.lock.is_none() {
            std::fs::read_to_string(&path)
                .map_err(|source| StartError::NoSecret { file: path.display().to_string(), source })?
        } else {
            self.read_or_make(&path, || {
                let secret = [ids.salt(), ids.salt()].concat();
                let file = SecretFile {
                    kid: hex::encode(&ids.salt()[..4]),
                    secret: hex::encode(secret),
                    older: Vec::new(),
                    epoch: 1,
                };
                serde_json::to_string_pretty(&file).unwrap_or_default()
            })?
        };
        let damaged = |what: String| self.failed(std::io::Error::new(std::io::ErrorKind::InvalidData, what));
        let file: SecretFile =
            serde_json::from_str(&text).map_err(|error| damaged(format!("{}: {error}", path.display())))?;
        let bytes = |text: &str| hex::decode(text).map_err(|error| damaged(format!("{}: {error}", path.display())));
        let current = (file.kid, bytes(&file.secret)?);
        let older = file
            .older
            .into_iter()
            .map(|(kid, secret)| Ok((kid, bytes(&secret)?)))
            .collect::<Result<_, StartError>>()?;
        Ok(LinkKeys::new(current, older, file.epoch)?)
    }

    /// The administrator's API token; made at the first start.
    ///
    /// # Errors
    /// The file cannot be read or written.
    pub fn token(&self, path: &Path, ids: &dyn Ids) -> Result<String, StartError> {
        let text = self.read_or_make(path, || format!("cs_{}\n", hex::encode([ids.salt(), ids.salt()].concat())))?;
        let token = text.trim();
        if token.len() < 16 || !token.bytes().all(|b| b.is_ascii_graphic()) {
            let problem = format!("{} holds no token; remove it to have a new one made", path.display());
            return Err(self.failed(std::io::Error::new(std::io::ErrorKind::InvalidData, problem)));
        }
        Ok(token.to_owned())
    }

    /// Reads a file of this folder, or makes it: whole or not at all, and
    /// readable by its user only from the first byte.
    fn read_or_make(&self, path: &Path, make: impl FnOnce() -> String) -> Result<String, StartError> {
        match std::fs::read_to_string(path) {
            Ok(text) => return Ok(text),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(self.failed(error)),
        }
        let text = make();
        let part = path.with_extension("part");
        let written = std::fs::remove_file(&part)
            .or_else(|error| if error.kind() == std::io::ErrorKind::NotFound { Ok(()) } else { Err(error) })
            .and_then(|()| create_private(&part))
            .and_then(|mut file| file.write_all(text.as_bytes()).and_then(|()| file.sync_all()))
            .and_then(|()| std::fs::rename(&part, path))
            .and_then(|()| File::open(&self.path)?.sync_all());
        written.map(|()| text).map_err(|error| self.failed(error))
    }

    fn failed(&self, source: std::io::Error) -> StartError {
        StartError::Folder { folder: self.path.display().to_string(), source }
    }
}

fn make(path: &Path) -> std::io::Result<()> {
    if path.exists() {
        return Ok(());
    }
    std::fs::create_dir_all(path)?;
    private(path, 0o700)
}

/// Where the owner of the lock listens, as it says.
fn announced(lock: &mut File) -> std::io::Result<String> {
    let mut address = String::new();
    lock.read_to_string(&mut address)?;
    let address = address.trim();
    Ok(if address.is_empty() { "an address not known yet" } else { address }.to_owned())
}

#[cfg(unix)]
fn create_private(path: &Path) -> std::io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

#[cfg(not(unix))]
fn create_private(path: &Path) -> std::io::Result<File> {
    OpenOptions::new().write(true).create_new(true).open(path)
}

#[cfg(unix)]
fn private(path: &Path, mode: u32) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))
}

#[cfg(not(unix))]
fn private(_: &Path, _: u32) -> std::io::Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use countersign_worker::system::SystemIds;

    use super::*;

    #[test]
    fn a_second_process_is_refused_and_told_where_the_first_listens() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("data");
        assert_eq!(DataFolder::owner(&path).expect("no folder"), None);
        assert!(!path.exists(), "looking makes nothing");
        let first = DataFolder::open(&path).expect("free");
        first.announce("http://127.0.0.1:8420").expect("written");
        assert_eq!(DataFolder::owner(&path).expect("readable").as_deref(), Some("http://127.0.0.1:8420"));
        let refused = DataFolder::open(&path).expect_err("taken");
        assert!(matches!(refused, StartError::AlreadyRunning { address } if address == "http://127.0.0.1:8420"));
        first.release();
        assert_eq!(DataFolder::owner(&path).expect("readable"), None);
        DataFolder::open(&path).expect("free again");
    }

    #[test]
    fn secrets_are_made_once_and_private() {
        let dir = tempfile::tempdir().expect("a folder");
        let folder = DataFolder::open(dir.path()).expect("free");
        let path = dir.path().join("token");
        let token = folder.token(&path, &SystemIds).expect("made");
        assert_eq!(folder.token(&path, &SystemIds).expect("read"), token);
        let beside = DataFolder::beside(dir.path()).expect("beside");
        assert!(matches!(beside.keys(None, &SystemIds), Err(StartError::NoSecret { .. })), "only the owner makes it");
        folder.keys(None, &SystemIds).expect("made");
        folder.keys(None, &SystemIds).expect("read");
        beside.keys(None, &SystemIds).expect("read");
        let named = dir.path().join("shared.json");
        assert!(matches!(folder.keys(Some(&named), &SystemIds), Err(StartError::NoSecret { .. })), "named, not made");
        std::fs::copy(dir.path().join("secret.json"), &named).expect("copied");
        folder.keys(Some(&named), &SystemIds).expect("read");
        #[cfg(unix)]
        for name in ["token", "secret.json"] {
            use std::os::unix::fs::PermissionsExt;
            let mode = std::fs::metadata(dir.path().join(name)).expect("there").permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{name}");
        }
    }

    #[test]
    fn a_token_that_no_header_can_carry_is_refused() {
        let dir = tempfile::tempdir().expect("a folder");
        let folder = DataFolder::open(dir.path()).expect("free");
        let path = dir.path().join("token");
        for bad in ["", "cs_short", "cs_0123456789abcdef\nof another line", "cs_0123456789abcdéf"] {
            std::fs::write(&path, bad).expect("written");
            assert!(matches!(folder.token(&path, &SystemIds), Err(StartError::Folder { .. })), "{bad:?}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn in_an_open_folder_the_databases_are_private() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().expect("a folder");
        private(dir.path(), 0o755).expect("open to all");
        let folder = DataFolder::open(dir.path()).expect("free");
        for file in [folder.database(), folder.ledger()] {
            folder.make_database(&file).expect("made");
            folder.make_database(&file).expect("left alone");
            let mode = std::fs::metadata(&file).expect("there").permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{}", file.display());
        }
    }

    #[test]
    fn a_damaged_secret_is_named_and_not_replaced() {
        let dir = tempfile::tempdir().expect("a folder");
        let folder = DataFolder::open(dir.path()).expect("free");
        std::fs::write(dir.path().join("secret.json"), "{").expect("written");
        let error = folder.keys(None, &SystemIds).expect_err("damaged");
        assert!(matches!(error, StartError::Folder { source, .. } if source.to_string().contains("secret.json")));
        assert_eq!(std::fs::read_to_string(dir.path().join("secret.json")).expect("there"), "{");
    }
}
