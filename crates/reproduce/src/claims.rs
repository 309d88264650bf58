//! Claims of a paper beside what came out, as a report in Markdown.
//!
//! A verdict follows from a rule that is stated with the claim. Nothing is tuned until a claim holds; what does not
//! hold is said, with the reason as far as it is known.

use crate::run::Paper;
use serde::Serialize;
use std::fmt::Write;

/// What came of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// It holds as the paper says.
    Reproduces,
    /// Its direction holds, not its size, or not everywhere.
    InPart,
    /// It does not hold.
    DoesNot,
}

/// One claim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Claim {
    /// What the paper says, in our words.
    pub claim: String,
    /// The paper's value.
    pub paper: String,
    /// What came out, with an interval where there are seeds.
    pub ours: String,
    /// What came of it.
    pub verdict: Verdict,
    /// The rule of the verdict, and the reason if it does not hold.
    pub why: String,
}

impl Verdict {
    /// `Reproduces` if `whole`, else `InPart` if `part`, else `DoesNot`.
    pub fn of(whole: bool, part: bool) -> Self {
        match (whole, part) {
            (true, _) => Self::Reproduces,
            (false, true) => Self::InPart,
            (false, false) => Self::DoesNot,
        }
    }

    fn words(self) -> &'static str {
        match self {
            Self::Reproduces => "reproduces",
            Self::InPart => "in part",
            Self::DoesNot => "does not",
        }
    }
}

/// The report on `claims`, each with its item.
pub(crate) fn report(paper: &Paper, claims: &[(&str, Claim)], quick: bool) -> String {
    let mut text = format!("# Claims of {}\n\n", paper.title);
    let of = |verdict| claims.iter().filter(|(_, claim)| claim.verdict == verdict).count();
    let [whole, part, none] = [Verdict::Reproduces, Verdict::InPart, Verdict::DoesNot].map(of);
    // Writing to a string cannot fail.
    let _ = writeln!(
        text,
        "{} claims: {whole} reproduce, {part} in part, {none} do not. Intervals are 95 % confidence intervals over \
         seeds.\nData and plots of each item lie beside this file.\n",
        claims.len()
    );
    if quick {
        text.push_str("**A quick run**: fewer points and seeds than the full one; take it as a first look.\n\n");
    }
    text.push_str("| item | claim | paper | ours | verdict | rule, and why |\n|---|---|---|---|---|---|\n");
    for (item, claim) in claims {
        let cells = [*item, &claim.claim, &claim.paper, &claim.ours, claim.verdict.words(), &claim.why];
        let cells = cells.map(|cell| cell.replace('|', "\\|").replace('\n', " "));
        let _ = writeln!(text, "| {} |", cells.join(" | "));
    }
    text
}
