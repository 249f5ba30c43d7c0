// SPDX-License-Identifier: GPL-2.0
//! Streams for SUBMIT_3D of the board of tools/virtio-gpu, whose gpu/stream.rs has the language.

/// A stream of nothing, this many words long.
pub fn nop(words: usize) -> Vec<u32> {
    vec![0; words]
}

/// Takes some milliseconds.
pub fn delay(ms: u32) -> Vec<u32> {
    vec![1, ms]
}

/// Fails with a response, for example 0x1205.
pub fn fail(response: u32) -> Vec<u32> {
    vec![2, response]
}

/// Stores a word of a resource, which the context has to have.
pub fn write(resource: u32, offset: u32, value: u32) -> Vec<u32> {
    vec![3, resource, offset, value]
}
