// SPDX-License-Identifier: GPL-2.0

//! Names of engines and their classes, the same wherever user space meets them.

use kernel::fmt;

use crate::hal::{
    Engine,
    EngineClass, //
};

/// Name of a class of engines: `compute`, `copy`.
pub(super) fn class_name(class: EngineClass) -> &'static str {
    match class {
        EngineClass::Compute => "compute",
        EngineClass::Copy => "copy",
    }
}

/// Name of an engine: `compute0`.
pub(super) struct EngineName<'a>(pub(super) &'a Engine);

impl fmt::Display for EngineName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", class_name(self.0.class), self.0.instance)
    }
}
