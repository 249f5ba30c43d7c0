// SPDX-License-Identifier: GPL-2.0

//! The control queue against a device that behaves, and one that does not.
