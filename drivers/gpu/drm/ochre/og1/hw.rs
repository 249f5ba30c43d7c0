// SPDX-License-Identifier: GPL-2.0
//! The definitions of the og1 hardware that the driver shares with the board program.
//!
//! They stand in `include/ochre`, outside any crate, and come in here. The specification is
//! `Documentation/gpu/ochre/og1.rst`.

#[allow(dead_code, unreachable_pub)]
#[path = "../../../../../include/ochre/og1_isa.rs"]
pub(super) mod isa;
#[allow(dead_code, unreachable_pub)]
#[path = "../../../../../include/ochre/og1_mem.rs"]
pub(super) mod mem;
#[allow(dead_code, unreachable_pub)]
#[path = "../../../../../include/ochre/og1_packets.rs"]
pub(super) mod packets;
#[allow(dead_code, unreachable_pub)]
#[path = "../../../../../include/ochre/og1_regs.rs"]
pub(super) mod regs;
