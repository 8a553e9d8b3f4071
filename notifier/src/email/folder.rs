//! Mails as files.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use countersign_kernel::ids::DeliveryId;
use countersign_kernel::ports::{DeliveryError, Receipt};
use sha2::{Digest, Sha256};

use crate::failure::transient;

/// Writes a mail into `folder`, which is made if need be. The file is there
/// as a whole or not at all, and another attempt of the same delivery
/// replaces it.
pub(super) async fn write(folder: PathBuf, delivery: DeliveryId, message: Vec<u8>) -> Result<Receipt, DeliveryError> {
    let name = format!("{}.eml", stem(&delivery));
    let file = name.clone();
    let done = tokio::task::spawn_blocking(move || replace(&folder, &file, &message)).await;
    match done {
        Ok(Ok(())) => Ok(Receipt { detail: name }),
        Ok(Err(error)) => Err(transient(format!("the mail could not be written to its file: {error}"))),
        Err(_) => Err(transient("writing the mail was broken off")),
    }
}

/// A file name for a delivery: its id where that is a name on every file
/// system (UUIDs are), else a hash of it.
fn stem(delivery: &DeliveryId) -> String {
    let id = delivery.as_str();
    if id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_') {
        id.to_owned()
    } else {
        format!("delivery-{}", &hex::encode(Sha256::digest(id))[..32])
    }
}

fn replace(folder: &Path, name: &str, content: &[u8]) -> io::Result<()> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    fs::create_dir_all(folder)?;
    let nth = COUNT.fetch_add(1, Ordering::Relaxed);
    let temporary = folder.join(format!(".{name}.{}.{nth}.tmp", std::process::id()));
    let done = write_new(&temporary, content)
        .and_then(|()| fs::rename(&temporary, folder.join(name)))
        .and_then(|()| sync_folder(folder));
    if done.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    done
}

/// Readable by the owner only where the system knows owners: links are keys.
fn write_new(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(path)?;
    file.write_all(content)?;
    file.sync_all()
}

/// Makes the new name durable, where folders can be synchronised.
fn sync_folder(folder: &Path) -> io::Result<()> {
    if cfg!(unix) { File::open(folder)?.sync_all() } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> DeliveryId {
        DeliveryId::parse(text).expect("id")
    }

    #[test]
    fn every_delivery_has_a_plain_file_name_of_its_own() {
        let uuid = "0198c1f2-7a3b-7000-8000-0123456789ab";
        assert_eq!(stem(&id(uuid)), uuid);
        let odd = [".", "..", "a:b", "a.b", "con."].map(|text| stem(&id(text)));
        for stem in &odd {
            assert!(stem.starts_with("delivery-") && stem.len() == 41, "{stem}");
        }
        assert_ne!(odd[2], odd[3]);
    }
}
