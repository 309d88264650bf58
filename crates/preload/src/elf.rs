//! What a shared library says of other libraries: which it needs, and where they are to be looked for. Of the format as
//! this machine has it (System V ABI, "Dynamic Section"), and no more of it than that. Whatever is not as it must be says
//! nothing.

const HEADER_LEN: usize = 64;
const SEGMENT_LEN: usize = 56;
const ENTRY_LEN: usize = 16;
/// A library has about ten segments and some hundred entries.
const SEGMENTS_MAX: usize = 256;
const ENTRIES_MAX: usize = 4096;
/// The longest name, and the longest list of directories.
const STRING_LEN_MAX: usize = 4096;

/// 64 bits, in this machine's order of bytes.
const IDENT: [u8; 6] = [0x7f, b'E', b'L', b'F', 2, if cfg!(target_endian = "little") { 1 } else { 2 }];
const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const DT_NULL: u64 = 0;
const DT_NEEDED: u64 = 1;
const DT_STRTAB: u64 = 5;
const DT_RPATH: u64 = 15;
const DT_RUNPATH: u64 = 29;

/// See the module.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Names of libraries.
    pub libraries: Vec<Vec<u8>>,
    /// Directories, perhaps with `$ORIGIN` in them.
    pub directories: Vec<Vec<u8>>,
}

struct Segment {
    kind: u32,
    offset: u64,
    address: u64,
    len: usize,
}

fn number(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn short(bytes: &[u8], at: usize) -> Option<usize> {
    Some(u16::from_ne_bytes(*bytes.get(at..)?.first_chunk()?).into())
}

/// What the file needs, of which `read` gives as many bytes from an offset as there are, up to the length asked for.
pub fn needs(read: impl Fn(u64, usize) -> Vec<u8>) -> Option<Needs> {
    let header = read(0, HEADER_LEN);
    if !header.starts_with(&IDENT) || short(&header, 54)? != SEGMENT_LEN {
        return None;
    }
    let table = read(number(&header, 32)?, short(&header, 56)?.min(SEGMENTS_MAX) * SEGMENT_LEN);
    let segment = |bytes: &[u8]| {
        let kind = u32::from_ne_bytes(*bytes.first_chunk()?);
        let len = usize::try_from(number(bytes, 32)?).ok()?;
        Some(Segment { kind, offset: number(bytes, 8)?, address: number(bytes, 16)?, len })
    };
    let segments: Vec<Segment> = table.chunks_exact(SEGMENT_LEN).map(segment).collect::<Option<_>>()?;
    let dynamic = segments.iter().find(|segment| segment.kind == PT_DYNAMIC)?;
    let entries = read(dynamic.offset, dynamic.len.min(ENTRIES_MAX * ENTRY_LEN));
    let entries: Vec<(u64, u64)> = entries
        .chunks_exact(ENTRY_LEN)
        .filter_map(|entry| Some((number(entry, 0)?, number(entry, 8)?)))
        .take_while(|(tag, _)| *tag != DT_NULL)
        .collect();
    let all = |wanted: u64| entries.iter().filter(move |(tag, _)| *tag == wanted).map(|(_, value)| *value);
    let strings = all(DT_STRTAB).next()?;
    let strings_at = segments.iter().filter(|segment| segment.kind == PT_LOAD).find_map(|segment| {
        let within = strings.checked_sub(segment.address)?;
        (within < segment.len as u64).then(|| segment.offset.checked_add(within)).flatten()
    })?;
    let string = |at: u64| {
        let bytes = read(strings_at.checked_add(at)?, STRING_LEN_MAX);
        Some(bytes[..bytes.iter().position(|byte| *byte == 0)?].to_vec())
    };
    // The older kind counts only without the newer one.
    let directories = all(DT_RUNPATH).next().or_else(|| all(DT_RPATH).next()).and_then(string).unwrap_or_default();
    let directories = directories.split(|byte| *byte == b':').filter(|directory| !directory.is_empty());
    Some(Needs {
        libraries: all(DT_NEEDED).filter_map(string).collect(),
        directories: directories.map(<[u8]>::to_vec).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn needs_of(bytes: &[u8]) -> Option<Needs> {
        needs(|at, len| {
            let rest = bytes.get(usize::try_from(at).unwrap_or(usize::MAX)..).unwrap_or_default();
            rest[..len.min(rest.len())].to_vec()
        })
    }

    #[test]
    fn this_program_needs_the_c_library() {
        let program = std::fs::read("/proc/self/exe").unwrap();
        let found = needs_of(&program).unwrap();
        assert!(found.libraries.contains(&b"libc.so.6".to_vec()), "{found:?}");
    }

    #[test]
    fn what_is_no_library_needs_nothing_and_harms_nobody() {
        let mut program = std::fs::read("/proc/self/exe").unwrap();
        program.truncate(1 << 16);
        for bytes in [&b""[..], b"#!/bin/sh", b"\x7fELF", &program[..64], &program[..200]] {
            assert!(needs_of(bytes).is_none_or(|needs| needs == Needs::default()));
        }
        // Every field of the header and of the first segments, with everything that it must not be.
        for at in 0..600 {
            for value in [0, 1, 0x7f, 0xff] {
                let before = std::mem::replace(&mut program[at], value);
                let _ = needs_of(&program);
                program[at] = before;
            }
        }
    }
}
