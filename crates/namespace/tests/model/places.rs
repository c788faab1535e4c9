//! The reference model of locations, epochs and orphans.

use types::PoolId;

use super::{Answer, Model, Node, Refusal};

/// Where the data of a file is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DataPlace {
    Empty,
    Pools(Vec<PoolId>),
    Lost,
}

fn place_of(node: &Node) -> DataPlace {
    match node.seen.size {
        _ if !node.locations.is_empty() => DataPlace::Pools(node.locations.iter().copied().collect()),
        0 => DataPlace::Empty,
        _ => DataPlace::Lost,
    }
}

impl Model {
    pub fn add_location(&mut self, file: usize, pool: PoolId) -> Answer<()> {
        self.regular(file)?;
        self.write(file).locations.insert(pool);
        Ok(())
    }

    /// Also of a file that is no more.
    pub fn drop_location(&mut self, file: usize, pool: PoolId) {
        if let Some(node) = &mut self.nodes[file] {
            node.locations.remove(&pool);
        }
    }

    pub fn place(&self, file: usize) -> Answer<DataPlace> {
        self.regular(file)?;
        Ok(place_of(self.read(file)?))
    }

    pub fn raise_epoch(&mut self, file: usize) -> Answer<()> {
        self.regular(file)?;
        self.write(file).epoch += 1;
        Ok(())
    }

    pub fn epoch(&self, file: usize) -> u64 {
        self.read(file).map_or(0, |node| node.epoch)
    }

    /// Regular files with their places, all or those without a name.
    pub fn files(&self, only_orphans: bool) -> Vec<(usize, DataPlace)> {
        let nodes = self.nodes.iter().enumerate();
        let files = nodes.filter_map(|(number, node)| Some((number, node.as_ref()?)));
        files
            .filter(|(_, node)| node.is_regular && (!only_orphans || node.seen.nlink == 0))
            .map(|(number, node)| (number, place_of(node)))
            .collect()
    }

    pub fn target(&self, file: usize) -> Answer<Vec<u8>> {
        self.read(file)?.target.clone().ok_or(Refusal::NotSymlink)
    }

    /// The directory that holds a directory.
    pub fn parent_of(&self, dir: usize) -> Option<usize> {
        let holds = |node: &Node| node.children.values().any(|child| *child == dir);
        self.nodes.iter().position(|node| node.as_ref().is_some_and(holds))
    }

    fn regular(&self, file: usize) -> Answer<()> {
        let node = self.read(file)?;
        match (node.is_regular, node.seen.is_directory) {
            (true, _) => Ok(()),
            (false, true) => Err(Refusal::IsDirectory),
            (false, false) => Err(Refusal::NotRegular),
        }
    }
}
