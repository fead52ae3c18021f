//! What a schedule has really done: every fault, every operation, every habit, counted.
//!
//! The checker counts what it finds in histories; this counts what the simulator did to bring it about. A campaign in
//! which one of them never happened has not tested what it claims.

use crate::plan::Habit;

macro_rules! sights {
    ($($variant:ident $name:literal)*) => {
        /// Something that the simulator did.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Sight { $($variant),* }

        impl Sight {
            pub const ALL: &'static [Sight] = &[$(Sight::$variant),*];

            pub fn name(self) -> &'static str {
                match self { $(Sight::$variant => $name),* }
            }
        }
    };
}

sights! {
    CallRefused "fault: call refused"
    QuestionLost "fault: question lost"
    AnswerLost "fault: answer lost"
    SlowNetwork "fault: slow network"
    BellUnheard "fault: notification lost"
    Crashed "fault: crash"
    CrashedWithHandler "fault: crash during a handler"
    Paused "fault: pause"
    PausedFrozen "fault: pause with a frozen clock"
    ZombieWoke "fault: zombie woke after its lease"
    ShutDown "fault: shutdown"
    ShutDownTwice "fault: second shutdown request"
    WallJumped "fault: wall clock jumped"
    StoreClockJumped "fault: store clock jumped ahead"
    StoreClockStopped "fault: store clock stood still"
    Restored "fault: restore"
    Cut "fault: one process cut off"
    AnswersCut "fault: answers to one process lost"
    ServerGone "fault: server of pull workers gone"
    ServerGoneInCall "fault: server gone during a call"
    Echoed "fault: request delivered twice"
    Upgraded "fault: restarted with newer settings"
    Downgraded "fault: restarted with older settings"
    SeveralDatabases "world of several databases"
    DatabaseRefused "fault: one database refused a call"
    DatabaseQuestionLost "fault: question to one database lost"
    DatabaseAnswerLost "fault: answer of one database lost"
    GoneBetween "fault: process gone between two databases"
    ServerGoneBetween "fault: server gone between two databases"
    SendInParts "send: over several databases"
    StoredInPart "send: refused after a part was stored"
    Relayed "event relayed to another database"
    RelayedBySweep "event relayed by a sweep"
    RelayRefused "relayed event refused where it goes to, and kept as dead"
    ClaimedNewer "claim under newer settings"
    ClaimedAcross "run of one version claimed again by the other"
    SendNewer "send: by the newer settings"
    SendAppend "send: append"
    SendArray "send: array"
    SendRepeat "send: repeated after no answer"
    SendGivenUp "send: given up"
    SendDelayed "send: delayed"
    SendOwnWindow "send: own window"
    SendOnlyIfIdle "send: only if idle"
    SendOwnSource "send: own source"
    HandFlush "hand: flush"
    HandPauseLane "hand: pause lane"
    HandResumeLane "hand: resume lane"
    HandPauseQueue "hand: pause queue"
    HandResumeQueue "hand: resume queue"
    HandCancel "hand: cancel"
    HandRedriveHead "hand: redrive at head"
    HandRedriveNew "hand: redrive as new"
    HandRedrivePart "hand: redrive in part"
    HandPurgeDead "hand: purge dead"
    HandPurgeDelayed "hand: purge delayed"
    HandPurgeBuffered "hand: purge buffered"
    HandEraseLane "hand: erase lane"
    HandEraseEvent "hand: erase event"
    HandEdit "hand: edit"
    HandDelete "hand: delete"
    HandPutSchedule "hand: put schedule"
    HandRemoveSchedule "hand: remove schedule"
    HandPutSource "hand: put source"
    HandRemoveSource "hand: remove source"
    HandEnableSource "hand: enable source"
    HandDisableSource "hand: disable source"
    HandResetSource "hand: reset source"
    HandReleaseSource "hand: release source"
    ScheduleFired "schedule fired"
    NoticeDelivered "notice delivered"
    RetentionRemoved "retention removed history"
    LoopErrorWait "worker waited after an error"
    HandedBack "worker handed a run back"
    StoppedHandler "worker stopped a handler"
    GhostHandler "handler went on after its run was given up"
    ClaimReused "claim id used again after its answer"
    TokenAwaited "handler waited for a further token"
    Starved "handler gave up waiting for a token"
    AnswerHit "kept answer found"
    AnswerAwaited "handler waited for another's answer"
    CrashedAsProbe "fault: crash while probing a source"
    HeldUntilEnabled "lanes were held until their source was enabled again"
    LeftWaiting "something waits behind a pause or block in the end"
}

const SIGHTS: usize = Sight::ALL.len();
const HABITS: usize = Habit::ALL.len();

/// The counts of one schedule or of many.
#[derive(Debug, Clone)]
pub struct Seen {
    sights: [u64; SIGHTS],
    habits: [u64; HABITS],
}

impl Default for Seen {
    fn default() -> Self {
        Seen { sights: [0; SIGHTS], habits: [0; HABITS] }
    }
}

impl Seen {
    pub(crate) fn saw(&mut self, sight: Sight) {
        self.sights[sight as usize] += 1;
    }

    pub fn of(&self, sight: Sight) -> u64 {
        self.sights[sight as usize]
    }

    pub(crate) fn saw_habit(&mut self, habit: Habit) {
        self.habits[habit as usize] += 1;
    }

    pub fn add(&mut self, other: &Seen) {
        self.sights.iter_mut().zip(other.sights).for_each(|(a, b)| *a += b);
        self.habits.iter_mut().zip(other.habits).for_each(|(a, b)| *a += b);
    }

    /// Everything by name.
    pub fn counts(&self) -> impl Iterator<Item = (String, u64)> + '_ {
        let sights = Sight::ALL.iter().map(|s| (s.name().to_owned(), self.sights[*s as usize]));
        let habits = Habit::ALL.iter().map(|h| (format!("handler: {h:?}"), self.habits[*h as usize]));
        sights.chain(habits)
    }
}
