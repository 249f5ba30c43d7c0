// SPDX-License-Identifier: GPL-2.0

//! What a command keeps alive until the device has answered it, and who is told the answer.

use kernel::{
    prelude::*,
    sync::Arc, //
};

use super::{
    bo::{
        Bo,
        Remains, //
    },
    ids::ContextId,
    prime::Returned,
    verdict::Verdict,
    window::Place, //
};
use crate::ext::gem::{
    ObjectArray,
    ObjectRef, //
};

/// What belongs to a command in flight. Made before the command is sent, so that nothing has to be
/// allocated then, and dropped in process context after the answer.
pub(super) enum Keep {
    /// Whoever wants to know whether the device refused. (A command that makes or attaches a resource
    /// need not keep the BO: what unmakes it comes after it in the queue.)
    Verdict(Arc<Verdict>),
    /// The BO that the command uses.
    Object(ObjectRef<Bo>),
    /// The BO whose pages the device writes; the CPU may look at them after this.
    Readback(ObjectRef<Bo>),
    /// The BOs that a command stream uses.
    Objects(Arc<ObjectArray<Bo>>),
    /// The id of a context that is being destroyed.
    Context(#[expect(dead_code, reason = "dropping it gives the id back")] ContextId),
    /// What is left of a BO that is being destroyed: its id and its pages.
    Remains(#[expect(dead_code, reason = "dropping it frees the memory")] Arc<Remains>),
    /// Whoever waits until the device does not use another device's memory any more.
    Returned(Returned),
    /// The place in the window where a blob is shown no more, and what is left of the blob: the device
    /// may answer this after it has forgotten the resource.
    Place(
        #[expect(dead_code, reason = "dropping it frees the place")] Place,
        #[expect(dead_code, reason = "dropping it frees the id")] Arc<Remains>,
    ),
}

impl Keep {
    /// Whether it may be dropped in any context.
    pub(super) fn drops_anywhere(&self) -> bool {
        matches!(self, Self::Verdict(_))
    }

    /// Whether a task sleeps until the answer is there.
    pub(super) fn is_awaited(&self) -> bool {
        matches!(self, Self::Returned(_))
    }

    /// Called once with the device's answer, before the command's fence is signalled.
    ///
    /// May run in the interrupt handler: atomics only.
    pub(super) fn done(&self, result: Result) {
        match self {
            Self::Verdict(verdict) => verdict.note(result),
            Self::Object(obj) => obj.verdict().note(result),
            Self::Readback(obj) => {
                obj.show_to_cpu();
                obj.verdict().note(result);
            }
            Self::Objects(objs) => objs.iter().for_each(|obj| obj.verdict().note(result)),
            Self::Returned(returned) => returned.announce(),
            Self::Context(_) | Self::Remains(_) | Self::Place(..) => {}
        }
    }
}
