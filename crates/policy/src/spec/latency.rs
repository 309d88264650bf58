//! The latency class of a policy: `+latency{p99=2ms,job:viz,user:ada,size<=16KiB}` behind any policy.
//!
//! The policy says what is fair; the class says whose requests are answered soon. What it promises is told by
//! [`urgent`](crate::queueing::urgent), what it costs by [`latency`](crate::device::latency).

use crate::spec::scheme::Selector;
use crate::spec::settings::{SIZES, Settings, TIMES, exact};
use crate::spec::text::ParsePolicyError;
use isonomia_units::{Bytes, JobInfo, Nanos};
use std::fmt;

const ALLOWED: &str = "p99=TIME from 1us to 60s, such as 2ms; and at least one of job:NAME, user:NAME, \
                       group:NAME, size<=SIZE such as size<=16KiB";

/// Whose requests are answered soon, and how soon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LatencyClass {
    /// From the arrival of a request to its reply, for 99 of 100 of those that come within their job's share. From
    /// [`LatencyClass::TARGET_MIN`] to [`LatencyClass::TARGET_MAX`].
    pub target: Nanos,
    /// All requests of these jobs, users, and groups, each with a name. May be empty if there is a size.
    pub members: Vec<Selector>,
    /// Reads and writes of anybody that move at most this much. Above zero.
    pub size_max: Option<Bytes>,
}

impl LatencyClass {
    /// The shortest target.
    pub const TARGET_MIN: Nanos = Nanos::from_micros(1);
    /// The longest target.
    pub const TARGET_MAX: Nanos = Nanos::from_secs(60);

    /// Whether all requests of `info` are in the class. A job has the name that is proven for it.
    pub fn has_job(&self, info: &JobInfo) -> bool {
        self.members.iter().any(|member| member.selects(info))
    }

    /// Whether a request that moves `bytes`, of a job that is not in the class, is. What moves nothing is neither small nor
    /// large.
    pub fn has_size(&self, bytes: Bytes) -> bool {
        self.size_max.is_some_and(|max| (1..=max.0).contains(&bytes.0))
    }

    /// Reads what stands behind the `+`.
    pub(crate) fn read(text: &str) -> Result<Self, ParsePolicyError> {
        let Some(braces) = text.strip_prefix("latency").filter(|rest| rest.is_empty() || rest.starts_with('{')) else {
            return Err(ParsePolicyError::UnknownAddition { text: text.to_owned() });
        };
        let settings = Settings::new("latency", ALLOWED, braces)?;
        let (mut target, mut size_max, mut members) = (None, None, Vec::new());
        for &item in &settings.items {
            if let Some((key, value)) = item.split_once("<=").filter(|(key, _)| !key.contains(':')) {
                if key.trim() != "size" {
                    return Err(settings.bad(item, "only size can be bounded"));
                }
                let size: Bytes = settings.quantity(value.trim())?;
                if size == Bytes(0) {
                    return Err(settings.bad(item, "it is zero"));
                }
                settings.once(&mut size_max, item, size)?;
            } else if let Some((key, value)) = item.split_once('=') {
                if key.trim() != "p99" {
                    let is_member = key.contains(':');
                    return Err(settings
                        .bad(item, if is_member { "a member has no value" } else { "no setting has this name" }));
                }
                let time: Nanos = settings.quantity(value.trim())?;
                if time == Nanos::ZERO {
                    return Err(settings.bad(item, "it is zero"));
                }
                if time < Self::TARGET_MIN {
                    return Err(settings.bad(item, "it is shorter than 1us (without a unit it is in ns)"));
                }
                if time > Self::TARGET_MAX {
                    return Err(settings.bad(item, "it is longer than 60s"));
                }
                settings.once(&mut target, item, time)?;
            } else {
                let member = settings.selector(item)?;
                if member.name.is_none() {
                    return Err(settings.bad(item, "a class of everybody comes before nobody"));
                }
                if members.contains(&member) {
                    return Err(settings.bad(item, "it is set twice"));
                }
                members.push(member);
            }
        }
        let Some(target) = target else { return Err(settings.bad(text, "it has no target: add p99=TIME")) };
        if members.is_empty() && size_max.is_none() {
            return Err(settings.bad(text, "it has no member: add job:NAME, user:NAME, group:NAME, or size<=SIZE"));
        }
        Ok(Self { target, members, size_max })
    }
}

impl fmt::Display for LatencyClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "latency{{p99={}", exact(self.target.0, &TIMES))?;
        for member in &self.members {
            write!(f, ",{}:{}", member.entity.word(), member.name.as_deref().unwrap_or("*"))?;
        }
        self.size_max.map_or(Ok(()), |size| write!(f, ",size<={}", exact(size.0, &SIZES)))?;
        f.write_str("}")
    }
}

#[cfg(test)]
mod tests {
    use crate::{ParsePolicyError, PolicySpec, WEIGHTS_MAX};
    use isonomia_units::{Bytes, JobInfo};
    use proptest::prelude::*;

    #[test]
    fn every_spelling_has_one_canonical_form() {
        for (text, expected) in [
            ("fifo+latency{p99=2ms,user:ada}", "fifo+latency{p99=2ms,user:ada}"),
            (
                "user-fair + latency{ size<=16KiB, p99=2000us , job:viz,user:ada}",
                "user-then-job-fair+latency{p99=2ms,job:viz,user:ada,size<=16KiB}",
            ),
            (
                "tbf{user:ada=9MB/s+realtime}+latency{p99=1s,group:a+b}",
                "tbf{user:ada=9MB/s+realtime,burst=3MiB,spare=unused}+latency{p99=1s,group:a+b}",
            ),
            ("coflow +latency{p99=60s,size <= 1000B}", {
                "coflow{guarantee=0.8,order=attained,tree=job-fair}+latency{p99=60s,size<=1kB}"
            }),
            ("job-fair{a+b=2}+latency{job:a<1,p99=1us}", "job-fair{a+b=2}+latency{p99=1us,job:a<1}"),
        ] {
            let spec: PolicySpec = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(spec.to_string(), expected);
            assert_eq!(expected.parse(), Ok(spec));
        }
    }

    #[test]
    fn names_what_is_wrong_and_what_is_allowed() {
        for (text, parts) in [
            ("user-fair+", vec!["\"\"", "+latency{p99=2ms,user:ada}"]),
            ("user-fair+fast", vec!["\"fast\"", "+latency{p99=2ms,user:ada}"]),
            ("user-fair+latencyfast", vec!["\"latencyfast\""]),
            ("user-fair+latency{p99=1ms,user:ada}-fair", vec!["\"-fair\"", "behind the closing brace"]),
            ("latency{p99=1ms,user:ada}", vec!["\"latency\"", "not part of a policy", "+latency{p99=2ms,user:ada}"]),
            ("+latency{p99=1ms,user:ada}", vec!["\"\"", "not part of a policy"]),
            ("user-fair+latency", vec!["latency", "no target", "p99=TIME"]),
            ("user-fair+latency{}", vec!["\"\"", "no setting has this name"]),
            ("user-fair+latency{user:ada}", vec!["no target"]),
            ("user-fair+latency{p99=1ms}", vec!["no member", "size<=SIZE"]),
            ("user-fair+latency{p99=0ms,user:ada}", vec!["\"p99=0ms\"", "it is zero"]),
            ("user-fair+latency{p99=61s,user:ada}", vec!["\"p99=61s\"", "longer than 60s"]),
            ("user-fair+latency{p99=2,user:ada}", vec!["\"p99=2\"", "shorter than 1us", "in ns"]),
            ("user-fair+latency{p99=2furlongs,user:ada}", vec!["\"2furlongs\"", "unit"]),
            ("user-fair+latency{p99=1ms,p99=2ms,user:ada}", vec!["\"p99=2ms\"", "set twice"]),
            ("user-fair+latency{p95=1ms,user:ada}", vec!["\"p95=1ms\"", "no setting has this name"]),
            ("user-fair+latency{p99=1ms,user:ada,user:ada}", vec!["\"user:ada\"", "set twice"]),
            ("user-fair+latency{p99=1ms,user:ada=3}", vec!["\"user:ada=3\"", "a member has no value"]),
            ("user-fair+latency{p99=1ms,user:*}", vec!["\"user:*\"", "everybody"]),
            ("user-fair+latency{p99=1ms,host:a}", vec!["\"host:a\"", "group, user, or job"]),
            ("user-fair+latency{p99=1ms,user:}", vec!["\"user:\"", "its name is empty"]),
            ("user-fair+latency{p99=1ms,size<=0B}", vec!["\"size<=0B\"", "it is zero"]),
            ("user-fair+latency{p99=1ms,size<=4kb}", vec!["\"4kb\"", "unit"]),
            ("user-fair+latency{p99=1ms,size<=4KiB,size<=8KiB}", vec!["\"size<=8KiB\"", "set twice"]),
            ("user-fair+latency{p99=1ms,nodes<=4}", vec!["\"nodes<=4\"", "only size"]),
            ("user-fair+latency{p99=1ms,user:ada", vec!["closing brace is missing"]),
            (
                "user-fair+latency{p99=1ms,user:a}+latency{p99=1ms,user:b}",
                vec!["+latency{p99=1ms,user:b}", "one latency"],
            ),
        ] {
            let message = text.parse::<PolicySpec>().unwrap_err().to_string();
            for part in parts {
                assert!(message.contains(part), "{text:?}: {message:?} lacks {part:?}");
            }
        }
        let many: Vec<_> = (0..=WEIGHTS_MAX).map(|i| format!("job:{i}")).collect();
        let refused = format!("fifo+latency{{p99=1s,{}}}", many.join(",")).parse::<PolicySpec>();
        assert_eq!(refused, Err(ParsePolicyError::TooManyWeights));
    }

    #[test]
    fn a_class_has_those_that_are_named_and_what_is_small() {
        let spec: PolicySpec = "user-fair+latency{p99=2ms,job:viz,group:bio,size<=16KiB}".parse().unwrap();
        let class = spec.latency().unwrap();
        let has = |job, group| class.has_job(&JobInfo::new(job, "u", group));
        assert_eq!([has("viz", "g"), has("x", "bio"), has("x", "g")], [true, true, false]);
        let claimed = JobInfo::new("viz", "u", "g").claimed_within("");
        assert!(!class.has_job(&claimed), "a name that is only claimed is nobody's");
        assert_eq!([0, 1, 16 << 10, (16 << 10) + 1].map(|n| class.has_size(Bytes(n))), [false, true, true, false]);
    }

    proptest! {
        #[test]
        fn never_panics_and_reads_back_what_it_prints(
            policy in "(fifo|job-fair|user\\{a=2\\}-then-size-fair|mclock\\{job:a=weight:1\\}|set10|)",
            parts in proptest::collection::vec(
                "(p99=|2ms|0s|61s|job:|user:|a|group:b|\\*|size|<=|16KiB|,|,|\\{|\\}|\\+|latency|é| |=)",
                0..14,
            ),
        ) {
            for text in [
                format!("{policy}+latency{}", parts.concat()),
                format!("{policy}+latency{{{}}}", parts.concat()),
                format!("{policy} + latency{{p99=2ms,user:x,{}}}", parts.concat()),
            ] {
                if let Ok(spec) = text.parse::<PolicySpec>() {
                    prop_assert!(spec.latency().is_some());
                    prop_assert_eq!(spec.to_string().parse::<PolicySpec>(), Ok(spec));
                }
            }
        }
    }
}
