//! What kind of program a file is, as far as preloading a library into it is concerned.

use anyhow::{Context, Result};
use object::elf::{EM_386, EM_AARCH64, EM_X86_64, FileHeader32, FileHeader64, PT_INTERP};
use object::read::elf::{FileHeader, ProgramHeader};
use object::{Endianness, FileKind, ReadCache, ReadRef};
use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The kernel gives up on longer chains of interpreters.
const SCRIPT_DEPTH_MAX: usize = 4;
/// The kernel looks at no more of a script's first line.
const SCRIPT_LINE_LEN_MAX: u64 = 256;
const SET_UID: u32 = 0o4000;
/// Without execution by the group the bit means something else.
const SET_GID: u32 = 0o2010;
/// Where the kernel finds what rights a program gets.
const CAPABILITIES: &str = "security.capability";

/// How far a preloaded library reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Into the program and what it starts.
    Program,
    /// Not into the program, for this reason; but into other programs that it starts.
    ChildrenOnly(&'static str),
    /// It would keep the program from starting, for this reason.
    Harmful(&'static str),
}

/// How far a library preloaded into `path` reaches. An error if the file cannot be read; a file that the kernel
/// will refuse is [`Reach::Program`], for the kernel says best what is wrong with it.
pub fn reach(path: &Path) -> Result<Reach> {
    let mut path = path.to_owned();
    for _ in 0..SCRIPT_DEPTH_MAX {
        let file = File::open(&path).with_context(|| format!("cannot look at {}", path.display()))?;
        match interpreter(&file)? {
            Some(interpreter) => path = interpreter,
            None if gains_rights(&file, Ids::own())? => {
                return Ok(Reach::ChildrenOnly("gets rights of its own when it starts"));
            }
            None => return Ok(elf_reach(&ReadCache::new(file))),
        }
    }
    Ok(Reach::Program)
}

/// Who starts a program.
#[derive(Clone, Copy)]
struct Ids {
    uid: u32,
    gid: u32,
}

impl Ids {
    fn own() -> Self {
        Self { uid: rustix::process::getuid().as_raw(), gid: rustix::process::getgid().as_raw() }
    }
}

/// Whether a program may do more than who starts it, so that nothing is preloaded into it (`AT_SECURE`). The kernel looks
/// at the program itself: of a script, these bits mean nothing.
fn gains_rights(file: &File, who: Ids) -> Result<bool> {
    let metadata = file.metadata()?;
    let has = |bits| metadata.mode() & bits == bits;
    let changes_ids = (has(SET_UID) && metadata.uid() != who.uid) || (has(SET_GID) && metadata.gid() != who.gid);
    let has_capabilities = || rustix::fs::fgetxattr(file, CAPABILITIES, &mut [0; 32][..]).is_ok();
    Ok(changes_ids || (who.uid != 0 && has_capabilities()))
}

/// The interpreter that a script's first line names.
fn interpreter(mut file: &File) -> Result<Option<PathBuf>> {
    let mut head = Vec::new();
    file.by_ref().take(SCRIPT_LINE_LEN_MAX).read_to_end(&mut head)?;
    let line = head.strip_prefix(b"#!").and_then(|rest| rest.split(|b| *b == b'\n').next());
    let mut words = line.into_iter().flat_map(|line| line.split(u8::is_ascii_whitespace));
    Ok(words.find(|word| !word.is_empty()).map(|word| PathBuf::from(OsStr::from_bytes(word))))
}

fn elf_reach<'data>(data: impl ReadRef<'data>) -> Reach {
    match FileKind::parse(data) {
        Ok(FileKind::Elf64) => elf_reach_of::<FileHeader64<Endianness>, _>(data),
        Ok(FileKind::Elf32) => elf_reach_of::<FileHeader32<Endianness>, _>(data),
        _ => Reach::Program,
    }
}

fn elf_reach_of<'data, H: FileHeader<Endian = Endianness>, R: ReadRef<'data>>(data: R) -> Reach {
    let dynamic_linker = || {
        let header = H::parse(data).ok()?;
        let endian = header.endian().ok()?;
        let machine = header.e_machine(endian);
        let mut linker = None;
        for segment in header.program_headers(endian, data).ok()? {
            if segment.p_type(endian) == PT_INTERP {
                linker = Some(segment.interpreter(endian, data).ok()??);
            }
        }
        Some((machine, linker))
    };
    let own = if cfg!(target_arch = "aarch64") { EM_AARCH64 } else { EM_X86_64 };
    match dynamic_linker() {
        None => Reach::Program,
        Some((EM_386, _)) => Reach::ChildrenOnly("is a 32-bit program"),
        Some((machine, _)) if machine != own => Reach::ChildrenOnly("is for another kind of processor"),
        Some((_, None)) => Reach::ChildrenOnly("is statically linked"),
        Some((_, Some(linker))) if linker.windows(7).any(|name| name == b"ld-musl") => {
            Reach::Harmful("is linked with musl, not glibc")
        }
        Some((_, Some(_))) => Reach::Program,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn file_with(content: &[u8]) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), content).unwrap();
        file
    }

    /// A 64-bit little-endian ELF file with one segment that names `linker`, if given.
    fn elf(machine: u16, linker: Option<&[u8]>) -> Vec<u8> {
        let mut elf = vec![0x7f, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        elf.extend(2u16.to_le_bytes());
        elf.extend(machine.to_le_bytes());
        elf.extend(1u32.to_le_bytes());
        elf.extend([0u64, 64, 0].map(u64::to_le_bytes).concat());
        elf.extend(0u32.to_le_bytes());
        elf.extend([64u16, 56, u16::from(linker.is_some()), 0, 0, 0].map(u16::to_le_bytes).concat());
        if let Some(linker) = linker {
            elf.extend([PT_INTERP.0, 4].map(u32::to_le_bytes).concat());
            let len = linker.len() as u64;
            elf.extend([120, 0, 0, len, len, 1].map(u64::to_le_bytes).concat());
            elf.extend(linker);
        }
        elf
    }

    const OWN: u16 = if cfg!(target_arch = "aarch64") { EM_AARCH64.0 } else { EM_X86_64.0 };

    #[test]
    fn programs_are_told_apart() {
        let of = |content: &[u8]| reach(file_with(content).path()).unwrap();
        assert_eq!(of(&elf(OWN, Some(b"/lib64/ld-linux-x86-64.so.2\0"))), Reach::Program);
        assert_eq!(of(&elf(OWN, None)), Reach::ChildrenOnly("is statically linked"));
        assert!(matches!(of(&elf(OWN, Some(b"/lib/ld-musl-x86_64.so.1\0"))), Reach::Harmful(_)));
        assert_eq!(of(&elf(243, Some(b"/x\0"))), Reach::ChildrenOnly("is for another kind of processor"));
        assert_eq!(of(b"neither"), Reach::Program);
        assert_eq!(of(&elf(OWN, None)[..40]), Reach::Program);
    }

    #[test]
    fn a_script_is_what_its_interpreter_is() {
        let interpreter = file_with(&elf(OWN, None));
        let script = file_with(format!("#! {} -e\necho\n", interpreter.path().display()).as_bytes());
        assert_eq!(reach(script.path()).unwrap(), Reach::ChildrenOnly("is statically linked"));
    }

    #[test]
    fn what_gets_more_rights_than_who_starts_it_is_told_apart() {
        let program = file_with(&elf(OWN, Some(b"/lib64/ld-linux-x86-64.so.2\0")));
        let file = program.as_file();
        let set_mode = |mode| file.set_permissions(PermissionsExt::from_mode(mode)).unwrap();
        let (own, other) = (Ids::own(), Ids { uid: 12_345, gid: 12_345 });
        let gains = |who| gains_rights(file, who).unwrap();
        for (mode, for_own, for_other) in
            [(0o755, false, false), (0o4755, false, true), (0o2755, false, true), (0o2745, false, false)]
        {
            set_mode(mode);
            assert_eq!((gains(own), gains(other)), (for_own, for_other), "{mode:o}");
            assert_eq!(reach(program.path()).unwrap(), Reach::Program, "{mode:o}");
        }
        // What `setcap cap_net_raw+ep` writes; only root may.
        let capability = [0x0200_0001u32, 1 << 13, 0, 0, 0].map(u32::to_le_bytes).concat();
        if rustix::fs::fsetxattr(file, CAPABILITIES, &capability, rustix::fs::XattrFlags::empty()).is_ok() {
            assert_eq!((gains(Ids { uid: 0, ..other }), gains(other)), (false, true));
        }
    }

    #[test]
    fn a_script_that_interprets_itself_ends() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("loop");
        std::fs::write(&path, format!("#!{}\n", path.display())).unwrap();
        assert_eq!(reach(&path).unwrap(), Reach::Program);
    }

    #[test]
    fn this_very_program_can_be_preloaded() {
        assert_eq!(reach(&std::env::current_exe().unwrap()).unwrap(), Reach::Program);
    }
}
