//! How many tasks became READY, by how urgent they are.

use rules::Priority;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Readied([u64; Readied::LEVELS]);

impl Readied {
    /// 0 to 10.
    pub const LEVELS: usize = 11;

    pub fn of(priority: Priority, tasks: u64) -> Self {
        let mut readied = Readied::default();
        readied.add(priority, tasks);
        readied
    }

    pub fn add(&mut self, priority: Priority, tasks: u64) {
        let level = &mut self.0[usize::from(priority.get())];
        *level = level.saturating_add(tasks);
    }

    pub fn add_all(&mut self, more: Readied) {
        more.iter().for_each(|(priority, tasks)| self.add(priority, tasks));
    }

    /// Takes away up to `tasks`, the most urgent first: as claims do.
    pub fn take(&mut self, mut tasks: u64) {
        for level in self.0.iter_mut().rev() {
            let taken = tasks.min(*level);
            *level -= taken;
            tasks -= taken;
        }
    }

    pub fn total(&self) -> u64 {
        self.0.iter().fold(0, |sum, tasks| sum.saturating_add(*tasks))
    }

    pub fn is_empty(&self) -> bool {
        self.total() == 0
    }

    /// What there is, the most urgent first.
    pub fn iter(&self) -> impl Iterator<Item = (Priority, u64)> {
        let levels = self.0.into_iter().enumerate().rev().filter(|(_, tasks)| *tasks > 0);
        levels.filter_map(|(level, tasks)| Some((Priority::try_from(level as i64).ok()?, tasks)))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_most_urgent_come_first_and_are_taken_first() {
        let level = |number: i64| Priority::try_from(number).unwrap();
        let mut readied = Readied::of(level(5), 3);
        readied.add(level(10), 2);

        assert_eq!(readied.iter().collect::<Vec<_>>(), [(level(10), 2), (level(5), 3)]);
        readied.take(4);
        assert_eq!(readied, Readied::of(level(5), 1));
        readied.take(9);
        assert!(readied.is_empty());
    }
}
