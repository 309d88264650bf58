//! `tbf`: rates by rule, as data and as text, and the changes that operators make to them.
//!
//! ```text
//! tbf    = "burst=" size | "spare=" ( "unused" | "proportional" ) | rule
//! rule   = [ name "@" ] scope "=" ( amount [ "+realtime" ] | "exempt" )
//! scope  = part { "&" part }                 a request is selected if every part selects it
//! part   = selector | "op:" operation { "+" operation } | "path:" path
//! amount = rate | number "ops/s"             bytes read and written, or operations
//! ```
//! Without an `op:` a rule in bytes per second selects what reads and writes, and one in operations per second everything. A path
//! names a directory by its path in the file system, and selects what lies below it.

use crate::nature::{Nature, Operation};
use crate::spec::Entity;
use crate::spec::scheme::{Scheme, Selector};
use crate::spec::settings::{SIZES, Settings, exact, rate as write_rate};
use crate::spec::text::{ParsePolicyError, is_name};
use isonomia_units::{Bytes, JobInfo, Rate};
use std::fmt;
use std::sync::Arc;

/// The most prefixes of paths in one policy: each is a bit of [`Nature::below`].
pub const PREFIXES_MAX: usize = 64;
/// The longest name of a rule, in bytes.
pub const RULE_NAME_LEN_MAX: usize = 64;
/// The largest rate in operations per second.
pub const OPERATIONS_PER_S_MAX: u64 = 1_000_000_000;

/// `tbf{…}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenBucket {
    /// The first rule that selects a request decides. Not empty.
    pub rules: Vec<RateRule>,
    /// Credit that a bucket of a rate in bytes holds at most.
    pub burst: Bytes,
    /// What becomes of service that no bucket has credit for.
    pub spare: Spare,
}

/// A rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RateRule {
    /// By which operators know it.
    pub name: Option<Arc<str>>,
    /// Which requests it is for.
    pub scope: Scope,
    /// How much these may have; `None` exempts them from all later rules.
    pub allowance: Option<Allowance>,
}

/// Which requests a rule is for: those that every part selects.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Scope {
    /// Whose: a group, a user, and a job at most. Those with one name at each have one bucket.
    pub who: Vec<Selector>,
    /// What they do; `None` is what the rate is about.
    pub operations: Option<Vec<Operation>>,
    /// The directory that their files are below: begins with a slash and does not end with one.
    pub path: Option<Arc<str>>,
}

/// The rate of one bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowance {
    /// How much in a second, over the whole system.
    pub amount: Amount,
    /// Whether a bucket that was served late is served first until it has what it missed (Lustre: `realtime`).
    pub realtime: bool,
}

/// How much in a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    /// So many bytes, read or written.
    Bytes(Rate),
    /// So many operations, 1 to [`OPERATIONS_PER_S_MAX`]; a read or write counts once, in however many parts it comes.
    Operations(u64),
}

/// What becomes of service that no bucket has credit for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spare {
    /// Nothing: rates are limits.
    Unused,
    /// It is shared in proportion to the rates.
    Proportional,
}

/// Where a rule comes among the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Position {
    /// Before all others.
    First,
    /// Behind all others.
    Last,
    /// Before the rule of this name.
    Before(String),
}

/// Why a change to the rules is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadRule {
    /// There is no such rule.
    #[error("there is no rule {name:?} (rules: {known})")]
    Unknown {
        /// What was asked for.
        name: String,
        /// Those that there are.
        known: String,
    },
    /// Its name is taken.
    #[error("there is a rule {0:?} already: change it, or stop it first")]
    Exists(String),
    /// Another rule is for the same requests.
    #[error("rule {new} contradicts rule {old}, which is for the same requests and says {amount}: change that one")]
    Contradicts {
        /// The new one.
        new: String,
        /// The one that is there.
        old: String,
        /// What it allows.
        amount: String,
    },
    /// It would never be reached.
    #[error(
        "rule {rule} would select nothing: rule {before}, which comes before it, takes everything that it is for; put {rule} before {before}"
    )]
    Unreachable {
        /// The rule.
        rule: String,
        /// Which one takes all of its requests.
        before: String,
    },
    /// It was the last one.
    #[error("{0} is the last rule: say which policy comes after it")]
    Last(String),
    /// The rules cannot be those of a policy.
    #[error(transparent)]
    Policy(#[from] ParsePolicyError),
}

impl Spare {
    /// Both, in the order messages list them.
    pub const ALL: [Self; 2] = [Self::Unused, Self::Proportional];

    /// The word for it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Unused => "unused",
            Self::Proportional => "proportional",
        }
    }
}

impl Amount {
    /// In a second, in bytes or operations.
    pub fn per_s(self) -> f64 {
        match self {
            Self::Bytes(rate) => rate.bytes_per_s() as f64,
            Self::Operations(number) => number as f64,
        }
    }

    /// How much of it a request is.
    pub fn of(self, bytes: Bytes, nature: Nature) -> u64 {
        match self {
            Self::Bytes(_) => bytes.0,
            Self::Operations(_) => nature.operations.into(),
        }
    }

    /// Whether operations on metadata count in it.
    pub const fn counts_metadata(self) -> bool {
        matches!(self, Self::Operations(_))
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(rate) => f.write_str(&write_rate(*rate)),
            Self::Operations(number) => write!(f, "{number}ops/s"),
        }
    }
}

impl std::str::FromStr for Amount {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Some(number) = text.strip_suffix("ops/s").or_else(|| text.strip_suffix("op/s")) else {
            return text
                .parse()
                .map(Self::Bytes)
                .map_err(|error: isonomia_units::ParseQuantityError| format!("{error}, or a number of ops/s"));
        };
        match number.trim().parse() {
            Ok(0) => Err("it is zero".to_owned()),
            Ok(number @ 1..=OPERATIONS_PER_S_MAX) => Ok(Self::Operations(number)),
            _ => Err(format!("it is not a whole number from 1 to {OPERATIONS_PER_S_MAX} of ops/s")),
        }
    }
}

impl Scope {
    /// All requests of those that one selector selects, the server's own work included: what a policy means that does not look at
    /// requests.
    pub(crate) fn of(selector: Selector) -> Self {
        Self { who: vec![selector], ..Self::default() }
    }

    /// Reads it.
    ///
    /// # Errors
    /// The part that cannot be read, and why.
    pub fn read(text: &str) -> Result<Self, ParsePolicyError> {
        read_scope(&Settings::new("tbf", ALLOWED, "")?, text)
    }

    /// Whether a job's requests can be selected.
    pub fn selects_job(&self, info: &JobInfo) -> bool {
        self.who.iter().all(|selector| selector.selects(info))
    }

    /// What jobs have in common that are in one class.
    pub(crate) fn class_of(&self, info: &JobInfo) -> Arc<str> {
        match &self.who[..] {
            [] => Arc::from(""),
            [one] => one.class_of(info),
            several => several.iter().map(|one| one.class_of(info).to_string()).collect::<Vec<_>>().join("\0").into(),
        }
    }

    /// Whether everything is selected that `other` selects, given what each allows.
    fn covers(&self, allows: Option<&Allowance>, other: &Self, other_allows: Option<&Allowance>) -> bool {
        let wider = |own: &Selector, other: &Selector| {
            own.entity == other.entity && (own.name.is_none() || own.name == other.name)
        };
        // What names nobody selects all.
        let is_everybody = |own: &Selector| own.name.is_none();
        let of_who = self.who.iter().all(|own| is_everybody(own) || other.who.iter().any(|other| wider(own, other)));
        let (own, others) = (self.operations_under(allows), other.operations_under(other_allows));
        let of_path = match (&self.path, &other.path) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(own), Some(other)) => is_below(other, own),
        };
        of_who && others.iter().all(|operation| own.contains(operation)) && of_path
    }

    /// The operations that it selects, given what it allows.
    pub fn operations_under(&self, allows: Option<&Allowance>) -> &[Operation] {
        match (&self.operations, allows.map(|allows| allows.amount)) {
            (Some(operations), _) => operations,
            (None, Some(Amount::Bytes(_))) => &Operation::ALL[..2],
            (None, _) => &Operation::ALL,
        }
    }
}

/// Whether `path` is the directory `prefix`, or lies below it.
pub fn is_below(path: &str, prefix: &str) -> bool {
    path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for selector in &self.who {
            write!(f, "{separator}{}:{}", selector.entity.word(), selector.name.as_deref().unwrap_or("*"))?;
            separator = "&";
        }
        if let Some(operations) = &self.operations {
            let words: Vec<_> = operations.iter().map(|operation| operation.word()).collect();
            write!(f, "{separator}op:{}", words.join("+"))?;
            separator = "&";
        }
        self.path.as_ref().map_or(Ok(()), |path| write!(f, "{separator}path:{path}"))
    }
}

impl RateRule {
    /// What it is called: its name, else what it is for.
    pub fn label(&self) -> String {
        self.name.as_deref().map_or_else(|| self.scope.to_string(), str::to_owned)
    }

    /// What it allows, as a policy says it.
    pub fn value(&self) -> String {
        let Some(allowance) = self.allowance else { return "exempt".to_owned() };
        format!("{}{}", allowance.amount, if allowance.realtime { "+realtime" } else { "" })
    }
}

impl TokenBucket {
    /// Credit that a bucket holds unless told otherwise: three requests of 1 MiB, for Lustre's depth of three.
    pub const BURST_DEFAULT: Bytes = Bytes::mib(3);

    /// The rule of this name, or for this.
    ///
    /// # Errors
    /// There is none.
    pub fn find(&self, name: &str) -> Result<usize, BadRule> {
        self.rules.iter().position(|rule| rule.label() == name).ok_or_else(|| BadRule::Unknown {
            name: name.to_owned(),
            known: self.rules.iter().map(RateRule::label).collect::<Vec<_>>().join(", "),
        })
    }

    /// Adds a rule.
    ///
    /// # Errors
    /// Its name is taken, another is for the same requests, or one of the rules would not be reached.
    pub fn start(&mut self, rule: RateRule, position: &Position) -> Result<(), BadRule> {
        let label = rule.label();
        if self.rules.iter().any(|other| other.label() == label) {
            return Err(BadRule::Exists(label));
        }
        let same = self.rules.iter().find(|other| other.is_for_the_same(&rule));
        if let Some(old) = same {
            let (new, old, amount) = (label, old.label(), old.value());
            return Err(BadRule::Contradicts { new, old, amount });
        }
        let at = match position {
            Position::First => 0,
            Position::Last => self.rules.len(),
            Position::Before(name) => self.find(name)?,
        };
        self.rules.insert(at, rule);
        self.reached()
    }

    /// Has a rule allow something else.
    ///
    /// # Errors
    /// There is none, or one would not be reached then.
    pub fn change(&mut self, name: &str, allowance: Option<Allowance>) -> Result<(), BadRule> {
        let at = self.find(name)?;
        self.rules[at].allowance = allowance;
        self.reached()
    }

    /// Ends a rule.
    ///
    /// # Errors
    /// There is none of this name, or it is the last one.
    pub fn stop(&mut self, name: &str) -> Result<(), BadRule> {
        let at = self.find(name)?;
        if self.rules.len() == 1 {
            return Err(BadRule::Last(name.to_owned()));
        }
        self.rules.remove(at);
        Ok(())
    }

    /// Whether every rule can select anything.
    ///
    /// # Errors
    /// The first that cannot.
    pub fn reached(&self) -> Result<(), BadRule> {
        for (at, rule) in self.rules.iter().enumerate() {
            let takes_all = |before: &&RateRule| {
                before.scope.covers(before.allowance.as_ref(), &rule.scope, rule.allowance.as_ref())
            };
            if let Some(before) = self.rules[..at].iter().find(takes_all) {
                return Err(BadRule::Unreachable { rule: rule.label(), before: before.label() });
            }
        }
        Ok(())
    }

    /// The prefixes of paths that rules name, each once, in the order of [`Nature::below`].
    pub fn prefixes(&self) -> Vec<Arc<str>> {
        let mut prefixes: Vec<Arc<str>> = Vec::new();
        for path in self.rules.iter().filter_map(|rule| rule.scope.path.as_ref()) {
            if !prefixes.contains(path) {
                prefixes.push(path.clone());
            }
        }
        prefixes
    }
}

impl RateRule {
    fn is_for_the_same(&self, other: &Self) -> bool {
        let operations = |rule: &Self| rule.scope.operations_under(rule.allowance.as_ref()).to_vec();
        self.scope.who == other.scope.who
            && self.scope.path == other.scope.path
            && operations(self) == operations(other)
    }
}

const ALLOWED: &str = "job:NAME=RATE, user:NAME=RATE, group:NAME=RATE with NAME or *, op:read+write+metadata=RATE, path:/DIR=RATE, \
                       or some of these joined by &, a name and @ before it or not; +realtime behind a rate such as \
                       100MiB/s or 200ops/s, or =exempt; burst=SIZE, spare=unused, spare=proportional";

/// Reads what is between the braces.
pub(crate) fn read(braces: &str) -> Result<Scheme, ParsePolicyError> {
    let settings = Settings::new("tbf", ALLOWED, braces)?;
    let (mut burst, mut spare) = (None, None);
    let mut rules: Vec<RateRule> = Vec::new();
    for &item in &settings.items {
        match settings.pair(item)? {
            ("burst", value) => {
                let bytes: Bytes = settings.quantity(value)?;
                settings.once(&mut burst, item, bytes)?;
            }
            ("spare", value) => {
                let found = Spare::ALL.into_iter().find(|spare| spare.word() == value);
                settings.once(&mut spare, item, found.ok_or_else(|| settings.bad(item, "there is no such use"))?)?;
            }
            (key, value) => {
                let rule = read_rule(&settings, key, value)?;
                if rules.iter().any(|other| other.is_for_the_same(&rule)) {
                    return Err(settings.bad(item, "it is set twice"));
                }
                if rules.iter().any(|other| other.label() == rule.label()) {
                    return Err(settings.bad(item, "two rules have this name"));
                }
                rules.push(rule);
            }
        }
    }
    let spare = spare.unwrap_or(Spare::Unused);
    if rules.is_empty() {
        return Err(settings.bad("", "it has no rule"));
    }
    let spec = TokenBucket { rules, burst: burst.unwrap_or(TokenBucket::BURST_DEFAULT), spare };
    if spec.prefixes().len() > PREFIXES_MAX {
        return Err(settings.bad("path:", format!("rules name more than {PREFIXES_MAX} directories")));
    }
    if spare == Spare::Proportional {
        check_proportional(&settings, &spec)?;
    }
    Ok(Scheme::TokenBucket(spec))
}

fn check_proportional(settings: &Settings<'_>, spec: &TokenBucket) -> Result<(), ParsePolicyError> {
    let bad = |reason| Err(settings.bad("spare=proportional", reason));
    let is_for_everybody =
        |rule: &RateRule| matches!(&rule.scope.who[..], [one] if one.name.is_none()) && rule.scope.path.is_none();
    if !spec.rules.iter().any(|rule| is_for_everybody(rule) && rule.scope.operations.is_none()) {
        return bad("a job without a rate has no part in it: add job:*=RATE");
    }
    if spec.rules.iter().any(|rule| rule.allowance.is_none()) {
        return bad("who is exempt has no rate and so no part in it");
    }
    let is_by_bytes = |rule: &RateRule| matches!(rule.allowance, Some(Allowance { amount: Amount::Bytes(_), .. }));
    let by_bytes = spec.rules.iter().filter(|rule| is_by_bytes(rule)).count();
    if by_bytes != 0 && by_bytes != spec.rules.len() {
        return bad("bytes and operations have no proportion: give all rates in one of them");
    }
    Ok(())
}

fn read_rule(settings: &Settings<'_>, key: &str, value: &str) -> Result<RateRule, ParsePolicyError> {
    let (name, scope) = match key.split_once('@') {
        Some((name, scope)) if !name.contains(':') => (Some(name), scope),
        _ => (None, key),
    };
    let name = name.map(|name| read_name(settings, name)).transpose()?;
    let scope = read_scope(settings, scope)?;
    let allowance = read_allowance(settings, value)?;
    if scope.operations.as_deref().is_some_and(|ops| ops.contains(&Operation::Metadata))
        && allowance.is_some_and(|allowance| !allowance.amount.counts_metadata())
    {
        return Err(settings.bad(key, "operations on metadata move no bytes: give the rate in ops/s"));
    }
    Ok(RateRule { name, scope, allowance })
}

fn read_name(settings: &Settings<'_>, name: &str) -> Result<Arc<str>, ParsePolicyError> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if name.is_empty() || name.len() > RULE_NAME_LEN_MAX || !name.chars().all(is_plain) {
        let reason = format!("the name of a rule is 1 to {RULE_NAME_LEN_MAX} letters, digits, and any of - _ .");
        return Err(settings.bad(name, reason));
    }
    Ok(name.into())
}

/// Reads what a rule allows.
fn read_allowance(settings: &Settings<'_>, value: &str) -> Result<Option<Allowance>, ParsePolicyError> {
    if value == "exempt" {
        return Ok(None);
    }
    let (amount, realtime) = value.strip_suffix("+realtime").map_or((value, false), |amount| (amount, true));
    Ok(Some(Allowance { amount: settings.quantity(amount)?, realtime }))
}

const PARTS: [&str; 5] = ["group:", "user:", "job:", "op:", "path:"];

fn read_scope(settings: &Settings<'_>, text: &str) -> Result<Scope, ParsePolicyError> {
    let mut scope = Scope::default();
    for part in parts(text) {
        if let Some(words) = part.strip_prefix("op:") {
            let mut operations = Vec::new();
            for word in words.split('+') {
                let found = Operation::ALL.into_iter().find(|operation| operation.word() == word);
                operations.push(found.ok_or_else(|| settings.bad(part, "there is no such operation"))?);
            }
            operations.sort_unstable();
            operations.dedup();
            settings.once(&mut scope.operations, part, operations)?;
        } else if let Some(path) = part.strip_prefix("path:") {
            let path = read_path(settings, path)?;
            settings.once(&mut scope.path, part, path)?;
        } else {
            let selector = settings.selector(part)?;
            if scope.who.iter().any(|other| other.entity == selector.entity) {
                return Err(settings.bad(part, "it is set twice"));
            }
            scope.who.push(selector);
        }
    }
    let order = |entity| [Entity::Group, Entity::User, Entity::Job].iter().position(|other| *other == entity);
    scope.who.sort_by_key(|selector| order(selector.entity));
    Ok(scope)
}

/// Parts of a scope: a name may have an ampersand in it, unless what follows is a part.
fn parts(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest.take()?;
        let begins = |at: &usize| PARTS.iter().any(|word| text[at + 1..].starts_with(word));
        let end = text.match_indices('&').map(|(at, _)| at).find(begins);
        rest = end.map(|at| &text[at + 1..]);
        Some(&text[..end.unwrap_or(text.len())])
    })
}

fn read_path(settings: &Settings<'_>, path: &str) -> Result<Arc<str>, ParsePolicyError> {
    let path = path.trim_end_matches('/');
    let is_component = |name: &str| is_name(name) && name != "." && name != "..";
    let bad = |reason| Err(settings.bad(path, reason));
    match path.strip_prefix('/') {
        None if path.is_empty() => bad("everything is below the root: leave it out"),
        None => bad("a path begins with a slash, at the root of the file system"),
        Some(names) if names.split('/').all(is_component) => Ok(path.into()),
        Some(_) => bad("a part of it is empty, . or .., too long, or has a blank, a brace, or a control character"),
    }
}

/// Prints it.
pub(crate) fn write(f: &mut fmt::Formatter<'_>, spec: &TokenBucket) -> fmt::Result {
    f.write_str("tbf")?;
    let mut separator = '{';
    for rule in &spec.rules {
        write!(f, "{separator}")?;
        rule.name.as_ref().map_or(Ok(()), |name| write!(f, "{name}@"))?;
        write!(f, "{}={}", rule.scope, rule.value())?;
        separator = ',';
    }
    write!(f, ",burst={},spare={}}}", exact(spec.burst.0, &SIZES), spec.spare.word())
}

/// Reads one rule of a policy, as it stands between the braces.
///
/// # Errors
/// What cannot be read, and why.
pub fn read_one(name: &str, scope: &str, value: &str) -> Result<RateRule, ParsePolicyError> {
    let settings = Settings::new("tbf", ALLOWED, "")?;
    read_rule(&settings, &format!("{}@{scope}", read_name(&settings, name)?), value)
}

/// Reads what a rule allows: a rate, `+realtime` behind it or not, or `exempt`.
///
/// # Errors
/// It is none.
pub fn read_value(value: &str) -> Result<Option<Allowance>, ParsePolicyError> {
    read_allowance(&Settings::new("tbf", ALLOWED, "")?, value)
}
