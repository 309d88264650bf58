//! Identity files and keys that are lost or spoilt, where what is left says what was in them.
//!
//! * The store's identity is made anew from those of its targets, if all that are configured say the same; that of a target
//!   from the store's, if the directories of objects are there: of a file system that is not mounted they are not.
//! * Of the keys, new ones are as good as those that are lost: programs that had files open must open them anew, and names
//!   are written anew, in the order of the new key.
//! * The number of the last sync is the one that the database has.
//!
//! Without all of these nothing else can be looked at: where one is not to be repaired the check ends here.

use super::{Check, Checked, Finding};
use crate::owner::database_dir;
use crate::premises::{self, Identity};
use crate::secret::Secret;
use crate::{OpenError, StoreConfig, directory_lock, witness};
use isonomia_units::ServerId;

/// What was found.
pub(super) struct Found {
    pub server: ServerId,
    /// Something is left that the store cannot be opened without.
    pub is_in_the_way: bool,
    /// There is a new key for the order of directories.
    pub is_keyed_anew: bool,
}

pub(super) fn look(config: &StoreConfig, check: &mut Check<'_>, checked: &mut Checked) -> Result<Found, OpenError> {
    let nothing = Found { server: config.server, is_in_the_way: false, is_keyed_anew: false };
    if !database_dir(&config.dir).is_dir() {
        // There is nothing that identity and keys could be of.
        return Ok(nothing);
    }
    let _lock = directory_lock::take(&config.dir, directory_lock::LOCK)?;
    let (mut is_in_the_way, mut is_keyed_anew) = (false, false);
    let mut tell = |kind, what: String, repair: Option<&str>| {
        let what =
            if repair.is_some() && !check.repair { format!("{what}; the rest is looked at once it is") } else { what };
        let is_repaired = check.found(checked, &Finding { kind, ino: None, what, repair: repair.map(str::to_owned) });
        is_in_the_way |= !is_repaired;
        is_repaired
    };
    let lost = match Identity::of_store(&config.dir) {
        Ok(Some(identity)) => Ok(identity),
        Ok(None) => Err(format!("{} is missing", config.dir.join(premises::IDENTITY).display())),
        Err(error) => Err(error.damage()?),
    };
    let identity = match lost {
        Ok(identity) => identity,
        Err(what) => {
            let Some(identity) = Identity::from_targets(config) else {
                tell("identity", format!("{what}, and its targets do not all say the same of their store"), None);
                return Ok(Found { is_in_the_way: true, ..nothing });
            };
            if tell("identity", what, Some("make it anew from those of its targets")) {
                identity.write_to_store(&config.dir)?;
            }
            identity
        }
    };
    for target in config.targets.iter().filter(|target| identity.has(target.id)) {
        let what = match Identity::of_target(&target.dir) {
            Ok(Some(_)) => continue,
            Ok(None) => format!("{} has no identity", target.dir.display()),
            Err(error) => error.damage()?,
        };
        if crate::object::has_directories(&target.dir)
            && tell("identity", what, Some("make it anew from that of the store"))
        {
            identity.write_to_target(target)?;
        }
    }
    if let Err(error) = Secret::read(&config.dir, false) {
        let repair = "make new keys: programs lose their open files, and all names are written anew";
        if tell("secret", error.damage()?, Some(repair)) {
            Secret::replace(&config.dir)?;
            is_keyed_anew = true;
        }
    }
    if let Err(error) = witness::Witness::open(&config.dir, &[], false, &[0; 16])
        && tell("synced", error.damage()?, Some("take what the database has for all there was"))
    {
        witness::start_anew(&config.dir)?;
    }
    Ok(Found { server: identity.server(), is_in_the_way, is_keyed_anew })
}
