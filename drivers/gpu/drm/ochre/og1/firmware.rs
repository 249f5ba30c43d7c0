// SPDX-License-Identifier: GPL-2.0
//! The board's firmware: an image from `request_firmware()` that the board checks and starts.
//!
//! The image stays in DMA memory as long as the driver is bound, since every reset of the board
//! forgets it and [`Image::begin`] has to be able to bring it back without an allocation or a file.
//! Specification, section "Firmware".

use core::mem::{
    offset_of,
    size_of, //
};

use kernel::{
    device,
    firmware::Firmware,
    pci,
    prelude::*, //
};

use super::{
    hw::mem::{
        FirmwareHeader,
        FirmwarePstate,
        FW_BYTES_MAX,
        FW_ERR_BUS,
        FW_ERR_CHECKSUM,
        FW_ERR_CONTENTS,
        FW_ERR_FORMAT,
        FW_ERR_MAGIC,
        FW_FORMAT,
        FW_FORMAT_BLOCKS,
        FW_MAGIC, //
    },
    hw::regs::{
        FW_FAILED,
        FW_RUNNING, //
    },
    memory::SharedWords,
    power::Table,
    regs::{
        self,
        Regs, //
    }, //
};

/// Where the image is looked for, below the firmware search path.
pub(super) const NAME: &CStr = c"ochre/og1.bin";

/// Most P-states of a table, by the specification.
const PSTATES_MAX: u32 = 8;

/// How far the board is with starting an image.
pub(super) enum Start {
    /// Ask again.
    Pending,
    /// It runs.
    Running,
    /// The board refused it.
    Refused,
}

/// What the driver needs to know of an image.
#[derive(Clone, Copy)]
pub(super) struct Info {
    /// Name of the board, ends in NUL.
    pub(super) name: [u8; 32],
    /// Version: major << 16 | minor.
    pub(super) version: u32,
    /// Engines that the fuses leave switched on, a bit for each.
    pub(super) engines: u32,
    /// Fastest core clock in kHz.
    pub(super) core_max_khz: u32,
    /// Fastest memory clock in kHz.
    pub(super) memory_max_khz: u32,
}

/// A firmware image in DMA memory.
pub(super) struct Image {
    memory: SharedWords,
    bytes: u32,
    info: Info,
    power: Table,
}

/// The 32-bit word at `offset` of `data`; `EINVAL` when it is not all there.
pub(super) fn word(data: &[u8], offset: usize) -> Result<u32> {
    let end = offset.checked_add(size_of::<u32>()).ok_or(EINVAL)?;
    let bytes = data.get(offset..end).ok_or(EINVAL)?;
    Ok(u32::from_le_bytes(bytes.try_into().map_err(|_| EINVAL)?))
}

/// Reads what the driver needs from an image. The board checks the rest, the checksum included.
fn parse(data: &[u8]) -> Result<(Info, Table)> {
    if data.len() < size_of::<FirmwareHeader>() || data.len() > FW_BYTES_MAX {
        return Err(EINVAL);
    }
    if word(data, offset_of!(FirmwareHeader, magic))? != FW_MAGIC {
        return Err(EINVAL);
    }
    // The second has blocks behind the P-states; of these the limits are read.
    let format = word(data, offset_of!(FirmwareHeader, format))?;
    if ![FW_FORMAT, FW_FORMAT_BLOCKS].contains(&format) {
        return Err(EINVAL);
    }

    let count = word(data, offset_of!(FirmwareHeader, pstates))?;
    if count == 0 || count > PSTATES_MAX {
        return Err(EINVAL);
    }

    let start = offset_of!(FirmwareHeader, name);
    let mut name = [0; 32];
    name.copy_from_slice(data.get(start..start + 32).ok_or(EINVAL)?);
    name[31] = 0;

    // The table is ordered, fastest first.
    let fastest = size_of::<FirmwareHeader>();
    let info = Info {
        name,
        version: word(data, offset_of!(FirmwareHeader, version))?,
        engines: word(data, offset_of!(FirmwareHeader, engines))?,
        core_max_khz: word(data, fastest + offset_of!(FirmwarePstate, core_khz))?,
        memory_max_khz: word(data, fastest + offset_of!(FirmwarePstate, memory_khz))?,
    };
    Ok((info, Table::parse(data, usize::try_from(count)?)?))
}

impl Image {
    /// Finds the image and copies it to DMA memory. Says in the log what is missing or damaged.
    ///
    /// Errors: `ENOENT` (no such file), `EINVAL` (not an og1 image), `ENOMEM`.
    pub(super) fn request(dev: &pci::Device<device::Bound>) -> Result<Self> {
        let firmware = Firmware::request(NAME, dev.as_ref()).inspect_err(|e| {
            dev_err!(
                dev,
                "firmware {} cannot be loaded ({:?}): install it below /lib/firmware\n",
                NAME,
                e
            );
        })?;
        let data = firmware.data();
        let (info, power) = parse(data).inspect_err(|_| {
            dev_err!(
                dev,
                "firmware {} is no og1 image ({} bytes): install an intact one\n",
                NAME,
                data.len()
            );
        })?;

        Ok(Self {
            memory: SharedWords::from_bytes(dev.as_ref(), data, GFP_KERNEL)?,
            bytes: u32::try_from(data.len())?,
            info,
            power,
        })
    }

    /// What the image says of the board.
    pub(super) fn info(&self) -> &Info {
        &self.info
    }

    /// What the image says of clocks, voltages and limits.
    pub(super) fn power(&self) -> &Table {
        &self.power
    }

    /// Has the board check and start the image.
    pub(super) fn begin(&self, regs: &Regs) -> Result {
        regs.stage_pair::<regs::FW_ADDR_LO, regs::FW_ADDR_HI>(self.memory.address(0).offset())?;
        regs.stage(regs::FW_SIZE::from(self.bytes))?;
        regs.write_ordered(regs::FW_CTRL::zeroed().with_const_load::<1>())
    }

    /// How far the board is with it. Says in the log why it refused.
    pub(super) fn poll(&self, dev: &device::Device, regs: &Regs) -> Result<Start> {
        let status = regs.read::<regs::FW_STATUS>()?;
        match u32::from(status.state()) {
            FW_RUNNING => return Ok(Start::Running),
            FW_FAILED => (),
            _ => return Ok(Start::Pending),
        }
        let reason = match u32::from(status.error()) {
            FW_ERR_MAGIC => "it is no og1 image",
            FW_ERR_FORMAT => "the board does not know its format",
            FW_ERR_CHECKSUM => "it is damaged (checksum)",
            FW_ERR_BUS => "the board cannot read it (DMA)",
            FW_ERR_CONTENTS => "its contents make no sense",
            _ => "for a reason that the driver does not know",
        };
        dev_err!(
            dev,
            "the board refused firmware {}: {}; install an intact one\n",
            NAME,
            reason
        );
        Ok(Start::Refused)
    }
}
