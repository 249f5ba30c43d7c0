// SPDX-License-Identifier: GPL-2.0

//! All limits of what one ioctl may ask for, in one place.
//!
//! The C driver has none of them but the name's length, so a program could make the kernel allocate
//! what it liked. They are far above what Mesa asks for. Beyond a limit of a count or a length the
//! answer is [`EINVAL`](kernel::error::code::EINVAL).

/// Most bytes of an EXECBUFFER's command stream. (Mesa's virgl flushes at 260 KiB.)
pub(super) const STREAM_MAX: u32 = 16 << 20;
/// Most bytes of the command stream that creates a blob. (Mesa's virgl needs 56.)
pub(super) const BLOB_STREAM_MAX: u32 = 64 << 10;
/// What the length of a command stream is a multiple of: a stream is made of dwords.
pub(super) const STREAM_ALIGN: u32 = 4;

/// Most BOs of one EXECBUFFER.
pub(super) const EXEC_BOS_MAX: u32 = 64 << 10;
/// Most sync objects that one EXECBUFFER waits for, and most that it signals.
pub(super) const EXEC_SYNCOBJS_MAX: u32 = 4096;

/// Most parameters of one CONTEXT_INIT: each kind once.
pub(super) const CONTEXT_PARAMS_MAX: u32 = 4;
/// Most command rings of a context, as many as a `poll_rings_mask` has bits.
pub(super) const RINGS_MAX: u32 = 64;
/// Bytes of a context's debug name on the wire. A longer one is cut.
pub(super) const NAME_MAX: usize = 64;
/// Highest id of a capability set, by the virtio specification.
pub(super) const CAPSET_ID_MAX: u64 = 63;

/// Most bytes of a capability set that are asked of the device. (Virgl's has 1.5 KiB.)
pub(super) const CAPSET_BYTES_MAX: u32 = 64 << 10;
/// Most capability sets that are remembered. A device has a handful of them, a version or two each.
pub(super) const CAPSETS_CACHED_MAX: usize = 16;

/// How long WAIT waits before it says [`EBUSY`](kernel::error::code::EBUSY), as the C driver.
pub(super) const WAIT_SECONDS: u32 = 15;
