// SPDX-License-Identifier: GPL-2.0
//! What benchmark programs say that people know. Their scenes keep the host's GPU busy, which
//! is a processor where it has none: they are reported and not judged.

use std::fs;
use std::path::Path;
use std::process::Child;
use std::process::Command;
use std::process::Stdio;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use anyhow::bail;
use anyhow::ensure;
use anyhow::Context;

use crate::row::Effort;
use crate::row::Figure;
use crate::row::Place;
use crate::row::Row;
use crate::row::SetUp;
use crate::virtgpu::Capset;
use crate::virtgpu::Gpu;

/// They take a while, and do not decide anything.
const RUNS: usize = 3;
/// Of the compositor, until there is a socket.
const START_LIMIT: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(20);
/// Of a program, in seconds.
const LIMIT: u32 = 300;
/// Where the compositor's socket is.
const RUN: &str = "/run";
const SOCKET: &str = "ochre-bench";

/// A program's score.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Score {
    /// OpenGL ES, as a client of a compositor without a screen.
    GlMark2,
    /// Vulkan, without a window.
    VkMark,
}

impl Score {
    fn program(self) -> &'static str {
        match self {
            Self::GlMark2 => "glmark2-es2-wayland",
            Self::VkMark => "vkmark",
        }
    }

    fn arguments(self) -> &'static [&'static str] {
        match self {
            Self::GlMark2 => &[
                "--size",
                "400x300",
                "--benchmark",
                "build:use-vbo=true:duration=2",
                "--benchmark",
                "texture:texture-filter=linear:duration=2",
                "--benchmark",
                "desktop:duration=2",
            ],
            Self::VkMark => &[
                "--winsys",
                "headless",
                "--size",
                "400x300",
                "--benchmark",
                "vertex:duration=2",
                "--benchmark",
                "texture:duration=2",
                "--benchmark",
                "clear:duration=2",
            ],
        }
    }

    /// What the program's output must name, so that not another GPU was measured.
    fn renderer(self) -> &'static str {
        match self {
            Self::GlMark2 => "virgl",
            Self::VkMark => "Virtio-GPU Venus",
        }
    }

    fn run(self) -> anyhow::Result<f64> {
        let limit = format!("{LIMIT}");
        let mut command = Command::new("timeout");
        command
            .arg(limit)
            .arg(self.program())
            .args(self.arguments());
        command
            .env("XDG_RUNTIME_DIR", RUN)
            .env("WAYLAND_DISPLAY", SOCKET);
        let output = command.output().context("timeout")?;
        let text = String::from_utf8_lossy(&output.stdout);
        let said = String::from_utf8_lossy(&output.stderr);
        let program = self.program();
        ensure!(
            output.status.success(),
            "{program}: {}: {}",
            output.status,
            text.lines().chain(said.lines()).last().unwrap_or_default()
        );
        ensure!(
            text.contains(self.renderer()),
            "{program} did not run on {}",
            self.renderer()
        );
        score(&text).with_context(|| format!("{program} gave no score"))
    }
}

impl Row for Score {
    fn figures(&self) -> Vec<Figure> {
        let name = match self {
            Self::GlMark2 => "glmark2 (build, texture, desktop)",
            Self::VkMark => "vkmark (vertex, texture, clear)",
        };
        vec![Figure::rate(name, "score").of_the_host()]
    }

    fn group(&self) -> &'static str {
        "scores"
    }

    fn runs(&self, runs: usize) -> usize {
        runs.min(RUNS)
    }

    fn set_up<'a>(&'a self, place: Place<'a>) -> anyhow::Result<SetUp<'a>> {
        let features = Gpu::open(place.node)?.features()?;
        match self {
            Self::GlMark2 if !features.has(Capset::Virgl) => {
                return Ok(SetUp::Missing("contexts of virgl"))
            }
            Self::VkMark if !features.has(Capset::Venus) => {
                return Ok(SetUp::Missing("contexts of Venus"))
            }
            _ => {}
        }
        let compositor = match self {
            Self::GlMark2 => Some(Compositor::start()?),
            Self::VkMark => None,
        };
        Ok(SetUp::Ready(Box::new(move |_: &Effort| {
            let _running = &compositor;
            Ok(vec![self.run()?])
        })))
    }
}

/// The score in what a program prints.
fn score(text: &str) -> Option<f64> {
    let line = text.lines().rev().find(|line| line.contains(" Score:"))?;
    line.split_whitespace().last()?.parse().ok()
}

/// weston without a screen, which draws with the GPU too.
struct Compositor(Child);

impl Compositor {
    fn start() -> anyhow::Result<Self> {
        let socket = Path::new(RUN).join(SOCKET);
        let _ = fs::remove_file(&socket);
        let child = Command::new("weston")
            .args(["--backend=headless", "--renderer=gl", "--idle-time=0"])
            .args(["--socket", SOCKET])
            .env("XDG_RUNTIME_DIR", RUN)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("weston")?;
        let mut compositor = Self(child);
        let end = Instant::now() + START_LIMIT;
        while !socket.exists() {
            if let Some(status) = compositor.0.try_wait()? {
                bail!("weston ended: {status}");
            }
            ensure!(Instant::now() < end, "weston did not start");
            thread::sleep(LOOK);
        }
        Ok(compositor)
    }
}

impl Drop for Compositor {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn score_is_found_in_the_output_of_both_programs() {
        let gl = "[build] use-vbo=true: FPS: 12 FrameTime: 83 ms\n\
                  =======\n                                  glmark2 Score: 42 \n=======\n";
        assert_eq!(score(gl), Some(42.0));
        let vk = "=======\n                                   vkmark Score: 7\n=======\n";
        assert_eq!(score(vk), Some(7.0));
        assert_eq!(score("Error: no device\n"), None);
    }
}
