//! Reading and printing a policy's text.
//!
//! ```text
//! policy  = scheme [ "+strict" ] [ "+latency{" … "}" ]     what is in the braces: see `latency.rs`
//! scheme  = "fifo" | chain | one of those in `settings.rs`
//! chain   = level { "-" [ "then-" ] level }              the last level must carry "-fair"
//! level   = entity [ "-fair" ] [ weights ] [ "-fair" ]     "-fair" once at most
//! entity  = "group" | "user" | "job" | "size" | "priority"
//! weights = "{" name "=" number { "," name "=" number } "}"
//! ```
//! A name is 1 to 255 bytes without braces, commas, equals signs, blanks, and control characters. A number is
//! decimal with at most six places, 0.000001 to 1000000.

use crate::spec::latency::LatencyClass;
use crate::spec::scheme::Scheme;
use crate::spec::settings;
use crate::spec::{Entity, Level, PolicySpec, Weight};
use isonomia_units::NAME_LEN_MAX;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// The longest policy text that is read, in bytes.
pub const TEXT_LEN_MAX: usize = 4096;
/// The most weights in one policy.
pub const WEIGHTS_MAX: usize = 256;

const ALLOWED: &str = "fifo, or group, user, job, size, priority joined by -then- and ending in -fair, \
                       such as user-then-size-fair or group{astro=3,bio=1}-then-job-fair, \
                       or coflow{…}, fair-finish{…}, exclusive{…}, tbf{…}, mclock{…}, set10{…}, gift{…}, pofs, bsip, mbw, tsa, \
                       esa, tmf, rnd; shares with +strict, and any of them with a class such as \
                       +latency{p99=2ms,user:ada} behind it";

/// The words of a policy, but for `-then-`.
const WORDS: [&str; 22] = [
    "fifo",
    "group",
    "user",
    "job",
    "size",
    "priority",
    "fair",
    "coflow",
    "fair-finish",
    "exclusive",
    "tbf",
    "mclock",
    "set10",
    "gift",
    "pofs",
    "bsip",
    "mbw",
    "tsa",
    "esa",
    "tmf",
    "rnd",
    "strict",
];
/// What makes shares strict, behind a policy.
const STRICT: &str = "strict";
/// From what likeness (Jaro, 0 to 1) on a word is named that may have been meant: where options of programs are named as well.
const ALIKE: f64 = 0.7;

/// Why a policy's text could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParsePolicyError {
    /// More than [`TEXT_LEN_MAX`] bytes.
    #[error("the policy is {len} bytes long; at most {TEXT_LEN_MAX} are allowed")]
    TooLong {
        /// Its length in bytes.
        len: usize,
    },
    /// Not a word of a policy.
    #[error("{word:?} is not part of a policy{} (allowed: {ALLOWED})", meant(word))]
    UnknownWord {
        /// The offending word, empty if one is missing.
        word: String,
    },
    /// `fifo` with something behind it.
    #[error("{rest:?} follows fifo, which stands alone (allowed: {ALLOWED})")]
    AfterFifo {
        /// What follows.
        rest: String,
    },
    /// Something behind a `+` that is neither `strict` nor a latency class.
    #[error(
        "{text:?} cannot be added to a policy{} (allowed: +strict, then +latency{{p99=TIME,…}}, such as \
             +latency{{p99=2ms,user:ada}}; each once)",
        meant(text)
    )]
    UnknownAddition {
        /// What stands there.
        text: String,
    },
    /// More than one latency class.
    #[error("{text:?} follows a latency class (allowed: one latency class, behind everything else)")]
    AfterLatency {
        /// What follows.
        text: String,
    },
    /// Strict shares of a policy that has none.
    #[error(
        "{policy} cannot be strict (allowed: levels that end in -fair, such as job-fair+strict, and what a controller decides)"
    )]
    StrictWithoutShares {
        /// The policy.
        policy: String,
    },
    /// A latency class of a policy that lets one application at a time do I/O.
    #[error("exclusive cannot have a latency class: others are not served while one application has the targets")]
    LatencyOfExclusive,
    /// A level that appears twice.
    #[error("{word:?} appears twice (allowed: each of group and user at most once, then one of job, size, priority)")]
    Repeated {
        /// The level's word.
        word: &'static str,
    },
    /// A level behind one that ends the chain.
    #[error(
        "{word:?} follows {last:?}, which ends the chain (allowed: group and user, then one of job, size, priority)"
    )]
    AfterEnd {
        /// The level that is too much.
        word: &'static str,
        /// The level that ends the chain.
        last: &'static str,
    },
    /// The last level lacks `-fair`.
    #[error("the policy ends in {word:?} without -fair (allowed: {ALLOWED})")]
    NotFair {
        /// The last level's word.
        word: &'static str,
    },
    /// Weights that cannot be read.
    #[error(
        "{text:?} is not a weight: {reason} (allowed: name=number pairs between braces, joined by commas, \
             with numbers from 0.000001 to 1000000 and at most 6 decimal places)"
    )]
    BadWeight {
        /// The offending part.
        text: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// One name weighted twice at one level.
    #[error("{name:?} is weighted twice at the {word:?} level (allowed: once)")]
    RepeatedName {
        /// The name.
        name: String,
        /// The level's word.
        word: &'static str,
    },
    /// More than [`WEIGHTS_MAX`] weights or settings.
    #[error("the policy has more than {WEIGHTS_MAX} weights or settings, the most allowed")]
    TooManyWeights,
    /// A setting that cannot be read.
    #[error("{text:?} is not a setting of {policy}: {reason} (allowed: {allowed})")]
    BadSetting {
        /// The policy's word.
        policy: &'static str,
        /// The offending part.
        text: String,
        /// What is wrong with it.
        reason: String,
        /// What the policy can be told.
        allowed: &'static str,
    },
}

/// What was probably meant by a word that is none, as a question.
fn meant(word: &str) -> String {
    let close = |known: &&str| strsim::jaro(word, known) > ALIKE && *known != word;
    let alike = WORDS.into_iter().filter(close).max_by(|a, b| strsim::jaro(word, a).total_cmp(&strsim::jaro(word, b)));
    alike.map_or_else(String::new, |known| format!("; did you mean {known:?}?"))
}

impl FromStr for PolicySpec {
    type Err = ParsePolicyError;

    fn from_str(s: &str) -> Result<Self, ParsePolicyError> {
        if s.len() > TEXT_LEN_MAX {
            return Err(ParsePolicyError::TooLong { len: s.len() });
        }
        let text = s.trim();
        if let Some(at) = addition(text) {
            let (policy, mut class) = (text[..at].trim_end(), text[at + 1..].trim_start());
            let mut spec: Self = policy.parse()?;
            if let Some(rest) = strict(class) {
                if !spec.can_be_strict() {
                    return Err(ParsePolicyError::StrictWithoutShares { policy: spec.to_string() });
                }
                spec = spec.with_strict_shares();
                match rest {
                    None => return Ok(spec),
                    Some(rest) => class = rest,
                }
            }
            if let Some(again) = addition(class).filter(|_| class.starts_with("latency")) {
                return Err(ParsePolicyError::AfterLatency { text: class[again..].to_owned() });
            }
            if matches!(spec.scheme(), Scheme::Exclusive(_)) {
                return Err(ParsePolicyError::LatencyOfExclusive);
            }
            return Ok(spec.with_latency(Some(LatencyClass::read(class)?)));
        }
        if let Some(rest) = text.strip_prefix("fifo") {
            return match rest {
                "" => Ok(Self::fifo()),
                _ if rest.starts_with(['-', '{']) => Err(ParsePolicyError::AfterFifo { rest: rest.to_owned() }),
                _ => Err(ParsePolicyError::UnknownWord { word: text.to_owned() }),
            };
        }
        let scheme = settings::read(text).unwrap_or_else(|| read_chain_to_end(text).map(Scheme::Fair))?;
        Ok(Self::from_scheme(scheme))
    }
}

impl TryFrom<String> for PolicySpec {
    type Error = ParsePolicyError;
    fn try_from(text: String) -> Result<Self, ParsePolicyError> {
        text.parse()
    }
}

impl fmt::Display for PolicySpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        settings::write(f, self.scheme())?;
        if self.is_strict() {
            write!(f, "+{STRICT}")?;
        }
        self.latency().map_or(Ok(()), |class| write!(f, "+{class}"))
    }
}

/// Where something is added to a policy: the first plus outside all braces.
fn addition(text: &str) -> Option<usize> {
    let mut depth = 0;
    text.bytes().position(|byte| {
        match byte {
            b'{' => depth += 1,
            b'}' => depth -= 1,
            _ => {}
        }
        byte == b'+' && depth <= 0
    })
}

/// Of what is added to a policy, what comes behind `strict` and a plus, if anything does; `None` if it does not begin with that word.
fn strict(added: &str) -> Option<Option<&str>> {
    let (first, rest) = match addition(added) {
        Some(at) => (&added[..at], Some(added[at + 1..].trim_start())),
        None => (added, None),
    };
    (first.trim_end() == STRICT).then_some(rest)
}

/// Prints the levels of a sharing tree.
pub(crate) fn write_chain(f: &mut fmt::Formatter<'_>, levels: &[Level]) -> fmt::Result {
    for (at, level) in levels.iter().enumerate() {
        f.write_str(if at == 0 { "" } else { "-then-" })?;
        f.write_str(level.entity.word())?;
        f.write_str(if at + 1 == levels.len() { "-fair" } else { "" })?;
        let mut separator = '{';
        for (name, weight) in &level.weights {
            write!(f, "{separator}{name}={weight}")?;
            separator = ',';
        }
        f.write_str(if level.weights.is_empty() { "" } else { "}" })?;
    }
    Ok(())
}

/// Reads the levels of a sharing tree, and completes them with a level that splits among jobs.
pub(crate) fn read_chain_to_end(text: &str) -> Result<Vec<Level>, ParsePolicyError> {
    let mut levels = read_chain(text)?;
    if levels.last().is_some_and(|last| !last.entity.ends_chain()) {
        levels.push(Level::new(Entity::Job));
    }
    Ok(levels)
}

fn read_chain(text: &str) -> Result<Vec<Level>, ParsePolicyError> {
    let mut levels: Vec<Level> = Vec::new();
    let mut weights_left = WEIGHTS_MAX;
    let mut rest = text;
    loop {
        let entity = read_entity(&mut rest)?;
        if let Some(last) = levels.last().filter(|last| last.entity.ends_chain()) {
            return Err(ParsePolicyError::AfterEnd { word: entity.word(), last: last.entity.word() });
        }
        if levels.iter().any(|level| level.entity == entity) {
            return Err(ParsePolicyError::Repeated { word: entity.word() });
        }
        let mut fair = take_word(&mut rest, "-fair");
        let mut level = Level::new(entity);
        if rest.starts_with('{') {
            level.weights = read_weights(&mut rest, entity, &mut weights_left)?;
            fair = fair || take_word(&mut rest, "-fair");
        }
        levels.push(level);
        if rest.is_empty() {
            return if fair { Ok(levels) } else { Err(ParsePolicyError::NotFair { word: entity.word() }) };
        }
        let Some(behind) = rest.strip_prefix('-') else {
            return Err(ParsePolicyError::UnknownWord { word: rest.to_owned() });
        };
        rest = behind.strip_prefix("then-").unwrap_or(behind);
    }
}

/// Takes `word` off the front of `rest`, if it stands there as a whole word.
fn take_word(rest: &mut &str, word: &str) -> bool {
    match rest.strip_prefix(word) {
        Some(behind) if behind.is_empty() || behind.starts_with(['-', '{']) => {
            *rest = behind;
            true
        }
        _ => false,
    }
}

fn read_entity(rest: &mut &str) -> Result<Entity, ParsePolicyError> {
    let found = Entity::ALL.into_iter().find(|entity| take_word(rest, entity.word()));
    found.ok_or_else(|| {
        let end = rest.find(['-', '{']).unwrap_or(rest.len());
        ParsePolicyError::UnknownWord { word: rest[..end].to_owned() }
    })
}

fn read_weights(
    rest: &mut &str,
    entity: Entity,
    weights_left: &mut usize,
) -> Result<BTreeMap<Arc<str>, Weight>, ParsePolicyError> {
    let bad = |text: &str, reason| ParsePolicyError::BadWeight { text: text.to_owned(), reason };
    let Some(end) = rest.find('}') else { return Err(bad(rest, "the closing brace is missing")) };
    let (inside, behind) = (&rest[1..end], &rest[end + 1..]);
    let mut weights = BTreeMap::new();
    for pair in inside.split(',') {
        *weights_left = weights_left.checked_sub(1).ok_or(ParsePolicyError::TooManyWeights)?;
        let (name, number) = pair.split_once('=').ok_or_else(|| bad(pair, "it has no equals sign"))?;
        let (name, number) = (name.trim(), number.trim());
        if !is_name(name) {
            return Err(bad(pair, "its name is empty, too long, or has a blank, a brace, or a control character"));
        }
        let weight = read_number(number).ok_or_else(|| bad(pair, "its number is not one that is allowed"))?;
        if weights.insert(Arc::from(name), weight).is_some() {
            return Err(ParsePolicyError::RepeatedName { name: name.to_owned(), word: entity.word() });
        }
    }
    *rest = behind;
    Ok(weights)
}

/// Whether a name can be written in a policy.
pub(crate) fn is_name(name: &str) -> bool {
    let plain = |c: char| !c.is_whitespace() && !c.is_control() && c != '{';
    !name.is_empty() && name.len() <= NAME_LEN_MAX && name.chars().all(plain)
}

/// Reads a weight.
pub(crate) fn read_number(text: &str) -> Option<Weight> {
    let (whole, places) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    if !digits(whole) || !digits(places) || places.len() > 6 {
        return None;
    }
    let millionths = format!("{places:0<6}").parse::<u64>().ok()?;
    let micros = whole.parse::<u64>().ok()?.checked_mul(1_000_000)?.checked_add(millionths)?;
    Weight::from_micros(micros)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn canonical(text: &str) -> String {
        text.parse::<PolicySpec>().unwrap_or_else(|e| panic!("{text}: {e}")).to_string()
    }

    #[test]
    fn what_may_be_meant_is_allowed() {
        for word in WORDS {
            assert!(ALLOWED.contains(word), "{word}");
        }
    }

    #[test]
    fn every_spelling_has_one_canonical_form() {
        for (text, expected) in [
            ("fifo", "fifo"),
            ("job-fair", "job-fair"),
            ("user-fair", "user-then-job-fair"),
            (" group-fair ", "group-then-job-fair"),
            ("size-fair", "size-fair"),
            ("priority-fair", "priority-fair"),
            ("user-then-size-fair", "user-then-size-fair"),
            ("user-size-fair", "user-then-size-fair"),
            ("group-user-size-fair", "group-then-user-then-size-fair"),
            ("group-fair-then-user-fair-then-size-fair", "group-then-user-then-size-fair"),
            ("user-then-group-then-priority-fair", "user-then-group-then-priority-fair"),
            ("group-fair{astro=3,bio=1}-then-job-fair", "group{astro=3,bio=1}-then-job-fair"),
            ("group{bio=1, astro=3.50}-fair-user-fair", "group{astro=3.5,bio=1}-then-user-then-job-fair"),
            ("job-fair{a-then-b=0.000001}", "job-fair{a-then-b=0.000001}"),
            ("size{big=2}-fair", "size-fair{big=2}"),
            ("user-fair + strict", "user-then-job-fair+strict"),
            ("job-fair+strict + latency{p99=2ms,job:viz}", "job-fair+strict+latency{p99=2ms,job:viz}"),
            ("pofs+strict", "pofs{tree=job-fair}+strict"),
        ] {
            assert_eq!(canonical(text), expected, "{text}");
            assert_eq!(canonical(expected), expected);
        }
    }

    #[test]
    fn names_the_offending_word_and_what_is_allowed() {
        for (text, parts) in [
            ("job-fare", vec!["\"fare\" is not part", "did you mean \"fair\"?"]),
            ("usr-fair", vec!["\"usr\" is not part", "did you mean \"user\"?"]),
            ("fairfinish", vec!["did you mean \"fair-finish\"?"]),
            ("", vec!["\"\" is not part", "allowed: fifo, or group, user, job, size, priority"]),
            ("fair", vec!["\"fair\""]),
            ("usr-fair", vec!["\"usr\" is not part", "user-then-size-fair"]),
            ("Job-fair", vec!["\"Job\""]),
            ("user-then-fair", vec!["\"fair\""]),
            ("job-fairly", vec!["\"fairly\""]),
            ("user-then-then-size-fair", vec!["\"then\""]),
            ("job-fair-", vec!["\"\" is not part"]),
            ("fifo-fair", vec!["\"-fair\" follows fifo", "stands alone"]),
            ("fifoo", vec!["\"fifoo\""]),
            ("user-user-fair", vec!["\"user\" appears twice"]),
            ("size-then-user-fair", vec!["\"user\" follows \"size\""]),
            ("job-size-fair", vec!["\"size\" follows \"job\""]),
            ("user-then-size", vec!["ends in \"size\" without -fair"]),
            ("group-fair{astro}-then-job-fair", vec!["\"astro\"", "no equals sign"]),
            ("group-fair{astro=3", vec!["closing brace"]),
            ("group-fair{}", vec!["no equals sign"]),
            ("job-fair{a=0}", vec!["\"a=0\"", "0.000001 to 1000000"]),
            ("job-fair{a=-1}", vec!["\"a=-1\""]),
            ("job-fair{a=inf}", vec!["\"a=inf\""]),
            ("job-fair{a=1000001}", vec!["\"a=1000001\""]),
            ("job-fair{a=0.0000001}", vec!["\"a=0.0000001\""]),
            ("job-fair{=1}", vec!["its name"]),
            ("job-fair{a=1,a=2}", vec!["\"a\" is weighted twice", "\"job\""]),
            ("job-fair{a=1}x", vec!["\"x\""]),
            ("fifo+strict", vec!["fifo cannot be strict", "job-fair+strict"]),
            ("coflow+strict", vec!["cannot be strict"]),
            ("exclusive+strict", vec!["cannot be strict"]),
            ("job-fair+strictly", vec!["\"strictly\" cannot be added", "+strict"]),
            ("job-fair+strct", vec!["\"strct\" cannot be added", "did you mean \"strict\"?"]),
            ("job-fair+strictly+latency{p99=2ms,job:viz}", vec!["cannot be added", "strictly"]),
            ("job-fair+", vec!["\"\" cannot be added"]),
            ("job-fair+strict+", vec!["\"\" cannot be added"]),
            ("job-fair+strict+strict", vec!["\"strict\" cannot be added", "each once"]),
            ("job-fair+latency{p99=2ms,job:viz}+strict", vec!["\"+strict\" follows a latency class"]),
        ] {
            let message = text.parse::<PolicySpec>().unwrap_err().to_string();
            for part in parts {
                assert!(message.contains(part), "{text:?}: {message:?} lacks {part:?}");
            }
        }
    }

    #[test]
    fn input_is_bounded() {
        let long = "job-fair".to_owned() + &" ".repeat(TEXT_LEN_MAX);
        assert_eq!(long.parse::<PolicySpec>(), Err(ParsePolicyError::TooLong { len: TEXT_LEN_MAX + 8 }));
        let weights = |n: usize| (0..n).map(|i| format!("j{i}=1")).collect::<Vec<_>>().join(",");
        assert!(format!("job-fair{{{}}}", weights(WEIGHTS_MAX)).parse::<PolicySpec>().is_ok());
        let many = format!("job-fair{{{}}}", weights(WEIGHTS_MAX + 1));
        assert_eq!(many.parse::<PolicySpec>(), Err(ParsePolicyError::TooManyWeights));
    }

    #[test]
    fn serde_uses_the_text() {
        let spec: PolicySpec = serde_json::from_str("\"group-user-size-fair\"").unwrap();
        assert_eq!(serde_json::to_string(&spec).unwrap(), "\"group-then-user-then-size-fair\"");
        assert!(serde_json::from_str::<PolicySpec>("\"lifo\"").unwrap_err().to_string().contains("\"lifo\""));
    }

    fn weights() -> impl Strategy<Value = BTreeMap<Arc<str>, Weight>> {
        let weight = (1..=Weight::MAX.micros()).prop_filter_map("in range", Weight::from_micros);
        proptest::collection::btree_map("[a-z0-9=-]{1,8}".prop_map(|s| Arc::from(s.replace('=', "."))), weight, 0..4)
    }

    prop_compose! {
        fn specs()(outer in 0usize..5, last in 2usize..5, weights in proptest::collection::vec(weights(), 3))
            -> PolicySpec {
            use Entity::{Group, User};
            let chains: [&[Entity]; 5] = [&[], &[Group], &[User], &[Group, User], &[User, Group]];
            let entities = chains[outer].iter().copied().chain([Entity::ALL[last]]);
            let levels = entities.zip(weights).map(|(entity, weights)| Level { entity, weights });
            PolicySpec::from_scheme(Scheme::Fair(levels.collect()))
        }
    }

    proptest! {
        #[test]
        fn what_is_printed_reads_back(spec in specs()) {
            prop_assert_eq!(spec.to_string().parse::<PolicySpec>(), Ok(spec));
        }

        #[test]
        fn never_panics_on_any_text(s in "\\PC{0,40}") {
            let _ = s.parse::<PolicySpec>();
        }

        #[test]
        fn never_panics_on_near_misses(
            words in proptest::collection::vec("(group|user|job|size|fair|then|fifo|-|\\{|\\}|=|,|1|\\.|é)", 0..16)
        ) {
            if let Ok(spec) = words.concat().parse::<PolicySpec>() {
                prop_assert_eq!(spec.to_string().parse::<PolicySpec>(), Ok(spec));
            }
        }
    }
}
