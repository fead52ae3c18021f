//! Which cell is run when: all systems of one shape by turns, in another order in every round.
//!
//! Whoever comes after a heavy neighbour may find a busy disk or a warm cache. So the order turns by one system from round to round,
//! and Quell is measured among its peers and not before or after all of them.

use crate::systems::{Shape, System};

/// One process to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cell {
    pub round: usize,
    pub shape: Shape,
    pub system: &'static System,
}

/// The cells of one round.
#[must_use]
pub fn round(systems: &[&'static System], shapes: &[Shape], round: usize) -> Vec<Cell> {
    let mut cells = Vec::new();
    for shape in shapes {
        let mut able: Vec<&'static System> =
            systems.iter().copied().filter(|system| system.shape(*shape).is_ok()).collect();
        if !able.is_empty() {
            let turn = round % able.len();
            able.rotate_left(turn);
        }
        cells.extend(able.into_iter().map(|system| Cell { round, shape: *shape, system }));
    }
    cells
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::systems::SYSTEMS;

    #[test]
    fn every_round_has_the_same_cells_in_another_order() {
        let systems: Vec<&'static System> = SYSTEMS.iter().collect();
        let name = |cell: &Cell| format!("{} {}", cell.shape.name(), cell.system.id);
        let mut first: Vec<String> = round(&systems, &Shape::ALL, 0).iter().map(name).collect();
        let mut second: Vec<String> = round(&systems, &Shape::ALL, 1).iter().map(name).collect();
        assert_ne!(first, second);
        assert_eq!(first[0], "jobs quell-sqlite");
        first.sort();
        second.sort();
        assert_eq!(first, second);
        assert!(!first.contains(&"burst huey".to_owned()));
    }

    #[test]
    fn nothing_chosen_is_nothing_to_run() {
        assert_eq!(round(&[], &Shape::ALL, 3), []);
    }
}
