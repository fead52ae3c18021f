//! What the model is told of a conversation: the prompt, the last entries within their bounds, and the new messages.

use crate::book::{Entry, Role};
use crate::model::{self, Turn};

/// How much of the past is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    pub messages: usize,
    pub bytes: usize,
}

impl Bounds {
    /// After the model has said that it was too much: a quarter of the past that it was told.
    pub fn shorter_than(told: &[Turn]) -> Bounds {
        let before = &told[..told.len().saturating_sub(1)];
        let past = || before.iter().filter(|turn| turn.role != model::Role::System);
        Bounds {
            messages: past().count() / 4,
            bytes: past().map(|turn| turn.content.len()).sum::<usize>() / 4,
        }
    }
}

/// Notes are for people, and a reply of which nobody knows whether it arrived is told as one that did.
pub fn turns(prompt: Option<&str>, past: &[Entry], bounds: Bounds, now: &str) -> Vec<Turn> {
    let spoken = past.iter().rev().filter_map(spoken).take(bounds.messages);
    let mut room = bounds.bytes;
    let mut turns: Vec<Turn> = spoken
        .take_while(|turn| {
            let fits = turn.content.len() <= room;
            room = room.saturating_sub(turn.content.len());
            fits
        })
        .collect();
    // A conversation begins with the customer: an answer whose question is gone only puzzles.
    while turns.last().is_some_and(|turn| turn.role == model::Role::Assistant) {
        turns.pop();
    }
    turns.extend(prompt.map(|prompt| Turn::new(model::Role::System, prompt)));
    turns.reverse();
    turns.push(Turn::new(model::Role::User, now));
    turns
}

fn spoken(entry: &Entry) -> Option<Turn> {
    let role = match entry.role {
        Role::Customer => model::Role::User,
        Role::Bot | Role::Human => model::Role::Assistant,
        Role::Note => return None,
    };
    Some(Turn::new(role, entry.text.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::book::About;
    use quell::quell_core::clock::Timestamp;

    fn said(role: Role, text: &str) -> Entry {
        let at = Timestamp::from_millis(0);
        Entry { id: text.to_owned(), at, role, text: text.to_owned(), about: About::default() }
    }

    fn told(past: &[Entry], messages: usize, bytes: usize) -> String {
        let turns = turns(Some("be kind"), past, Bounds { messages, bytes }, "now");
        turns.iter().map(|turn| turn.content.as_str()).collect::<Vec<_>>().join("|")
    }

    #[test]
    fn prompt_past_and_present_in_order_without_notes() {
        let past = [
            said(Role::Customer, "hi"),
            said(Role::Bot, "hello"),
            said(Role::Note, "taken over"),
            said(Role::Customer, "help"),
            said(Role::Human, "of course"),
        ];
        assert_eq!(told(&past, 40, 1_000), "be kind|hi|hello|help|of course|now");
        assert_eq!(told(&past, 2, 1_000), "be kind|help|of course|now");
        assert_eq!(told(&past, 3, 1_000), "be kind|help|of course|now", "no answer without its question");
        assert_eq!(told(&past, 40, 13), "be kind|help|of course|now");
        assert_eq!(told(&past, 0, 1_000), "be kind|now");
    }
}
