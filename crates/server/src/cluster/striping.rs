//! Which targets the objects of a new file lie on, where its directory says how files are striped.
//!
//! Of several servers each gets one target before any gets a second, and who comes first takes turns: so a file over as many
//! targets as there are servers has one on each, and small files are spread as well.

use super::Cluster;
use isonomia_cluster::Map;
use isonomia_cluster::map::Server;
use isonomia_placement::{RoundRobin, Turn, stripes_from};
use isonomia_proto::fs::Layout;
use isonomia_proto::striping::Striping;
use isonomia_store::{Store, StoreError};
use isonomia_units::TargetId;
use std::sync::Arc;

/// Where new files begin.
pub fn first_turn() -> Arc<RoundRobin> {
    Arc::new(RoundRobin::starting_at(0, Turn::File))
}

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

/// The targets that new files may get, in the order in which they take turns.
fn candidates(map: &Map, striping: &Striping) -> Result<Vec<TargetId>, Unstriped> {
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
        (0..most).flat_map(|place| by_server.iter().filter_map(move |of| of.get(place).copied())).collect();
    if found.len() < striping.count {
        return Err(Unstriped::Count { count: striping.count, there: found.len() });
    }
    Ok(found)
}

/// The targets of a new file: [`Striping::count`] of the candidates, or fewer where there are fewer by now.
fn layout(map: &Map, striping: &Striping, turns: &RoundRobin) -> Option<Layout> {
    if striping.targets.is_empty() && striping.count == 1 && striping.servers.is_empty() {
        // As everywhere else.
        return None;
    }
    let found = match candidates(map, striping) {
        Err(Unstriped::Count { there, .. }) if there > 0 => {
            candidates(map, &Striping { count: there, ..striping.clone() })
        }
        found => found,
    };
    let found = found.ok().filter(|found| !found.is_empty())?;
    let first = if striping.targets.is_empty() { turns.first(found.len(), striping.count) } else { 0 };
    let targets = stripes_from(&found, first, striping.count.min(found.len())).collect();
    Some(Layout { stripe_bytes: striping.stripe_bytes, targets })
}

/// Layouts of new files for [`isonomia_store::Store::choose_layouts`].
fn chooser(map: impl Fn() -> Arc<Map>, turns: Arc<RoundRobin>) -> impl Fn(&[u8]) -> Option<Layout> {
    move |text| {
        let striping: Striping = std::str::from_utf8(text).ok()?.parse().ok()?;
        layout(&map(), &striping, &turns)
    }
}

impl Cluster {
    /// Has the store stripe new files as their directories say, if the servers have a key in common.
    pub fn choose_layouts(&self, store: &Store) {
        if self.capabilities.is_some() {
            let config = self.config.clone();
            store.choose_layouts(chooser(move || config.map(), self.turns.clone()));
        }
    }

    /// How files are to be striped, as an attribute says; [`StoreError::Invalid`] if they cannot be striped so, and
    /// [`StoreError::NotSupported`] if no file can.
    pub fn checked_striping(&self, value: &[u8]) -> Result<Striping, StoreError> {
        if self.capabilities.is_none() {
            return Err(StoreError::NotSupported);
        }
        let text = std::str::from_utf8(value).map_err(|_| StoreError::Invalid)?;
        let striping = text.parse().map_err(|_| StoreError::Invalid)?;
        candidates(&self.config.map(), &striping).map_err(|_| StoreError::Invalid)?;
        Ok(striping)
    }

    /// The layout of a file that is to be striped like this; `None` for one as everywhere else.
    pub fn layout(&self, striping: &Striping) -> Option<Layout> {
        layout(&self.config.map(), striping, &self.turns)
    }

    /// How a file with this layout is striped, in words.
    pub fn described(&self, layout: &Layout) -> Striping {
        let map = self.config.map();
        let name_of = |target: &TargetId| map.target(*target).map(|(server, _)| server.name.to_string());
        let mut servers: Vec<String> = Vec::new();
        for name in layout.targets.iter().filter_map(name_of) {
            if !servers.contains(&name) {
                servers.push(name);
            }
        }
        let (count, targets) = (layout.targets.len(), layout.targets.clone());
        Striping { count, stripe_bytes: layout.stripe_bytes, servers, targets }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map() -> Map {
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

    #[test]
    fn files_take_turns() {
        let choose = chooser(|| Arc::new(map()), first_turn());
        let targets = |text: &str| -> Option<Vec<u16>> {
            Some(choose(text.as_bytes())?.targets.into_iter().map(|target| target.0).collect())
        };
        let turns: Vec<_> = (0..3).filter_map(|_| targets("count=3")).collect();
        assert_eq!(turns, [[0, 4, 8], [4, 8, 1], [8, 1, 5]]);
        assert_eq!(targets("targets=9,0"), Some(vec![9, 0]), "in this very order");
        assert_eq!(targets("count=1"), None);
        assert_eq!(targets("nonsense"), None);
        assert_eq!(targets("count=9").map(|targets| targets.len()), Some(6), "when there were more");
    }
}
