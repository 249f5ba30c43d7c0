// SPDX-License-Identifier: GPL-2.0
//! Memory of one queue, what is written to it and what the board writes there.
//!
//! One piece of coherent memory holds all of a queue, page by page: the ring, the control page, the
//! context-save area, and a page with the descriptor and the fence record. Specification,
//! sections "Queues", "Doorbells" and "Packets".

use core::mem::offset_of;

use kernel::{
    device::{
        Bound,
        Device, //
    },
    prelude::*,
    sync::{
        barrier::{
            dma_mb,
            mb,
            Full,
            Read,
            Write, //
        },
        Arc, //
    }, //
};

use super::{
    hw::{
        mem::{
            ControlPage,
            FenceRecord,
            QueueDesc,
            QUEUE_MAGIC,
            QUEUE_PRIVILEGED,
            SAVE_BYTES, //
        },
        packets::{
            pkt_header,
            pkt_words,
            CMP_GE,
            FLAG_INTERRUPT,
            FLAG_PHYSICAL,
            PKT_FENCE,
            PKT_FILL,
            PKT_INDIRECT,
            PKT_SEM_SIGNAL,
            PKT_SEM_WAIT, //
        },
        regs::{
            SLOT_FAULTED,
            SLOT_READY,
            SLOT_WAITING, //
        },
    },
    memory::{
        encode_addr,
        SharedWords,
        WORD, //
    },
    slots::Slots, //
};
use crate::{
    algo::{
        ring::Pos,
        sched::SlotId, //
    },
    hal::{
        Activity,
        BoardAddr,
        Command,
        FenceValue,
        HwQueue,
        QueueConfig,
        Status,
        Words, //
    }, //
};

/// Binary logarithm of the words of a ring: 32 KiB.
const RING_LOG2: u32 = 12;
/// Words of a ring.
pub(super) const RING_WORDS: usize = 1 << RING_LOG2;

const PAGE_WORDS: usize = 4096 / WORD;
/// Word at which the control page begins.
const CONTROL: usize = RING_WORDS;
/// Word at which the context-save area begins.
const SAVE: usize = CONTROL + PAGE_WORDS;
/// Word at which the queue descriptor begins.
const DESC: usize = SAVE + SAVE_BYTES / WORD;
/// Word at which the fence record begins.
const FENCE: usize = DESC + PAGE_WORDS / 2;
/// Words in all.
const TOTAL: usize = DESC + PAGE_WORDS;

/// Word of the field at byte `offset` of a structure that begins at word `base`.
const fn field(base: usize, offset: usize) -> usize {
    base + offset / WORD
}

const WPTR: usize = field(CONTROL, offset_of!(ControlPage, wptr));
const RPTR: usize = field(CONTROL, offset_of!(ControlPage, rptr));
const EVENT: usize = field(CONTROL, offset_of!(ControlPage, event));
/// Holds `state` in its low half and `error` in its high half.
const STATE: usize = field(CONTROL, offset_of!(ControlPage, state));
const RETIRED: usize = field(CONTROL, offset_of!(ControlPage, retired));
const BUSY: usize = field(CONTROL, offset_of!(ControlPage, busy_ns));
const FENCE_VALUE: usize = field(FENCE, offset_of!(FenceRecord, value));

/// A queue's memory.
pub(super) struct Queue {
    id: u16,
    memory: SharedWords,
    slots: Arc<Slots>,
}

impl Queue {
    /// Makes the memory of a queue, with its descriptor filled in. Sleeps.
    pub(super) fn new(
        dev: &Device<Bound>,
        slots: Arc<Slots>,
        config: &QueueConfig,
    ) -> Result<Self> {
        let queue = Self {
            id: config.id,
            memory: SharedWords::new(dev, TOTAL, GFP_KERNEL_ACCOUNT)?,
            slots,
        };
        queue.describe(config)?;
        Ok(queue)
    }

    /// Fills in the descriptor. What is not mentioned stays zero, as it has to.
    fn describe(&self, config: &QueueConfig) -> Result {
        let at = |index| encode_addr(self.memory.address(index));
        let head = u64::from(QUEUE_MAGIC) | u64::from(QUEUE_PRIVILEGED) << 32;
        let who = u64::from(config.id)
            | u64::from(config.context.0) << 16
            | u64::from(config.priority.level()) << 32;
        let slice = u64::from(config.quantum_us) | u64::from(RING_LOG2) << 32;

        for (offset, value) in [
            (offset_of!(QueueDesc, magic), head),
            (offset_of!(QueueDesc, queue), who),
            (offset_of!(QueueDesc, quantum_us), slice),
            (offset_of!(QueueDesc, ring), at(0)),
            (offset_of!(QueueDesc, control), at(CONTROL)),
            (offset_of!(QueueDesc, save), at(SAVE)),
        ] {
            self.memory.write(field(DESC, offset), value)?;
        }
        Ok(())
    }

    /// A word that is there by construction; what a failed read would give is checked like any
    /// value of the board.
    fn word(&self, index: usize) -> u64 {
        self.memory.read(index).unwrap_or(u64::MAX)
    }
}

// The descriptor's fields share words as `describe` puts them together.
const _: () = assert!(
    offset_of!(QueueDesc, flags) == offset_of!(QueueDesc, magic) + 4
        && offset_of!(QueueDesc, ctx) == offset_of!(QueueDesc, queue) + 2
        && offset_of!(QueueDesc, priority) == offset_of!(QueueDesc, queue) + 4
        && offset_of!(QueueDesc, ring_log2) == offset_of!(QueueDesc, quantum_us) + 4
        && offset_of!(QueueDesc, queue) % WORD == 0
        && offset_of!(QueueDesc, quantum_us) % WORD == 0
        && offset_of!(ControlPage, error) == offset_of!(ControlPage, state) + 4
);

/// Opcode of the packet that carries out `command`.
fn opcode(command: &Command) -> u8 {
    match command {
        Command::Wait { .. } => PKT_SEM_WAIT,
        Command::Indirect { .. } => PKT_INDIRECT,
        Command::Signal { .. } => PKT_SEM_SIGNAL,
        Command::ClearVram { .. } => PKT_FILL,
        Command::Fence { .. } => PKT_FENCE,
    }
}

/// Ring words that `command` takes.
pub(super) fn words(command: &Command) -> u64 {
    pkt_words(opcode(command)).map_or(0, u64::from)
}

impl HwQueue for Queue {
    fn write(&self, index: usize, words: &[u64]) -> Result {
        let end = index.checked_add(words.len()).ok_or(EINVAL)?;
        if end > RING_WORDS {
            return Err(EINVAL);
        }
        self.memory.write_all(index, words)
    }

    fn encode(&self, command: &Command, out: &mut Words<'_>) -> Result {
        let opcode = opcode(command);
        let length = pkt_words(opcode).ok_or(EINVAL)?;
        let (flags, immediate, operands) = match *command {
            Command::Wait { addr, value } => (CMP_GE, 0, [Some(addr), Some(value)]),
            Command::Indirect { addr, words } => (0, words, [Some(addr), None]),
            Command::Signal { addr, value } => (0, 0, [Some(addr), Some(value)]),
            Command::ClearVram { start, bytes } => {
                let dst = encode_addr(BoardAddr::Vram(start));
                (FLAG_PHYSICAL, 0, [Some(dst), Some(bytes)])
            }
            Command::Fence { seqno } => {
                let record = encode_addr(self.memory.address(FENCE));
                (FLAG_INTERRUPT, 0, [Some(record), Some(seqno)])
            }
        };

        out.push(pkt_header(opcode, length, flags, immediate))?;
        for operand in operands.into_iter().flatten() {
            out.push(operand)?;
        }
        Ok(())
    }

    fn publish(&self, wptr: Pos) -> u64 {
        // The words of the ring before the position that covers them.
        mb(Write);
        // The index is that of a word which exists, so this cannot fail.
        let _ = self.memory.write(WPTR, wptr.get());
        // The position before the board's wish is read: the board does it the other way round, so
        // that one of the two sees the other.
        mb(Full);
        self.word(EVENT)
    }

    fn doorbell(&self) -> Result {
        self.slots.regs().ring_doorbell(self.id)
    }

    fn status(&self) -> Status {
        let state = self.word(STATE);
        let (state, code) = super::regs::split(state);
        let activity = match state {
            SLOT_READY => Activity::Ready,
            SLOT_WAITING => Activity::Waiting,
            SLOT_FAULTED => Activity::Faulted { code },
            _ => Activity::Idle,
        };
        Status {
            rptr: self.word(RPTR),
            activity,
            retired: self.word(RETIRED),
            busy_ns: self.word(BUSY),
        }
    }

    fn fence(&self) -> FenceValue {
        let seqno = self.word(FENCE_VALUE);
        // What the board wrote before the value is seen by whoever believes the value.
        dma_mb(Read);
        FenceValue { seqno }
    }

    fn bind(&self, slot: SlotId, start: Pos, resume: bool) -> Result {
        if !resume {
            // Without its magic number the save area says nothing.
            self.memory.write(SAVE, 0)?;
        }
        self.memory
            .write(field(DESC, offset_of!(QueueDesc, start)), start.get())?;
        self.slots
            .bind(slot, encode_addr(self.memory.address(DESC)))
    }

    fn unbind(&self, slot: SlotId) -> Result {
        self.slots.unbind(slot)
    }
}
