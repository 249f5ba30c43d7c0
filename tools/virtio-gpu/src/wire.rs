// SPDX-License-Identifier: GPL-2.0
//! Numbers and layouts of `uapi/linux/virtio_gpu.h`, `virtio_pci.h`, `virtio_config.h` and
//! `virtio_ring.h`, as far as the board needs them. Everything is little-endian.

/// Feature bits.
pub mod feature {
    bitflags::bitflags! {
        /// What the device offers, or the driver accepts.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Features: u64 {
            /// 3D commands and contexts.
            const VIRGL = 1 << 0;
            /// GET_EDID.
            const EDID = 1 << 1;
            /// RESOURCE_ASSIGN_UUID.
            const UUID = 1 << 2;
            /// Blob resources.
            const BLOB = 1 << 3;
            /// Capset and timelines of a context.
            const CONTEXT_INIT = 1 << 4;
            /// Blobs have to be aligned as the configuration says.
            const BLOB_ALIGNMENT = 1 << 5;
            /// Descriptors may be in a table of their own.
            const INDIRECT = 1 << 28;
            /// Notifications and interrupts are asked for by index.
            const EVENT_IDX = 1 << 29;
            /// Virtio 1.0 or later.
            const VERSION_1 = 1 << 32;
            /// Addresses are those of the DMA API.
            const ACCESS_PLATFORM = 1 << 33;
        }
    }
}

/// Bits of the device status.
pub mod status {
    /// The guest has noticed the device.
    pub const ACKNOWLEDGE: u8 = 1;
    /// The guest knows how to drive it.
    pub const DRIVER: u8 = 2;
    /// The driver is ready.
    pub const DRIVER_OK: u8 = 4;
    /// Feature negotiation is complete.
    pub const FEATURES_OK: u8 = 8;
    /// The device cannot go on without a reset.
    pub const NEEDS_RESET: u8 = 64;
    /// The driver has given up.
    pub const FAILED: u8 = 128;
}

/// A vector that is none.
pub const NO_VECTOR: u16 = 0xffff;

/// Bits of the ISR status.
pub mod isr {
    /// A used ring has changed.
    pub const QUEUE: u8 = 1;
    /// The configuration has changed.
    pub const CONFIG: u8 = 2;
}

/// Types of the vendor capabilities.
pub mod cap {
    /// Common configuration.
    pub const COMMON: u8 = 1;
    /// Notifications.
    pub const NOTIFY: u8 = 2;
    /// ISR status.
    pub const ISR: u8 = 3;
    /// Device configuration.
    pub const DEVICE: u8 = 4;
    /// Shared memory.
    pub const SHARED_MEMORY: u8 = 8;
    /// Shared-memory id of the host-visible window.
    pub const HOST_VISIBLE: u8 = 1;
}

/// Split ring.
pub mod vring {
    /// The chain goes on at `next`.
    pub const NEXT: u16 = 1;
    /// The device writes this buffer.
    pub const WRITE: u16 = 2;
    /// The buffer is a table of descriptors.
    pub const INDIRECT: u16 = 4;
    /// Available ring: no interrupt, please.
    pub const NO_INTERRUPT: u16 = 1;
    /// Used ring: no notification, please.
    pub const NO_NOTIFY: u16 = 1;
    /// Bytes of a descriptor.
    pub const DESCRIPTOR: u64 = 16;
}

/// The event that the displays have changed.
pub const EVENT_DISPLAY: u32 = 1;
/// Bytes of the device configuration.
pub const CONFIG_BYTES: u64 = 20;
/// Displays that a response has room for.
pub const MAX_SCANOUTS: usize = 16;

/// Flags of a command's header.
pub mod flag {
    /// Answer when the work is done.
    pub const FENCE: u32 = 1;
    /// `ring_idx` names the timeline.
    pub const RING_IDX: u32 = 2;
}

/// Rings that a context can have.
pub const MAX_RINGS: u8 = 64;
/// Capset of a context, in `context_init`.
pub const CAPSET_MASK: u32 = 0xff;

/// Kinds of blob memory.
pub mod blob {
    /// Pages of the guest.
    pub const GUEST: u32 = 1;
    /// Memory of the host.
    pub const HOST3D: u32 = 2;
    /// Memory of the host with pages of the guest.
    pub const HOST3D_GUEST: u32 = 3;
    /// The blob can be mapped.
    pub const MAPPABLE: u32 = 1;
    /// All flags.
    pub const FLAGS: u32 = 7;
}

macro_rules! codes {
    ($(#[$doc:meta])* $type:ident { $($(#[$item:meta])* $name:ident = $value:literal, $word:literal;)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[repr(u32)]
        pub enum $type { $($(#[$item])* $name = $value),* }

        impl $type {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// The one with this number.
            pub fn from_code(code: u32) -> Option<Self> {
                match code { $($value => Some(Self::$name),)* _ => None }
            }

            /// Its number.
            pub fn code(self) -> u32 {
                self as u32
            }

            /// Its name at the control socket.
            pub fn name(self) -> &'static str {
                match self { $(Self::$name => $word),* }
            }

            /// The one with this name.
            pub fn from_name(name: &str) -> Option<Self> {
                match name { $($word => Some(Self::$name),)* _ => None }
            }
        }
    };
}

codes! {
    /// Commands (5.7.6).
    Cmd {
        /// Sizes of the displays.
        GetDisplayInfo = 0x100, "get-display-info";
        /// A 2D resource.
        ResourceCreate2d = 0x101, "resource-create-2d";
        /// The end of a resource.
        ResourceUnref = 0x102, "resource-unref";
        /// What a display shows.
        SetScanout = 0x103, "set-scanout";
        /// A display is to be refreshed.
        ResourceFlush = 0x104, "resource-flush";
        /// From guest memory to a 2D resource.
        TransferToHost2d = 0x105, "transfer-to-host-2d";
        /// Pages for a resource.
        AttachBacking = 0x106, "attach-backing";
        /// No pages any more.
        DetachBacking = 0x107, "detach-backing";
        /// Which capset there is at an index.
        GetCapsetInfo = 0x108, "get-capset-info";
        /// Contents of a capset.
        GetCapset = 0x109, "get-capset";
        /// EDID of a display.
        GetEdid = 0x10a, "get-edid";
        /// A name for a resource that other devices know.
        AssignUuid = 0x10b, "assign-uuid";
        /// A blob resource.
        CreateBlob = 0x10c, "create-blob";
        /// What a display shows, a blob.
        SetScanoutBlob = 0x10d, "set-scanout-blob";
        /// A context.
        CtxCreate = 0x200, "ctx-create";
        /// The end of a context.
        CtxDestroy = 0x201, "ctx-destroy";
        /// A context may use a resource.
        CtxAttachResource = 0x202, "ctx-attach-resource";
        /// It may not any more.
        CtxDetachResource = 0x203, "ctx-detach-resource";
        /// A 3D resource.
        ResourceCreate3d = 0x204, "resource-create-3d";
        /// From guest memory to a resource.
        TransferToHost3d = 0x205, "transfer-to-host-3d";
        /// From a resource to guest memory.
        TransferFromHost3d = 0x206, "transfer-from-host-3d";
        /// Commands for the GPU.
        Submit3d = 0x207, "submit-3d";
        /// A blob appears in the window.
        MapBlob = 0x208, "map-blob";
        /// It goes from there.
        UnmapBlob = 0x209, "unmap-blob";
        /// Cursor: picture and place.
        UpdateCursor = 0x300, "update-cursor";
        /// Cursor: place.
        MoveCursor = 0x301, "move-cursor";
    }
}

codes! {
    /// Responses (5.7.6.7).
    Resp {
        /// Done.
        OkNodata = 0x1100, "ok-nodata";
        /// Sizes of the displays.
        OkDisplayInfo = 0x1101, "ok-display-info";
        /// A capset's name.
        OkCapsetInfo = 0x1102, "ok-capset-info";
        /// A capset's contents.
        OkCapset = 0x1103, "ok-capset";
        /// An EDID.
        OkEdid = 0x1104, "ok-edid";
        /// A resource's name.
        OkResourceUuid = 0x1105, "ok-resource-uuid";
        /// How to map a blob.
        OkMapInfo = 0x1106, "ok-map-info";
        /// Failed.
        ErrUnspec = 0x1200, "unspec";
        /// No memory.
        ErrOutOfMemory = 0x1201, "out-of-memory";
        /// No such display.
        ErrScanout = 0x1202, "invalid-scanout";
        /// No such resource.
        ErrResource = 0x1203, "invalid-resource";
        /// No such context.
        ErrContext = 0x1204, "invalid-context";
        /// Something else is wrong.
        ErrParameter = 0x1205, "invalid-parameter";
    }
}

/// Bytes of a command's or a response's header.
pub const HEADER: usize = 24;

/// The header of a command (`virtio_gpu_ctrl_hdr`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// What is wanted.
    pub kind: u32,
    /// [`flag`].
    pub flags: u32,
    /// Number of the fence.
    pub fence_id: u64,
    /// The context.
    pub ctx_id: u32,
    /// The timeline of the context.
    pub ring_idx: u8,
    /// Zero.
    pub padding: [u8; 3],
}

impl Header {
    /// From its bytes.
    pub fn parse(bytes: &[u8; HEADER]) -> Self {
        let mut fields = Fields(bytes);
        Self {
            kind: fields.u32(),
            flags: fields.u32(),
            fence_id: fields.u64(),
            ctx_id: fields.u32(),
            ring_idx: bytes[20],
            padding: [bytes[21], bytes[22], bytes[23]],
        }
    }

    /// Its bytes.
    pub fn bytes(&self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[0..4].copy_from_slice(&self.kind.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.flags.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.fence_id.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.ctx_id.to_le_bytes());
        bytes[20] = self.ring_idx;
        bytes[21..24].copy_from_slice(&self.padding);
        bytes
    }
}

/// Takes fields off the front of bytes; beyond their end everything is 0.
pub struct Fields<'a>(pub &'a [u8]);

impl Fields<'_> {
    /// The next 32 bits.
    pub fn u32(&mut self) -> u32 {
        match self.0.split_first_chunk::<4>() {
            Some((field, rest)) => {
                self.0 = rest;
                u32::from_le_bytes(*field)
            }
            None => {
                self.0 = &[];
                0
            }
        }
    }

    /// The next 64 bits.
    pub fn u64(&mut self) -> u64 {
        let low = u64::from(self.u32());
        low | (u64::from(self.u32()) << 32)
    }
}
