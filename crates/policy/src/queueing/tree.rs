//! The sharing tree: the chain of transition matrices of ThemisIO's Eq. 1, kept up to date incrementally.
//!
//! Each level of the policy is a level of the tree, each job a leaf. A node knows the sum of the weights of its
//! active children, so the share of a job is the product along its path, O(depth), and a job that becomes active
//! or inactive changes one sum per level at most, O(depth · log children) with the partial sums of the draw.
//! Sums are integers: nothing drifts, however often jobs come and go. Jobs that are only claimed are leaves one level
//! further down, below a node for their proof, unless the policy has a level for users.

use crate::spec::{Level, bounds_claims, proof_of};
use isonomia_units::JobInfo;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A leaf of the tree; valid until removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Leaf(u32);

pub(crate) const ROOT: u32 = 0;

#[derive(Clone, Debug)]
struct Node {
    parent: u32,
    /// Position among the parent's children.
    position: u32,
    /// In millionths.
    weight: u128,
    /// What the policy says that it is, in millionths: see [`ShareTree::apportion`].
    weight_by_policy: u128,
    /// Whether the weight is in the parent's sums.
    active: bool,
    active_weight: u128,
    name: Arc<str>,
    /// Whom a leaf stands for: the number the caller gave. Unused in inner nodes.
    slot: u32,
    inner: bool,
    members: u32,
    /// Children by position; vacant positions keep a sum of zero.
    children: Vec<u32>,
    vacant: Vec<u32>,
    /// Fenwick tree over the active children's weights.
    sums: Vec<u128>,
}

/// What a decision needs of a node: the rest would only fill the cache.
#[derive(Clone, Copy, Debug)]
struct Step {
    /// Of a leaf its weight, of an inner node its weight over its active children's, both in units.
    factor: f64,
    weight: f64,
    parent: u32,
}

/// Nodes between the root and a leaf at most: for group, user, and proof.
pub(crate) const INNER_MAX: usize = 3;

/// The tree of one policy over the jobs of one target.
#[derive(Clone, Debug)]
pub(crate) struct ShareTree {
    levels: Vec<Level>,
    bounds_claims: bool,
    nodes: Vec<Node>,
    /// By node.
    steps: Vec<Step>,
    /// By node; of inner nodes where service that they had together has brought them: see [`Self::charge`].
    tags: Vec<u128>,
    vacant: Vec<u32>,
    inner: BTreeMap<(u32, Arc<str>), u32>,
    /// Counts the changes to what is active.
    changes: u64,
    /// Of these, those that a pace may differ by.
    pace_changes: u64,
    /// The sum of the paces of all active leaves.
    active_weight: f64,
}

impl ShareTree {
    /// An empty tree. `levels` is not empty.
    pub(crate) fn new(levels: &[Level]) -> Self {
        let root = Node::new(ROOT, 0, 0, Arc::from(""), true);
        let steps = vec![Step { factor: 0.0, weight: 0.0, parent: ROOT }];
        Self {
            levels: levels.to_vec(),
            bounds_claims: bounds_claims(levels),
            nodes: vec![root],
            steps,
            tags: vec![0],
            vacant: Vec::new(),
            inner: BTreeMap::new(),
            changes: 0,
            pace_changes: 0,
            active_weight: 0.0,
        }
    }

    /// Adds a leaf, inactive, that [`Self::pick`] will report as `slot`.
    pub(crate) fn insert(&mut self, info: &JobInfo, slot: u32) -> Leaf {
        self.count_change();
        let mut parent = ROOT;
        let last = self.levels.len() - 1;
        for at in 0..last {
            let (weight, name) = (self.levels[at].weight_of(info), Arc::clone(self.levels[at].name_of(info)));
            parent = self.inner_child(parent, weight, name);
        }
        if let Some(proof) = proof_of(info).filter(|_| self.bounds_claims) {
            parent = self.inner_child(parent, self.levels[last].weight_of_proof(info), proof);
        }
        let weight = self.levels[last].weight_of(info);
        let leaf = self.add_child(parent, weight, Arc::from(""), false);
        self.nodes[leaf as usize].slot = slot;
        Leaf(leaf)
    }

    /// Removes a leaf, active or not, and every inner node that loses its last member.
    pub(crate) fn remove(&mut self, leaf: Leaf) {
        self.deactivate(leaf);
        let mut node = leaf.0;
        while node != ROOT && self.nodes[node as usize].members == 0 {
            let (parent, position) = (self.nodes[node as usize].parent, self.nodes[node as usize].position);
            if self.nodes[node as usize].inner {
                let name = Arc::clone(&self.nodes[node as usize].name);
                self.inner.remove(&(parent, name));
            }
            self.vacant.push(node);
            let above = &mut self.nodes[parent as usize];
            above.vacant.push(position);
            above.members -= 1;
            node = parent;
        }
    }

    /// Counts the leaf in; no effect if it is.
    pub(crate) fn activate(&mut self, leaf: Leaf) {
        let mut node = leaf.0;
        while node != ROOT && !self.nodes[node as usize].active {
            self.nodes[node as usize].active = true;
            let (parent, position, weight) = self.nodes[node as usize].location();
            self.nodes[parent as usize].add(position, weight);
            self.rescale(parent);
            node = parent;
        }
    }

    /// Counts the leaf out; no effect if it is out.
    pub(crate) fn deactivate(&mut self, leaf: Leaf) {
        let mut node = leaf.0;
        while node != ROOT && self.nodes[node as usize].active && self.nodes[node as usize].active_weight == 0 {
            self.nodes[node as usize].active = false;
            let (parent, position, weight) = self.nodes[node as usize].location();
            self.nodes[parent as usize].subtract(position, weight);
            self.rescale(parent);
            node = parent;
        }
    }

    /// Divides by other parts than the policy's among these leaves, and among the nodes above them, until this is called again: what
    /// those of one node have together by the policy is divided among them by the parts. All others keep what the policy
    /// says beside them. Parts are positive; linear in the tree.
    pub(crate) fn apportion(&mut self, parts: &[(Leaf, f64)]) {
        let mut part_of: BTreeMap<u32, f64> = BTreeMap::new();
        for (leaf, part) in parts {
            let mut node = leaf.0;
            while node != ROOT {
                *part_of.entry(node).or_default() += part;
                node = self.nodes[node as usize].parent;
            }
        }
        // By parent: what its children of this kind have together, in parts and by the policy.
        let mut sums: BTreeMap<u32, (f64, u128)> = BTreeMap::new();
        for (node, part) in &part_of {
            let Node { parent, weight_by_policy, .. } = self.nodes[*node as usize];
            let (parts, weights) = sums.entry(parent).or_default();
            *parts += part;
            *weights += weight_by_policy;
        }
        for node in 1..self.nodes.len() as u32 {
            let Node { parent, weight_by_policy, .. } = self.nodes[node as usize];
            let weight = match (part_of.get(&node), sums.get(&parent)) {
                (Some(part), Some((parts, weights))) => ((*weights as f64 * part / parts).round() as u128).max(1),
                _ => weight_by_policy,
            };
            self.reweigh(node, weight);
        }
    }

    fn reweigh(&mut self, node: u32, weight: u128) {
        let Node { parent, position, weight: before, active, inner, .. } = self.nodes[node as usize];
        if weight == before {
            return;
        }
        self.count_change();
        self.nodes[node as usize].weight = weight;
        self.steps[node as usize].weight = in_units(weight);
        if inner {
            self.rescale(node);
        } else {
            self.steps[node as usize].factor = in_units(weight);
        }
        if active {
            self.nodes[parent as usize].subtract(position, before);
            self.nodes[parent as usize].add(position, weight);
            self.rescale(parent);
        }
    }

    /// Whether the leaf is counted.
    pub(crate) fn is_active(&self, leaf: Leaf) -> bool {
        self.nodes[leaf.0 as usize].active
    }

    /// The share of an active leaf, in (0, 1]; zero for an inactive one.
    pub(crate) fn share(&self, leaf: Leaf) -> f64 {
        if self.is_active(leaf) { self.pace(leaf) / self.active_weight() } else { 0.0 }
    }

    /// The sum of the paces of all active leaves.
    pub(crate) fn active_weight(&self) -> f64 {
        self.active_weight
    }

    /// A number that differs whenever a pace may, or their sum.
    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }

    /// A number that differs whenever a pace may. With one level and no proofs that is when a leaf is added.
    pub(crate) fn pace_changes(&self) -> u64 {
        self.pace_changes
    }

    /// The share of an active leaf times the root's active weight. Among jobs it is proportional to the share,
    /// and it does not change when an unrelated branch comes or goes, so that what a job was charged before
    /// keeps its meaning.
    pub(crate) fn pace(&self, leaf: Leaf) -> f64 {
        let mut step = self.steps[leaf.0 as usize];
        let mut pace = step.factor;
        while step.parent != ROOT {
            step = self.steps[step.parent as usize];
            pace *= step.factor;
        }
        pace
    }

    /// The weight of a leaf right below the root; `None` for one that is further down.
    pub(crate) fn weight_below_root(&self, leaf: Leaf) -> Option<f64> {
        let step = &self.steps[leaf.0 as usize];
        (step.parent == ROOT).then_some(step.weight)
    }

    /// The nodes above a leaf, the outermost last; what is not needed of the array is the root.
    fn above(&self, leaf: Leaf) -> [u32; INNER_MAX] {
        let mut above = [ROOT; INNER_MAX];
        let mut node = self.steps[leaf.0 as usize].parent;
        for entry in &mut above {
            *entry = node;
            node = self.steps[node as usize].parent;
        }
        above
    }

    /// The nodes above a leaf without the root, the nearest first.
    pub(crate) fn inner_above(&self, leaf: Leaf) -> impl Iterator<Item = u32> {
        self.above(leaf).into_iter().filter(|node| *node != ROOT)
    }

    /// The weight of a leaf, and the nodes above it with their weights over those of their active children, the outermost
    /// first; what is not needed of the array is the root.
    pub(crate) fn links(&self, leaf: Leaf) -> (f64, [(u32, f64); INNER_MAX]) {
        let mut above = self.above(leaf).map(|node| (node, self.steps[node as usize].factor));
        above.reverse();
        (self.steps[leaf.0 as usize].weight, above)
    }

    /// Charges the nodes above a leaf for service that it begins at the tag `start`: each tag moves on by what `span`
    /// makes of the node's pace. Where the leaves of a node are always queued, its tag is the mean of theirs.
    pub(crate) fn charge(&mut self, leaf: Leaf, start: u128, span: impl Fn(f64) -> u128) {
        self.move_tags(leaf, |tag, pace| tag.max(start).saturating_add(span(pace)));
    }

    /// Charges the nodes above a leaf more than was known, or less, than [`Self::charge`] did.
    pub(crate) fn correct(&mut self, leaf: Leaf, is_more: bool, span: impl Fn(f64) -> u128) {
        self.move_tags(
            leaf,
            |tag, pace| {
                if is_more { tag.saturating_add(span(pace)) } else { tag.saturating_sub(span(pace)) }
            },
        );
    }

    /// `moved` makes a new tag of a node's tag and pace.
    fn move_tags(&mut self, leaf: Leaf, moved: impl Fn(u128, f64) -> u128) {
        let mut pace = 1.0;
        for node in self.above(leaf).into_iter().rev().filter(|node| *node != ROOT) {
            let Step { factor, weight, .. } = self.steps[node as usize];
            let tag = &mut self.tags[node as usize];
            *tag = moved(*tag, pace * weight);
            pace *= factor;
        }
    }

    /// The tag before which a leaf that becomes active must not begin: those above it are as far.
    pub(crate) fn start(&self, leaf: Leaf) -> u128 {
        self.above(leaf).into_iter().map(|node| self.tags[node as usize]).max().unwrap_or(0)
    }

    /// Draws an active leaf with the probability of its share and returns its slot; `None` if none is active.
    /// `uniform` gives numbers in [0, 1), one for each level.
    pub(crate) fn pick(&self, mut uniform: impl FnMut() -> f64) -> Option<u32> {
        let mut node = &self.nodes[ROOT as usize];
        while node.inner {
            let ceiling = node.active_weight.checked_sub(1)?;
            let point = ((uniform() * node.active_weight as f64) as u128).min(ceiling);
            node = &self.nodes[node.child_at(point) as usize];
        }
        Some(node.slot)
    }

    /// The inner node of this name below `parent`, added if there is none.
    fn inner_child(&mut self, parent: u32, weight: u128, name: Arc<str>) -> u32 {
        if let Some(&node) = self.inner.get(&(parent, Arc::clone(&name))) {
            return node;
        }
        let node = self.add_child(parent, weight, Arc::clone(&name), true);
        self.inner.insert((parent, name), node);
        node
    }

    /// Makes room for so many leaves more.
    pub fn reserve(&mut self, leaves: usize) {
        self.nodes.reserve(leaves);
        self.steps.reserve(leaves);
        self.tags.reserve(leaves);
    }

    fn add_child(&mut self, parent: u32, weight: u128, name: Arc<str>, inner: bool) -> u32 {
        let node = self.vacant.pop().unwrap_or(self.nodes.len() as u32);
        let above = &mut self.nodes[parent as usize];
        above.members += 1;
        let position = above.seat(node);
        let child = Node::new(parent, position, weight, name, inner);
        let step = Step { factor: in_units(weight), weight: in_units(weight), parent };
        if node as usize == self.nodes.len() {
            self.nodes.push(child);
            self.steps.push(step);
            self.tags.push(0);
        } else {
            self.nodes[node as usize] = child;
            self.steps[node as usize] = step;
            self.tags[node as usize] = 0;
        }
        node
    }

    fn count_change(&mut self) {
        self.changes += 1;
        self.pace_changes += 1;
    }

    /// Brings the factor of an inner node in line with its active children. That of the root is in no pace.
    fn rescale(&mut self, node: u32) {
        if node == ROOT {
            self.active_weight = in_units(self.nodes[ROOT as usize].active_weight);
            self.changes += 1;
            return;
        }
        self.count_change();
        let weights = &self.nodes[node as usize];
        self.steps[node as usize].factor = in_units(weights.weight) / in_units(weights.active_weight);
    }
}

/// A weight in millionths as a number.
fn in_units(micros: u128) -> f64 {
    micros as f64 / 1e6
}

impl Node {
    fn new(parent: u32, position: u32, weight: u128, name: Arc<str>, inner: bool) -> Self {
        Self {
            parent,
            position,
            weight,
            weight_by_policy: weight,
            active: false,
            active_weight: 0,
            name,
            slot: 0,
            inner,
            members: 0,
            children: Vec::new(),
            vacant: Vec::new(),
            sums: Vec::new(),
        }
    }

    fn location(&self) -> (u32, u32, u128) {
        (self.parent, self.position, self.weight)
    }

    /// Gives `child` a position.
    fn seat(&mut self, child: u32) -> u32 {
        if let Some(position) = self.vacant.pop() {
            self.children[position as usize] = child;
            return position;
        }
        let position = self.children.len();
        self.children.push(child);
        // Entry i of a Fenwick tree sums the i's lowest set bit entries that end in i (counted from 1).
        let end = position + 1;
        let begin = end - (end & end.wrapping_neg());
        let sum = self.prefix(position) - self.prefix(begin);
        self.sums.push(sum);
        position as u32
    }

    /// Sum of the first `end` children's active weights.
    fn prefix(&self, end: usize) -> u128 {
        let mut at = end;
        let mut sum = 0;
        while at > 0 {
            sum += self.sums[at - 1];
            at &= at - 1;
        }
        sum
    }

    fn add(&mut self, position: u32, weight: u128) {
        self.active_weight += weight;
        let mut at = position as usize + 1;
        while at <= self.sums.len() {
            self.sums[at - 1] += weight;
            at += at & at.wrapping_neg();
        }
    }

    fn subtract(&mut self, position: u32, weight: u128) {
        self.active_weight -= weight;
        let mut at = position as usize + 1;
        while at <= self.sums.len() {
            self.sums[at - 1] -= weight;
            at += at & at.wrapping_neg();
        }
    }

    /// The child in whose segment of the active weights `point` falls; `point` is below their sum.
    fn child_at(&self, point: u128) -> u32 {
        let mut left = point;
        let mut at = 0;
        let mut step = self.sums.len().next_power_of_two();
        while step > 0 {
            if at + step <= self.sums.len() && self.sums[at + step - 1] <= left {
                at += step;
                left -= self.sums[at - 1];
            }
            step /= 2;
        }
        self.children[at]
    }
}
