//! Are you sure? Asked before something is taken away, on a terminal; a script says `--yes` beforehand.

use std::io::{BufRead, IsTerminal};

use crate::failure::{self, Failure};
use crate::output;

/// Goes on when the person agrees that `this`, such as "discard 3 events", is what they want. Without a terminal nobody
/// can be asked, so the agreement has to be on the command line.
pub(crate) fn confirm(this: &str, yes: bool) -> Result<(), Failure> {
    if yes {
        return Ok(());
    }
    if !(std::io::stdin().is_terminal() && std::io::stderr().is_terminal()) {
        let text = format!("this would {this}, and nobody can be asked here");
        return Err(Failure::new(failure::USAGE, text).help("--yes does it without asking"));
    }
    output::say(format!("This would {this}. Go on? [y/N]"));
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    if agrees(&answer) {
        return Ok(());
    }
    Err(Failure::new(failure::REFUSED, "nothing was changed"))
}

fn agrees(answer: &str) -> bool {
    matches!(answer.trim().to_lowercase().as_str(), "y" | "yes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_clear_yes_is_one() {
        assert!(agrees("y\n") && agrees(" YES \n"));
        assert!(!agrees("\n") && !agrees("") && !agrees("no\n") && !agrees("yeah, well\n"));
    }
}
