// SPDX-License-Identifier: GPL-2.0
//! Packets: from words to what they mean. Every field is checked here; what execution still has to
//! check are addresses.

use crate::discovery::BLOCK_ITEMS;
use crate::hw::isa::LDS_MAX;
use crate::hw::mem;
use crate::hw::packets::*;

/// Most words of a packet other than a no-op.
pub const WORDS_MAX: usize = 8;

/// An address in a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Address {
    /// In the queue's context.
    Virtual(u64),
    /// A board address, raw as the packet has it.
    Physical(u64),
}

impl Address {
    /// The number, for a fault entry.
    pub fn raw(self) -> u64 {
        match self {
            Address::Virtual(a) | Address::Physical(a) => a,
        }
    }

    /// `n` bytes further; `None` beyond 64 bits.
    pub fn offset(self, n: u64) -> Option<Self> {
        match self {
            Address::Virtual(a) => a.checked_add(n).map(Address::Virtual),
            Address::Physical(a) => {
                // Bits that are neither are left for whoever resolves the address.
                let address = (a & mem::PA_MASK).checked_add(n)?;
                (address <= mem::PA_MASK).then_some(Address::Physical(a & !mem::PA_MASK | address))
            }
        }
    }
}

/// A comparison of a word in memory with a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compare {
    /// Equal.
    Eq,
    /// Different.
    Ne,
    /// Greater or equal.
    Ge,
    /// Greater.
    Gt,
    /// Less or equal.
    Le,
    /// Less.
    Lt,
}

impl Compare {
    fn new(flags: u16) -> Option<Self> {
        Some(match flags {
            CMP_EQ => Compare::Eq,
            CMP_NE => Compare::Ne,
            CMP_GE => Compare::Ge,
            CMP_GT => Compare::Gt,
            CMP_LE => Compare::Le,
            CMP_LT => Compare::Lt,
            _ => return None,
        })
    }

    /// Whether `memory` compares to `value`.
    pub fn holds(self, memory: u64, value: u64) -> bool {
        match self {
            Compare::Eq => memory == value,
            Compare::Ne => memory != value,
            Compare::Ge => memory >= value,
            Compare::Gt => memory > value,
            Compare::Le => memory <= value,
            Compare::Lt => memory < value,
        }
    }
}

/// A grid of blocks of work-items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dispatch {
    /// Address of the first instruction.
    pub kernel: u64,
    /// Argument of every work-item.
    pub args: u64,
    /// Blocks in x, y, z.
    pub grid: [u32; 3],
    /// Work-items of a block in x, y, z.
    pub block: [u32; 3],
    /// Stacks: base, and bytes of each; 0 bytes for the board's own stack window.
    pub stack: (u64, u64),
    /// Bytes of block-local memory.
    pub lds: u64,
}

impl Dispatch {
    /// Blocks in all.
    pub fn blocks(&self) -> u64 {
        self.grid.iter().map(|&n| u64::from(n)).product()
    }

    /// Work-items of a block.
    pub fn items(&self) -> u32 {
        self.block.iter().product()
    }
}

/// A packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Packet {
    Nop,
    Indirect {
        addr: u64,
        words: u64,
    },
    Copy {
        src: Address,
        dst: Address,
        bytes: u64,
    },
    Copy2d {
        src: Address,
        dst: Address,
        pitch: (u64, u64),
        width: u64,
        height: u64,
    },
    Fill {
        dst: Address,
        bytes: u64,
        value: u32,
    },
    Dispatch(Dispatch),
    SemWait {
        addr: Address,
        value: u64,
        compare: Compare,
    },
    SemSignal {
        addr: Address,
        value: u64,
    },
    AtomicAdd {
        addr: Address,
        value: u64,
    },
    WriteImm {
        addr: Address,
        value: u64,
        short: bool,
    },
    Predicate {
        addr: Address,
        value: u64,
        compare: Compare,
        skip: u64,
    },
    Timestamp {
        addr: Address,
    },
    WaitUntil {
        time: u64,
        relative: bool,
    },
    Cache {
        invalidate: bool,
    },
    Fence {
        addr: Address,
        value: u64,
        interrupt: bool,
    },
    TlbInvalidate {
        scope: u32,
        ctx: u64,
        addr: u64,
        pages: u64,
    },
    RegWrite {
        offset: u64,
        value: u32,
    },
}

/// Where a packet stands and who runs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// In the ring of a privileged queue.
    pub privileged: bool,
    /// In a ring, not in an indirect buffer.
    pub ring: bool,
    /// On a compute engine.
    pub compute: bool,
}

/// A header's fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header(pub u64);

impl Header {
    /// Opcode.
    pub fn opcode(self) -> u8 {
        self.0 as u8
    }

    fn flags(self) -> u16 {
        (self.0 >> PKT_FLAGS_SHIFT) as u16
    }

    fn imm(self) -> u32 {
        (self.0 >> PKT_IMM_SHIFT) as u32
    }

    /// Length in words, if the opcode may stand at this place and has that length.
    ///
    /// # Errors
    ///
    /// `FAULT_PACKET` or `FAULT_PRIVILEGE`.
    pub fn words(self, place: Place) -> Result<u64, u32> {
        let words = (self.0 >> PKT_LEN_SHIFT) as u8;
        let opcode = self.opcode();
        if opcode >= PKT_PRIVILEGED && !place.privileged {
            return Err(mem::FAULT_PRIVILEGE);
        }
        let good = match opcode {
            PKT_NOP => words != 0,
            PKT_INDIRECT => place.ring && pkt_words(opcode) == Some(words),
            _ => pkt_words(opcode) == Some(words),
        };
        if good {
            Ok(u64::from(words))
        } else {
            Err(mem::FAULT_PACKET)
        }
    }
}

/// Flags that a packet may have.
fn flags_of(opcode: u8, place: Place) -> u16 {
    let own = match opcode {
        // Compared as a whole later.
        PKT_SEM_WAIT | PKT_PREDICATE => 7,
        PKT_WRITE_IMM => FLAG_32BIT,
        PKT_WAIT_UNTIL => FLAG_RELATIVE,
        PKT_CACHE => CACHE_FLUSH | CACHE_INVALIDATE,
        PKT_FENCE => FLAG_INTERRUPT,
        _ => 0,
    };
    let physical = place.privileged
        && matches!(
            opcode,
            PKT_COPY
                | PKT_COPY_2D
                | PKT_FILL
                | PKT_WRITE_IMM
                | PKT_TIMESTAMP
                | PKT_SEM_WAIT
                | PKT_SEM_SIGNAL
        );
    own | if physical { FLAG_PHYSICAL } else { 0 }
}

fn low(word: u64) -> u32 {
    word as u32
}

fn high(word: u64) -> u32 {
    (word >> 32) as u32
}

fn check(good: bool) -> Result<(), u32> {
    if good {
        Ok(())
    } else {
        Err(mem::FAULT_PACKET)
    }
}

/// Decodes a packet whose header passed [`Header::words`]; `w` are its operands, zeros behind them.
///
/// # Errors
///
/// `FAULT_*`.
pub fn decode(header: Header, w: &[u64; WORDS_MAX - 1], place: Place) -> Result<Packet, u32> {
    let (opcode, flags, imm) = (header.opcode(), header.flags(), header.imm());
    if flags & FLAG_PHYSICAL != 0 && !place.privileged {
        return Err(mem::FAULT_PRIVILEGE);
    }
    check(flags & !flags_of(opcode, place) == 0)?;
    let uses_imm = matches!(
        opcode,
        PKT_NOP | PKT_INDIRECT | PKT_FILL | PKT_DISPATCH | PKT_PREDICATE | PKT_TLB_INVALIDATE
    );
    check(uses_imm || imm == 0)?;
    let compare = || Compare::new(flags & !FLAG_PHYSICAL).ok_or(mem::FAULT_PACKET);
    let at = |raw| {
        if flags & FLAG_PHYSICAL != 0 {
            Address::Physical(raw)
        } else {
            Address::Virtual(raw)
        }
    };
    Ok(match opcode {
        PKT_NOP => Packet::Nop,
        PKT_INDIRECT => {
            check((1..=INDIRECT_WORDS_MAX).contains(&imm) && w[0] % 8 == 0)?;
            Packet::Indirect {
                addr: w[0],
                words: u64::from(imm),
            }
        }
        PKT_COPY => Packet::Copy {
            src: at(w[0]),
            dst: at(w[1]),
            bytes: w[2],
        },
        PKT_COPY_2D => {
            let pitch = (u64::from(low(w[2])), u64::from(high(w[2])));
            let (width, height) = (u64::from(low(w[3])), u64::from(high(w[3])));
            check(height <= 1 || width <= pitch.0.min(pitch.1))?;
            Packet::Copy2d {
                src: at(w[0]),
                dst: at(w[1]),
                pitch,
                width,
                height,
            }
        }
        PKT_FILL => {
            check(w[1] % 4 == 0)?;
            Packet::Fill {
                dst: at(w[0]),
                bytes: w[1],
                value: imm,
            }
        }
        PKT_DISPATCH if !place.compute => return Err(mem::FAULT_ENGINE),
        PKT_DISPATCH => Packet::Dispatch(dispatch(imm, w)?),
        PKT_SEM_WAIT => Packet::SemWait {
            addr: at(w[0]),
            value: w[1],
            compare: compare()?,
        },
        PKT_SEM_SIGNAL => Packet::SemSignal {
            addr: at(w[0]),
            value: w[1],
        },
        PKT_ATOMIC_ADD => Packet::AtomicAdd {
            addr: at(w[0]),
            value: w[1],
        },
        PKT_WRITE_IMM => {
            let short = flags & FLAG_32BIT != 0;
            check(!short || high(w[1]) == 0)?;
            Packet::WriteImm {
                addr: at(w[0]),
                value: w[1],
                short,
            }
        }
        PKT_PREDICATE => {
            let skip = u64::from(imm);
            Packet::Predicate {
                addr: at(w[0]),
                value: w[1],
                compare: compare()?,
                skip,
            }
        }
        PKT_TIMESTAMP => Packet::Timestamp { addr: at(w[0]) },
        PKT_WAIT_UNTIL => Packet::WaitUntil {
            time: w[0],
            relative: flags & FLAG_RELATIVE != 0,
        },
        PKT_CACHE => Packet::Cache {
            invalidate: flags & CACHE_INVALIDATE != 0,
        },
        PKT_FENCE => {
            check(w[0] % 16 == 0)?;
            let interrupt = flags & FLAG_INTERRUPT != 0;
            Packet::Fence {
                addr: Address::Physical(w[0]),
                value: w[1],
                interrupt,
            }
        }
        PKT_TLB_INVALIDATE => {
            check((mem::TLB_ALL..=mem::TLB_RANGE).contains(&imm))?;
            Packet::TlbInvalidate {
                scope: imm,
                ctx: w[0],
                addr: w[1],
                pages: w[2],
            }
        }
        PKT_REG_WRITE => {
            let value = u32::try_from(w[1]).map_err(|_| mem::FAULT_PACKET)?;
            Packet::RegWrite {
                offset: w[0],
                value,
            }
        }
        _ => return Err(mem::FAULT_PACKET),
    })
}

fn dispatch(imm: u32, w: &[u64; WORDS_MAX - 1]) -> Result<Dispatch, u32> {
    let dispatch = Dispatch {
        kernel: w[0],
        args: w[1],
        grid: [low(w[2]), high(w[2]), low(w[3])],
        block: [high(w[3]), low(w[4]), high(w[4])],
        stack: (w[5], w[6]),
        lds: u64::from(imm),
    };
    let items = dispatch
        .block
        .iter()
        .try_fold(1u32, |n, &b| n.checked_mul(b));
    check(dispatch.grid.iter().all(|n| (1..=GRID_MAX).contains(n)))?;
    check(items.is_some_and(|n| (1..=BLOCK_ITEMS).contains(&n)))?;
    check(dispatch.lds <= LDS_MAX)?;
    // A stack is kept aligned to 16 bytes, as the calling convention wants it.
    check(dispatch.stack.0 % 16 == 0 && dispatch.stack.1 % 16 == 0)?;
    check(dispatch.stack.1 <= u64::from(u32::MAX))?;
    Ok(dispatch)
}
