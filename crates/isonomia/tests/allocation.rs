//! `isonomia allocate`: the worked examples through every scheme, and cases that are wrong.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use assert_cmd::Command;
use serde_json::Value;

const K1: &str = "b_thres = 0.3\n\
    [[app]]\nname = \"A\"\ntargets = [\"ost1\"]\nremaining = { ost1 = \"40MiB\" }\n\
    [[app]]\nname = \"B\"\ntargets = [\"ost2\", \"ost1\"]\nremaining = { ost1 = \"30MiB\", ost2 = 31457280 }\n";

/// Fig. 6 at k2 and k3, with what A is owed by then.
fn k(owed: f64) -> String {
    let app = |name: &str, targets: &str| format!("[[app]]\nname = \"{name}\"\ntargets = [{targets}]\n");
    let one_target = ["D", "E", "F"].map(|name| app(name, "\"ost2\"")).concat();
    let (a, b, c) = (app("A", "\"ost1\""), app("B", "\"ost1\", \"ost2\""), app("C", "\"ost1\""));
    format!("b_thres = 0.3\ntargets = [\"ost1\", \"ost2\"]\n{a}owed = {owed}\n{b}{c}{one_target}")
}

fn run(case: &str, scheme: &str, json: bool) -> assert_cmd::assert::Assert {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("case.toml");
    std::fs::write(&path, case).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_isonomia"));
    command.arg("allocate").arg(&path).args(["--scheme", scheme]);
    if json {
        command.arg("--json");
    }
    command.assert()
}

fn allocate(case: &str, scheme: &str) -> Value {
    let assert = run(case, scheme, true).success();
    serde_json::from_slice(&assert.get_output().stdout).unwrap()
}

fn refusal(case: &str, scheme: &str) -> String {
    let assert = run(case, scheme, false).code(1).stdout("");
    let error = String::from_utf8(assert.get_output().stderr.clone()).unwrap();
    assert_eq!(error.lines().count(), 1, "{error}");
    error
}

fn number(value: &Value, list: &str, name: &str, key: &str) -> f64 {
    let entry = value[list].as_array().unwrap().iter().find(|entry| entry["name"] == name).unwrap();
    entry[key].as_f64().unwrap()
}

#[track_caller]
fn assert_near(found: f64, expected: f64) {
    assert!((found - expected).abs() < 1e-5, "{found} is not {expected}");
}

#[test]
fn fig_6_under_every_scheme() {
    for (scheme, a, b, effective) in [
        ("pofs", 0.5, 0.5, 1.5),
        ("bsip", 0.5, 0.5, 1.5),
        ("mbw", 0.0, 1.0, 2.0),
        ("tsa", 0.35, 0.65, 1.65),
        ("esa", 0.65, 0.35, 1.35),
        ("tmf", 0.5, 0.5, 1.5),
        ("gift", 0.35, 0.65, 1.65),
        ("tbf", 0.5, 0.5, 1.5),
        ("coflow", 0.25, 0.75, 2.0),
        // B has less to do where they meet.
        ("fair-finish", 0.1, 0.9, 2.0),
    ] {
        let result = allocate(K1, scheme);
        assert_near(number(&result, "apps", "A", "share"), a);
        assert_near(number(&result, "apps", "B", "share"), b);
        assert_near(number(&result, "apps", "A", "fair_share"), 0.5);
        assert_near(result["effective_bandwidth"].as_f64().unwrap(), effective);
        let used: f64 = ["ost1", "ost2"].map(|target| number(&result, "targets", target, "used")).iter().sum();
        assert_near(used, effective);
    }
    assert_eq!(allocate(K1, "rnd"), allocate(K1, "rnd"));
}

#[test]
fn json_has_the_documented_fields_in_the_order_of_the_case() {
    let text = String::from_utf8(run(K1, "gift", true).success().get_output().stdout.clone()).unwrap();
    let compact: String = text.split_whitespace().collect();
    assert!(compact.starts_with(r#"{"apps":[{"name":"A","share":0.35"#), "{compact}");
    let gift = allocate(K1, "gift");
    assert_near(number(&gift, "apps", "A", "coupon_issued"), 0.15);
    assert_near(number(&gift, "targets", "ost2", "wasted"), 0.35);
    assert_eq!(gift["targets"][1]["name"], "ost2", "ost1 is named first");
}

#[test]
fn fig_6_rewards() {
    let k2 = allocate(&k(0.15), "gift");
    for (app, share) in [("A", 0.416667), ("B", 0.25), ("C", 0.333333), ("F", 0.25)] {
        assert_near(number(&k2, "apps", app, "share"), share);
    }
    assert_near(number(&k2, "apps", "A", "coupon_redeemed"), 0.083333);
    let k3 = allocate(&k(0.066667), "gift");
    assert_near(number(&k3, "apps", "A", "coupon_redeemed"), 0.066667);
    assert_near(number(&k3, "apps", "A", "share") + number(&k3, "apps", "C", "share"), 0.75);
    assert_near(k3["effective_bandwidth"].as_f64().unwrap(), 2.0);
}

#[test]
fn people_get_a_table() {
    let text = String::from_utf8(run(K1, "gift", false).success().get_output().stdout.clone()).unwrap();
    assert!(text.contains("A            0.3500      0.5000         0.1500         -"), "{text}");
    assert!(text.ends_with("effective bandwidth 1.6500 of 2 targets\n"), "{text}");
}

#[test]
fn keys_of_single_schemes_matter_to_them() {
    let banked = allocate(&format!("progress = \"banked\"\n{K1}"), "pofs");
    assert_near(banked["effective_bandwidth"].as_f64().unwrap(), 2.0);
    let attained = allocate(&format!("order = \"attained\"\nguarantee = 0.8\n{K1}attained = \"1GiB\"\n"), "coflow");
    assert_near(number(&attained, "apps", "A", "share"), 0.6);
    let hard = K1.replace("[[app]]\nname = \"B\"", "rate = 0.9\nhard = true\n[[app]]\nname = \"B\"");
    assert_near(number(&allocate(&hard, "tbf"), "apps", "B", "share"), 0.1);
    let runs = allocate(&format!("{K1}runs = 9\n"), "tmf");
    assert_near(number(&runs, "apps", "B", "share"), 0.35);
}

#[test]
fn what_is_wrong_is_named_with_its_line_and_what_is_allowed() {
    let app = |rest: &str| format!("[[app]]\nname = \"A\"\ntargets = [\"t\"]\n{rest}\n");
    for (case, expected) in [
        (app("weight = -1"), "case.toml:4: app `A`: weight: -1 (allowed: a positive number)"),
        (app("weight = \"much\""), "case.toml:4: weight: invalid type: string \"much\", expected f64"),
        (app("wieght = 1"), "case.toml:4: wieght: unknown field `wieght`, expected one of"),
        (app("owed = -0.1"), "case.toml:4: app `A`: owed: -0.1 (allowed: 0 or more"),
        (app("remaining = { u = 3 }"), "case.toml:4: app `A`: remaining: the application is not at `u` (allowed: t)"),
        (app("remaining = {}"), "case.toml:4: app `A`: remaining: nothing is said of `t` (allowed: bytes for t)"),
        (app("remaining = { t = -3 }"), "case.toml:4: app `A`: remaining: -3 (allowed: whole bytes"),
        (app("remaining = { t = \"3 pints\" }"), "its unit is unknown (allowed:"),
        (app("remaining = { t = 0 }"), "nothing remains"),
        (app("slowdown = nan"), "app `A`: slowdown: NaN (allowed: 0 or more)"),
        (app(&app("")), "case.toml:5: name: `A` is there twice, first in line 2 (allowed: each name once)"),
        (
            format!("targets = [\"u\", \"v\"]\n{}", app("")),
            "case.toml:4: app `A`: targets: `t` is unknown (allowed: u, v)",
        ),
        (format!("targets = [\"t\", \"t\"]\n{}", app("")), "case.toml:1: targets: `t` is there twice"),
        (format!("guarantee = 1.5\n{}", app("")), "case.toml:1: guarantee: 1.5 (allowed: 0 to 1)"),
        (format!("b_thres = -0.5\n{}", app("")), "case.toml:1: b_thres: -0.5 (allowed: 0 to 1)"),
        (format!("order = \"fifo\"\n{}", app("")), "(allowed: bottleneck, attained, slowdown, bssf)"),
        (format!("order = \"bottleneck\"\n{}", app("")), "case.toml:3: app `A`: remaining: unknown at `t` (allowed:"),
        ("[[app]]\nname = \"A\"\ntargets = []\n".to_owned(), "case.toml:3: app `A`: targets: there is none"),
        ("[[app]]\ntargets = [\"t\"]\n".to_owned(), "case.toml:1: missing field `name`"),
        ("[[app]\n".to_owned(), "case.toml:1: "),
        (String::new(), "case.toml: app: there is none (allowed: one [[app]] or more)"),
    ] {
        let error = refusal(&case, "coflow");
        assert!(error.contains(expected), "{expected}\n{error}");
    }
    let mut missing = Command::new(env!("CARGO_BIN_EXE_isonomia"));
    let missing = missing.args(["allocate", "/nonexistent/case.toml", "--scheme", "gift"]).assert().code(1);
    assert!(String::from_utf8_lossy(&missing.get_output().stderr).contains("cannot open /nonexistent/case.toml"));
}
