//! Every store call of short stories fails once, and every two of them fail together, in each way a call can fail.
//!
//! The caller does what the contract says: what was refused is asked again, and what is unknown is repeated with the
//! same id, token or claim id. Then nobody may be able to tell afterwards that anything went wrong: the repeated call
//! gives the answer that was lost, and the store ends exactly as it does without faults. So nothing is done twice,
//! nothing is lost, and no refusal was a lie.

mod exhaustive {
    pub(crate) mod caller;
    pub(crate) mod stories;
}

use exhaustive::caller::{Caller, Fault};
use exhaustive::stories::STORIES;

const FAULTS: [Fault; 3] = [Fault::Refused, Fault::LostBefore, Fault::LostAfter];

#[test]
fn one_call_fails_in_every_way() {
    for (name, story) in STORIES {
        let (calls, expected) = undisturbed(name, *story);
        for at in 0..calls {
            for fault in FAULTS {
                check(name, *story, &[(at, fault)], &expected);
            }
        }
    }
}

#[test]
fn two_calls_fail_in_every_way() {
    for (name, story) in STORIES {
        let (calls, expected) = undisturbed(name, *story);
        for first in 0..calls {
            // The second may be the repetition of the first.
            for second in first + 1..=calls {
                for a in FAULTS {
                    for b in FAULTS {
                        check(name, *story, &[(first, a), (second, b)], &expected);
                    }
                }
            }
        }
    }
}

#[test]
fn a_long_outage_ends_as_well() {
    for (name, story) in STORIES {
        let (calls, expected) = undisturbed(name, *story);
        for fault in FAULTS {
            let all: Vec<(usize, Fault)> = (0..calls * 3).step_by(2).map(|at| (at, fault)).collect();
            check(name, *story, &all, &expected);
        }
    }
}

/// The tester is tested: a caller that repeats without saying so makes two events of one, and is found out.
#[test]
fn a_caller_that_guesses_is_found_out() {
    let guesses = |faults: &[(usize, Fault)]| {
        let mut caller = Caller::guessing(faults);
        STORIES[0].1(&mut caller);
        caller.picture()
    };
    let lost = std::panic::catch_unwind(|| guesses(&[(0, Fault::LostAfter)]));
    assert!(lost.is_err() || lost.is_ok_and(|picture| picture != guesses(&[])));
}

fn undisturbed(name: &str, story: fn(&mut Caller)) -> (usize, String) {
    let mut caller = Caller::new(&[]);
    story(&mut caller);
    caller.assert_sound(name);
    (caller.calls(), caller.picture())
}

fn check(name: &str, story: fn(&mut Caller), faults: &[(usize, Fault)], expected: &str) {
    let mut caller = Caller::new(faults);
    story(&mut caller);
    let text = format!("{name} with {faults:?}");
    caller.assert_sound(&text);
    let picture = caller.picture();
    let differ = picture.lines().zip(expected.lines()).find(|(a, b)| a != b);
    assert!(picture == expected, "{text}: the store ended otherwise than without faults: {differ:#?}");
}
