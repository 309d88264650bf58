//! Claims of a paper beside what came out, and the one rule by which verdicts are given.
//!
//! A [`Claim`] has one or several [`Test`]s. Each says which values are accepted, and which are accepted in part; the
//! verdict follows from where the whole 95 % interval of what was measured lies ([`Test::verdict`], [`RULE`]). Nothing is
//! tuned until a claim holds; what does not hold is said, with the reason as far as it is known.

use crate::interval::Interval;
use crate::table::Table;
use serde::{Deserialize, Serialize};
use std::fmt::{self, Write};

/// How far from the paper's value a value may be, as a part of it, if the paper's own precision says nothing else.
pub const TOLERANCE: f64 = 0.2;
/// The same for parts of a whole, in points of per cent.
pub const TOLERANCE_POINTS: f64 = 3.0;
/// A value that is neither less than the paper's divided by this nor more than the paper's times this agrees in part.
const IN_PART: f64 = 2.0;

/// How verdicts are given.
pub const RULE: &str = "\
How verdicts are given. What is measured has a 95 % confidence interval over seeds; schemes that are compared see the same \
seeds. A claim states which values are accepted: those within 20 % of the paper's value, within 3 points where it is a part of \
a whole, on the claimed side of a bound, or what the paper's own precision says; and which agree in part: from half of the \
paper's value to twice, unless the claim says otherwise.
- reproduces: the whole interval is accepted.
- in part: it is not, but the whole interval agrees in part, and it is not wider than what is accepted where both overlap.
- does not: no value of the interval is accepted, and not all agree in part.
- undecided: anything else; the interval is too wide to tell.
- not testable here: it takes a machine or data that are not here.
A claim of several tests reproduces if all do, is in part if at least half of them reproduce or agree in part, and is \
undecided if that hangs on tests that are.";

/// What came of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// It holds as the paper says.
    Reproduces,
    /// Its direction holds, not its size, or not everywhere.
    InPart,
    /// It does not hold.
    DoesNot,
    /// The interval is too wide to tell.
    Undecided,
    /// It takes a machine or data that are not here.
    NotTestable,
}

/// Values from `low` to `high`, both included; infinite where there is no bound.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Range {
    /// The least.
    pub low: f64,
    /// The greatest.
    pub high: f64,
}

/// One measured value, and what it is to be.
#[derive(Clone, Debug, Serialize)]
pub struct Test {
    what: String,
    measured: Interval,
    unit: &'static str,
    /// The paper's value, where it has one.
    paper: Option<f64>,
    accepted: Range,
    in_part: Range,
}

/// One claim.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Claim {
    /// What the paper says, in our words.
    pub claim: String,
    /// The paper's value.
    pub paper: String,
    /// What came out, with intervals where there are seeds.
    pub ours: String,
    /// What came of it.
    pub verdict: Verdict,
    /// Which values are accepted, and which in part.
    pub rule: String,
    /// Why it comes out so, as far as it is known.
    pub why: String,
    /// Whether it is this project's and not the paper's.
    pub is_ours: bool,
    /// The numbers behind it; none in a claim that was read from a file.
    #[serde(skip_deserializing)]
    pub tests: Vec<Test>,
}

impl Range {
    const ALL: Self = Self { low: f64::NEG_INFINITY, high: f64::INFINITY };

    fn has(&self, other: &Self) -> bool {
        self.low <= other.low && other.high <= self.high
    }

    fn meets(&self, other: &Self) -> bool {
        self.low <= other.high && other.low <= self.high
    }

    fn width(&self) -> f64 {
        self.high - self.low
    }
}

impl Serialize for Range {
    /// A bound that is not there is null, as JSON has no infinity.
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let bound = |value: f64| value.is_finite().then_some(value);
        [bound(self.low), bound(self.high)].serialize(serializer)
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.low.is_finite(), self.high.is_finite()) {
            (true, true) if self.low == self.high => write!(f, "{}", number(self.low)),
            (true, true) => write!(f, "{} to {}", number(self.low), number(self.high)),
            (true, false) => write!(f, "at least {}", number(self.low)),
            (false, true) => write!(f, "at most {}", number(self.high)),
            (false, false) => f.write_str("any"),
        }
    }
}

/// With as many digits as a limit is likely to need.
fn number(value: f64) -> String {
    let digits = if value.abs() >= 100.0 { 0 } else { 3 };
    let text = format!("{value:.digits$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

impl Test {
    fn new(what: impl Into<String>, measured: Interval, accepted: Range, in_part: Range) -> Self {
        Self { what: what.into(), measured, unit: "", paper: None, accepted, in_part }
    }

    fn about(what: impl Into<String>, measured: Interval, paper: f64, tolerance: f64) -> Self {
        let accepted = Range { low: paper - tolerance, high: paper + tolerance };
        let (a, b) = (paper / IN_PART, paper * IN_PART);
        let in_part = Range { low: a.min(b).min(accepted.low), high: a.max(b).max(accepted.high) };
        Self { paper: Some(paper), ..Self::new(what, measured, accepted, in_part) }
    }

    /// The paper has this value: accepted is what is within [`TOLERANCE`] of it.
    pub fn near(what: impl Into<String>, measured: Interval, paper: f64) -> Self {
        Self::about(what, measured, paper, paper.abs() * TOLERANCE)
    }

    /// The paper has this part of a whole, in per cent: accepted is what is within [`TOLERANCE_POINTS`] of it.
    pub fn near_percent(what: impl Into<String>, measured: Interval, paper: f64) -> Self {
        Self { unit: " %", ..Self::about(what, measured, paper, TOLERANCE_POINTS) }
    }

    /// The paper has this value, and is precise to within `tolerance`.
    pub fn within(what: impl Into<String>, measured: Interval, paper: f64, tolerance: f64) -> Self {
        Self::about(what, measured, paper, tolerance)
    }

    /// The claim is that it is more than `bound`.
    pub fn above(what: impl Into<String>, measured: Interval, bound: f64) -> Self {
        let accepted = Range { low: bound, ..Range::ALL };
        Self::new(what, measured, accepted, accepted)
    }

    /// The claim is that it is less than `bound`.
    pub fn below(what: impl Into<String>, measured: Interval, bound: f64) -> Self {
        let accepted = Range { high: bound, ..Range::ALL };
        Self::new(what, measured, accepted, accepted)
    }

    /// The claim is that it is from `low` to `high`.
    pub fn between(what: impl Into<String>, measured: Interval, low: f64, high: f64) -> Self {
        let accepted = Range { low, high };
        Self::new(what, measured, accepted, accepted)
    }

    /// With another range of values that agree in part.
    #[must_use]
    pub fn in_part(mut self, low: f64, high: f64) -> Self {
        self.in_part = Range { low: low.min(self.accepted.low), high: high.max(self.accepted.high) };
        self
    }

    /// With a unit, which follows the number.
    #[must_use]
    pub fn unit(mut self, unit: &'static str) -> Self {
        self.unit = unit;
        self
    }

    /// By the [`RULE`].
    pub fn verdict(&self) -> Verdict {
        let (low, high) = self.measured.bounds();
        let interval = Range { low, high };
        if !interval.width().is_finite() {
            return Verdict::Undecided;
        }
        match (self.accepted.has(&interval), self.accepted.meets(&interval), self.in_part.has(&interval)) {
            (true, ..) => Verdict::Reproduces,
            (_, false, true) => Verdict::InPart,
            (_, false, false) => Verdict::DoesNot,
            (_, true, true) if interval.width() <= self.accepted.width() => Verdict::InPart,
            _ => Verdict::Undecided,
        }
    }

    fn measured(&self) -> String {
        let colon = if self.what.is_empty() { "" } else { ": " };
        format!("{}{colon}{}{}", self.what, self.measured, self.unit)
    }

    fn rule(&self) -> String {
        let mut rule = format!("{}{}", self.accepted, self.unit);
        if self.in_part != self.accepted {
            // Writing to a string cannot fail.
            let _ = write!(rule, "; in part {}{}", self.in_part, self.unit);
        }
        rule
    }
}

impl Claim {
    /// `paper` is what the paper has, as text.
    pub fn new(claim: impl Into<String>, paper: impl Into<String>, tests: Vec<Test>) -> Self {
        let ours = tests.iter().map(Test::measured).collect::<Vec<_>>().join(", ");
        let rules: Vec<String> = tests.iter().map(Test::rule).collect();
        let alike = rules.windows(2).all(|pair| pair[0] == pair[1]);
        let rule = match (alike, tests.len()) {
            (true, 0) => String::new(),
            (true, 1) => rules[0].clone(),
            (true, _) => format!("each: {}", rules[0]),
            _ => tests
                .iter()
                .zip(&rules)
                .map(|(test, rule)| format!("{}: {rule}", test.what))
                .collect::<Vec<_>>()
                .join("; "),
        };
        let verdict = Verdict::of_all(&tests.iter().map(Test::verdict).collect::<Vec<_>>());
        Self {
            claim: claim.into(),
            paper: paper.into(),
            ours,
            verdict,
            rule,
            why: String::new(),
            is_ours: false,
            tests,
        }
    }

    /// One that takes what is not here, with the reason.
    pub fn not_testable(claim: impl Into<String>, paper: impl Into<String>, why: impl Into<String>) -> Self {
        Self { verdict: Verdict::NotTestable, why: why.into(), ..Self::new(claim, paper, Vec::new()) }
    }

    /// One that the paper does not make: what the project found with the paper's system.
    pub fn ours(claim: impl Into<String>, tests: Vec<Test>) -> Self {
        Self { is_ours: true, ..Self::new(claim, "not of the paper", tests) }
    }

    /// With the reason for what came out.
    #[must_use]
    pub fn why(mut self, why: impl Into<String>) -> Self {
        self.why = why.into();
        self
    }

    /// With numbers that stand beside those that are judged.
    #[must_use]
    pub fn beside(mut self, more: impl fmt::Display) -> Self {
        let separator = if self.ours.is_empty() { "" } else { "; " };
        // Writing to a string cannot fail.
        let _ = write!(self.ours, "{separator}{more}");
        self
    }
}

impl Verdict {
    /// All there are, in the order of reports.
    pub const ALL: [Self; 5] = [Self::Reproduces, Self::InPart, Self::DoesNot, Self::Undecided, Self::NotTestable];

    /// Its words in a report.
    pub fn words(self) -> &'static str {
        match self {
            Self::Reproduces => "reproduces",
            Self::InPart => "in part",
            Self::DoesNot => "does not",
            Self::Undecided => "undecided",
            Self::NotTestable => "not testable here",
        }
    }

    /// Of a claim with these tests.
    fn of_all(verdicts: &[Self]) -> Self {
        let decided = |undecided: Self| {
            let as_if = |verdict: &Self| if *verdict == Self::Undecided { undecided } else { *verdict };
            let holding =
                verdicts.iter().map(as_if).filter(|verdict| matches!(verdict, Self::Reproduces | Self::InPart)).count();
            if verdicts.iter().all(|verdict| as_if(verdict) == Self::Reproduces) {
                Self::Reproduces
            } else if 2 * holding >= verdicts.len() {
                Self::InPart
            } else {
                Self::DoesNot
            }
        };
        let (best, worst) = (decided(Self::Reproduces), decided(Self::DoesNot));
        if best == worst { best } else { Self::Undecided }
    }
}

/// How many claims came out how, in words: `30 claims: 20 reproduces, 10 in part; 2 of our own: 2 reproduces`.
pub fn tally<'a>(claims: impl IntoIterator<Item = &'a Claim>) -> String {
    let (ours, papers): (Vec<&Claim>, Vec<&Claim>) = claims.into_iter().partition(|claim| claim.is_ours);
    let verdicts = |claims: &[&Claim]| {
        let of = |verdict: Verdict| (claims.iter().filter(|claim| claim.verdict == verdict).count(), verdict.words());
        let parts = Verdict::ALL.map(of).into_iter().filter(|(count, _)| *count > 0);
        parts.map(|(count, words)| format!("{count} {words}")).collect::<Vec<_>>().join(", ")
    };
    let told = [(papers, "claims"), (ours, "of our own")];
    let told = told.iter().filter(|(claims, _)| !claims.is_empty());
    let texts = told.map(|(claims, words)| format!("{} {words}: {}", claims.len(), verdicts(claims)));
    texts.collect::<Vec<_>>().join("; ")
}

/// The report on claims of what is called `title`, each with its item.
pub(crate) fn report(title: &str, claims: &[(String, Claim)], quick: bool) -> String {
    let mut text = format!("# Claims of {title}\n\n");
    // Writing to a string cannot fail.
    let _ =
        writeln!(text, "{}.\nData of each item lie beside this file.\n", tally(claims.iter().map(|(_, claim)| claim)));
    if quick {
        text.push_str("**A quick run**: fewer points and seeds than the full one; take it as a first look.\n\n");
    }
    let _ = writeln!(text, "{RULE}\n");
    let mut table = Table::new(&["item", "claim", "paper", "ours", "verdict", "accepted", "why"]);
    for (item, claim) in claims {
        let verdict = claim.verdict.words();
        table
            .push([item, &claim.claim, &claim.paper, &claim.ours, verdict, &claim.rule, &claim.why].map(str::to_owned));
    }
    let _ = write!(text, "{table}");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(mean: f64, half: f64) -> Interval {
        Interval { mean, half }
    }

    #[test]
    fn the_whole_interval_counts() {
        let near = |mean, half| Test::near("", measured(mean, half), 10.0).verdict();
        // Accepted is 8 to 12, in part 5 to 20.
        assert_eq!(near(10.0, 2.0), Verdict::Reproduces);
        assert_eq!(near(10.0, 22.2), Verdict::Undecided, "the mean alone proves nothing");
        assert_eq!(near(11.0, 1.5), Verdict::InPart, "it reaches out of what is accepted");
        assert_eq!(near(13.0, 0.5), Verdict::InPart);
        assert_eq!(near(17.0, 2.5), Verdict::InPart, "wide, but surely not accepted");
        assert_eq!(near(4.0, 0.5), Verdict::DoesNot);
        assert_eq!(near(5.0, 0.5), Verdict::DoesNot, "not all of it agrees in part");
        assert_eq!(near(6.0, 2.5), Verdict::Undecided, "from half of it to accepted values");
        assert_eq!(near(10.0, f64::NAN), Verdict::Undecided, "one seed is no interval");
        assert_eq!(near(-10.0, 0.1), Verdict::DoesNot);
        let loss = |mean| Test::near("", measured(mean, 0.1), -10.0).verdict();
        assert_eq!([loss(-11.0), loss(-6.0), loss(6.0)], [Verdict::Reproduces, Verdict::InPart, Verdict::DoesNot]);
    }

    #[test]
    fn bounds_have_no_half_measures() {
        let above = |mean, half| Test::above("", measured(mean, half), 0.0).verdict();
        assert_eq!([above(1.0, 0.5), above(-1.0, 0.5)], [Verdict::Reproduces, Verdict::DoesNot]);
        assert_eq!(above(0.1, 0.5), Verdict::Undecided);
        let below = Test::below("", measured(0.08, 0.001), 0.06).in_part(0.0, 0.12);
        assert_eq!(below.verdict(), Verdict::InPart);
        assert_eq!(Test::near_percent("", measured(34.0, 0.9), 32.0).verdict(), Verdict::Reproduces);
    }

    #[test]
    fn a_claim_of_several_tests_hangs_on_all() {
        use Verdict::{DoesNot, InPart, Reproduces, Undecided};
        let of = Verdict::of_all;
        assert_eq!(of(&[Reproduces, Reproduces]), Reproduces);
        assert_eq!(of(&[Reproduces, InPart]), InPart);
        assert_eq!(of(&[Reproduces, DoesNot]), InPart);
        assert_eq!(of(&[Reproduces, DoesNot, DoesNot]), DoesNot);
        assert_eq!(of(&[Reproduces, Undecided]), Undecided);
        assert_eq!(of(&[InPart, Undecided]), InPart, "whatever comes of the other");
        assert_eq!(of(&[DoesNot, DoesNot, Undecided]), DoesNot);
    }

    #[test]
    fn a_claim_says_what_was_measured_and_what_is_accepted() {
        let tests = vec![
            Test::near("at 8", measured(82.0, 1.0), 80.0).unit(" GB/s"),
            Test::above("at 9", measured(1.0, 0.0), 0.5),
        ];
        let claim = Claim::new("it grows", "80", tests).why("so").beside("0.5 before");
        assert_eq!(claim.ours, "at 8: 82.0 ± 1.0 GB/s, at 9: 1.00; 0.5 before");
        assert_eq!(claim.rule, "at 8: 64 to 96 GB/s; in part 40 to 160 GB/s; at 9: at least 0.5");
        let json = serde_json::to_value(&claim).unwrap();
        assert_eq!(json["verdict"], "reproduces");
        assert_eq!(json["tests"][1]["accepted"], serde_json::json!([0.5, null]));
        let not = Claim::not_testable("on a real machine", "9 %", "there is none");
        let ours = Claim::ours("more", vec![Test::above("", measured(1.0, 0.0), 2.0)]);
        assert_eq!(
            tally([&claim, &not, &ours]),
            "2 claims: 1 reproduces, 1 not testable here; 1 of our own: 1 does not"
        );
        assert_eq!(tally([&ours]), "1 of our own: 1 does not");
        let text = report("us", &[("fig1".to_owned(), claim), ("fig2".to_owned(), not)], true);
        assert!(
            text.contains(RULE) && text.contains("A quick run") && text.contains("| fig2 | on a real machine |"),
            "{text}"
        );
    }
}
