//! Cluster files: what they say, each contradiction, the wire, and differences of two.

use super::*;
use proptest::prelude::*;

const EXAMPLE: &str = r#"
name = "scratch"
epoch = 3
root = "io01"

[[server]]
name = "io[01-16]"
number = 1
listen = ["tcp:{name}:7411", "unix:/run/isonomia/{name}.sock"]
dir = "/var/lib/isonomia/{name}/"
targets = [{ dir = "/data/{name}/0", bandwidth = "2GiB/s" }, { dir = "/data/{name}/1", retired = true }]
router = "r1"
rack = "k1"

[[server]]
name = "old[1-2]"
number = 100
listen = ["tcp:{name}.cluster:7411"]
targets = 3
weight = 0.5
retired = true
"#;

fn parsed(text: &str) -> Map {
    Map::parse(text).unwrap_or_else(|error| panic!("{error}"))
}

/// A cluster of one server with `lines` in its table.
fn one(lines: &str) -> String {
    format!("name = \"s\"\nepoch = 1\n[[server]]\nname = \"a\"\nnumber = 1\nlisten = [\"tcp:a:1\"]\n{lines}")
}

fn errors(text: &str) -> Vec<String> {
    Map::parse(text).unwrap_err().findings().iter().map(ToString::to_string).collect()
}

#[test]
fn servers_and_targets_are_found_by_name_and_number() {
    let map = parsed(EXAMPLE);
    assert_eq!((map.name(), map.epoch(), map.root().number), ("scratch", Epoch(3), ServerId(1)));
    assert_eq!(map.servers().len(), 18);
    let io16 = map.named("io16").unwrap();
    assert_eq!((io16.number, io16.weight, io16.retired), (ServerId(16), 1.0, false));
    assert_eq!(io16.listen[0].to_string(), "tcp:io16:7411");
    assert_eq!(io16.listen[1].to_string(), "unix:/run/isonomia/io16.sock");
    assert_eq!(io16.dir.as_deref(), Some(std::path::Path::new("/var/lib/isonomia/io16")));
    assert_eq!((io16.router.as_deref(), io16.rack.as_deref()), (Some("r1"), Some("k1")));
    let ids: Vec<u16> = io16.targets.iter().map(|target| target.id.0).collect();
    assert_eq!(ids, [240, 241]);
    assert!(!io16.targets[0].retired && io16.targets[1].retired);
    assert_eq!(io16.targets[0].settings["bandwidth"].as_str(), Some("2GiB/s"));
    let (server, target) = map.target(TargetId(241)).unwrap();
    assert_eq!((&*server.name, target.dir.as_deref()), ("io16", Some(std::path::Path::new("/data/io16/1"))));
    let (server, target) = map.target(TargetId(100 * 16 + 2)).unwrap();
    assert_eq!((&*server.name, &target.dir), ("old2", &None));
    assert_eq!(map.server(ServerId(101)).map(|server| &*server.name), Some("old2"));
    for none in [242, 255, 256, u16::MAX] {
        assert!(map.target(TargetId(none)).is_none(), "{none}");
    }
    assert!(map.server(ServerId(17)).is_none() && map.server(ServerId(0)).is_none() && map.named("io17").is_none());
}

#[test]
fn new_volumes_go_to_servers_that_are_not_retired() {
    let map = parsed(EXAMPLE);
    let homes: Vec<u16> = (0..200).map(|n| map.home(format!("v{n}").as_bytes()).unwrap().number.0).collect();
    assert!((1..=16).all(|number| homes.contains(&number)) && homes.iter().all(|&number| number <= 16));
    let (map, findings) = Map::read(&one("weight = 0"));
    assert!(map.unwrap().home(b"x").is_none());
    assert_eq!(findings[0].severity, Severity::Warning);
}

#[test]
fn the_root_is_the_server_of_the_lowest_number_unless_named() {
    let text = EXAMPLE.replace("root = \"io01\"", "").replace("number = 1\n", "number = 7\n");
    assert_eq!(&*parsed(&text).root().name, "io01");
}

#[test]
fn the_example_for_operators_is_a_cluster() {
    let map = parsed(include_str!("../../../../examples/cluster.toml"));
    assert_eq!((map.servers().len(), &*map.root().name), (18, "io01"));
}

/// The largest clusters that the numbers allow.
#[test]
fn as_many_servers_as_there_are_numbers() {
    let text = "name = \"s\"\nepoch = 1\ntargets_per_server = 1\n[[server]]\nname = \"n[1-65535]\"\nnumber = 1\n\
                listen = [\"tcp:{name}:1\"]\n";
    let map = parsed(text);
    assert_eq!(map.target(TargetId(65_534)).map(|(server, _)| server.number), Some(ServerId(65_535)));
    assert!(map.encode().len() < 100);
    let targets = one("targets = 256").replace("epoch = 1", "epoch = 1\ntargets_per_server = 256");
    assert_eq!(parsed(&targets).servers()[0].targets.len(), 256);
}

#[test]
fn every_contradiction_has_its_words() {
    let long = format!("listen = [\"tcp:a:1\"{}]", ", \"tcp:a:1\"".repeat(8));
    for (text, words) in [
        (one("weigth = 1"), "line 7: unknown key \"weigth\" of [[server]] (allowed: name, number, listen, dir"),
        (one("").replace("epoch", "epok"), "unknown key \"epok\" (allowed: name, epoch, root"),
        (one("").replace("epoch", "epok"), "the file has no epoch: a whole number"),
        (one("").replace("name = \"a\"", ""), "line 3: [[server]] has no name"),
        (one("").replace("epoch = 1", "epoch = 0"), "epoch: 0 is not allowed"),
        (
            one("").replace("epoch = 1", "epoch = 1\nexchange = \"9ms\""),
            "exchange: \"9ms\" is not allowed (allowed: 10ms to 10s",
        ),
        (one("").replace("epoch = 1", "epoch = 1\nexchange = 5"), "line 3: exchange: invalid type"),
        (one("").replace("epoch = 1", "epoch = 1\nexchange_by = \"luck\""), "exchange_by: \"luck\" is not allowed"),
        (
            one("").replace("epoch = 1", "epoch = 1\nplacement = \"near\""),
            "placement: \"near\" is not allowed (allowed: volume,",
        ),
        (one("").replace("epoch = 1", "epoch = -1"), "line 2: epoch: invalid value: integer `-1`"),
        (one("").replace("epoch = 1", "epoch = 1\nroot = \"b\""), "root: no server is called \"b\" (allowed: a)"),
        (one("retired = true").replace("epoch = 1", "epoch = 1\nroot = \"a\""), "root: a is retired"),
        (one("weight = \"much\""), "line 7: weight: invalid type: string \"much\""),
        (one("weight = nan"), "weight: NaN is not allowed"),
        (one("weight = -0.5"), "weight: -0.5 is not allowed"),
        (one("weight = inf"), "weight: inf is not allowed"),
        (one("").replace("number = 1", "number = 0"), "number: 0 (allowed: 1 to 65535)"),
        (one("").replace("number = 1", "number = 65536"), "number: 65536 (allowed: 1 to 65535)"),
        (one("").replace("number = 1", "number = 4097"), "with targets_per_server = 16, servers up to 4096 have"),
        (one("targets = 17"), "targets: 17 (allowed: 1 to 16, which is targets_per_server)"),
        (one("targets = 0"), "line 7: targets: 0 is not allowed"),
        (one("targets = []"), "targets: 0 (allowed: 1 to 16"),
        (one("targets = \"two\""), "targets: string is not allowed (allowed: a number from 1 to 256, or a list"),
        (one("targets = [1]"), "target 0: it is no table"),
        (one("targets = [{ dir = \"data\" }]"), "a target's dir of a: \"data\" is no directory (allowed: absolute"),
        (one("dir = \"/x/{host}\""), "\"/x/{host}\" has a brace (allowed: {name}"),
        (one("router = \"\""), "router, rack: a text of 0 bytes"),
        (one("").replace("tcp:a:1", "tcp:a"), "listen of a: \"tcp:a\" is no server address"),
        (one("").replace("tcp:a:1", "tcp:a:0"), "port 0 stands for any port"),
        (one("").replace("tcp:a:1", "tcp:0.0.0.0:1"), "clients cannot connect to all addresses"),
        (one("").replace("tcp:a:1", "tcp:[::]:1"), "clients cannot connect to all addresses"),
        (one("").replace("tcp:a:1", "tcp:::1:1"), "neither a name, nor"),
        (one("").replace("tcp:a:1", "tcp:10.1:1"), "neither a name, nor"),
        (one("").replace("tcp:a:1", "tcp:a b:1"), "neither a name, nor"),
        (one("").replace("tcp:a:1", "unix:x"), "must be absolute"),
        (one("").replace("[\"tcp:a:1\"]", "[]"), "listen: 0 addresses (allowed: 1 to 8)"),
        (one("").replace("listen = [\"tcp:a:1\"]", &long), "listen: 9 addresses (allowed: 1 to 8)"),
        (one("").replace("\"a\"", "\"a[1-\""), "\"a[1-\" is no host list"),
        (one("").replace("\"a\"", "\"a/b\""), "name: \"a/b\" is no name"),
        (one("").replace("\"a\"", "\"\""), "name: no server is named"),
        (one("").replace("\"a\"", "\"a[1-2]\""), "listen: \"tcp:a:1\" would be the address of 2 servers"),
        (one("").replace("\"s\"", "\"\""), "name: \"\" is no name"),
        (one("").replace("epoch = 1", "epoch = 1\ntargets_per_server = 0"), "targets_per_server: 0 is not allowed"),
        ("name = \"s\"\nepoch = 1\n".to_owned(), "there is no server"),
        ("name = \"s\"\nepoch = 1\nserver = 1\n".to_owned(), "line 3: server: it is no list of tables"),
        ("name = \"s\"\nepoch = \n".to_owned(), "line 2: "),
        ("name = \"s\"\nname = \"t\"\n".to_owned(), "line 2: duplicate key"),
        ("#".repeat(FILE_LEN_MAX + 1), "more than a cluster file may have"),
    ] {
        let found = errors(&text);
        assert!(found.iter().any(|error| error.contains(words)), "{words}: {found:#?}");
    }
}

#[test]
fn two_servers_do_not_share_what_is_of_one() {
    let two = |first: &str, second: &str| {
        let text =
            format!("name = \"s\"\nepoch = 1\n[[server]]\nname = \"a\"\nnumber = 1\n{first}\n[[server]]\n{second}\n");
        Map::read(&text).1.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
    };
    let tcp = "listen = [\"tcp:a:1\"]";
    for (first, second, words) in [
        (tcp, "name = \"a\"\nnumber = 2\nlisten = [\"tcp:b:1\"]", "line 7: name \"a\" is that of a, twice"),
        (tcp, "name = \"b\"\nnumber = 1\nlisten = [\"tcp:b:1\"]", "line 7: number 1 is that of a and of b"),
        (tcp, "name = \"b\"\nnumber = 2\nlisten = [\"tcp:A:1\"]", "address tcp:A:1 is that of a and of b"),
        (
            "listen = [\"tcp:a:1\"]\ntargets = [{ dir = \"/d\" }, { dir = \"/d/\" }]",
            "name = \"b\"\nnumber = 2\nlisten = [\"tcp:b:1\"]",
            "line 3: target's dir /d is that of a, twice",
        ),
        (
            "listen = [\"tcp:a:1\"]\ntargets = [{ dir = \"/d\" }]",
            "name = \"b\"\nnumber = 2\nlisten = [\"tcp:a:2\"]\ntargets = [{ dir = \"/d\" }]",
            "line 8: target's dir /d is that of a and of b",
        ),
        (
            "listen = [\"tcp:127.0.0.1:1\"]\ndir = \"/d\"",
            "name = \"b\"\nnumber = 2\nlisten = [\"tcp:localhost:2\"]\ndir = \"/d\"",
            "line 8: dir /d is that of a and of b",
        ),
        (
            "listen = [\"unix:/s\"]",
            "name = \"b\"\nnumber = 2\nlisten = [\"unix:/s\"]",
            "line 7: address unix:/s is that of a and of b",
        ),
        (
            tcp,
            "name = \"b[1-3]\"\nnumber = 2\nlisten = [\"unix:/{name}\", \"tcp:127.0.0.1:7\"]",
            "line 7: b[1-3] can be reached from its own host only, and a from others",
        ),
    ] {
        let found = two(first, second);
        assert!(found.contains(words), "{words}: {found}");
    }
    let host = |number: u16, dirs: &str| format!("listen = [\"tcp:a:{number}\"]\n{dirs}");
    for (first, second, words) in [
        (
            "targets = [{ dir = \"/d\" }]",
            "targets = [{ dir = \"/d/x\" }]",
            "target's dir /d/x of b lies in target's dir /d of a",
        ),
        ("dir = \"/d\"", "targets = [{ dir = \"/d/metadata/x\" }]", "lies in dir /d of a"),
        (
            "dir = \"/d/objects/x\"",
            "targets = [{ dir = \"/d\" }]",
            "dir /d/objects/x of a lies in target's dir /d of b",
        ),
        ("dir = \"/d\"\ntargets = [{ dir = \"/d\" }]", "dir = \"/e\"\ntargets = [{ dir = \"/d-x\" }]", ""),
    ] {
        let found = two(&host(1, first), &format!("name = \"b\"\nnumber = 2\n{}", host(2, second)));
        assert!(found.contains(words) && found.is_empty() == words.is_empty(), "{words}: {found}");
    }
    // Other hosts have files of the same name.
    let same = "dir = \"/d\"\ntargets = [{ dir = \"/d/0\" }]";
    let found = two(
        &format!("listen = [\"tcp:a:1\", \"unix:/s\"]\n{same}"),
        &format!("name = \"b\"\nnumber = 2\nlisten = [\"tcp:b:1\", \"unix:/s\"]\n{same}"),
    );
    assert_eq!(found, "");
}

#[test]
fn all_contradictions_are_found_at_once() {
    let text = "name = \"s\"\nepoch = 0\nroot = \"x\"\ncolour = 1\n[[server]]\nname = \"a\"\nnumber = 70000\n\
                listen = [\"a\"]\nweight = -1\ntargets = [{ dir = \"x\" }]\n[[server]]\nname = \"b\"\nlisten = 3\n";
    let found = errors(text);
    for words in [
        "epoch: 0",
        "unknown key \"colour\"",
        "root: no",
        "70000",
        "\"a\" is no server",
        "weight: -1",
        "\"x\" is no",
        "no number",
        "line 13: listen",
    ] {
        assert!(found.iter().any(|error| error.contains(words)), "{words}: {found:#?}");
    }
    let lines: Vec<_> = Map::parse(text).unwrap_err().findings().iter().filter_map(|finding| finding.line).collect();
    assert!(lines.is_sorted(), "{lines:?}");
}

#[test]
fn a_thousand_mistakes_are_counted() {
    let text = one("").replace("\"a\"", "\"a[1-1000]\"").replace("tcp:a:1", "nowhere");
    let found = errors(&text);
    assert_eq!(found.len(), 101);
    assert_eq!(found.last().unwrap(), "and 900 more");
}

#[test]
fn what_a_stranger_describes_costs_little() {
    let path = "{name}".repeat(600);
    let text =
        one(&format!("dir = \"/{path}\"")).replace("\"a\"", "\"a[10000-60000]\"").replace("tcp:a:1", "tcp:{name}:1");
    assert!(errors(&text).iter().any(|error| error.contains("too large")), "{:?}", errors(&text));
    let text = one("targets = 256").replace("\"a\"", "\"a[1-257]\"").replace("tcp:a:1", "tcp:{name}:1");
    assert!(errors(&text).iter().any(|error| error.contains("with 65536 targets")), "{:?}", errors(&text));
    let groups: String = (0..3)
        .map(|n| format!("[[server]]\nname = \"a{n}x[1-30000]\"\nnumber = 1\nlisten = [\"tcp:{{name}}:1\"]\n"))
        .collect();
    let text = format!("name = \"s\"\nepoch = 1\ntargets_per_server = 1\n{groups}");
    assert!(errors(&text).iter().any(|error| error.contains("too large (allowed: 65535 servers")));
}

mod wire {
    use super::*;

    /// What clients see of it.
    fn seen(map: &Map) -> (String, Epoch, ServerId, Vec<Server>) {
        let mut servers = map.servers().to_vec();
        for server in &mut servers {
            server.dir = None;
            for target in &mut server.targets {
                (target.dir, target.settings) = (None, Arc::default());
            }
        }
        (map.name().to_owned(), map.epoch(), map.root().number, servers)
    }

    #[test]
    fn clients_get_what_they_need() {
        let map = parsed(EXAMPLE);
        let bytes = map.encode();
        assert!(bytes.len() < 200, "{}", bytes.len());
        let other = Map::decode(&bytes).unwrap();
        assert_eq!(seen(&map), seen(&other));
        assert_eq!((map.fingerprint(), other.encode()), (other.fingerprint(), bytes));
        let raised = parsed(&EXAMPLE.replace("weight = 0.5", "weight = 0.25"));
        assert_ne!(map.fingerprint(), raised.fingerprint());
    }

    #[test]
    fn lies_are_refused() {
        let mut bytes = parsed(EXAMPLE).encode();
        bytes.push(0);
        assert!(Map::decode(&bytes).unwrap_err().to_string().contains("1 bytes follow"));
        assert!(Map::decode(&vec![0; FILE_LEN_MAX + 1]).unwrap_err().to_string().contains("more than 1048576"));
        let group = Group {
            names: "a[1-2]".to_owned(),
            number: u32::MAX,
            listen: vec!["tcp:{name}:1".to_owned()],
            dir: None,
            targets: vec![TargetDescription::default()],
            router: None,
            rack: None,
            weight: f64::NAN,
            retired: false,
            line: None,
        };
        let description = Description {
            name: "s".to_owned(),
            epoch: 1,
            root: None,
            targets_per_server: 0,
            exchange: Exchange::default(),
            control: Control::default(),
            placement: isonomia_units::Placement::default(),
            groups: vec![group; 3],
        };
        let error = Map::decode(&postcard::to_stdvec(&description).unwrap()).unwrap_err().to_string();
        for words in ["targets_per_server: 0", "number: 4294967295", "weight: NaN"] {
            assert!(error.contains(words), "{error}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_map_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = Map::decode(&bytes);
        }

        #[test]
        fn a_broken_map_is_a_map_or_refused(at in any::<prop::sample::Index>(), byte: u8) {
            let mut bytes = parsed(EXAMPLE).encode();
            let at = at.index(bytes.len());
            bytes[at] = byte;
            if let Ok(map) = Map::decode(&bytes) {
                prop_assert_eq!(seen(&Map::decode(&map.encode()).unwrap()), seen(&map));
            }
        }
    }
}

mod difference {
    use super::*;

    /// What `check --against` finds if `from` becomes `to` in the example and its epoch is raised.
    fn found(from: &str, to: &str) -> Vec<(Severity, String)> {
        let new = EXAMPLE.replace("epoch = 3", "epoch = 4").replace(from, to);
        let found = parsed(EXAMPLE).difference(&parsed(&new));
        found.into_iter().map(|finding| (finding.severity, finding.what)).collect()
    }

    fn finds(from: &str, to: &str, severity: Severity, words: &str) {
        let found = found(from, to);
        assert!(found.iter().any(|(level, what)| *level == severity && what.contains(words)), "{words}: {found:#?}");
    }

    #[test]
    fn an_epoch_says_one_thing() {
        let old = parsed(EXAMPLE);
        assert_eq!(old.difference(&parsed(&format!("# the same\n{EXAMPLE}"))), []);
        assert_eq!(old.difference(&parsed(&EXAMPLE.replace("old[1-2]", "old1,old2"))), [], "in other words");
        assert_eq!(found("epoch = 4", "epoch = 4"), []);
        for change in [("weight = 0.5", "weight = 0.6"), ("2GiB/s", "3GiB/s"), ("/var/lib", "/var")] {
            let new = parsed(&EXAMPLE.replace(change.0, change.1));
            let found = old.difference(&new);
            assert!(found.iter().any(|finding| finding.what.contains("epoch 3 says something else")), "{found:?}");
            assert_ne!(old, new);
        }
        finds("epoch = 4", "epoch = 2", Severity::Error, "epoch 2 is older than 3");
    }

    #[test]
    fn numbers_keep_their_meaning() {
        use Severity::{Error, Warning};
        finds("\"scratch\"", "\"home\"", Error, "name: \"home\" was \"scratch\"");
        finds("epoch = 4", "epoch = 4\ntargets_per_server = 32", Error, "targets_per_server: 32 was 16");
        finds("root = \"io01\"", "root = \"io02\"", Error, "root: io02 was io01");
        finds("io[01-16]", "io[01-15],new", Error, "number 16 was that of io16");
        finds("number = 100", "number = 200", Error, "old1 had number 100");
        finds("io[01-16]", "io[01-12]", Error, "io[13-16] vanished");
        finds("targets = 3", "targets = 2", Error, "target 1586 of old1 vanished");
        let text = EXAMPLE.split_once("[[server]]\nname = \"old").unwrap().1;
        finds(&format!("[[server]]\nname = \"old{text}"), "", Warning, "old[1-2] was retired and is gone");
        finds(
            ", { dir = \"/data/{name}/1\", retired = true }",
            "",
            Warning,
            "target 1 of io01 was retired and is gone",
        );
        finds("/data/{name}/0", "/mnt/{name}", Warning, "target 0 of io01 was in /data/io01/0 and is in /mnt/io01");
        finds("/var/lib", "/var", Warning, "dir of io01");
    }

    #[test]
    fn what_may_change_is_told() {
        use Severity::Note;
        finds("io[01-16]", "io[01-20]", Note, "new: io[17-20]");
        finds(":7411\", \"unix", ":7412\", \"unix", Note, "io01 listens elsewhere");
        finds("retired = true\n", "", Note, "old1 is no longer retired");
        finds("targets = 3", "targets = 4", Note, "old1 has 1 more targets");
    }
}
