//! Layouts of the files of this server's volumes: chosen where a file is made, and told.

use super::membership::Cluster;
use super::placing::Placing;
use super::striping::candidates;
use isonomia_cluster::Map;
use isonomia_proto::control::PlacementStatus;
use isonomia_proto::fs::Layout;
use isonomia_proto::striping::Striping;
use isonomia_store::{Creator, NewFile, Store, StoreError};
use isonomia_units::{Ino, Placement, TargetId};
use std::sync::Arc;

/// Layouts of new files for [`isonomia_store::Namespace::choose_layouts`].
fn chooser(map: impl Fn() -> Arc<Map>, placing: Arc<Placing>) -> impl Fn(&NewFile<'_>) -> Option<Layout> {
    move |file| {
        if file.striping.is_none() && placing.placement() == Placement::Volume {
            return None;
        }
        // What cannot be read says nothing.
        let striping: Option<Striping> = file.striping.and_then(|text| std::str::from_utf8(text).ok()?.parse().ok());
        placing.layout(&map(), striping.as_ref(), (file.ino, file.creator))
    }
}

impl Cluster {
    /// Has the store stripe new files as their directories say, if the servers have a key in common.
    pub fn choose_layouts(&self, store: &Store) {
        if self.capabilities.is_some() {
            let config = self.config.clone();
            store.namespace().choose_layouts(chooser(move || config.map(), self.placing.clone()));
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

    /// The layout of the file `ino`, which is to be striped like this; `None` for one on the server of its volume.
    pub fn layout(&self, striping: &Striping, (ino, creator): (Ino, Option<Creator>)) -> Option<Layout> {
        self.placing.layout(&self.config.map(), Some(striping), (ino, creator))
    }

    /// How files are placed, and what is known of targets here.
    pub fn placement(&self) -> PlacementStatus {
        let (targets, open_files) = self.placing.known(&self.config.map());
        PlacementStatus {
            placement: self.placing.placement().to_string(),
            is_set: self.placing.is_said(),
            version: self.standing.told().0,
            is_possible: self.capabilities.is_some(),
            open_files: open_files as u64,
            targets,
        }
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
        Striping { count, stripe_bytes: layout.stripe_bytes, servers, targets, place: None, grows: layout.grows }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::striping::tests::map;

    #[test]
    fn files_are_placed_round_robin() {
        let choose = chooser(|| Arc::new(map()), Arc::new(Placing::new(&map(), 7)));
        let targets = |text: &str| -> Option<Vec<u16>> {
            let file = NewFile { ino: Ino(9), striping: Some(text.as_bytes()), creator: None };
            Some(choose(&file)?.targets.into_iter().map(|target| target.0).collect())
        };
        let files: Vec<_> = (0..3).filter_map(|_| targets("count=3")).collect();
        assert_eq!(files, [[0, 4, 8], [4, 8, 1], [8, 1, 5]]);
        assert_eq!(targets("targets=9,0"), Some(vec![9, 0]), "in this very order");
        assert_eq!(targets("count=1"), None);
        assert_eq!(targets("nonsense"), None);
        assert_eq!(targets("count=9").map(|targets| targets.len()), Some(6), "when there were more");
    }
}
