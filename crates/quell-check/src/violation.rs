//! What was broken, told so that a person can follow it without the history at hand.

use std::fmt;

use crate::history::{Name, Record};

/// Every promise that is checked. The letter says where it is written down: S in the list of safety properties, R in
/// the rules, P among the promises of the contract, G in the design of sources.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Invariant {
    WellFormed,
    NoLoss,
    NoPhantom,
    Idempotency,
    NoFalseMerge,
    Order,
    Content,
    OneLease,
    TokensRise,
    Fencing,
    SerialCommits,
    WholeBatch,
    FrozenBatch,
    NotEarly,
    Attempts,
    ExplainedDuplicates,
    OnceAtSink,
    AuditIsState,
    LegalMoves,
    HonestErrors,
    Erasure,
    Restore,
    Equation,
    StepMemo,
    Revision,
    Held,
    GiveWay,
    Interrupts,
    Refunds,
    Block,
    Cancel,
    Pause,
    SameAnswer,
    SourceRate,
    SourceBreaker,
    OneProbe,
    SourceHeld,
    SourceSilence,
    OneSource,
    ProbeRefund,
    OneFetch,
}

impl Invariant {
    pub const ALL: [Invariant; 41] = [
        Invariant::WellFormed,
        Invariant::NoLoss,
        Invariant::NoPhantom,
        Invariant::Idempotency,
        Invariant::NoFalseMerge,
        Invariant::Order,
        Invariant::Content,
        Invariant::OneLease,
        Invariant::TokensRise,
        Invariant::Fencing,
        Invariant::SerialCommits,
        Invariant::WholeBatch,
        Invariant::FrozenBatch,
        Invariant::NotEarly,
        Invariant::Attempts,
        Invariant::ExplainedDuplicates,
        Invariant::OnceAtSink,
        Invariant::AuditIsState,
        Invariant::LegalMoves,
        Invariant::HonestErrors,
        Invariant::Erasure,
        Invariant::Restore,
        Invariant::Equation,
        Invariant::StepMemo,
        Invariant::Revision,
        Invariant::Held,
        Invariant::GiveWay,
        Invariant::Interrupts,
        Invariant::Refunds,
        Invariant::Block,
        Invariant::Cancel,
        Invariant::Pause,
        Invariant::SameAnswer,
        Invariant::SourceRate,
        Invariant::SourceBreaker,
        Invariant::OneProbe,
        Invariant::SourceHeld,
        Invariant::SourceSilence,
        Invariant::OneSource,
        Invariant::ProbeRefund,
        Invariant::OneFetch,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Invariant::WellFormed => "H0 well-formed history",
            Invariant::NoLoss => "S1 no loss",
            Invariant::NoPhantom => "S2 no phantom",
            Invariant::Idempotency => "S3 idempotency",
            Invariant::NoFalseMerge => "S4 no false merge",
            Invariant::Order => "S5 order",
            Invariant::Content => "S6 content",
            Invariant::OneLease => "S7 one lease",
            Invariant::TokensRise => "S8 tokens rise",
            Invariant::Fencing => "S9 fencing",
            Invariant::SerialCommits => "S10 serial commits",
            Invariant::WholeBatch => "S11 whole batch",
            Invariant::FrozenBatch => "S12 frozen batch",
            Invariant::NotEarly => "S13 not early",
            Invariant::Attempts => "S14 attempts",
            Invariant::ExplainedDuplicates => "S15 explained duplicates",
            Invariant::OnceAtSink => "S16 once at a fenced sink",
            Invariant::AuditIsState => "S17 audit is state",
            Invariant::LegalMoves => "S18 legal moves",
            Invariant::HonestErrors => "S19 honest errors",
            Invariant::Erasure => "S24 erasure",
            Invariant::Restore => "S27 restore",
            Invariant::Equation => "P7 the equation",
            Invariant::StepMemo => "R3 a step's memo never changes",
            Invariant::Revision => "R3 the revision rises with merges",
            Invariant::Held => "R5 held is frozen",
            Invariant::GiveWay => "R9 a run gives way only to newer events",
            Invariant::Interrupts => "R8 interrupts are bounded",
            Invariant::Refunds => "R12 refunds are bounded",
            Invariant::Block => "R14 a blocked lane waits",
            Invariant::Cancel => "R16 a cancelled run ends",
            Invariant::Pause => "R17 a pause stops claims",
            Invariant::SameAnswer => "R20 the same answer again",
            Invariant::SourceRate => "G1 no more than the rate of a source",
            Invariant::SourceBreaker => "G2 an open breaker lets nobody go",
            Invariant::OneProbe => "G3 one probe at a time",
            Invariant::SourceHeld => "G4 a held source holds its lanes",
            Invariant::SourceSilence => "G5 silence is kept",
            Invariant::OneSource => "G6 a batch asks one source",
            Invariant::ProbeRefund => "G7 a probe costs no attempt",
            Invariant::OneFetch => "G8 one holder fetches at a time",
        }
    }
}

impl fmt::Display for Invariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The first broken promise of a history.
#[derive(Debug, Clone)]
pub struct Violation {
    pub invariant: Invariant,
    pub lane: Option<Name>,
    pub run: Option<u64>,
    pub seq: Option<u64>,
    pub token: Option<u64>,
    /// What is the case.
    pub what: String,
    /// What should be.
    pub expected: String,
    /// The records involved, in order: first of the history, then of the audit.
    pub records: Vec<String>,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is broken", self.invariant)?;
        if let Some(lane) = &self.lane {
            write!(f, ", lane {lane}")?;
        }
        for (name, number) in [("run", self.run), ("seq", self.seq), ("token", self.token)] {
            if let Some(number) = number {
                write!(f, ", {name} {number}")?;
            }
        }
        write!(f, "\n  seen:     {}\n  expected: {}", self.what, self.expected)?;
        for record in &self.records {
            write!(f, "\n  {record}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Violation {}

/// A violation before it is told: cheap to make, and boxed because it is rare.
#[derive(Debug)]
pub(crate) struct Fault {
    invariant: Invariant,
    what: String,
    expected: String,
    lane: Option<Name>,
    run: Option<u64>,
    seq: Option<u64>,
    token: Option<u64>,
    id: Option<Name>,
}

pub(crate) type Checked = Result<(), Box<Fault>>;

/// The beginning of every complaint: what is seen, what should be.
pub(crate) fn fault(
    invariant: Invariant,
    what: impl Into<String>,
    expected: impl Into<String>,
) -> Box<Fault> {
    let (what, expected) = (what.into(), expected.into());
    Box::new(Fault { invariant, what, expected, lane: None, run: None, seq: None, token: None, id: None })
}

impl Fault {
    pub(crate) fn lane(mut self: Box<Self>, lane: &Name) -> Box<Self> {
        self.lane = Some(lane.clone());
        self
    }

    pub(crate) fn run(mut self: Box<Self>, run: u64) -> Box<Self> {
        self.run = Some(run);
        self
    }

    pub(crate) fn seq(mut self: Box<Self>, seq: u64) -> Box<Self> {
        self.seq = Some(seq);
        self
    }

    pub(crate) fn token(mut self: Box<Self>, token: u64) -> Box<Self> {
        self.token = Some(token);
        self
    }

    pub(crate) fn event(mut self: Box<Self>, id: &Name) -> Box<Self> {
        self.id = Some(id.clone());
        self
    }

    /// Adds the records that a reader needs.
    pub(crate) fn told(self, records: &[Record]) -> Violation {
        let Fault { invariant, what, expected, lane, run, seq, token, id } = self;
        let about = crate::tell::About { lane: lane.as_ref(), run, seq, token, id: id.as_ref() };
        let records = crate::tell::involved(records, &about);
        Violation { invariant, lane, run, seq, token, what, expected, records }
    }
}
