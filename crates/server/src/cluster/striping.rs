//! Which targets the objects of a new file lie on, where its directory says how files are striped.
//!
//! Of several servers each gets one target before any gets a second, and unless targets are chosen otherwise ([`super::placing`])
//! who comes first alternates: so a file over as many targets as there are servers has one on each, and small files are spread
//! as well.

use isonomia_cluster::Map;
use isonomia_cluster::map::Server;
use isonomia_proto::striping::Striping;
use isonomia_units::TargetId;

/// Why files cannot be striped so.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unstriped {
    /// There is no such server.
    #[error("the cluster has no server {0:?}")]
    Server(String),
    /// There is no such target.
    #[error("the cluster has no target {0}")]
    Target(TargetId),
    /// There are not so many targets.
    #[error("{count} targets are wanted, and there are {there}")]
    Count {
        /// How many are wanted.
        count: usize,
        /// How many there are, of those servers that are named.
        there: usize,
    },
}

/// The targets that new files may get, in the order of the round.
pub fn candidates(map: &Map, striping: &Striping) -> Result<Vec<TargetId>, Unstriped> {
    if !striping.targets.is_empty() {
        let unknown = striping.targets.iter().find(|target| map.target(**target).is_none());
        return unknown.map_or_else(|| Ok(striping.targets.clone()), |target| Err(Unstriped::Target(*target)));
    }
    let named = |name: &String| map.named(name).ok_or_else(|| Unstriped::Server(name.clone()));
    let servers: Vec<&Server> = match striping.servers.is_empty() {
        true => map.servers().iter().filter(|server| !server.retired).collect(),
        false => striping.servers.iter().map(named).collect::<Result<_, _>>()?,
    };
    let of = |server: &Server| server.targets.iter().filter(|target| !target.retired).map(|target| target.id).collect();
    let by_server: Vec<Vec<TargetId>> = servers.into_iter().map(of).collect();
    let most = by_server.iter().map(Vec::len).max().unwrap_or(0);
    let found: Vec<TargetId> =
        (0..most).flat_map(|index| by_server.iter().filter_map(move |of| of.get(index).copied())).collect();
    if found.len() < striping.count {
        return Err(Unstriped::Count { count: striping.count, there: found.len() });
    }
    Ok(found)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Three servers of two targets, and one that is there no more.
    pub(in crate::cluster) fn map() -> Map {
        let text = "name = \"s\"\nepoch = 1\ntargets_per_server = 4\n[[server]]\nname = \"io[1-3]\"\nnumber = 1\n\
                    listen = [\"tcp:{name}:7411\"]\ntargets = 2\n[[server]]\nname = \"old\"\nnumber = 9\n\
                    listen = [\"tcp:old:7411\"]\nretired = true\n";
        Map::parse(text).unwrap()
    }

    fn found(text: &str) -> Result<Vec<u16>, Unstriped> {
        let found = candidates(&map(), &text.parse().unwrap())?;
        Ok(found.into_iter().map(|target| target.0).collect())
    }

    #[test]
    fn each_server_has_one_target_before_any_has_two() {
        assert_eq!(found("count=3"), Ok(vec![0, 4, 8, 1, 5, 9]));
        assert_eq!(found("count=2 servers=io3,io1"), Ok(vec![8, 0, 9, 1]));
        assert_eq!(found("targets=9,0"), Ok(vec![9, 0]));
    }

    #[test]
    fn what_there_is_not_is_named() {
        assert_eq!(found("servers=io7"), Err(Unstriped::Server("io7".to_owned())));
        assert_eq!(found("targets=3"), Err(Unstriped::Target(TargetId(3))));
        assert_eq!(found("count=7"), Err(Unstriped::Count { count: 7, there: 6 }));
        assert_eq!(found("count=3 servers=io2"), Err(Unstriped::Count { count: 3, there: 2 }));
    }
}
