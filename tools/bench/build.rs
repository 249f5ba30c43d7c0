// SPDX-License-Identifier: GPL-2.0
//! Makes Rust of the system's virtgpu_drm.h with the program `bindgen` (0.70 or later).

use std::env;
use std::path::PathBuf;
use std::process::exit;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=src/virtgpu/virtgpu.h");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let mut bindgen = Command::new("bindgen");
    bindgen
        .arg("src/virtgpu/virtgpu.h")
        .arg("--output")
        .arg(out.join("virtgpu_drm.rs"))
        .args([
            "--allowlist-item",
            "(drm_virtgpu|VIRTGPU|DRM_IOCTL_VIRTGPU)_.*|drm_gem_close|DRM_IOCTL_GEM_CLOSE",
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
