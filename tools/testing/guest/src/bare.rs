// SPDX-License-Identifier: GPL-2.0
//! The board without its driver: registers and VRAM through the files of its PCI function.
//!
//! [`Bench`] enables the function, resets the board and, unless it is to stay cold, loads the
//! firmware. All that the board reads afterwards (descriptors, rings, page tables) a test builds in
//! VRAM, which BAR2 shows; only the firmware image has to be in system memory ([`Page`]). Nothing
//! here keeps a test from breaking the rules of the specification: that is what it is for.

pub mod hw;
mod page;

use std::cell::Cell;
use std::fmt;
use std::fs;
use std::ptr;

use anyhow::bail;
use anyhow::ensure;
use anyhow::Context;
use memmap2::MmapRaw;
use ochre::hw::pkt_header;

use crate::board::Board;
use crate::board::Violation;
use crate::harness::eventually;
use crate::sysfs::PciDevice;
use hw::fields;
use hw::mem;
use hw::reg;
use hw::regs;
use hw::Reg;
pub use page::Page;

/// Command register of the configuration space.
const COMMAND: u64 = 4;
/// Its bit that lets the function read and write system memory.
const BUS_MASTER: u16 = 1 << 2;
/// The image that the driver loads.
const FIRMWARE: &str = "/lib/firmware/ochre/og1.bin";
/// Where a bench begins to give out VRAM.
const VRAM_START: u64 = 1 << 20;
const PAGE: u64 = 4096;
/// Contexts in the table of a bench.
const CONTEXTS: u32 = 16;
/// Words of a queue's ring.
const RING_LOG2: u32 = 9;
/// How long the board may take.
const SECONDS: u64 = 20;

/// Offset of [`mem::ControlPage::wptr`] in a control page.
const WPTR: u64 = 0;
/// Offset of the word that holds state and error.
const STATE: u64 = 192;

/// The board on the bench. When this is dropped it is reset and disabled.
pub struct Bench {
    pci: PciDevice,
    registers: MmapRaw,
    vram: MmapRaw,
    next: Cell<u64>,
    abandoned: bool,
    /// Lives as long as the board may read it.
    _firmware: Option<Page>,
}

/// A queue in VRAM.
#[derive(Clone, Copy, Debug)]
pub struct Queue {
    /// Queue id.
    pub id: u16,
    /// Index of its engine.
    pub engine: usize,
    /// Slot of the engine.
    pub slot: usize,
    /// Address of the descriptor.
    pub desc: u64,
    /// Address of the ring.
    pub ring: u64,
    /// Address of the control page.
    pub control: u64,
}

impl fmt::Debug for Bench {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bench")
            .field("pci", &self.pci)
            .finish_non_exhaustive()
    }
}

impl Bench {
    /// A board after a reset: no firmware, but bus mastering is on.
    ///
    /// # Errors
    ///
    /// There is no board, or a driver has it.
    pub fn cold() -> anyhow::Result<Self> {
        let pci = PciDevice::find()?;
        ensure!(!pci.is_bound(), "a driver is bound to the board");
        pci.enable(true)?;
        let bench = Self {
            registers: pci.map(0)?,
            vram: pci.map(2)?,
            pci,
            next: Cell::new(VRAM_START),
            abandoned: false,
            _firmware: None,
        };
        bench.set_bus_master(true)?;
        bench.reset()?;
        Board.clear_violations()?;
        Ok(bench)
    }

    /// A board whose firmware runs, with a context table that holds nothing and a fault ring.
    ///
    /// # Errors
    ///
    /// As [`Bench::cold`], or the firmware does not come up.
    pub fn new() -> anyhow::Result<Self> {
        let mut bench = Self::cold()?;
        let image = fs::read(FIRMWARE).context(FIRMWARE)?;
        let page = Page::with(&image)?;
        let status = bench.load_firmware(page.address()?, u32::try_from(image.len())?)?;
        bench._firmware = Some(page);
        let state = fields::FW_STATUS::state.get(status);
        ensure!(state == regs::FW_RUNNING, "firmware: status {status:#x}");

        let contexts = bench.alloc(PAGE);
        bench.write_pair(reg::CTX_TABLE_LO, reg::CTX_TABLE_HI, 0, contexts);
        bench.write(reg::CTX_COUNT, 0, CONTEXTS);
        bench.write(reg::CTX_COMMIT, 0, 1);
        let faults = bench.alloc(PAGE);
        bench.write_pair(reg::FAULT_RING_LO, reg::FAULT_RING_HI, 0, faults);
        bench.write(reg::FAULT_SIZE, 0, 4);
        bench.write(reg::FAULT_CTRL, 0, 1);
        ensure!(bench.counted()?.is_empty(), "the bench broke a rule");
        Ok(bench)
    }

    /// Leaves the board as it is, for the driver to find.
    pub fn abandon(mut self) {
        self.abandoned = true;
    }

    /// Resets the board.
    ///
    /// # Errors
    ///
    /// It does not come back.
    pub fn reset(&self) -> anyhow::Result<()> {
        self.write(reg::DEVICE_RESET, 0, regs::RESET_MAGIC);
        eventually("the board is reset", SECONDS, || {
            let status = self.read(reg::STATUS, 0);
            Ok((fields::STATUS::resetting.get(status) == 0).then_some(()))
        })
    }

    /// Lets the board read and write system memory, or not.
    ///
    /// # Errors
    ///
    /// The configuration space cannot be written.
    pub fn set_bus_master(&self, on: bool) -> anyhow::Result<()> {
        let command = self.pci.config(COMMAND)? & !BUS_MASTER;
        self.pci
            .set_config(COMMAND, command | if on { BUS_MASTER } else { 0 })?;
        let status = self.read(reg::STATUS, 0);
        ensure!(fields::STATUS::bus_master.get(status) == u32::from(on));
        Ok(())
    }

    /// Starts the loader and waits for its end; returns `FW_STATUS`.
    ///
    /// # Errors
    ///
    /// It does not end.
    pub fn load_firmware(&self, address: u64, bytes: u32) -> anyhow::Result<u32> {
        self.write_pair(reg::FW_ADDR_LO, reg::FW_ADDR_HI, 0, address);
        self.write(reg::FW_SIZE, 0, bytes);
        self.write(reg::FW_CTRL, 0, 1);
        eventually("the loader has ended", SECONDS, || {
            let status = self.read(reg::FW_STATUS, 0);
            let state = fields::FW_STATUS::state.get(status);
            Ok(matches!(state, regs::FW_RUNNING | regs::FW_FAILED).then_some(status))
        })
    }

    // Registers.

    /// Where an access of type `T` to BAR0 goes.
    fn register<T>(&self, offset: usize) -> *mut T {
        assert!(offset + size_of::<T>() <= self.registers.len());
        assert!(
            offset % align_of::<T>() == 0,
            "the processor wants it aligned"
        );
        self.registers.as_mut_ptr().wrapping_add(offset).cast()
    }

    /// Reads BAR0 with an access as wide as `T`, an unsigned number.
    pub fn read_at<T: Copy>(&self, offset: usize) -> T {
        // SAFETY: Inside the mapping and aligned. What registers do cannot change the memory of
        // this program; any bits are a number.
        unsafe { ptr::read_volatile(self.register(offset)) }
    }

    /// Writes BAR0 with an access as wide as `T`, an unsigned number.
    pub fn write_at<T: Copy>(&self, offset: usize, value: T) {
        // SAFETY: As for `read_at`. The board writes to memory that it was given only, and a bench
        // gives it VRAM.
        unsafe { ptr::write_volatile(self.register(offset), value) }
    }

    /// Reads a register, number `index` of its array.
    pub fn read(&self, reg: Reg, index: usize) -> u32 {
        self.read_at(reg.offset + index * reg.stride)
    }

    /// Writes a register, number `index` of its array.
    pub fn write(&self, reg: Reg, index: usize, value: u32) {
        self.write_at(reg.offset + index * reg.stride, value);
    }

    /// Writes a pair of registers.
    pub fn write_pair(&self, low: Reg, high: Reg, index: usize, value: u64) {
        // CAST: the lower half.
        self.write(low, index, value as u32);
        self.write(high, index, (value >> 32) as u32);
    }

    /// Bytes of BAR2.
    pub fn vram_bytes(&self) -> u64 {
        self.vram.len() as u64
    }

    // VRAM.

    /// Takes zeroed VRAM, aligned to a page.
    pub fn alloc(&self, bytes: u64) -> u64 {
        let at = self.next.get();
        self.next.set(at + bytes.next_multiple_of(PAGE));
        for word in (at..self.next.get()).step_by(8) {
            self.poke(word, 0);
        }
        at
    }

    /// Where the 64-bit word at an address is.
    fn word(&self, address: u64) -> *mut u64 {
        assert!(address % 8 == 0 && address + 8 <= self.vram_bytes());
        // CAST: checked to lie in the mapping.
        self.vram.as_mut_ptr().wrapping_add(address as usize).cast()
    }

    /// Reads a 64-bit word of VRAM.
    pub fn peek(&self, address: u64) -> u64 {
        // SAFETY: Inside the mapping and aligned; nobody has a reference to it.
        unsafe { ptr::read_volatile(self.word(address)) }
    }

    /// Writes a 64-bit word of VRAM.
    pub fn poke(&self, address: u64, value: u64) {
        // SAFETY: As for `peek`.
        unsafe { ptr::write_volatile(self.word(address), value) }
    }

    /// Gives a context an empty page table; returns the address of its root.
    pub fn make_context(&self, ctx: u16) -> u64 {
        let low = u64::from(self.read(reg::CTX_TABLE_LO, 0));
        let high = u64::from(self.read(reg::CTX_TABLE_HI, 0));
        let root = self.alloc(PAGE);
        let entry = (low | high << 32) + u64::from(ctx) * size_of::<mem::CtxEntry>() as u64;
        self.poke(entry, root | mem::CTX_VALID);
        root
    }

    /// Maps a page of 4 KiB at virtual address `va` by `leaf`, whatever bits it has; `root` is an
    /// empty page table.
    pub fn map(&self, root: u64, va: u64, leaf: u64) {
        let index = |level: u32| va >> (mem::PAGE_SHIFT_4K + 9 * level) & 511;
        let mut table = root;
        for level in (1..mem::PT_LEVELS).rev() {
            let next = self.alloc(PAGE);
            self.poke(table + 8 * index(level), next | mem::PTE_VALID);
            table = next;
        }
        self.poke(table + 8 * index(0), leaf);
    }

    // Queues.

    /// Writes the descriptor of a queue that uses context 1; does not bind it.
    pub fn make_queue(&self, engine: usize, slot: usize, id: u16, flags: u32) -> Queue {
        let (desc, ring) = (self.alloc(PAGE), self.alloc(8 << RING_LOG2));
        let (control, save) = (self.alloc(PAGE), self.alloc(mem::SAVE_BYTES as u64));
        let (ctx, priority, quantum_us) = (1, 1, 1000);
        let words = [
            u64::from(mem::QUEUE_MAGIC) | u64::from(flags) << 32,
            u64::from(id) | ctx << 16 | priority << 32,
            quantum_us | u64::from(RING_LOG2) << 32,
            ring,
            control,
            save,
        ];
        for (at, word) in (desc..).step_by(8).zip(words) {
            self.poke(at, word);
        }
        Queue {
            id,
            engine,
            slot,
            desc,
            ring,
            control,
        }
    }

    /// Index of a queue's slot.
    fn slot(queue: &Queue) -> usize {
        queue.engine * regs::SLOTS_MAX + queue.slot
    }

    /// Asks for a queue to be bound.
    pub fn bind(&self, queue: &Queue) {
        let slot = Self::slot(queue);
        self.write_pair(reg::SLOT_DESC_LO, reg::SLOT_DESC_HI, slot, queue.desc);
        self.write(reg::SLOT_CTRL, slot, 1);
        self.write(reg::SLOT_COMMIT, queue.engine, 1 << queue.slot);
    }

    /// Asks for a queue's slot to be emptied.
    pub fn unbind(&self, queue: &Queue) {
        self.write(reg::SLOT_CTRL, Self::slot(queue), 0);
        self.write(reg::SLOT_COMMIT, queue.engine, 1 << queue.slot);
    }

    /// State of a queue's slot, `SLOT_*`.
    pub fn slot_state(&self, queue: &Queue) -> u32 {
        fields::SLOT_STATUS::state.get(self.read(reg::SLOT_STATUS, Self::slot(queue)))
    }

    /// A queue with a privileged ring, bound to slot 0 of an engine.
    ///
    /// # Errors
    ///
    /// The board does not take it.
    pub fn queue(&self, engine: usize) -> anyhow::Result<Queue> {
        // CAST: below 16.
        let queue = self.make_queue(engine, 0, engine as u16, mem::QUEUE_PRIVILEGED);
        self.bind(&queue);
        self.wait_for(&queue, regs::SLOT_IDLE)?;
        Ok(queue)
    }

    /// Waits for a state of a queue's slot.
    ///
    /// # Errors
    ///
    /// It does not come.
    pub fn wait_for(&self, queue: &Queue, state: u32) -> anyhow::Result<()> {
        let what = format!("slot state {state} of {queue:?}");
        eventually(&what, SECONDS, || {
            Ok((self.slot_state(queue) == state).then_some(()))
        })
    }

    /// Puts packets into the ring of a queue that has had none, and rings.
    pub fn push(&self, queue: &Queue, words: &[u64]) {
        for (at, word) in (queue.ring..).step_by(8).zip(words) {
            self.poke(at, *word);
        }
        self.set_wptr(queue, words.len() as u64);
    }

    /// Moves the producer's position, and rings.
    pub fn set_wptr(&self, queue: &Queue, wptr: u64) {
        self.poke(queue.control + WPTR, wptr);
        self.write_at(self.doorbell(queue.id), 1u32);
    }

    /// Offset of a doorbell in BAR0.
    pub fn doorbell(&self, queue: u16) -> usize {
        regs::DOORBELL_BASE + (usize::from(queue) << regs::DOORBELL_SHIFT)
    }

    /// Waits until a queue has faulted; returns the code of the fault.
    ///
    /// # Errors
    ///
    /// It does not.
    pub fn fault(&self, queue: &Queue) -> anyhow::Result<u32> {
        self.wait_for(queue, regs::SLOT_FAULTED)?;
        Ok(u32::try_from(self.peek(queue.control + STATE) >> 32)?)
    }

    // The judge.

    /// What the board has counted; asked of the board itself, not by its registers.
    ///
    /// # Errors
    ///
    /// The control port does not answer.
    pub fn counted(&self) -> anyhow::Result<Vec<Violation>> {
        // Writes may still be on their way; a read overtakes none.
        if self.read(reg::ID, 0) != regs::ID_MAGIC {
            bail!("the board does not answer");
        }
        Board.violations()
    }
}

/// A packet.
pub fn packet(opcode: u8, flags: u16, operands: &[u64]) -> Vec<u64> {
    // CAST: no packet has as many as 255 words.
    let mut words = vec![pkt_header(opcode, operands.len() as u8 + 1, flags, 0)];
    words.extend_from_slice(operands);
    words
}

impl Drop for Bench {
    fn drop(&mut self) {
        let clear = || -> anyhow::Result<()> {
            if !self.abandoned {
                self.reset()?;
            }
            self.set_bus_master(false)?;
            Ok(self.pci.enable(false)?)
        };
        if let Err(error) = clear() {
            println!("# the bench cannot be cleared: {error}");
        }
    }
}
