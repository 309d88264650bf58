//! Two stores of one file system.

use super::*;
use crate::{OpenHow, SetAttr, StoreConfig, TargetDir};
use isonomia_units::TargetId;

const NOW: Timestamp = Timestamp::new(7, 0).unwrap();
const ROOT_SERVER: ServerId = ServerId(1);
const OTHER: ServerId = ServerId(2);
const USERS: VolumeId = VolumeId(1);
const JOBS: VolumeId = VolumeId(2);

/// The root server has the volume `users`, the other one `jobs`.
struct Pair {
    root: Store,
    other: Store,
    _dir: tempfile::TempDir,
}

fn whereabouts(own: ServerId) -> Arc<Whereabouts> {
    let volumes = [(USERS, ROOT_SERVER, &b"users"[..]), (JOBS, OTHER, b"jobs")];
    Arc::new(Whereabouts {
        own,
        root: ROOT_SERVER,
        servers: volumes.iter().map(|(volume, server, _)| (*volume, *server)).collect(),
        names: volumes.iter().map(|(volume, _, name)| ((*name).into(), *volume)).collect(),
        is_root_away: false,
        closed: HashMap::new(),
        in_doubt: HashSet::new(),
    })
}

fn pair() -> Pair {
    let dir = tempfile::tempdir().unwrap();
    let store = |own: ServerId| {
        let target = TargetDir { id: TargetId(own.0), dir: dir.path().join(format!("{own}-objects")) };
        let mut config = StoreConfig::new(dir.path().join(format!("{own}")), own, vec![target]);
        config.root_mode = 0o1777;
        let store = Store::open(&config).unwrap();
        store.namespace().set_whereabouts(whereabouts(own));
        store
    };
    let (root, other) = (store(ROOT_SERVER), store(OTHER));
    root.make_volume(USERS, b"users", (0o755, 1000, 1000), NOW).unwrap();
    other.make_volume(JOBS, b"jobs", (0o755, 1000, 1000), NOW).unwrap();
    root.namespace().set_volume_names(&whereabouts(ROOT_SERVER).names, NOW).unwrap();
    Pair { root, other, _dir: dir }
}

fn me() -> Caller<'static> {
    Caller { uid: 1000, gid: 1000, groups: &[] }
}

fn sent_to(outcome: Result<impl std::fmt::Debug, StoreError>) -> (ServerId, String) {
    match outcome {
        Err(StoreError::Elsewhere { server, rest }) => (server, String::from_utf8(rest.into()).unwrap()),
        outcome => panic!("{outcome:?}"),
    }
}

fn get(store: &Store, path: &str) -> Result<Attr, StoreError> {
    store.get_attr(&me(), Ino::ROOT, path.as_bytes(), true)
}

#[test]
fn a_walk_goes_on_where_its_volume_is() {
    let Pair { root, other, _dir } = pair();
    assert_eq!(Ino(get(&root, "users").unwrap().ino), root_of(USERS));
    assert_eq!(Ino(get(&other, "/jobs/").unwrap().ino), root_of(JOBS));
    assert_eq!(sent_to(get(&root, "jobs/a/../b/")), (OTHER, "jobs/a/../b/".to_owned()));
    assert_eq!(sent_to(get(&root, "/users/../jobs")), (OTHER, "jobs".to_owned()));
    assert_eq!(sent_to(get(&other, "users/x")), (ROOT_SERVER, "users/x".to_owned()));
    // Who knows nothing of a name asks who knows for certain, and he says that there is none.
    assert_eq!(sent_to(get(&other, "nothing")), (ROOT_SERVER, "nothing".to_owned()));
    assert!(matches!(get(&root, "nothing"), Err(StoreError::NotFound)));
    // The root itself is the root server's, however one comes to it.
    assert_eq!(sent_to(get(&other, "")), (ROOT_SERVER, String::new()));
    assert_eq!(sent_to(get(&other, "jobs/..")), (ROOT_SERVER, ".".to_owned()));
    assert_eq!(sent_to(other.namespace().read_dir(&me(), Ino::ROOT, 0, 4096)), (ROOT_SERVER, String::new()));
    assert_eq!(get(&root, "users/../users/..").unwrap().ino, Ino::ROOT.0);
    // A symbolic link leads there as well.
    other.symlink(&me(), b"../users/x", Ino::ROOT, b"jobs/link", NOW).unwrap();
    assert_eq!(sent_to(get(&other, "jobs/link")), (ROOT_SERVER, "users/x".to_owned()));
    assert_eq!(sent_to(get(&other, "jobs/link/y")), (ROOT_SERVER, "users/x/y".to_owned()));
}

#[test]
fn inodes_are_asked_for_where_their_volume_is() {
    let Pair { root, other, _dir } = pair();
    for store in [&root, &other] {
        store.namespace().check_is_here(Ino::ROOT).unwrap();
    }
    root.namespace().check_is_here(Ino::new(USERS, 77)).unwrap();
    root.namespace().check_is_here(Ino::new(VolumeId::ROOT, 77)).unwrap();
    other.namespace().check_is_here(Ino::new(JOBS, 77)).unwrap();
    assert_eq!(sent_to(root.namespace().check_is_here(Ino::new(JOBS, 77))).0, OTHER);
    assert_eq!(sent_to(other.namespace().check_is_here(Ino::new(USERS, 77))).0, ROOT_SERVER);
    assert_eq!(sent_to(other.namespace().check_is_here(Ino::new(VolumeId::ROOT, 77))).0, ROOT_SERVER);
    assert_eq!(sent_to(other.namespace().check_is_here(Ino::new(VolumeId(9), 77))).0, ROOT_SERVER);
    assert!(matches!(root.namespace().check_is_here(Ino::new(VolumeId(9), 77)), Err(StoreError::Stale)));
}

#[test]
fn who_asks_for_a_name_in_doubt_asks_again_and_what_is_open_goes_on() {
    let Pair { root, other: _other, _dir } = pair();
    get(&root, "users").unwrap();
    let doubt = |names: &[&[u8]]| Whereabouts {
        in_doubt: names.iter().map(|name| (*name).into()).collect(),
        ..(*whereabouts(ROOT_SERVER)).clone()
    };
    root.namespace().set_whereabouts(Arc::new(doubt(&[b"users", b"jobs"])));
    // Who has come to the volume before is served in it, and that vouches for no name.
    root.namespace().check_is_here(root_of(USERS)).unwrap();
    for path in ["users", "users/x", "jobs", "jobs/x/y"] {
        assert_eq!(sent_to(get(&root, path)), (ROOT_SERVER, path.to_owned()));
    }
    root.mkdir(&me(), root_of(USERS), b"new", 0o755, NOW).unwrap();
    // Whether the second name is beside the first will be seen.
    let rename = root.rename(&me(), root_of(USERS), b"new", Ino::ROOT, b"users/old", RenameHow::Replace, NOW);
    assert_eq!(sent_to(rename), (ROOT_SERVER, "users/old".to_owned()));
    assert!(matches!(get(&root, "nothing"), Err(StoreError::NotFound)));
    root.namespace().set_whereabouts(Arc::new(doubt(&[])));
    get(&root, "users/new").unwrap();
}

#[test]
fn without_the_root_server_the_root_can_be_read_and_not_changed() {
    let Pair { root: _root, other, _dir } = pair();
    other.namespace().set_volume_names(&whereabouts(OTHER).names, NOW).unwrap();
    let how = OpenHow { directory: true, ..OpenHow::default() };
    let open = |path: &[u8]| other.open_file(&me(), Ino::ROOT, path, &how, NOW);
    assert_eq!(sent_to(open(b"/")), (ROOT_SERVER, String::new()));
    other.namespace().set_whereabouts(Arc::new(Whereabouts { is_root_away: true, ..(*whereabouts(OTHER)).clone() }));
    for path in ["", "/", "."] {
        assert_eq!(get(&other, path).unwrap().ino, Ino::ROOT.0, "{path:?}");
        let opened = open(path.as_bytes()).unwrap();
        let listed = other.namespace().read_dir(&me(), opened.ino, 0, 4096).unwrap();
        let mut names: Vec<_> = listed.iter().map(|entry| &entry.name[..]).collect();
        names.sort_unstable();
        assert_eq!(names, [&b"."[..], b"..", b"jobs", b"users"]);
        other.release(opened.ino).unwrap();
        let change = SetAttr { mode: Some(0o700), ..SetAttr::default() };
        let changed = other.set_attr(&Caller::ROOT, Ino::ROOT, path.as_bytes(), true, &change, NOW);
        assert_eq!(sent_to(changed).0, ROOT_SERVER, "{path:?}");
    }
    // What is in no volume may be there, and names of other servers' volumes lead to them.
    assert_eq!(sent_to(get(&other, "nothing")).0, ROOT_SERVER);
    assert_eq!(sent_to(get(&other, "users/x")), (ROOT_SERVER, "users/x".to_owned()));
    let create = OpenHow { create: true, mode: 0o644, ..OpenHow::default() };
    assert_eq!(sent_to(other.open_file(&me(), Ino::ROOT, b"new", &create, NOW)).0, ROOT_SERVER);
    let unnamed = OpenHow { unnamed: true, access: 3, mode: 0o600, ..OpenHow::default() };
    assert_eq!(sent_to(other.open_file(&me(), Ino::ROOT, b"", &unnamed, NOW)).0, ROOT_SERVER);
}

#[test]
fn the_root_names_all_volumes_and_files_of_its_own() {
    let Pair { root, other: _other, _dir } = pair();
    let how = OpenHow { create: true, mode: 0o644, ..OpenHow::default() };
    let file = root.open_file(&me(), Ino::ROOT, b"file", &how, NOW).unwrap();
    assert_eq!(file.ino.volume(), VolumeId::ROOT);
    let names = |store: &Store| {
        let mut names: Vec<_> = store
            .namespace()
            .read_dir(&me(), Ino::ROOT, 0, 4096)
            .unwrap()
            .into_iter()
            .map(|e| (e.name, e.ino))
            .collect();
        names.sort();
        names.split_off(2)
    };
    let expected = |last: &[u8]| {
        let mut all =
            vec![(b"file".to_vec(), file.ino), (b"users".to_vec(), root_of(USERS)), (last.to_vec(), root_of(JOBS))];
        all.sort();
        all
    };
    assert_eq!(names(&root), expected(b"jobs"));
    assert_eq!(get(&root, "").unwrap().nlink, 4);
    let renamed: HashMap<Box<[u8]>, VolumeId> = [(b"users"[..].into(), USERS), (b"tasks"[..].into(), JOBS)].into();
    for _ in 0..2 {
        root.namespace().set_volume_names(&renamed, NOW).unwrap();
        assert_eq!(names(&root), expected(b"tasks"));
        assert_eq!(get(&root, "").unwrap().nlink, 4);
    }
    root.namespace().set_volume_names(&[(b"users"[..].into(), USERS)].into(), NOW).unwrap();
    assert_eq!(names(&root).len(), 2);
}

#[test]
fn changes_of_volumes_are_checked_here_and_made_by_all() {
    let Pair { root, other, _dir } = pair();
    let change = |outcome: Result<(), StoreError>| match outcome {
        Err(StoreError::OfVolume(change)) => change,
        outcome => panic!("{outcome:?}"),
    };
    let mkdir = |store: &Store, path: &str| store.mkdir(&me(), Ino::ROOT, path.as_bytes(), 0o7750, NOW).map(drop);
    let made = VolumeChange::Make { name: b"new"[..].into(), mode: 0o1750, uid: 1000, gid: 1000 };
    assert_eq!(change(mkdir(&root, "new")), made);
    // Until it is decided the name is taken.
    assert!(matches!(mkdir(&root, "new"), Err(StoreError::Exists)));
    let how = OpenHow { create: true, ..OpenHow::default() };
    assert!(matches!(root.open_file(&me(), Ino::ROOT, b"new", &how, NOW), Err(StoreError::Exists)));
    root.namespace().forget_new_name(b"new");
    assert_eq!(change(mkdir(&root, "new")), made);
    assert!(matches!(mkdir(&root, "users"), Err(StoreError::Exists)));
    assert_eq!(sent_to(mkdir(&other, "new")), (ROOT_SERVER, "new".to_owned()));
    mkdir(&other, "jobs/new").unwrap();

    let rmdir = |store: &Store, path: &str| store.rmdir(&me(), Ino::ROOT, path.as_bytes(), NOW);
    assert_eq!(change(rmdir(&root, "users")), VolumeChange::Remove { volume: USERS });
    assert_eq!(sent_to(rmdir(&root, "jobs")), (OTHER, "jobs".to_owned()));
    assert!(matches!(rmdir(&other, "jobs"), Err(StoreError::NotEmpty)));
    let stranger = Caller { uid: 7, gid: 7, groups: &[] };
    assert!(matches!(other.rmdir(&stranger, Ino::ROOT, b"jobs", NOW), Err(StoreError::NotPermitted)));

    let rename = |store: &Store, from: &str, to: &str| {
        store.rename(&me(), Ino::ROOT, from.as_bytes(), Ino::ROOT, to.as_bytes(), RenameHow::Replace, NOW)
    };
    let renamed = VolumeChange::Rename { volume: JOBS, name: b"tasks"[..].into(), how: RenameHow::NoReplace };
    assert_eq!(change(rename(&other, "jobs", "tasks/")), renamed);
    assert!(rename(&other, "jobs", "jobs").is_ok());
    assert_eq!(sent_to(rename(&root, "jobs", "tasks")), (OTHER, "jobs".to_owned()));
    for (store, from, to) in [
        (&other, "jobs/new", "users/new"),
        (&other, "jobs/new", "new"),
        (&other, "jobs", "jobs/new/below"),
        (&root, "users", "jobs/x"),
    ] {
        assert!(matches!(rename(store, from, to), Err(StoreError::CrossDevice)), "{from} to {to}");
    }
    rename(&other, "jobs/new", "jobs/newer").unwrap();
}

#[test]
fn names_do_not_lead_from_one_volume_to_another() {
    let Pair { root, other: _other, _dir } = pair();
    let how = OpenHow { create: true, mode: 0o644, ..OpenHow::default() };
    root.open_file(&me(), Ino::ROOT, b"users/a", &how, NOW).unwrap();
    root.open_file(&me(), Ino::ROOT, b"f", &how, NOW).unwrap();
    let link = |from: &str, to: &str| {
        root.link(&me(), Ino::ROOT, from.as_bytes(), true, Ino::ROOT, to.as_bytes(), NOW).map(drop)
    };
    let rename = |from: &str, to: &str| {
        root.rename(&me(), Ino::ROOT, from.as_bytes(), Ino::ROOT, to.as_bytes(), RenameHow::Replace, NOW)
    };
    for (from, to) in [("users/a", "b"), ("users/a", "jobs/b"), ("f", "users/f"), ("f", "jobs/f")] {
        assert!(matches!(link(from, to), Err(StoreError::CrossDevice)), "link {from} {to}");
        assert!(matches!(rename(from, to), Err(StoreError::CrossDevice)), "rename {from} {to}");
    }
    assert!(rename("f", "users").is_err());
    link("users/a", "users/b").unwrap();
    rename("f", "g").unwrap();
    let from_dirs = root.rename(&me(), root_of(USERS), b"b", root_of(JOBS), b"b", RenameHow::Replace, NOW);
    assert!(matches!(from_dirs, Err(StoreError::CrossDevice)), "{from_dirs:?}");
    // Objects have the number of the volume as well, also new ones.
    let ino = Ino(get(&root, "users/a").unwrap().ino);
    assert_eq!(ino.volume(), USERS);
    root.write(ino, 0, &b"bytes"[..], NOW).unwrap();
    root.set_attr(&me(), ino, b"", true, &SetAttr { size: Some(0), ..SetAttr::default() }, NOW).unwrap();
    root.write(ino, 0, &b"other"[..], NOW).unwrap();
}

#[test]
fn a_volume_is_made_and_removed_as_often_as_one_asks() {
    let Pair { root, other: _other, _dir } = pair();
    let nlink = || get(&root, "").unwrap().nlink;
    let before = nlink();
    let volume = VolumeId(9);
    for _ in 0..2 {
        let made = root.make_volume(volume, b"nine", (0o700, 5, 6), NOW).unwrap();
        assert_eq!((Ino(made.ino), made.mode & 0o7777, made.uid, made.gid), (root_of(volume), 0o700, 5, 6));
        assert_eq!(nlink(), before + 1);
    }
    for name in [b"ten", b"ten"] {
        root.namespace().rename_volume(volume, name, NOW).unwrap();
        assert_eq!(root.namespace().path_of(root_of(volume)).unwrap(), b"/ten");
    }
    assert!(matches!(get(&root, "nine"), Err(StoreError::NotFound)));
    root.mkdir(&Caller::ROOT, root_of(volume), b"sub", 0o700, NOW).unwrap();
    assert!(matches!(root.remove_volume(volume, NOW), Err(StoreError::NotEmpty)));
    root.rmdir(&Caller::ROOT, root_of(volume), b"sub", NOW).unwrap();
    for _ in 0..2 {
        root.remove_volume(volume, NOW).unwrap();
        assert_eq!(nlink(), before);
        assert!(!root.namespace().has_volume(volume).unwrap());
    }
}

#[test]
fn a_volume_that_moved_is_asked_for_where_it_is_also_while_it_is_removed_here() {
    let pair = pair();
    let mut known = (*whereabouts(OTHER)).clone();
    for (there, sent) in [(OTHER, OTHER), (ROOT_SERVER, ROOT_SERVER)] {
        known.closed.insert(JOBS, there);
        pair.other.namespace().set_whereabouts(Arc::new(known.clone()));
        assert_eq!(sent_to(get(&pair.other, "jobs/file")), (sent, "jobs/file".to_owned()));
        assert_eq!(sent_to(pair.other.namespace().check_is_here(root_of(JOBS))), (sent, String::new()));
        assert!(pair.other.namespace().is_closed(JOBS));
    }
}
