//! What a shared library says of other libraries: which it needs, and where they are to be looked for (System V ABI,
//! "Dynamic Section").

use object::elf::{DT_NEEDED, DT_NULL, DT_RPATH, DT_RUNPATH, DT_STRTAB, DynamicTag, FileHeader64, PT_LOAD};
use object::read::StringTable;
use object::read::elf::{Dyn, FileHeader, ProgramHeader};
use object::{Endianness, ReadRef};

/// See the module.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Names of libraries.
    pub libraries: Vec<Vec<u8>>,
    /// Directories, perhaps with `$ORIGIN` in them.
    pub directories: Vec<Vec<u8>>,
}

/// What a file needs. Nothing is known of one that is no library for machines of 64 bits, or not as it must be.
pub fn needs<'data>(data: impl ReadRef<'data>) -> Option<Needs> {
    let header = FileHeader64::<Endianness>::parse(data).ok()?;
    let endian = header.endian().ok()?;
    let segments = header.program_headers(endian, data).ok()?;
    let entries = segments.iter().find_map(|segment| segment.dynamic(endian, data).ok().flatten())?;
    let all = |wanted: DynamicTag| {
        let ours = entries.iter().take_while(|entry| entry.tag(endian) != DT_NULL);
        ours.filter(move |entry| entry.tag(endian) == wanted)
    };
    let address = all(DT_STRTAB).next()?.val(endian);
    let strings = segments.iter().filter(|segment| segment.p_type(endian) == PT_LOAD).find_map(|segment| {
        let within = address.checked_sub(segment.p_vaddr(endian))?;
        let (start, len) = segment.file_range(endian);
        (within < len).then(|| Some(StringTable::new(data, start.checked_add(within)?, start.checked_add(len)?)))?
    })?;
    let string = |entry: &<FileHeader64<Endianness> as FileHeader>::Dyn| entry.string(endian, strings).ok();
    // The older kind counts only without the newer one.
    let directories = all(DT_RUNPATH).next().or_else(|| all(DT_RPATH).next()).and_then(string).unwrap_or_default();
    let directories = directories.split(|byte| *byte == b':').filter(|directory| !directory.is_empty());
    Some(Needs {
        libraries: all(DT_NEEDED).filter_map(string).map(<[u8]>::to_vec).collect(),
        directories: directories.map(<[u8]>::to_vec).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_program_needs_the_c_library() {
        let program = std::fs::read("/proc/self/exe").unwrap();
        let found = needs(&program[..]).unwrap();
        assert!(found.libraries.contains(&b"libc.so.6".to_vec()), "{found:?}");
    }

    #[test]
    fn what_is_no_library_needs_nothing_and_harms_nobody() {
        let mut program = std::fs::read("/proc/self/exe").unwrap();
        program.truncate(1 << 16);
        for bytes in [&b""[..], b"#!/bin/sh", b"\x7fELF", &program[..64], &program[..200]] {
            assert!(needs(bytes).is_none_or(|needs| needs == Needs::default()));
        }
        // Every field of the header and of the first segments, with everything that it must not be.
        for at in 0..600 {
            for value in [0, 1, 0x7f, 0xff] {
                let before = std::mem::replace(&mut program[at], value);
                let _ = needs(&program[..]);
                program[at] = before;
            }
        }
    }
}
