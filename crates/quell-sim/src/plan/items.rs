//! Draws what senders and operators do and what breaks, moment by moment.

use super::draw::window;
use super::{EventPlan, Fault, Hand, Item, SendPlan, Shape, Trouble};
use crate::chance::Chance;

pub(super) struct Items<'a> {
    c: &'a mut Chance,
    shape: &'a Shape,
    nodes: usize,
    pub(super) items: Vec<Item>,
    next: u64,
    /// Events planned so far, to be repeated or contradicted.
    planned: Vec<EventPlan>,
}

/// Which wishes events may have in this schedule.
struct Wishes {
    given: u64,
    repeats: u64,
    conflicts: u64,
    arrays: u64,
    delays: u64,
    windows: u64,
    priorities: u64,
    idle: u64,
    same: u64,
    padding: u64,
}

impl<'a> Items<'a> {
    pub(super) fn new(c: &'a mut Chance, shape: &'a Shape, nodes: usize) -> Self {
        Items { c, shape, nodes, items: Vec::new(), next: 1, planned: Vec::new() }
    }

    fn now_and_then(&mut self, exists: u64, at_most: u64) -> u64 {
        if self.c.percent(exists) { self.c.between(1, at_most) } else { 0 }
    }

    fn moment(&mut self) -> u64 {
        self.c.below(self.shape.span)
    }

    /// Lanes that people use: those of the notices fill themselves.
    fn lane(&mut self) -> usize {
        let used = self.shape.lanes.iter().filter(|(_, queue)| *queue + 1 < self.shape.queues.len()).count();
        self.c.index(used)
    }

    pub(super) fn sends(&mut self) {
        let wishes = Wishes {
            given: self.now_and_then(60, 100),
            repeats: self.now_and_then(50, 40),
            conflicts: self.now_and_then(30, 30),
            arrays: self.now_and_then(40, 60),
            delays: self.now_and_then(35, 60),
            windows: self.now_and_then(25, 50),
            priorities: self.now_and_then(20, 100),
            idle: self.now_and_then(15, 50),
            same: self.now_and_then(20, 50),
            padding: self.now_and_then(20, 50),
        };
        let count = self.c.between(2, 24);
        let mut at = self.moment() / 2;
        let burst = self.c.between(0, 90);
        for _ in 0..count {
            at = if self.c.percent(burst) { at + self.c.below(60) } else { self.moment() };
            let mut events = vec![self.event(&wishes)];
            while events.len() < 6 && self.c.percent(wishes.arrays) {
                events.push(self.event(&wishes));
            }
            let patience = if self.c.percent(80) { 8 } else { self.c.below(2) };
            let patience = u32::try_from(patience).unwrap_or(0);
            self.items.push(Item::Send { at, send: SendPlan { events, patience } });
        }
    }

    fn event(&mut self, wishes: &Wishes) -> EventPlan {
        if !self.planned.is_empty() && self.c.percent(wishes.repeats) {
            let mut again = self.c.pick(&self.planned).clone();
            if again.given {
                if self.c.percent(wishes.conflicts) {
                    again.canary = self.fresh();
                }
                if self.c.percent(wishes.delays) {
                    again.delay = None;
                }
                return again;
            }
        }
        let number = self.fresh();
        let lane = self.lane();
        let given = self.c.percent(wishes.given);
        let same = self.planned.last().filter(|_| self.c.percent(wishes.same)).map(|e| e.canary);
        let event = EventPlan {
            lane,
            id: if given { format!("g{number}") } else { format!("m{number}") },
            given,
            canary: same.unwrap_or(number),
            padding: if self.c.percent(wishes.padding) { self.c.index(60) } else { 0 },
            delay: self.c.percent(wishes.delays).then(|| self.c.below(2_500)),
            window: self.c.percent(wishes.windows).then(|| window(self.c)),
            priority: if self.c.percent(wishes.priorities) {
                u8::try_from(self.c.below(10)).unwrap_or(4)
            } else {
                4
            },
            only_if_idle: self.c.percent(wishes.idle),
            source: None,
            newer: false,
        };
        // The same canary is the same payload, size and all.
        let padding = self.planned.iter().find(|e| e.canary == event.canary).map(|e| e.padding);
        let event = EventPlan { padding: padding.unwrap_or(event.padding), ..event };
        self.planned.push(event.clone());
        event
    }

    fn fresh(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    pub(super) fn hands(&mut self) {
        // How many of each kind; most schedules have few kinds.
        let share = *self.c.pick(&[0, 10, 25, 50]);
        for kind in 0..16 {
            let rare = matches!(kind, 10 | 14 | 15);
            let exists = if rare { share / 3 } else { share };
            for _ in 0..self.now_and_then(exists, if rare { 1 } else { 3 }) {
                let (at, lane) = (self.moment(), self.lane());
                let hand = self.hand(kind, lane);
                self.items.push(Item::Hand { at, hand });
                // Whoever pauses resumes, as a rule.
                let resume = match hand {
                    Hand::PauseLane(lane) => Some(Hand::ResumeLane(lane)),
                    Hand::PauseQueue(queue) => Some(Hand::ResumeQueue(queue)),
                    _ => None,
                };
                if let Some(hand) = resume.filter(|_| self.c.percent(80)) {
                    let at = at + self.c.below(1_500);
                    self.items.push(Item::Hand { at, hand });
                }
            }
        }
    }

    fn hand(&mut self, kind: u64, lane: usize) -> Hand {
        let queue = self.shape.lanes[lane].1;
        match kind {
            0 => Hand::Flush(lane),
            1 => Hand::PauseLane(lane),
            2 => Hand::ResumeLane(lane),
            3 => Hand::PauseQueue(queue),
            4 => Hand::ResumeQueue(queue),
            5 => Hand::Cancel { lane, named: self.c.percent(30) },
            6 | 7 => Hand::Redrive {
                lane,
                head: self.c.percent(60),
                part: self.c.percent(30),
                fresh: self.c.percent(30),
            },
            8 => Hand::PurgeDead(lane),
            9 => *self.c.pick(&[Hand::PurgeDelayed(lane), Hand::PurgeBuffered(lane)]),
            10 => Hand::EraseLane(lane),
            11 => Hand::EraseEvent(lane),
            12 => Hand::Edit(lane),
            13 => Hand::Delete(lane),
            14 => Hand::PutSchedule { name: self.c.below(2), lane },
            _ => Hand::RemoveSchedule { name: self.c.below(2) },
        }
    }

    pub(super) fn faults(&mut self) {
        let share = *self.c.pick(&[0, 15, 30, 50]);
        for kind in 0..13 {
            let exists = if kind >= 11 { share / 3 } else { share };
            for _ in 0..self.now_and_then(exists, 3) {
                let at = self.moment();
                let fault = self.fault(kind);
                self.items.push(Item::Fault { at, fault });
                if matches!(fault, Fault::Backup) && self.c.percent(80) {
                    let at = at + 1 + self.c.below(3_000);
                    self.items.push(Item::Fault { at, fault: Fault::Restore });
                }
            }
        }
    }

    fn fault(&mut self, kind: u64) -> Fault {
        let node = self.c.index(self.nodes);
        let length = self.c.between(50, 2_500);
        let percent = *self.c.pick(&[5, 20, 50, 100]);
        let trouble = |kind| Fault::Trouble { kind, length, percent };
        match kind {
            0 | 1 => Fault::Crash { node, down: length },
            2 | 3 => Fault::Pause { node, length, frozen: self.c.percent(30) },
            4 => Fault::Shutdown { node, down: length, twice: self.c.percent(20) },
            5 => Fault::WallJump { node, by: i64::try_from(self.c.below(8_000)).unwrap_or(0) - 4_000 },
            6 => match self.c.below(3) {
                0 => Fault::StoreForward { by: self.c.between(1, 4_000) },
                1 => Fault::StoreStops { length },
                _ => Fault::Deafness { length },
            },
            7 => trouble(Trouble::Refused),
            8 => trouble(Trouble::LostBefore),
            9 => trouble(Trouble::LostAfter),
            10 => trouble(Trouble::Slow),
            11 => Fault::Backup,
            _ => Fault::Restore,
        }
    }
}
