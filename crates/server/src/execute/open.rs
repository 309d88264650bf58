//! Opening files, and what follows a cut that a request waited for.

use super::nodes::{change, mapped, put_node, resize};
use super::objects;
use super::reply::{Reply, finish};
use crate::clock;
use crate::connection::Connection;
use crate::core::Core;
use crate::declared;
use crate::refusal::Refusal;
use isonomia_proto::fs::{Layout, access};
use isonomia_proto::hint::OpenHint;
use isonomia_proto::request::{Op, OpenReply, ReplyHeader, RequestHeader, flag};
use isonomia_store::{Caller, Creator, OpenHow, SetAttr, StoreError};
use isonomia_units::{Ino, TargetId};
use zerocopy::IntoBytes;

/// Serves what a request to open a file or to set attributes wants besides the size, of file `ino`: where its path led, and
/// which has been cut as it wanted. The path may lead elsewhere by now. EAGAIN, and the request is to be sent again, if the
/// file is gone meanwhile, or on another server.
pub fn serve_cut(
    core: &Core,
    connection: &Connection,
    header: &RequestHeader,
    op: Op,
    ino: Ino,
    room: &mut [u8],
) -> ReplyHeader {
    let _passage = core.store.namespace().passage();
    let mut reply = Reply::new(room);
    let credentials = &connection.credentials;
    let caller = &Caller { uid: credentials.uid, gid: credentials.gid, groups: &credentials.groups };
    let outcome = core.store.namespace().check_is_here(ino).map_err(Refusal::from).and_then(|()| {
        if op == Op::Open {
            let flags = header.flags & !(flag::TRUNCATE | flag::CREATE | flag::EXCLUSIVE);
            return open(core, connection, caller, &RequestHeader { ino: ino.0, flags, ..*header }, b"", &mut reply);
        }
        let change = SetAttr { size: None, ..change(header) };
        let attr = core.store.set_attr(caller, ino, b"", false, &change, clock::wall())?;
        put_node(core, connection, header, op, &attr, &mut reply)
    });
    let outcome = outcome.map_err(|refusal| match refusal {
        Refusal::Store(StoreError::Stale | StoreError::Elsewhere { .. }) => StoreError::CutMeanwhile.into(),
        refusal => refusal,
    });
    finish(header, op, outcome, reply)
}

pub(super) fn open(
    core: &Core,
    connection: &Connection,
    caller: &Caller<'_>,
    header: &RequestHeader,
    path: &[u8],
    reply: &mut Reply<'_>,
) -> Result<(), Refusal> {
    let has = |bit| header.flags & bit != 0;
    // Anybody else who reads a file can keep what is in it.
    let execute = if connection.may_ask_for_others { access::EXECUTE } else { 0 };
    let understood = access::READ | access::WRITE | execute;
    let how = OpenHow {
        access: header.len & understood,
        create: has(flag::CREATE),
        exclusive: has(flag::EXCLUSIVE),
        truncate: has(flag::TRUNCATE),
        directory: has(flag::DIRECTORY),
        no_follow: has(flag::NO_FOLLOW),
        unnamed: has(flag::UNNAMED),
        path_only: has(flag::PATH_ONLY),
        mode: header.mode,
        creator: Some(Creator { job: connection.job.id, hint: OpenHint::read(header).unwrap_or_default() }),
    };
    let at = Ino(header.ino);
    // Who may have no more open files is told before one is made or cut for him.
    let reserved = connection.session.reserve()?;
    let open = || core.store.open_file(caller, at, path, &how, clock::wall());
    let opened = if how.truncate {
        resize(core, mapped(core, caller, at, path, !how.no_follow), 0, open, |opened| opened.ino)?
    } else {
        open()?
    };
    core.add_reference(reserved, opened.ino, header.owner)?;
    core.prefixes.note_opened(&core.store, opened.ino);
    if opened.created
        && let Some(hint) = OpenHint::read(header)
    {
        declared::file(core, connection, opened.ino, opened.layout.as_deref(), &hint);
    }
    let (created, spread) = (u32::from(opened.created), u32::from(opened.is_spread));
    let fixed = OpenReply { capability: opened.capability, created, spread, attr: opened.attr };
    reply.put(fixed.as_bytes())?;
    if opened.is_spread {
        objects::put_opened(core, connection, header, &opened.capability, reply)?;
    }
    let mut layout = Vec::new();
    match &opened.layout {
        Some(layout_of_file) => layout_of_file.encode(&mut layout),
        // What is no regular file has no bytes on targets; clients expect some layout all the same.
        None => Layout { stripe_bytes: Layout::STRIPE_ALIGN_BYTES, targets: vec![TargetId(0)], grows: false }
            .encode(&mut layout),
    }
    Ok(reply.put(&layout)?)
}
