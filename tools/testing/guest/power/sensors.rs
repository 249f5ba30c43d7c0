// SPDX-License-Identifier: GPL-2.0
//! What the driver shows of power is what the board says.

use std::path::Path;
use std::process::Command;

use anyhow::ensure;
use guest::child;
use guest::errno;
use guest::power::Files;
use guest::Board;
use guest::Errno;
use guest::Outcome;
use guest::PciDevice;

guest::tests! {
    sensors_say_what_the_board_says,
    each_sensor_has_its_label,
    the_command_sensors_shows_them,
    limits_are_those_of_the_firmware,
    power_limit_takes_what_the_firmware_allows,
    thermal_zone_and_cooling_device_are_there,
    what_is_written_needs_privileges,
}

/// Two values within one per cent.
fn agree(what: &str, shown: i64, board: i64) -> Outcome {
    let difference = (shown - board).abs();
    ensure!(
        difference * 100 <= board.abs().max(1),
        "{what}: the driver shows {shown}, the board says {board}"
    );
    Ok(())
}

fn sensors_say_what_the_board_says() -> Outcome {
    let hwmon = PciDevice::bound()?.hwmon()?;
    // An idle board stands still, so nothing changes between the readings.
    let board = Board.settles_at(0, 400_000)?;
    let [core, memory] = &board.domains;
    agree("die", hwmon.number("temp1_input")?, board.temp_mc.into())?;
    agree(
        "inlet",
        hwmon.number("temp2_input")?,
        board.ambient_mc.into(),
    )?;
    agree(
        "power",
        hwmon.number("power1_input")?,
        i64::from(board.power_mw) * 1000,
    )?;
    agree(
        "energy",
        hwmon.number("energy1_input")?,
        board.energy_uj.try_into()?,
    )?;
    agree(
        "core voltage",
        hwmon.number("in0_input")?,
        (core.voltage.now / 1000).into(),
    )?;
    agree(
        "memory voltage",
        hwmon.number("in1_input")?,
        (memory.voltage.now / 1000).into(),
    )?;
    agree(
        "core clock",
        hwmon.number("freq1_input")?,
        i64::from(core.clock.now) * 1000,
    )?;
    agree(
        "memory clock",
        hwmon.number("freq2_input")?,
        i64::from(memory.clock.now) * 1000,
    )
}

fn each_sensor_has_its_label() -> Outcome {
    let hwmon = PciDevice::bound()?.hwmon()?;
    assert_eq!(hwmon.get("name")?, "ochre");
    for (file, label) in [
        ("temp1_label", "die"),
        ("temp2_label", "inlet"),
        ("in0_label", "core"),
        ("in1_label", "memory"),
        ("power1_label", "board"),
        ("energy1_label", "board"),
        ("freq1_label", "core"),
        ("freq2_label", "memory"),
    ] {
        assert_eq!(hwmon.get(file)?, label, "{file}");
    }
    Ok(())
}

fn the_command_sensors_shows_them() -> Outcome {
    PciDevice::bound()?;
    let output = Command::new("sensors").arg("ochre-*").output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    for label in ["die:", "inlet:", "core:", "memory:", "board:"] {
        ensure!(text.contains(label), "no {label} in\n{text}");
    }
    Ok(())
}

fn limits_are_those_of_the_firmware() -> Outcome {
    let hwmon = PciDevice::bound()?.hwmon()?;
    assert_eq!(hwmon.number("temp1_max")?, 95_000);
    assert_eq!(hwmon.number("temp1_crit")?, 105_000);
    assert_eq!(hwmon.number("temp1_max_alarm")?, 0);
    assert_eq!(hwmon.number("temp1_crit_alarm")?, 0);
    assert_eq!(hwmon.number("power1_cap")?, 100_000_000);
    assert_eq!(hwmon.number("power1_cap_min")?, 30_000_000);
    assert_eq!(hwmon.number("power1_cap_max")?, 150_000_000);
    Ok(())
}

fn power_limit_takes_what_the_firmware_allows() -> Outcome {
    let hwmon = PciDevice::bound()?.hwmon()?;
    for (text, wanted) in [
        ("30000000", None),
        ("150000000", None),
        ("29999000", Some(Errno::EINVAL)),
        ("150001000", Some(Errno::EINVAL)),
        ("-1", Some(Errno::EINVAL)),
        ("much", Some(Errno::EINVAL)),
    ] {
        assert_eq!(errno(hwmon.set("power1_cap", text)), wanted, "{text}");
    }
    assert_eq!(hwmon.number("power1_cap")?, 150_000_000);
    Ok(hwmon.set("power1_cap", "100000000")?)
}

fn thermal_zone_and_cooling_device_are_there() -> Outcome {
    PciDevice::bound()?;
    let thermal = |kind: &str| -> anyhow::Result<Files> {
        for folder in Files::all(Path::new("/sys/class/thermal"), kind)? {
            if folder.get("type")? == "ochre" {
                return Ok(folder);
            }
        }
        anyhow::bail!("no {kind} of the name ochre")
    };
    let zone = thermal("thermal_zone")?;
    assert_eq!(zone.number("trip_point_0_temp")?, 95_000);
    assert_eq!(zone.get("trip_point_0_type")?, "passive");
    Board.settles_at(0, 400_000)?;
    agree("zone", zone.number("temp")?, Board.power()?.temp_mc.into())?;
    let cooling = thermal("cooling_device")?;
    assert_eq!(cooling.number("max_state")?, 4);
    assert_eq!(cooling.number("cur_state")?, 0);
    Ok(())
}

fn what_is_written_needs_privileges() -> Outcome {
    let pci = PciDevice::bound()?;
    child::as_nobody(move || {
        for file in ["clock_lock", "memory_clock_lock", "power_policy"] {
            let refused = errno(pci.files().set(file, "0 0"));
            ensure!(refused == Some(Errno::EACCES), "{file}: {refused:?}");
        }
        let refused = errno(pci.hwmon()?.set("power1_cap", "100000000"));
        ensure!(refused == Some(Errno::EACCES), "power1_cap: {refused:?}");
        Ok(())
    })
}
