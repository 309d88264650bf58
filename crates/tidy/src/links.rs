//! Links between documents lead somewhere.

use crate::Finding;
use std::path::Path;

/// Checks the relative links of the Markdown file `path` below `root`.
pub fn check(root: &Path, path: &str, text: &str) -> Vec<Finding> {
    if !path.ends_with(".md") {
        return Vec::new();
    }
    let dir = root.join(path).parent().map(Path::to_owned).unwrap_or_default();
    let mut findings = Vec::new();
    for (line, target) in targets(text) {
        let file = target.split('#').next().unwrap_or("");
        let is_elsewhere = target.contains("://") || target.starts_with("mailto:");
        if !is_elsewhere && !file.is_empty() && !dir.join(file).exists() {
            findings.push(Finding {
                path: path.to_owned(),
                line,
                what: format!("the link to `{target}` leads nowhere"),
            });
        }
    }
    findings
}

/// Targets of `[text](target)` outside of fenced blocks, with their lines.
fn targets(text: &str) -> Vec<(usize, &str)> {
    let mut is_fenced = false;
    let mut found = Vec::new();
    for (index, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            is_fenced = !is_fenced;
        }
        let mut rest = if is_fenced { "" } else { line };
        while let Some((_, after)) = rest.split_once("](") {
            let Some((target, after)) = after.split_once(')') else { break };
            found.push((index + 1, target));
            rest = after;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broken_links_are_found_and_fenced_ones_are_not_links() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let text = "[a](src/lib.rs) [b](gone.md#x)\n```\n[c](nowhere)\n```\n[d](https://example.org) [e](#here)\n";
        let lines: Vec<usize> = check(root, "README.md", text).into_iter().map(|finding| finding.line).collect();
        assert_eq!(lines, [1]);
        assert!(check(root, "x.rs", text).is_empty());
    }
}
