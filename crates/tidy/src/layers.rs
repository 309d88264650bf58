//! The layers of the workspace: a crate depends on crates of lower layers only.

use crate::Finding;

/// Every crate, lowest layer first; crates of one layer do not know each other.
const LAYERS: [&[&str]; 8] = [
    &["detect", "testbed", "hints", "memory", "units"],
    &["allocation", "cgroup", "cluster", "placement", "planning", "plot", "proto"],
    &["policy"],
    &["controller"],
    &["cluster-sim", "sim", "store", "transport", "whatif"],
    &["client", "reproduce", "server"],
    &["conformance", "mount"],
    &["isonomia", "preload", "bench", "python", "tidy"],
];

/// Checks the dependencies in the manifest of crate `name` (its directory); those for tests may be any.
pub fn check(name: &str, manifest: &str) -> Vec<Finding> {
    let path = format!("crates/{name}/Cargo.toml");
    let finding = |what| vec![Finding { path: path.clone(), line: 0, what }];
    let Some(own) = layer(name) else {
        return finding(format!("`{name}` is in no layer: add it to crates/tidy/src/layers.rs and ARCHITECTURE.md"));
    };
    let table: toml::Table = match manifest.parse() {
        Ok(table) => table,
        Err(error) => return finding(format!("not a manifest: {error}")),
    };
    let dependencies = table.get("dependencies").and_then(toml::Value::as_table);
    let ours = dependencies.into_iter().flat_map(|all| all.keys()).filter_map(|key| key.strip_prefix("isonomia-"));
    ours.filter(|other| layer(other).is_none_or(|layer| layer >= own))
        .flat_map(|other| finding(format!("`{name}` depends on `{other}`, which is not in a lower layer")))
        .collect()
}

fn layer(name: &str) -> Option<usize> {
    LAYERS.iter().position(|layer| layer.contains(&name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrows_point_down() {
        let manifest = "[dependencies]\nisonomia-store.workspace = true\nserde = \"1\"\n\
                        [dev-dependencies]\nisonomia-client.workspace = true\n";
        assert_eq!(check("server", manifest), []);
        assert_eq!(check("transport", manifest).len(), 1, "the same layer");
        assert_eq!(check("policy", manifest).len(), 1, "a higher layer");
        assert_eq!(check("newcomer", manifest).len(), 1, "no layer");
    }
}
