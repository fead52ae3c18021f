//! The events of a coding agent: which of them the installer registers, what each says of a session, and where anything
//! may be printed.
//!
//! A capture hook must be invisible. Two properties of the agents make that harder than printing nothing and exiting 0,
//! and both are why this is a table with a verdict for every name and not a list:
//!
//! - For some events the mere presence of a hook changes what happens. A hook for `WorktreeCreate` replaces the agent's
//!   own `git worktree add` and has to print a path. A silent hook for `PermissionRequest` has been seen to count as a
//!   refusal where no dialogue can be shown. Such events are never registered.
//! - Releases of the agent check the names in the settings file and skip the *whole file*, with every other setting of
//!   the user, if they do not know one. So by default only names are registered that every release with session hooks
//!   knows ([`REGISTERED`]); names that came later are for those who ask for them ([`REGISTERED_NEWER`]).
//!
//! Everything here is a constant or a `match`: the hook builds nothing at its start.

use serde_json::{Map, Value};

/// One entry of the agent's settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Registration {
    pub event: &'static str,
    /// Left out where the event has nothing to match, or where leaving it out means everything.
    pub matcher: Option<&'static str>,
}

const fn all_of(event: &'static str) -> Registration {
    Registration { event, matcher: None }
}

const fn any_tool(event: &'static str) -> Registration {
    Registration { event, matcher: Some("*") }
}

/// What is registered by default, in the order in which it is written.
pub const REGISTERED: &[Registration] = &[
    all_of("SessionStart"),
    all_of("UserPromptSubmit"),
    any_tool("PostToolUse"),
    all_of("Notification"),
    all_of("Stop"),
    all_of("SubagentStop"),
    all_of("PreCompact"),
    all_of("SessionEnd"),
];

/// What is worth having besides, from agents whose release knows the names. An older one would skip the user's settings
/// altogether, and what is lost without these is little: the transcript holds the failed tool, the next event of the
/// session reads it.
pub const REGISTERED_NEWER: &[Registration] =
    &[any_tool("PostToolUseFailure"), all_of("StopFailure"), all_of("SubagentStart"), all_of("PostCompact")];

/// Whether a hook of ours belongs there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// In [`REGISTERED`].
    Registered,
    /// In [`REGISTERED_NEWER`].
    Newer,
    /// Harmless, and not worth a process each time.
    NotWorthIt,
    /// A hook there changes what the agent does, even one that prints nothing and exits 0, or stands where it could.
    Never,
}

/// An event whose name is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Known {
    pub event: &'static str,
    pub verdict: Verdict,
    pub because: &'static str,
}

const fn known(event: &'static str, verdict: Verdict, because: &'static str) -> Known {
    Known { event, verdict, because }
}

/// Every name there is, with the reason for what is done with it.
pub const EVENTS: &[Known] = &[
    known("SessionStart", Verdict::Registered, "a session begins, and where its transcript will be"),
    known("SessionEnd", Verdict::Registered, "the last word of a session, when it comes"),
    known("UserPromptSubmit", Verdict::Registered, "a prompt, and the beginning of a turn"),
    known("UserPromptExpansion", Verdict::NotWorthIt, "the prompt that comes of it is submitted next"),
    known(
        "PreToolUse",
        Verdict::Never,
        "it decides whether a tool may run, and every tool would wait for us",
    ),
    known("PostToolUse", Verdict::Registered, "the transcript has grown, and a long turn is still alive"),
    known("PostToolUseFailure", Verdict::Newer, "as PostToolUse, for a tool that failed"),
    known("PostToolBatch", Verdict::NotWorthIt, "each of its tools has told already"),
    known("Notification", Verdict::Registered, "the agent waits for a permission or for the next prompt"),
    known("Stop", Verdict::Registered, "the end of a turn"),
    known(
        "StopFailure",
        Verdict::Newer,
        "a turn that ended in an error; an idle notification follows anyway",
    ),
    known("SubagentStart", Verdict::Newer, "who began; the end says who it was, too"),
    known("SubagentStop", Verdict::Registered, "where the transcript of a subagent is"),
    known("PreCompact", Verdict::Registered, "the last moment before the context is replaced"),
    known("PostCompact", Verdict::Newer, "the summary, which the transcript also holds"),
    known(
        "PreModelSwitch",
        Verdict::Never,
        "it stands before a decision of the person, who would wait for us",
    ),
    known("PostModelSwitch", Verdict::NotWorthIt, "the transcript names the model of every answer"),
    known(
        "PermissionRequest",
        Verdict::Never,
        "no answer can count as a refusal where no dialogue can be shown; Notification tells the same",
    ),
    known("PermissionDenied", Verdict::NotWorthIt, "the transcript holds the refusal"),
    known("Setup", Verdict::NotWorthIt, "before a session; SessionStart follows"),
    known("TeammateIdle", Verdict::Never, "its hook decides whether the teammate may rest"),
    known("TaskCreated", Verdict::Never, "its hook decides whether there is a task"),
    known("TaskCompleted", Verdict::Never, "its hook decides whether a task counts as done"),
    known("Elicitation", Verdict::Never, "its hook can answer in the person's place"),
    known("ElicitationResult", Verdict::Never, "its hook can change the person's answer"),
    known("ConfigChange", Verdict::Never, "its hook decides whether a changed setting holds"),
    known("InstructionsLoaded", Verdict::NotWorthIt, "says nothing of a turn"),
    known(
        "WorktreeCreate",
        Verdict::Never,
        "a hook replaces the making of the worktree and must print its path",
    ),
    known(
        "WorktreeRemove",
        Verdict::Never,
        "the other half of WorktreeCreate: a hook is who removes the worktree",
    ),
    known("CwdChanged", Verdict::NotWorthIt, "every event says the working directory"),
    known("FileChanged", Verdict::NotWorthIt, "one event for each file that changes"),
    known("DirectoryAdded", Verdict::NotWorthIt, "says nothing of a turn"),
    known(
        "MessageDisplay",
        Verdict::Never,
        "one process for each flush of the screen, and it can change the text",
    ),
];

/// What the table says of a name; none for a name that came after it.
pub fn verdict(event: &str) -> Option<Verdict> {
    EVENTS.iter().find(|known| known.event == event).map(|known| known.verdict)
}

/// What a session is doing, as far as one event tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    Started,
    Active,
    /// It waits for a person to allow or to answer something.
    PermissionNeeded,
    /// It waits for the next prompt and has said so.
    Idle,
    /// A turn is over.
    Done,
    Ended,
}

impl Status {
    pub fn as_str(self) -> &'static str {
        match self {
            Status::Started => "started",
            Status::Active => "active",
            Status::PermissionNeeded => "permission_needed",
            Status::Idle => "idle",
            Status::Done => "done",
            Status::Ended => "ended",
        }
    }
}

/// The status that an event brings; none leaves it as it was.
///
/// - The start after a compaction is no start: the session goes on with what it did.
/// - The end of a subagent says nothing: one in the background ends after the turn is done, and one in the foreground
///   while it goes on. Compactions say nothing either, as they happen in a turn and at the prompt.
/// - Tools of subagents count as activity. If they run on after the end of the turn, the agent begins another turn with
///   their result, and its `Stop` says done again.
/// - What teams and tasks do happens in other sessions, too.
pub fn status_of(event: &str, payload: &Map<String, Value>) -> Option<Status> {
    let text = |key: &str| payload.get(key).and_then(Value::as_str);
    match event {
        "SessionStart" if text("source") == Some("compact") => None,
        "SessionStart" => Some(Status::Started),
        "UserPromptSubmit"
        | "UserPromptExpansion"
        | "PreToolUse"
        | "PostToolUse"
        | "PostToolUseFailure"
        | "PostToolBatch"
        | "PermissionDenied"
        | "ElicitationResult"
        | "SubagentStart" => Some(Status::Active),
        "PermissionRequest" | "Elicitation" => Some(Status::PermissionNeeded),
        "Notification" => match text("notification_type") {
            Some("permission_prompt" | "elicitation_dialog") => Some(Status::PermissionNeeded),
            Some("idle_prompt") => Some(Status::Idle),
            Some(_) => None,
            // Older releases say it only in words.
            None => match text("message") {
                Some(message) if message.contains("needs your permission") => Some(Status::PermissionNeeded),
                Some(message) if message.contains("waiting for your input") => Some(Status::Idle),
                _ => None,
            },
        },
        "Stop" | "StopFailure" => Some(Status::Done),
        "SessionEnd" => Some(Status::Ended),
        _ => None,
    }
}

/// What was asked of the agent. Not always by a person: `source` in the payload says by whom, where it is known.
pub fn prompt_of<'a>(event: &str, payload: &'a Map<String, Value>) -> Option<&'a str> {
    (event == "UserPromptSubmit").then(|| payload.get("prompt").and_then(Value::as_str)).flatten()
}

/// Whether `{"continue":true}` may be printed for this event. A list of what may, so that a name nobody knew when it was
/// written is silent:
///
/// - never where the output is something else than a verdict (`WorktreeCreate` takes it for a path);
/// - not where output can become part of the model's context (`SessionStart`, `UserPromptSubmit` and its expansion,
///   `SubagentStart`, `Setup`): a release that does not take it for a verdict would show it to the model at every prompt, and
///   saying "continue" gains nothing there;
/// - not where a hook decides in a person's place (permissions, elicitations, model switches, tasks, settings): silence is
///   the only answer that cannot be taken for one.
pub fn is_safe_for_continue(event: &str) -> bool {
    matches!(
        event,
        "PreToolUse"
            | "PostToolUse"
            | "PostToolUseFailure"
            | "PostToolBatch"
            | "Notification"
            | "Stop"
            | "StopFailure"
            | "SubagentStop"
            | "PreCompact"
            | "PostCompact"
            | "SessionEnd"
    )
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::json;

    use super::*;

    #[test]
    fn the_table_has_every_event_once_and_agrees_with_what_is_registered() {
        assert_eq!(EVENTS.len(), 33);
        let names: BTreeSet<_> = EVENTS.iter().map(|known| known.event).collect();
        assert_eq!(names.len(), 33);
        let with = |wanted| -> BTreeSet<_> {
            EVENTS.iter().filter(|known| known.verdict == wanted).map(|known| known.event).collect()
        };
        let listed =
            |list: &[Registration]| -> BTreeSet<_> { list.iter().map(|entry| entry.event).collect() };
        assert_eq!(with(Verdict::Registered), listed(REGISTERED));
        assert_eq!(with(Verdict::Newer), listed(REGISTERED_NEWER));
        for event in ["WorktreeCreate", "WorktreeRemove", "PermissionRequest", "MessageDisplay", "PreToolUse"]
        {
            assert_eq!(verdict(event), Some(Verdict::Never), "{event}");
        }
        assert_eq!(verdict("SomethingNew"), None);
    }

    /// An agent's old releases refuse a settings file with a name that they do not know.
    #[test]
    fn the_default_has_only_names_that_every_release_knows() {
        let old = [
            "PreToolUse",
            "PostToolUse",
            "Notification",
            "UserPromptSubmit",
            "Stop",
            "SubagentStop",
            "PreCompact",
            "SessionStart",
            "SessionEnd",
        ];
        for entry in REGISTERED {
            assert!(old.contains(&entry.event), "{}", entry.event);
        }
    }

    #[test]
    fn continue_is_never_printed_where_it_would_be_read_as_something_else() {
        for event in
            ["WorktreeCreate", "SessionStart", "UserPromptSubmit", "PermissionRequest", "SomethingNew", ""]
        {
            assert!(!is_safe_for_continue(event), "{event}");
        }
        for event in ["Stop", "PostToolUse", "SessionEnd"] {
            assert!(is_safe_for_continue(event), "{event}");
        }
        for known in EVENTS {
            let odd = matches!(known.verdict, Verdict::Never) && known.event != "PreToolUse";
            assert!(!(odd && is_safe_for_continue(known.event)), "{}", known.event);
        }
    }

    #[test]
    fn old_notifications_say_it_in_words() {
        let says = |message: &str| {
            let payload = json!({ "message": message });
            status_of("Notification", payload.as_object().unwrap())
        };
        assert_eq!(says("Claude needs your permission to use Bash"), Some(Status::PermissionNeeded));
        assert_eq!(says("Claude is waiting for your input"), Some(Status::Idle));
        assert_eq!(says("something else"), None);
        let typed = json!({"notification_type": "auth_success", "message": "waiting for your input"});
        assert_eq!(status_of("Notification", typed.as_object().unwrap()), None);
    }
}
