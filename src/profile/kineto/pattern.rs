//! The period of a sequence of kernels, for traces without any mark.

/// Candidates that are tried.
const CANDIDATES: usize = 24;
/// Kernels looked at.
const LONGEST: usize = 200_000;

/// `(first, period)` so that the sequence repeats every `period` entries from `first` on,
/// at least twice; the entry at `first` occurs once in a period.
///
/// The layers of a network repeat too. What tells a step apart is that the *whole*
/// sequence repeats with it, including the kernels that occur once a step: a token that
/// recurs at one distance only, and of which everything else recurs at that distance.
pub(super) fn period(names: &[u32]) -> Option<(usize, usize)> {
    let names = &names[..names.len().min(LONGEST)];
    let mut places = std::collections::BTreeMap::<u32, Vec<usize>>::new();
    for (place, name) in names.iter().enumerate() {
        places.entry(*name).or_default().push(place);
    }
    // The rarest kernels first: a step has some that occur once in it.
    let mut rare: Vec<&Vec<usize>> = places.values().filter(|list| list.len() >= 2).collect();
    rare.sort_by_key(|list| (list.len(), list[0]));
    let mut best: Option<(usize, usize)> = None;
    for list in rare.into_iter().take(CANDIDATES) {
        let period = list[1] - list[0];
        if period < 2 || list.windows(2).any(|pair| pair[1] - pair[0] != period) || names.len() < 2 * period {
            continue;
        }
        // Every kernel that occurs at all occurs in every period.
        let steps = names.len() / period;
        let missing = places.values().filter(|list| list.len() < steps.saturating_sub(1)).count();
        let same = names.iter().zip(&names[period..]).filter(|(a, b)| a == b).count();
        if missing == 0
            && same as f64 >= 0.98 * (names.len() - period) as f64
            && best.is_none_or(|(_, known)| period > known)
        {
            best = Some((list[0], period));
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::period;

    #[test]
    fn a_step_repeats() {
        // A prologue of one kernel, then three steps of "a b b c".
        let names = [9, 1, 2, 2, 3, 1, 2, 2, 3, 1, 2, 2, 3];
        assert_eq!(period(&names[1..]), Some((0, 4)));
    }

    #[test]
    fn layers_within_one_step_are_not_steps() {
        // An embedding, 50 layers of three kernels, a head.
        let mut names = vec![1];
        for _ in 0..50 {
            names.extend([2, 3, 4]);
        }
        names.push(5);
        assert_eq!(period(&names), None);
        assert_eq!(period(&[]), None);
        assert_eq!(period(&[1, 1, 1]), None);
    }
}
