// SPDX-License-Identifier: GPL-2.0

//! The memory of records: where a request is read from and its answer is written to.

use kernel::{
    device::{
        self,
        Bound, //
    },
    dma::{
        Coherent,
        DmaAddress, //
    },
    io::{
        io_project,
        io_read,
        io_write,
        Io, //
    },
    prelude::*,
    transmute::{
        AsBytes,
        FromBytes, //
    }, //
};

use super::SMALL;
use crate::virtio::wire::{
    Request,
    HEADER_BYTES,
    REQUEST_WORDS, //
};

/// Bytes of an answer that fit into a record.
pub(in crate::virtio) const ANSWER_BYTES: u32 = (HEADER_BYTES + SMALL) as u32;
const ANSWER_WORDS: usize = HEADER_BYTES / 4 + SMALL / 4;
/// Where an answer begins in a record.
const ANSWER_OFFSET: u64 = (REQUEST_WORDS * 4) as u64;

/// Memory of all records. An index outside of it is not written and reads 0.
pub(in crate::virtio) trait RecordMemory {
    /// Where the device finds the request of a record.
    fn request_addr(&self, record: usize) -> DmaAddress;

    /// Where the device writes the answer.
    fn answer_addr(&self, record: usize) -> DmaAddress;

    /// Writes a request, and forgets the answer to the one before it.
    fn write_request(&self, record: usize, request: &Request);

    /// The type in the header of the answer.
    fn answer_kind(&self, record: usize) -> u32;

    /// What follows the header of the answer.
    fn answer_body(&self, record: usize) -> [u32; SMALL / 4];
}

/// A record as the device sees it. The driver writes the request before it is sent, the device the
/// answer until it has given it back.
#[repr(C, align(64))]
struct Record {
    request: [u8; REQUEST_WORDS * 4],
    answer: [u32; ANSWER_WORDS],
    reserved: [u32; 14],
}

const _: () = assert!(size_of::<Record>() == (REQUEST_WORDS + ANSWER_WORDS + 14) * 4);
const _: () = assert!(core::mem::offset_of!(Record, answer) as u64 == ANSWER_OFFSET);

// SAFETY: Made of integers: any bytes are valid.
unsafe impl FromBytes for Record {}
// SAFETY: Made of integers without padding, see the assertion above.
unsafe impl AsBytes for Record {}

/// Records that a device reaches by DMA.
pub(in crate::virtio) struct DmaRecords(Coherent<[Record]>);

impl DmaRecords {
    /// Memory for `count` records.
    pub(in crate::virtio) fn new(dev: &device::Device<Bound>, count: usize) -> Result<Self> {
        Ok(Self(Coherent::zeroed_slice(dev, count, GFP_KERNEL)?))
    }

    fn try_write_request(&self, record: usize, request: &Request) -> Result {
        let record = io_project!(&self.0, [try: record]);
        let bytes = request.as_bytes();
        io_project!(record, .request[try: ..bytes.len()]).copy_from_slice(bytes);
        for word in 0..ANSWER_WORDS {
            io_write!(record, .answer[try: word], 0);
        }
        Ok(())
    }

    fn try_answer_kind(&self, record: usize) -> Result<u32> {
        Ok(io_read!(&self.0, [try: record].answer[build: 0]))
    }

    fn try_answer_body(&self, record: usize) -> Result<[u32; SMALL / 4]> {
        let answer = io_project!(&self.0, [try: record].answer).copy_read();
        let mut body = [0; SMALL / 4];
        for (to, from) in body.iter_mut().zip(answer.iter().skip(HEADER_BYTES / 4)) {
            *to = u32::from_le(*from);
        }
        Ok(body)
    }
}

impl RecordMemory for DmaRecords {
    #[inline]
    fn request_addr(&self, record: usize) -> DmaAddress {
        self.0.dma_address() + (record * size_of::<Record>()) as u64
    }

    #[inline]
    fn answer_addr(&self, record: usize) -> DmaAddress {
        self.request_addr(record) + ANSWER_OFFSET
    }

    #[inline]
    fn write_request(&self, record: usize, request: &Request) {
        let _ = self.try_write_request(record, request);
    }

    #[inline]
    fn answer_kind(&self, record: usize) -> u32 {
        u32::from_le(self.try_answer_kind(record).unwrap_or(0))
    }

    fn answer_body(&self, record: usize) -> [u32; SMALL / 4] {
        self.try_answer_body(record).unwrap_or([0; SMALL / 4])
    }
}
