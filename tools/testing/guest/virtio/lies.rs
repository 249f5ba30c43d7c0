// SPDX-License-Identifier: GPL-2.0
//! A device that lies in the used ring, one test for each lie of the control port.
//!
//! It is named in the log and reset. Who waited is told, and so is whoever goes on with what was
//! lost; who begins anew finds a device that works. Nothing of that needs time: the driver sees a
//! lie when it reads it.

use std::time::Duration;
use std::time::Instant;

use guest::virtio::abi::*;
use guest::virtio::exec::ready;
use guest::virtio::stream;
use guest::virtio::Function;
use guest::virtio::Node;
use guest::Board;
use guest::Errno;
use guest::Messages;
use guest::Outcome;

guest::tests! {
    id_that_no_chain_has_is_found,
    id_of_a_chain_that_the_device_has_not_is_found,
    chain_that_is_used_twice_is_found,
    length_beyond_the_chains_is_found,
    index_that_jumps_ahead_is_found,
    index_that_goes_back_is_found,
    answer_too_short_for_a_header_fails_its_command_alone,
    answer_of_random_bytes_fails_its_command_alone,
    answer_that_was_not_written_shows_nothing_of_another_program,
}

/// Lets the device read a texture, and waits until it has.
fn transfer(node: &Node, handle: u32) -> Result<(), Errno> {
    node.call(&mut drm_virtgpu_3d_transfer_to_host {
        bo_handle: handle,
        part: drm_virtgpu_3d_box {
            w: 16,
            h: 16,
            d: 1,
            ..Default::default()
        },
        ..Default::default()
    })?;
    node.wait(handle, 0)
}

/// A file with a texture that works.
fn working() -> anyhow::Result<(Node, u32)> {
    let node = Node::open()?;
    let (handle, _) = node.texture(16, 16)?;
    transfer(&node, handle)?;
    Ok((node, handle))
}

/// Lets the device lie once, in the answer to a transfer, which has to fail before long.
fn lie_once(lie: &str, node: &Node, handle: u32) -> Outcome {
    let _undo = Board.until_dropped(&format!("lie {lie}"), "clear-faults")?;
    let begin = Instant::now();
    assert_eq!(transfer(node, handle), Err(Errno::EIO));
    // The watchdog, which finds a device that does not answer, would take more.
    assert!(begin.elapsed() < Duration::from_secs(5));
    Ok(())
}

/// A lie in place of an answer, of which the log says `words`.
fn is_found(lie: &str, words: &[&str]) -> Outcome {
    let (node, handle) = working()?;
    let mut messages = Messages::from_now()?;
    lie_once(lie, &node, handle)?;
    messages.expect(&[&["the device lies"], words].concat())?;
    is_over(&node, handle)
}

/// A lie that comes after the answer, which the driver may have taken before: it is found with the
/// next one at the latest.
fn is_found_soon(lie: &str, words: &[&str]) -> Outcome {
    let (node, handle) = working()?;
    let mut messages = Messages::from_now()?;
    let undo = Board.until_dropped(&format!("lie {lie}"), "clear-faults")?;
    let _ = transfer(&node, handle);
    drop(undo);
    assert_eq!(transfer(&node, handle), Err(Errno::EIO));
    messages.expect(&[&["the device lies"], words].concat())?;
    is_over(&node, handle)
}

/// What follows a reset.
fn is_over(node: &Node, handle: u32) -> Outcome {
    // What the device had of this file is lost.
    assert!(transfer(node, handle).is_err());
    working()?;
    Ok(())
}

/// A lie that costs one command and nothing else.
fn fails_its_command_alone(lie: &str) -> Outcome {
    let (node, handle) = working()?;
    lie_once(lie, &node, handle)?;
    transfer(&node, handle)?;
    Ok(())
}

fn id_that_no_chain_has_is_found() -> Outcome {
    is_found("bad-id", &["used id", "is no chain's"])
}

fn id_of_a_chain_that_the_device_has_not_is_found() -> Outcome {
    is_found("free-id", &["is not in flight"])
}

fn chain_that_is_used_twice_is_found() -> Outcome {
    // The second time is one more than the device has.
    is_found_soon("twice", &["used index went on by"])
}

fn length_beyond_the_chains_is_found() -> Outcome {
    is_found("long", &["bytes written to the"])
}

fn index_that_jumps_ahead_is_found() -> Outcome {
    is_found_soon("jump", &["used index went on by"])
}

fn index_that_goes_back_is_found() -> Outcome {
    is_found_soon("back", &["used index went on by"])
}

fn answer_too_short_for_a_header_fails_its_command_alone() -> Outcome {
    fails_its_command_alone("short")
}

fn answer_of_random_bytes_fails_its_command_alone() -> Outcome {
    fails_its_command_alone("garbage")
}

fn answer_that_was_not_written_shows_nothing_of_another_program() -> Outcome {
    /// Bytes of the capset.
    const BYTES: u32 = 160;
    // What was read before may be remembered.
    let function = Function::find()?;
    function.unbind()?;
    function.bind()?;
    let (node, other) = (Node::open()?, Node::open()?);
    // A stream in memory of the size that the answer takes afterwards.
    let (handle, resource) = other.texture(16, 16)?;
    let secret = stream::write(resource, 0, 0x5ec2_e75e).repeat(100);
    assert!(ready(other.submit_fenced(&secret, &[handle])?, 20_000)?);
    let _undo = Board.until_dropped("lie hollow", "clear-faults")?;
    let told = node.capset(4, 0, BYTES)?;
    drop((node, other));
    // The driver remembers the lie.
    function.unbind()?;
    function.bind()?;
    assert!(told.iter().all(|byte| *byte == 0), "{told:x?}");
    Ok(())
}
