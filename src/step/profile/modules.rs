//! Tree of modules, from paths such as `BertModel.BertEncoder.BertLayer`.

use std::cmp::Ordering;
use std::collections::BTreeMap;

/// Maximum depth of modules; deeper ones belong to their ancestor at this depth.
const DEEPEST: usize = 64;

/// A module with its own contents and those of its submodules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Number of enclosing modules.
    pub depth: usize,
    /// Path of the module.
    pub path: String,
    /// Indices of the paths of the module and its submodules.
    pub places: Vec<usize>,
}

/// Last component of a path.
pub fn name(path: &str) -> &str {
    path.rsplit('.').next().unwrap_or(path)
}

/// Number of modules that enclose this path.
pub fn depth(path: &str) -> usize {
    around(path).count()
}

/// Modules that enclose this path, outermost first.
pub fn around(path: &str) -> impl Iterator<Item = &str> {
    path.match_indices('.').take(DEEPEST - 1).map(|(end, _)| &path[..end])
}

/// All modules of `paths` and the modules around them, each before its submodules. Siblings are sorted by the sum of
/// the weights of their paths, heaviest first.
pub fn tree(paths: &[&str], weight: impl Fn(usize) -> f64) -> Vec<Node> {
    let mut places: BTreeMap<Vec<&str>, Vec<usize>> = BTreeMap::new();
    for (place, path) in paths.iter().enumerate() {
        let parts: Vec<&str> = path.splitn(DEEPEST, '.').collect();
        for end in 1..=parts.len() {
            places.entry(parts[..end].to_vec()).or_default().push(place);
        }
    }
    let weights: BTreeMap<&[&str], f64> =
        places.iter().map(|(parts, places)| (&parts[..], places.iter().map(|&place| weight(place)).sum())).collect();
    let order = |a: &[&str], b: &[&str]| {
        let common = a.iter().zip(b).take_while(|(a, b)| a == b).count();
        if a.len() == common || b.len() == common {
            return a.len().cmp(&b.len());
        }
        let weights = [a, b].map(|parts| weights.get(&parts[..=common]).copied().unwrap_or(0.0));
        weights[1].total_cmp(&weights[0]).then_with(|| a.cmp(b))
    };
    let mut sorted: Vec<&Vec<&str>> = places.keys().collect();
    sorted.sort_by(|a, b| -> Ordering { order(a, b) });
    let node =
        |parts: &Vec<&str>| Node { depth: parts.len() - 1, path: parts.join("."), places: places[parts].clone() };
    sorted.into_iter().map(node).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_stand_before_those_within_and_the_weightiest_first() {
        let paths = ["Net.Head", "Net.Block.Norm", "Net", "Loss", "Net.Block.Linear", "Net.Block"];
        let weights = [4.0, 1.0, 0.5, 2.0, 3.0, 0.25];
        let nodes = tree(&paths, |place| weights[place]);
        let found: Vec<_> = nodes.iter().map(|node| (node.depth, name(&node.path), node.places.clone())).collect();
        assert_eq!(
            found,
            [
                (0, "Net", vec![0, 1, 2, 4, 5]),
                (1, "Block", vec![1, 4, 5]),
                (2, "Linear", vec![4]),
                (2, "Norm", vec![1]),
                (1, "Head", vec![0]),
                (0, "Loss", vec![3]),
            ]
        );
        assert!(nodes.iter().all(|node| node.depth == depth(&node.path)));
        // A module without operations of its own, and one of the same name elsewhere.
        let found: Vec<_> = tree(&["A.B.C", "D.B"], |_| 1.0).into_iter().map(|node| node.path).collect();
        assert_eq!(found, ["A", "A.B", "A.B.C", "D", "D.B"]);
        assert_eq!(around("A.B.C").collect::<Vec<_>>(), ["A", "A.B"]);
        // A path of any depth is accepted.
        let deep = "a.".repeat(100_000);
        assert_eq!((tree(&[&deep], |_| 1.0).len(), depth(&deep)), (DEEPEST, DEEPEST - 1));
    }
}
