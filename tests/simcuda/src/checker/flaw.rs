//! Deliberate faults, with which the tests of the checker test themselves.
//!
//! The engine and the checker take a type parameter that says which fault they have. Everywhere but
//! in those tests it is [`Sound`], whose answer is a constant: nothing of this is left in the code.
#![forbid(unsafe_code)]

/// A mistake that somebody could make in the checker or in the rules of order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// Ranges are taken one byte short.
    OneByteShort,
    /// Overwriting the front of a range forgets the rest.
    SplitDropsTail,
    /// A write is not compared with the readers.
    ReadersForgotten,
    /// Of several readers only the last is kept.
    OneReaderKept,
    /// A read makes the last writer forgotten.
    ReadHidesWriter,
    /// Taking memory away is not compared with its uses.
    DestroyForgets,
    /// Later uses are not compared with the taking away.
    DestroyNotKept,
    /// An event stands for what its stream has got when the wait is made.
    EventIsLive,
    /// A second record of an event changes nothing.
    FirstRecordKept,
    /// The legacy stream does not wait for blocking streams.
    LegacyIgnoresBlocking,
    /// Blocking streams do not wait for the legacy stream.
    BlockingIgnoresLegacy,
    /// Non-blocking streams follow the legacy rules.
    NonBlockingIsBlocking,
    /// Per-thread default streams do not follow the legacy rules.
    PerThreadIsNonBlocking,
    /// A wait that the host made teaches it nothing.
    WaitTeachesNothing,
    /// A query that answered "not ready" counts as a wait.
    NotReadyTeaches,
    /// Work does not come after what its submitter knows.
    SubmitTeachesNothing,
    /// Two host threads share a clock.
    ThreadsShareClock,
    /// A dead stream's slot passes to a stranger.
    SlotReusedEarly,
    /// A dead slot is taken for known by all although it is not.
    SlotSettledEarly,
    /// A slot that is taken up again starts at time 0.
    TimesStartAgain,
    /// An actor that moves to another slot knows nothing there.
    MoveForgets,
    /// The host's own uses do not move its time on.
    HostDoesNotTick,
    /// A context's record leaves out all but its first stream.
    ContextRecordTakesOne,
    /// The same pair is reported again and again.
    RepeatsReported,
}

/// Every fault.
pub const ALL_FAULTS: [Fault; 24] = [
    Fault::OneByteShort,
    Fault::SplitDropsTail,
    Fault::ReadersForgotten,
    Fault::OneReaderKept,
    Fault::ReadHidesWriter,
    Fault::DestroyForgets,
    Fault::DestroyNotKept,
    Fault::EventIsLive,
    Fault::FirstRecordKept,
    Fault::LegacyIgnoresBlocking,
    Fault::BlockingIgnoresLegacy,
    Fault::NonBlockingIsBlocking,
    Fault::PerThreadIsNonBlocking,
    Fault::WaitTeachesNothing,
    Fault::NotReadyTeaches,
    Fault::SubmitTeachesNothing,
    Fault::ThreadsShareClock,
    Fault::SlotReusedEarly,
    Fault::SlotSettledEarly,
    Fault::TimesStartAgain,
    Fault::MoveForgets,
    Fault::HostDoesNotTick,
    Fault::ContextRecordTakesOne,
    Fault::RepeatsReported,
];

/// Says which fault is built in.
pub trait Flaw: Copy {
    /// Is this the one?
    fn has(self, fault: Fault) -> bool;
}

/// No fault.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sound;

impl Flaw for Sound {
    #[inline(always)]
    fn has(self, _: Fault) -> bool {
        false
    }
}

/// One fault.
#[derive(Clone, Copy, Debug)]
pub struct Planted(pub Fault);

impl Flaw for Planted {
    fn has(self, fault: Fault) -> bool {
        self.0 == fault
    }
}
