// SPDX-License-Identifier: GPL-2.0
//! Makes Rust of the ABI's C header with the program `bindgen` (0.70 or later), so that there is
//! one definition of it.

use std::env;
use std::path::PathBuf;
use std::process::exit;
use std::process::Command;

const UAPI: &str = "../../include/uapi/drm";

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    for header in ["ochre_drm.h", "ochre_og1.h"] {
        println!("cargo::rerun-if-changed={UAPI}/{header}");
    }

    let mut bindgen = Command::new("bindgen");
    bindgen
        .arg(format!("{UAPI}/ochre_drm.h"))
        .arg("--output")
        .arg(out.join("ochre_drm.rs"))
        .args([
            "--allowlist-item",
            "(drm_ochre|DRM_OCHRE|DRM_IOCTL_OCHRE)_.*",
        ])
        .args(["--with-derive-default", "--no-prepend-enum-name"])
        // The request numbers are macros that only a compiler can evaluate.
        .args(["--clang-macro-fallback", "--clang-macro-fallback-build-dir"])
        .arg(&out)
        .args(["--", "-I/usr/include/drm", "-I/usr/include/libdrm"]);
    match bindgen.status() {
        Ok(status) if status.success() => {}
        Ok(status) => {
            eprintln!("bindgen: {status}");
            exit(1);
        }
        Err(error) => {
            eprintln!("bindgen cannot be started ({error}): install it (Debian: bindgen)");
            exit(1);
        }
    }
}
