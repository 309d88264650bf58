//! Whether a path leads below the prefix, by its text: as the preload client decides it.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// How the preload client's own memory files appear among the descriptors of a process.
const PLACEHOLDER: &[u8] = b"/memfd:isonomia-";
/// Where the client leaves the kernel while a process is in a directory of the prefix.
const NOWHERE: &[u8] = b"/fdinfo";

/// The directory that no system call may name.
pub struct Prefix(Vec<Vec<u8>>);

impl Prefix {
    /// `None` unless `path` is absolute and below `/`.
    pub fn new(path: &Path) -> Option<Self> {
        let names = normal(path.as_os_str().as_bytes());
        (path.is_absolute() && !names.is_empty()).then_some(Self(names))
    }

    /// Whether `path` leads there from `base`, the kernel's name of the directory that it starts from.
    pub fn contains(&self, base: Option<&[u8]>, path: &[u8]) -> bool {
        if path.is_empty() {
            return false;
        }
        if path.first() == Some(&b'/') {
            return normal(path).starts_with(&self.0);
        }
        let Some(base) = base else { return false };
        stands_for_the_prefix(base) || normal(&[base, b"/", path].concat()).starts_with(&self.0)
    }
}

/// Whether a directory of the kernel's is what a process has instead of one of the prefix.
fn stands_for_the_prefix(base: &[u8]) -> bool {
    let base = base.strip_suffix(b" (deleted)").unwrap_or(base);
    base.starts_with(PLACEHOLDER) || base.starts_with(b"/proc/") && base.ends_with(NOWHERE)
}

/// The components of a path, without `.` and with `..` taken back.
fn normal(path: &[u8]) -> Vec<Vec<u8>> {
    let mut names: Vec<Vec<u8>> = Vec::new();
    for name in path.split(|b| *b == b'/') {
        match name {
            b"" | b"." => {}
            b".." => drop(names.pop()),
            _ => names.push(name.to_vec()),
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_lead_below_the_prefix_by_their_text() {
        let prefix = Prefix::new(Path::new("/isonomia")).expect("a prefix");
        let here = Some(&b"/tmp"[..]);
        for leak in ["/isonomia", "/isonomia/x", "//isonomia/./x", "/tmp/../isonomia", "../isonomia/x", ".././isonomia"]
        {
            assert!(prefix.contains(here, leak.as_bytes()), "{leak}");
        }
        for other in ["/", "/isonomiac", "/x/isonomia", "/isonomia/../x", "isonomia", "", "../isonomia/.."] {
            assert!(!prefix.contains(here, other.as_bytes()), "{other}");
        }
        assert!(!prefix.contains(None, b"isonomia") && prefix.contains(Some(b"/"), b"isonomia"));
    }

    #[test]
    fn what_stands_for_the_prefix_is_known() {
        let prefix = Prefix::new(Path::new("/isonomia")).expect("a prefix");
        for base in ["/proc/12/fdinfo", "/proc/12/fdinfo (deleted)", "/memfd:isonomia-file (deleted)"] {
            assert!(prefix.contains(Some(base.as_bytes()), b"x"), "{base}");
            assert!(!prefix.contains(Some(base.as_bytes()), b"/etc/x"), "{base}");
        }
        assert!(Prefix::new(Path::new("/")).is_none() && Prefix::new(Path::new("x")).is_none());
    }
}
