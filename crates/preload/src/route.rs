//! Whether a path lies under the prefix: decided from its text alone.
//!
//! Empty components and `.` count for nothing; `..` takes back the component before it. Inside the prefix the rest
//! of the path, `..` and symbolic links included, is the server's to walk; only a path whose text climbs out of
//! the prefix is taken back. (A `..` after a symbolic link to a deeper directory is therefore one step more than
//! the server would take, at the prefix's own border only.)

/// The directory under which files are served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prefix {
    /// `/a/b`: no empty component, no `.` or `..`, no slash at the end.
    path: Vec<u8>,
    component_count: usize,
    /// Where the last component begins.
    last_at: usize,
}

/// Where a path leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location<'a> {
    /// To the file system, by this path relative to its root; empty for the root itself.
    Inside(&'a [u8]),
    /// Elsewhere, by a text that the kernel understands as well.
    Outside,
    /// Elsewhere, but through the prefix, which the kernel does not know: this is the same path without it.
    Left(Vec<u8>),
}

impl Prefix {
    /// `None` unless `path` is absolute, below `/`, and without `.` and `..`.
    pub fn new(path: &[u8]) -> Option<Self> {
        if path.first() != Some(&b'/') {
            return None;
        }
        let names: Vec<&[u8]> = path.split(|b| *b == b'/').filter(|name| !name.is_empty()).collect();
        if names.is_empty() || names.iter().any(|name| matches!(*name, b"." | b"..")) {
            return None;
        }
        let mut normal = Vec::with_capacity(path.len());
        for name in &names {
            normal.push(b'/');
            normal.extend_from_slice(name);
        }
        let last_at = normal.len() - names.last().map_or(0, |name| name.len());
        Some(Self { path: normal, component_count: names.len(), last_at })
    }

    /// The prefix as an absolute path without a slash at its end.
    pub fn path(&self) -> &[u8] {
        &self.path
    }

    /// Whether `path`, if relative, could lead under the prefix from a directory outside of it: only by naming the
    /// prefix's last component.
    pub fn may_enter(&self, path: &[u8]) -> bool {
        has_component(path, &self.path[self.last_at..])
    }

    /// The components from the one of this number on.
    fn names(&self, from: usize) -> impl Iterator<Item = &[u8]> {
        self.path.split(|b| *b == b'/').skip(1 + from)
    }

    /// Where the absolute path `path` leads. O(length); allocates only for [`Location::Left`].
    pub fn locate<'a>(&self, path: &'a [u8]) -> Location<'a> {
        if !self.may_enter(path) {
            return Location::Outside;
        }
        let mut names = self.names(0);
        let mut expected = names.next();
        // Components of the path so far, and how many of the first ones are the prefix's.
        let (mut depth, mut matched) = (0usize, 0usize);
        let (mut entered, mut inside_from) = (false, 0);
        for (start, name) in components(path) {
            match name {
                b"." => {}
                b".." => {
                    depth = depth.saturating_sub(1);
                    if matched > depth {
                        matched = depth;
                        names = self.names(matched);
                        expected = names.next();
                    }
                }
                _ => {
                    if matched == depth && expected == Some(name) {
                        matched += 1;
                        expected = names.next();
                        if matched == self.component_count {
                            entered = true;
                            inside_from = start + name.len();
                        }
                    }
                    depth += 1;
                }
            }
        }
        match (matched == self.component_count, entered) {
            (true, _) => Location::Inside(trim_start(&path[inside_from..])),
            (false, true) => Location::Left(normalise(path)),
            (false, false) => Location::Outside,
        }
    }
}

/// The components of a path with their positions; empty ones are left out.
fn components(path: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let mut start = 0;
    path.split(|b| *b == b'/').filter_map(move |name| {
        let here = start;
        start += name.len() + 1;
        (!name.is_empty()).then_some((here, name))
    })
}

/// `path` without the slashes and `.` components that it begins with.
pub fn trim_start(mut path: &[u8]) -> &[u8] {
    loop {
        path = match path {
            [b'/', rest @ ..] | [b'.', b'/', rest @ ..] => rest,
            b"." => return b"",
            _ => return path,
        };
    }
}

/// Whether the text of the relative path climbs above where it starts.
pub fn climbs_out(path: &[u8]) -> bool {
    let mut depth = 0i32;
    for (_, name) in components(path) {
        match name {
            b"." => {}
            b".." if depth == 0 => return true,
            b".." => depth -= 1,
            _ => depth += 1,
        }
    }
    false
}

/// Directory and last component of a path, for operations that need the directory's inode. Slashes at the end
/// belong to the name.
pub fn split_last(path: &[u8]) -> (&[u8], &[u8]) {
    let end = path.iter().rposition(|b| *b != b'/').map_or(0, |i| i + 1);
    match path[..end].iter().rposition(|b| *b == b'/') {
        Some(slash) => (&path[..slash], &path[slash + 1..]),
        None => (b"", path),
    }
}

/// The absolute path with the same meaning if no component is a symbolic link, without `.` and `..`.
pub fn normalise(path: &[u8]) -> Vec<u8> {
    let mut stack: Vec<&[u8]> = Vec::new();
    for (_, name) in components(path) {
        match name {
            b"." => {}
            b".." => {
                stack.pop();
            }
            _ => stack.push(name),
        }
    }
    let mut normal = Vec::with_capacity(path.len());
    for name in &stack {
        normal.push(b'/');
        normal.extend_from_slice(name);
    }
    let names_a_directory = path.ends_with(b"/") || path.ends_with(b"/.") || path.ends_with(b"/..");
    if normal.is_empty() || names_a_directory {
        normal.push(b'/');
    }
    normal
}

/// Whether one of the components of `path` is `name`. Every path of the program's is asked this: slash after slash is
/// the fastest way.
#[inline]
fn has_component(path: &[u8], name: &[u8]) -> bool {
    let mut rest = path;
    loop {
        if let Some(after) = rest.strip_prefix(name)
            && matches!(after.first(), None | Some(b'/'))
        {
            return true;
        }
        // SAFETY: the pointer is to as many bytes as said.
        let slash = unsafe { libc::memchr(rest.as_ptr().cast(), b'/'.into(), rest.len()) };
        if slash.is_null() {
            return false;
        }
        rest = &rest[slash as usize - rest.as_ptr() as usize + 1..];
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn prefix(path: &str) -> Prefix {
        Prefix::new(path.as_bytes()).unwrap()
    }

    #[test]
    fn worked_examples() {
        let inside = |path: &'static str| Location::Inside(path.as_bytes());
        let left = |path: &str| Location::Left(path.as_bytes().to_vec());
        let table = [
            ("/isonomia", inside("")),
            ("/isonomia/", inside("")),
            ("/isonomia/.", inside("")),
            ("//isonomia//x/y/", inside("x/y/")),
            ("/./isonomia/./x", inside("x")),
            ("/isonomia/a/../b", inside("a/../b")),
            ("/tmp/../isonomia/x", inside("x")),
            ("/../isonomia/x", inside("x")),
            ("/isonomia/../isonomia/x", inside("x")),
            ("/isonomia/../etc/passwd", left("/etc/passwd")),
            ("/isonomia/a/../../etc/", left("/etc/")),
            ("/isonomia/..", left("/")),
            ("/isonomiac/x", Location::Outside),
            ("/x/isonomia", Location::Outside),
            ("/etc/passwd", Location::Outside),
            ("/", Location::Outside),
        ];
        for (path, location) in table {
            assert_eq!(prefix("/isonomia").locate(path.as_bytes()), location, "{path}");
        }
        assert_eq!(prefix("/a/b").locate(b"/a/c/../b/x"), inside("x"));
        assert_eq!(prefix("/a/b").locate(b"/a/b/../b"), inside(""));
        assert_eq!(prefix("/a/b").locate(b"/a/b/../c"), left("/a/c"));
        assert_eq!(prefix("/a/a").locate(b"/a/../a/a/z"), inside("z"));
    }

    #[test]
    fn a_prefix_is_absolute_and_below_the_root() {
        assert_eq!(prefix("//scratch/bb/").path(), b"/scratch/bb");
        for bad in ["", "/", "relative", "/a/../b", "/a/."] {
            assert_eq!(Prefix::new(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn names_are_split_from_directories() {
        assert_eq!(split_last(b"a/b/c"), (&b"a/b"[..], &b"c"[..]));
        assert_eq!(split_last(b"c/"), (&b""[..], &b"c/"[..]));
        assert_eq!(split_last(b"a//c//"), (&b"a/"[..], &b"c//"[..]));
        assert_eq!(split_last(b""), (&b""[..], &b""[..]));
    }

    #[test]
    fn a_component_is_found_whole_only() {
        for path in ["x", "/x", "a/x", "x/a", "/a/x/", "xx/x", "//x//"] {
            assert!(has_component(path.as_bytes(), b"x"), "{path}");
        }
        for path in ["", "/", "xx", "/ax/xa", "a/b/", "x.", ".x/y"] {
            assert!(!has_component(path.as_bytes(), b"x"), "{path}");
        }
    }

    fn component() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            Just(b"a".to_vec()),
            Just(b"b".to_vec()),
            Just(b"..".to_vec()),
            Just(b".".to_vec()),
            Just(vec![]),
            Just(vec![0xff]),
        ]
    }

    fn relative() -> impl Strategy<Value = Vec<u8>> {
        proptest::collection::vec(component(), 0..12).prop_map(|names| names.join(&b'/'))
    }

    fn stack(path: &[u8]) -> Vec<Vec<u8>> {
        let mut stack = Vec::new();
        for name in path.split(|b| *b == b'/') {
            match name {
                b"" | b"." => {}
                b".." => drop(stack.pop()),
                _ => stack.push(name.to_vec()),
            }
        }
        stack
    }

    proptest! {
        #[test]
        fn agrees_with_the_normal_form(rest in relative(), names in 1usize..4) {
            let path = [b"/".to_vec(), rest].concat();
            let prefix_names = [b"a".to_vec(), b"b".to_vec(), b"a".to_vec()][..names].to_vec();
            let prefix = Prefix::new(&[b"/".to_vec(), prefix_names.join(&b'/')].concat()).unwrap();
            let normal = stack(&path);
            match prefix.locate(&path) {
                Location::Inside(rest) => {
                    prop_assert!(normal.starts_with(&prefix_names));
                    prop_assert_eq!(stack(rest), normal[names..].to_vec());
                    prop_assert!(!climbs_out(rest));
                }
                Location::Outside => prop_assert!(!normal.starts_with(&prefix_names)),
                Location::Left(other) => {
                    prop_assert!(!normal.starts_with(&prefix_names));
                    prop_assert_eq!(other.split(|b| *b == b'/').filter(|n| !n.is_empty()).collect::<Vec<_>>(), normal);
                }
            }
        }

        #[test]
        fn climbing_out_is_leaving_every_directory(path in relative()) {
            // From a directory of a name that no path contains, leaving it is visible in the normal form.
            let mut lowest = vec![b"home".to_vec()];
            let mut left = false;
            for name in path.split(|b| *b == b'/') {
                lowest = stack(&[lowest.join(&b'/'), name.to_vec()].join(&b'/'));
                left |= lowest.is_empty();
            }
            prop_assert_eq!(climbs_out(&path), left);
        }
    }
}
