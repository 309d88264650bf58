//! Whether a request proves that its user came to the inode where it begins, and may do with it what it asks for.
//!
//! A capability is valid for the user that it is made out to. A trusted session, whose peer is root or the server's own user,
//! may use everybody's, and name inodes without any: it could take what it wants from the store's directory, and where it
//! is a mount the kernel has walked the path.

use crate::connection::Connection;
use crate::core::Core;
use crate::refusal::Refusal;
use isonomia_proto::fs::Capability;
use isonomia_proto::request::RequestHeader;
use isonomia_units::Ino;

/// Checks that a request of `connection` may begin at the inode of `capability`.
pub fn check_start(core: &Core, connection: &Connection, capability: &Capability) -> Result<(), Refusal> {
    // Everybody may begin at the root, and in a cluster the proof of having come there is another server's.
    if capability.ino == Ino::ROOT.0 {
        return Ok(());
    }
    if !capability.is_proven() {
        return if connection.is_trusted { Ok(()) } else { Err(Refusal::Unproven) };
    }
    check_holder(connection, capability)?;
    Ok(core.store.namespace().verify(capability)?)
}

/// Checks that the capability of a request on an open file is good, and allows all of `needed` (bits of
/// [`isonomia_proto::fs::access`]).
pub fn check_access(core: &Core, connection: &Connection, header: &RequestHeader, needed: u32) -> Result<(), Refusal> {
    let capability = header.capability();
    check_holder(connection, &capability)?;
    Ok(core.store.namespace().verify_access(&capability, needed)?)
}

/// Checks that the capability of a request is good, and comes from an open that allows something: not of `O_PATH`.
pub fn check_opened(core: &Core, connection: &Connection, header: &RequestHeader) -> Result<(), Refusal> {
    let capability = header.capability();
    check_holder(connection, &capability)?;
    Ok(core.store.namespace().verify_opened(&capability)?)
}

fn check_holder(connection: &Connection, capability: &Capability) -> Result<(), Refusal> {
    if capability.holder == connection.credentials.uid || connection.is_trusted {
        Ok(())
    } else {
        Err(Refusal::OfAnother)
    }
}
